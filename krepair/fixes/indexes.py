"""The index files of a log directory: looked at on the engine, turned into findings, and into changes of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from krepair.checks.catalogue import Finding
from krepair.checks.retention import Deletions, SegmentClock, deletions
from krepair.fixes.survey import NEVER_TOUCHED, Scanned, Surveyed, place_of, scan_item
from krepair.logdir.config import TopicSettings
from krepair.logdir.values import FileRef, LogDir, Partition, Segment
from krepair.options import Options
from krepair.pipeline.engine import Engine
from krepair.pipeline.indexes import Depth, InspectItem
from krepair.pipeline.jobs import INSPECT, INSPECT_TXN, LOOK
from krepair.pipeline.look import LookItem
from krepair.pipeline.progress import Progress
from krepair.pipeline.txn_indexes import TxnItem
from krepair.plan.build import version_of
from krepair.plan.model import KeepOriginal, ReplaceFile
from krepair.rules.model import LeftAlone

INDEX_FIX = "index"
TXN_CODES = frozenset({"txnindex-disagrees", "txnindex-damage"})


def depth_of(fixes: Sequence[str]) -> Depth | None:
    """How far the chosen fixes look at indexes; None if they do not."""
    chosen = [fix for fix in fixes if fix.partition("=")[0] == INDEX_FIX]
    if not chosen:
        return None
    way = chosen[0].partition("=")[2]
    return "truncate" if way == "truncate" else "regenerate" if way == "regenerate" else "auto"


def why_untouched(partition: Partition, settings: TopicSettings) -> str:
    """Why the index files of a partition are left as they are, or empty."""
    if partition.unreadable:
        return partition.unreadable
    if partition.topic == NEVER_TOUCHED:
        return f"{NEVER_TOUCHED} is the KRaft metadata log"
    if settings.remote_storage_enable:
        return "the topic is tiered (remote.storage.enable)"
    for leftover in partition.leftovers:
        if leftover.kind in {"swap", "cleaned"}:
            return f"{leftover.file.name} waits to be finished by a broker"
    return ""


def look_at_indexes(
    log_dir: LogDir,
    surveyed: Sequence[Surveyed],
    depth: Depth,
    engine: Engine,
    progress: Progress,
    *,
    include_active: bool = False,
) -> None:
    """Look at the offset and time indexes of partitions in one job; the results are put into ``surveyed``.

    Padded indexes of the active segment are normal and stay, unless ``include_active``.
    """
    work = [
        (each, segment)
        for each in surveyed
        if not each.partition.unreadable
        for segment in each.partition.segments
    ]
    items = [
        _inspect_item(log_dir, each, segment, depth, include_active=include_active) for each, segment in work
    ]
    progress.start("indexes", sum(item.log_bytes for item in items))
    for index, result in engine.run(INSPECT, items):
        each, segment = work[index]
        progress.advance(segment.log.size)
        each.indexes[segment.base_offset] = result
    progress.finish()


def _inspect_item(
    log_dir: LogDir, each: Surveyed, segment: Segment, depth: Depth, *, include_active: bool = False
) -> InspectItem:
    return InspectItem(
        place=place_of(log_dir, each.partition),
        base_offset=segment.base_offset,
        log_bytes=segment.log.size,
        interval_bytes=each.settings.index_interval_bytes,
        active=segment is each.partition.segments[-1] and not include_active,
        depth=depth,
        clean=log_dir.clean_shutdown,
    )


def scan_and_look(
    log_dir: LogDir, surveyed: Sequence[Surveyed], options: Options, engine: Engine, progress: Progress
) -> None:
    """Scan every segment and look at its indexes in one go, so that a log larger than memory is read once."""
    readable = [each for each in surveyed if not each.partition.unreadable]
    work = [(each, segment) for each in readable for segment in each.partition.segments]
    items = [
        LookItem(
            scan=scan_item(log_dir, each, segment, options),
            inspect=_inspect_item(log_dir, each, segment, "check"),
        )
        for each, segment in work
    ]
    progress.start("scan", sum(segment.log.size for _, segment in work))
    scanned = Scanned()
    for index, result in engine.run(LOOK, items):
        each, segment = work[index]
        progress.advance(segment.log.size)
        scanned.take(each, segment, result.scan)
        each.indexes[segment.base_offset] = result.inspect
    progress.finish()
    scanned.put_into(readable)


def look_at_txn_indexes(
    log_dir: LogDir, surveyed: Sequence[Surveyed], depth: Depth, engine: Engine, progress: Progress
) -> None:
    """Hold transaction indexes against a replay of their logs, where that may tell something; into ``surveyed``.

    Only a reading of the whole partition can tell. So ``auto`` does it where the markers' own reading found them in
    contradiction, and in compacted partitions with entries; ``check`` where there are producers or entries;
    ``regenerate`` everywhere.
    """
    chosen = [each for each in surveyed if each.partition.segments and _replay_pays(each, depth)]
    items = [
        TxnItem(
            place=place_of(log_dir, each.partition),
            segments=tuple((segment.base_offset, segment.log.size) for segment in each.partition.segments),
            present=tuple(segment.base_offset for segment in each.partition.segments if segment.txn_index),
        )
        for each in chosen
    ]
    if not items:
        return
    sizes = [sum(size for _, size in item.segments) for item in items]
    progress.start("transactions", sum(sizes))
    for index, result in engine.run(INSPECT_TXN, items):
        progress.advance(sizes[index])
        chosen[index].txn = result
    progress.finish()


def _replay_pays(each: Surveyed, depth: Depth) -> bool:
    if each.partition.unreadable or depth == "truncate":
        return False
    entries = any(segment.txn_index and segment.txn_index.size for segment in each.partition.segments)
    if depth == "auto":
        disagrees = isinstance(each.outcome, LeftAlone) and each.outcome.code in TXN_CODES
        return disagrees or (entries and each.settings.compacts)
    if depth == "regenerate":
        return True
    return entries or any(len(facts.summary.rows) for facts in each.segments)


def index_findings(each: Surveyed) -> Iterator[Finding]:
    """What is wrong with the index files of one partition."""
    time_indexes = {segment.base_offset: segment.time_index for segment in each.partition.segments}
    for base_offset, found in sorted(each.indexes.items()):
        if found.failure:
            yield Finding(rule="KR308", partition=each.partition.folder, evidence=found.why)
        for suffix, rule, position, text in found.problems:
            yield Finding(
                rule=rule,
                partition=each.partition.folder,
                file=f"{base_offset:020d}{suffix}",
                position=position,
                evidence=text,
                bytes=_zeros(time_indexes[base_offset], position) if rule == "KR201" else 0,
            )
    if each.txn.failure:
        yield Finding(rule="KR308", partition=each.partition.folder, evidence=each.txn.why)
    for problem in each.txn.problems:
        yield Finding(
            rule="KR204",
            partition=each.partition.folder,
            file=f"{problem.base_offset:020d}.txnindex",
            position=problem.position,
            evidence=f"{problem.text}; read_committed consumers see aborted records, or miss committed ones",
        )
    for orphan in each.partition.orphan_indexes:
        yield Finding(
            rule="KR205",
            partition=each.partition.folder,
            file=orphan.name,
            evidence=f"{orphan.size} bytes without a .log of that base offset; the next start deletes it",
            bytes=orphan.size,
        )


def _zeros(file: FileRef | None, position: int) -> int:
    """Bytes of zeros behind the entries of a time index; 0 where they do not begin at one place."""
    return file.size - position if file is not None and position >= 0 else 0


def index_changes(each: Surveyed, rewritten: set[int]) -> tuple[tuple[ReplaceFile, ...], tuple[str, ...]]:
    """The files of one partition to replace, and notes on what is left.

    Args:
        each: looked at.
        rewritten: base offsets of segments that get fresh indexes anyway.
    """
    folder = each.partition.folder
    changes: list[ReplaceFile] = []
    notes: list[str] = []
    for base_offset, found in sorted(each.indexes.items()):
        if base_offset in rewritten:
            continue
        if found.failure or found.unmended:
            notes.append(f"index left as it is: {found.why or found.unmended}")
        if found.padded and not found.mends and each.partition.segments[-1].base_offset == base_offset:
            notes.append(
                f"{base_offset:020d} is the active segment (the last one): "
                "its preallocated indexes are normal and are left"
            )
        for mend in found.mends:
            name = f"{base_offset:020d}{mend.suffix}"
            changes.append(
                ReplaceFile(
                    change_id=f"{folder}/{name}",
                    name=name,
                    method=mend.method,
                    rule=mend.rule,
                    size_before=mend.size_before,
                    size_after=mend.size_after,
                    digest_after=mend.digest_after,
                    reason=mend.reason,
                    undo=KeepOriginal(),
                )
            )
    if each.txn.failure:
        notes.append(f"transaction indexes left as they are: {each.txn.why}")
    for problem in each.txn.problems:
        if problem.base_offset not in rewritten:
            name = f"{problem.base_offset:020d}.txnindex"
            changes.append(
                ReplaceFile(
                    change_id=f"{folder}/{name}",
                    name=name,
                    method="regenerate",
                    rule="KR204",
                    size_before=problem.size_before,
                    size_after=problem.size_after,
                    digest_after=problem.digest_after,
                    reason=problem.text,
                    undo=KeepOriginal(),
                )
            )
    return tuple(sorted(changes, key=lambda change: change.name)), tuple(notes)


def deletions_of(view: LogDir, each: Surveyed, options: Options) -> Deletions:
    """What retention by time deletes of one partition at the next start, and what it should."""
    settings, partition = each.settings, each.partition
    if "delete" not in settings.cleanup_policy or why_untouched(partition, settings):
        return Deletions((), ())
    point = view.recovery_point.offsets.get((partition.topic, partition.number), 0)
    clocks = []
    for segment, end in partition.segments_with_ends():
        found = each.indexes.get(segment.base_offset)
        if found is None or found.failure:
            return Deletions((), ())
        clocks.append(
            SegmentClock(
                base_offset=segment.base_offset,
                log_bytes=segment.log.size,
                mtime_ms=segment.log.mtime_ns // 1_000_000,
                has_index=found.has_index,
                first_timestamp=found.first_timestamp,
                last_timestamp=found.last_timestamp,
                torn=found.torn,
                recovered=not view.clean_shutdown and end > point,
                largest=found.largest,
            )
        )
    version = version_of(options.broker_version)
    return deletions(clocks, retention_ms=settings.retention_ms, now_ms=options.now_ms, version=version)


def deletion_findings(each: Surveyed, going: Deletions, options: Options) -> Iterator[Finding]:
    """Segments that retention would delete before their time (KR802)."""
    who = f"broker {options.broker_version}" if options.broker_version else "a broker of 2.3 or later"
    refs = {segment.base_offset: segment for segment in each.partition.segments}
    for base_offset in going.too_early:
        found = each.indexes[base_offset]
        read = (
            found.last_timestamp if found.last_timestamp >= 0 else refs[base_offset].log.mtime_ns // 1_000_000
        )
        size = refs[base_offset].log.size
        yield Finding(
            rule="KR802",
            partition=each.partition.folder,
            file=f"{base_offset:020d}.log",
            evidence=(
                f"{who} reads {read} ms as its largest timestamp, the log has {found.largest}; "
                f"retention.ms={each.settings.retention_ms} deletes it at the next start"
            ),
            bytes=size,
        )
