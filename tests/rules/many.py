"""Many random histories as the partitions of one log directory; plan and apply over all at once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.options import EngineName, Options
from krepair.plan.model import PartitionPlan, Plan, RewriteSegments
from tests import naive
from tests.builders import NOW_MS, LogDir
from tests.commit.scene import UnsyncedDisk
from tests.strategies import Shape, history

UNLIMITED = 2**60
DAY_MS = 86_400_000
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": 100_000,
    "index.interval.bytes": 200,
    "segment.index.bytes": 4096,
    "delete.retention.ms": 1000,
}


@dataclass(frozen=True)
class Clock:
    """When krepair looks, and how long it remembers producers."""

    now_ms: int = NOW_MS
    expiration_ms: int = 7 * DAY_MS

    def rules(self) -> naive.Rules:
        """As the slow twin takes them."""
        return naive.Rules(
            now_ms=self.now_ms,
            horizon_ms=UNLIMITED,
            segment_bytes=int(SETTINGS["segment.bytes"]),
            segment_index_bytes=int(SETTINGS["segment.index.bytes"]),
            index_interval_bytes=int(SETTINGS["index.interval.bytes"]),
            expiration_ms=self.expiration_ms,
        )

    def options(self) -> Options:
        """As krepair takes them."""
        expiry = {
            "producer.id.expiration.ms": self.expiration_ms,
            "transactional.id.expiration.ms": self.expiration_ms,
        }
        return Options(
            settings=tuple((key, str(value)) for key, value in (SETTINGS | expiry).items()),
            now_ms=self.now_ms,
            delete_horizon=str(UNLIMITED),
            engine=EngineName.INLINE,
        )


def write_histories(root: Path, seeds: Iterable[int], shape_of: Callable[[int], Shape]) -> list[Path]:
    """One partition ``t-<seed>`` per seed; returns their folders."""
    directory = LogDir(root)
    for seed in seeds:
        partition = directory.partition("t", seed, index_interval_bytes=int(SETTINGS["index.interval.bytes"]))
        history(seed, shape_of(seed)).fill(partition)
    directory.write()
    return [partition.folder for partition in directory.partitions]


def copied(root: Path, target: Path) -> Path:
    """A copy with the times."""
    return Path(shutil.copytree(root, target))


def repaired(root: Path, clock: Clock) -> Plan:
    """Plan and apply; every partition must be decided and every change done."""
    plan = make_plan(str(root), clock.options())
    alone = {each.folder: each.why for each in plan.partitions if each.status == "left alone"}
    assert alone == {}
    report = apply(plan, clock.options(), disk=UnsyncedDisk())
    assert report.exit_code == ExitCode.DONE, [each.why for each in report.results if each.why]
    return plan


def twin_of(folder: Path, clock: Clock) -> naive.Outcome:
    """What the slow twin makes of a folder."""
    segments, snapshots = naive.read_partition(folder)
    return naive.compact(segments, clock.rules(), snapshots)


def files_of(folder: Path, suffix: str) -> dict[int, bytes]:
    """Base offset -> bytes of the files with that suffix, empty ones left out."""
    found = {int(path.stem): path.read_bytes() for path in folder.glob(f"*{suffix}")}
    return {base: data for base, data in found.items() if data or suffix == ".log"}


def changed(twin: naive.Outcome, group: naive.Group) -> bool:
    """Whether a group is written anew."""
    decisions = [decision for decision in twin.decisions if decision.segment in group.sources]
    return len(group.sources) > 1 or any(decision.verdict != naive.KEEP for decision in decisions)


def expected_files(twin: naive.Outcome, source: Path) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """(``.log`` files, ``.txnindex`` files) that the twin leaves, base offset -> bytes.

    A segment that nothing changes keeps its ``.txnindex`` as it is, with entries that a rewrite would not carry.
    """
    as_it_was = files_of(source, ".txnindex")
    aborted = {group.base_offset: group.txnindex for group in twin.groups if changed(twin, group)}
    aborted = as_it_was | aborted
    gone = {base for group in twin.groups for base in group.sources[1:]}
    return twin.logs, {base: data for base, data in aborted.items() if data and base not in gone}


def orphans(before: Path, after: Path) -> list[str]:
    """Markers that are gone although a data batch of their transaction is left."""
    left = {b.base_offset for s in naive.read_partition(after)[0] for b in naive.parse(s.log)}
    held: dict[int, int] = {}
    lost = []
    for segment in naive.read_partition(before)[0]:
        for batch in naive.parse(segment.log):
            if batch.ends_transaction:
                first = held.pop(batch.producer_id, None)
                if first is not None and batch.base_offset not in left:
                    lost.append(f"marker {batch.base_offset} of producer {batch.producer_id}, data {first}")
            elif batch.transactional and not batch.control and batch.base_offset in left:
                held.setdefault(batch.producer_id, batch.base_offset)
    return lost


def last_batches(plan: PartitionPlan) -> set[tuple[int, int]]:
    """(base offset of the source segment, position) of batches kept only as the last of their group."""
    changes = [change for change in plan.changes if isinstance(change, RewriteSegments)]
    sources = [source for change in changes for source in change.sources]
    return {(s.base_offset, s.last_position) for s in sources if s.last_position >= 0}
