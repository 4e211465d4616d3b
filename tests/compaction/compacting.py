"""Compaction of a partition folder with krepair's engine alone: scan, decide, stage, finish, verify."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from krepair.durable.attributes import read_attributes
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.engine.engine import Engine, InlineEngine
from krepair.engine.items import FinishItem, FinishResult, LogsItem, ScanItem, ScanResult
from krepair.formats import txn_index
from krepair.plan.model import KeepOriginal, RewriteSegments
from krepair.rewrite.compaction.check import CheckedSource
from krepair.rewrite.compaction.partitions import (
    Compaction,
    CompactionInput,
    PreparedPartition,
    compact_items,
    decide_compaction,
    prepare,
    stage_items,
)
from krepair.rewrite.compaction.proof import GroupToProve, PartitionToProve, prove
from krepair.rewrite.compaction.tasks import stage_compacted
from krepair.rewrite.segments.stage import finish
from krepair.rules.compaction import secret_of
from krepair.rules.grouping import index_bytes_at_most
from krepair.rules.model import GroupDecision, MarkerPolicy, SegmentFacts, Skipped
from krepair.scan.scan import scan
from tests.places import place_of


@dataclass(frozen=True)
class Compacted:
    """What became of a folder.

    Attributes:
        compaction: what was decided, or why it was left alone.
        prepared: what was known before.
        logs: base offset -> bytes of every ``.log`` of the partition afterwards.
    """

    compaction: Compaction | Skipped
    prepared: PreparedPartition
    logs: dict[int, bytes] = field(default_factory=dict)

    @property
    def done(self) -> Compaction:
        """The decisions of a partition that was not left alone."""
        assert isinstance(self.compaction, Compaction), self.compaction
        return self.compaction


def scanned(folder: Path, policy: MarkerPolicy, engine: Engine) -> tuple[SegmentFacts, ...]:
    """Every segment of the folder, scanned with checksums."""
    bases = sorted(int(path.stem) for path in folder.glob("*.log"))
    items = [
        ScanItem(
            place=place_of(folder),
            base_offset=base,
            size=(folder / f"{base:020d}.log").stat().st_size,
            now_ms=policy.now_ms,
            high_watermark=policy.high_watermark,
        )
        for base in bases
    ]
    facts: dict[int, SegmentFacts] = {}
    for index, result in engine.map(scan, items):
        assert isinstance(result, ScanResult), result
        view = txn_index.view(result.entries)
        columns = [
            view[name] for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset")
        ]
        base = items[index].base_offset
        mtime_ns = (folder / f"{base:020d}.log").stat().st_mtime_ns
        facts[base] = SegmentFacts(
            base,
            mtime_ns // 1_000_000,
            result.summary,
            np.column_stack(columns).astype(np.int64),
        )
    return tuple(facts[base] for base in bases)


def compacted(
    folder: Path, policy: MarkerPolicy, *, engine: Engine | None = None, scratch: str = "", stage: bool = True
) -> Compacted:
    """Decide on a folder and write the new segments beside it."""
    engine = engine or InlineEngine("test")
    segments = scanned(folder, policy, engine)
    secret = secret_of(facts.summary.headers for facts in segments)
    prepared = prepare(engine, [CompactionInput(place_of(folder), segments, policy, secret)], scratch)
    outcome = decide_compaction(engine, prepared)[0]
    if isinstance(outcome, Skipped) or not stage:
        return Compacted(outcome, prepared[0])
    target = folder / "krepair~test"
    target.mkdir()
    try:
        logs = {
            facts.base_offset: (folder / f"{facts.base_offset:020d}.log").read_bytes() for facts in segments
        }
        anew = CompactionInput(place_of(folder), segments, policy, secret)
        again = prepare(engine, [anew], scratch)[0]
        for group in outcome.decision.groups:
            if group.sources[0].base_offset not in outcome.changed:
                continue
            new = staged(folder, again, outcome, group, engine, target).read_bytes()
            for source in group.sources:
                del logs[source.base_offset]
            logs[group.sources[0].base_offset] = new
        return Compacted(outcome, prepared[0], dict(sorted(logs.items())))
    finally:
        shutil.rmtree(target)


def change_of(folder: Path, group: GroupDecision, policy: MarkerPolicy) -> RewriteSegments:
    """The change of one group, as a plan would have it."""
    sources = group.sources
    last = folder / f"{sources[-1].base_offset:020d}.log"
    return RewriteSegments(
        change_id=f"{folder.name}/{sources[0].base_offset:020d}",
        base_offset=sources[0].base_offset,
        sources=sources,
        log_bytes=group.kept_bytes,
        index_bytes_at_most=index_bytes_at_most(group.kept_bytes, policy.index_interval_bytes, 0),
        batches=sum(source.kept_batches for source in group.sources),
        mtime_ns=last.stat().st_mtime_ns,
        last_offset=group.last_offset,
        removes_snapshots=(),
        undo=KeepOriginal(),
    )


def staged(
    folder: Path,
    prepared: PreparedPartition,
    compaction: Compaction,
    group: GroupDecision,
    engine: Engine,
    target: Path,
) -> Path:
    """Stage and finish one group; gives its ``.log``."""
    change = change_of(folder, group, prepared.input.policy)
    tree = Tree(str(folder.parent), folder.parent.stat().st_ino)
    path = target / f"{change.base_offset:020d}.log"
    RealDisk(tree).reserve(str(path), change.log_bytes)
    readings = compact_items(prepared, compaction.sources)
    items = stage_items(readings, change.sources, compaction.sources, str(path))
    parts: list[tuple[int, int]] = [(0, 0)] * len(items)
    for index, result in engine.map(stage_compacted, items):
        assert (result.failure, result.why, result.problem) == ("", "", "")
        parts[index] = (change.sources[index].kept_bytes, result.written_crc)
    last = folder / f"{change.sources[-1].base_offset:020d}.log"
    item = FinishItem(
        place=place_of(folder),
        change=change,
        stage=str(target),
        attributes=read_attributes(str(last), tree),
        index_interval_bytes=prepared.input.policy.index_interval_bytes,
        parts=tuple(parts),
    )
    for _, finished in engine.map(finish, [item]):
        assert isinstance(finished, FinishResult), finished
    return path


def proven(
    folder: Path,
    found: Compacted,
    results: Path,
    *,
    engine: Engine | None = None,
    scratch: str = "",
    elsewhere: tuple[LogsItem, ...] = (),
) -> PartitionToProve:
    """Verify what was made of a folder, without the code that made it.

    Args:
        folder: with the sources.
        found: what was decided.
        results: folder with the new logs.
        engine: where tasks run.
        scratch: folder for what does not fit into memory.
        elsewhere: logs of other replicas.
    """
    done, bound = found.done, found.prepared.compaction_range
    assert bound is not None
    horizon = dict(
        zip(
            (facts.base_offset for facts in found.prepared.cleanable_segments),
            bound.drop_unstamped,
            strict=True,
        )
    )
    groups = tuple(
        GroupToProve(
            sources=tuple(
                CheckedSource(
                    base_offset=source.base_offset,
                    path=str(folder / f"{source.base_offset:020d}.log"),
                    size=(folder / f"{source.base_offset:020d}.log").stat().st_size,
                    horizon_passed=horizon[source.base_offset],
                )
                for source in group.sources
            ),
            result=str(results / f"{group.sources[0].base_offset:020d}.log"),
        )
        for group in done.decision.groups
    )
    segments = found.prepared.input.segments
    logs = LogsItem(
        place=place_of(folder),
        segments=tuple((facts.base_offset, facts.summary.valid_bytes) for facts in segments),
    )
    now_ms = found.prepared.input.policy.now_ms
    partition = PartitionToProve(place_of(folder), groups, logs, now_ms, elsewhere)
    partition.aborted = found.prepared.aborted.tobytes()
    prove(engine or InlineEngine("test"), [partition], scratch)
    return partition


def written(logs: dict[int, bytes], source: Path, target: Path) -> Path:
    """A folder with these logs, and the snapshots and leader epochs of its source; indexes are to be recovered."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.suffix == ".snapshot" or path.name == "leader-epoch-checkpoint":
            shutil.copy(path, target)
    times = {int(path.stem): path.stat().st_mtime_ns for path in source.glob("*.log")}
    bases = sorted(logs)
    for base, after in zip(bases, [*bases[1:], 2**63], strict=True):
        path = target / f"{base:020d}.log"
        path.write_bytes(logs[base])
        newest = max(number for number in times if base <= number < after)
        os.utime(path, ns=(times[newest], times[newest]))
    return target


def sequence(logs: dict[int, bytes], below: int) -> Sequence[bytes]:
    """The logs below an offset, in order."""
    return [log for base, log in sorted(logs.items()) if base < below]
