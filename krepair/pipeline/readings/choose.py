"""Which second readings a change of a plan gets, and their items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from krepair.durable.tree import Tree
from krepair.formats.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    FileKind,
    parse_file_name,
    private_folder,
    segment_file,
)
from krepair.logdir.reading import read_whole
from krepair.logdir.values import LogDir, Partition
from krepair.pipeline.engine import Engine
from krepair.pipeline.items import Place
from krepair.pipeline.jobs import (
    READ_LOG_END,
    VERIFY_ABORTED,
    VERIFY_EPOCHS,
    VERIFY_GONE,
    VERIFY_MENDED_LOG,
    VERIFY_SNAPSHOT,
    Task,
)
from krepair.pipeline.readings.aborted import AbortedItem
from krepair.pipeline.readings.checkpoints import LogEndItem, changed_keys, checkpoint_problems
from krepair.pipeline.readings.epochs import EpochsItem
from krepair.pipeline.readings.logs import CUT, GoneItem, MendedLogItem
from krepair.pipeline.readings.partition import LogFile, Reading, read_kept
from krepair.pipeline.readings.snapshots import SnapshotItem
from krepair.plan.build import version_of
from krepair.plan.figures import setting
from krepair.plan.model import Change, MendLog, PartitionPlan, Plan, ReplaceFile, SetAside
from krepair.rules.epochs import writes_epoch_zero
from krepair.rules.snapshots import expiry_of

OFFSETS_AT_MOST_BYTES = 64 << 20
Work = tuple[Task[Any, Reading], Any]


class Ground(NamedTuple):
    """A partition whose changes are read.

    Attributes:
        plan: the whole plan.
        part: what it says of the partition.
        place: of the partition.
        base_offsets: of the segments that are there now, ascending.
        log_start: what ``log-start-offset-checkpoint`` says of the partition, -1 if nothing.
        tree: below which all is.
    """

    plan: Plan
    part: PartitionPlan
    place: Place
    base_offsets: tuple[int, ...]
    log_start: int
    tree: Tree

    @property
    def keep(self) -> str:
        """Absolute path of the folder with the kept originals, empty if there is none."""
        path = f"{self.place.path}/{private_folder(self.plan.plan_id)}/keep"
        return path if self.tree.is_folder(path) else ""

    def kept(self, name: str) -> str:
        """Absolute path under which an original is kept, or was until it was purged; empty if there was none."""
        if all(file.name != name for file in self.part.files):
            return ""
        return f"{self.place.path}/{private_folder(self.plan.plan_id)}/keep/{name}"

    def logs_now(self) -> tuple[LogFile, ...]:
        """The logs as they are."""
        return tuple(
            LogFile(base_offset=base, path=f"{self.place.path}/{segment_file(base, FileKind.LOG)}")
            for base in self.base_offsets
        )

    def logs_then(self) -> tuple[tuple[LogFile, ...], bool]:
        """The logs as they were when the plan was made, from what is kept; whether all of them are still to be had.

        Other changes of the plan may have cut, mended, merged or taken away some.

        Raises:
            OSError: a file cannot be looked at.
        """
        logs, whole, keep = [], True, self.keep
        for file in self.part.files:
            name = parse_file_name(file.name)
            if name.kind is not FileKind.LOG or name.state or name.base_offset is None:
                continue
            kept, cut = f"{keep}/{file.name}", f"{keep}/{file.name}{CUT}"
            is_kept = bool(keep) and self.tree.is_there(kept)
            log = LogFile(
                base_offset=name.base_offset,
                path=kept if is_kept else f"{self.place.path}/{file.name}",
                cut=cut if keep and not is_kept and self.tree.is_there(cut) else "",
            )
            sizes = [self.tree.status(path) for path in (log.path, log.cut) if path]
            whole = whole and sum(one.st_size if one else -1 for one in sizes) == file.size
            logs.append(log)
        ordered = tuple(sorted(logs, key=lambda log: log.base_offset))
        return (ordered, True) if whole else (self.logs_now(), False)

    def setting(self, key: str, *, of_topic: bool = True) -> str:
        """A setting as the plan has it."""
        return setting(self.plan.policy, self.part.topic if of_topic else "", key)


def second_readings(ground: Ground, change: Change) -> Iterator[Work]:
    """Tasks and items that read what a committed change made.

    New segments, replaced offset and time indexes and completed swaps have none here: ``FINISH`` without ``make``,
    ``VERIFY_MENDED`` and ``VERIFY_SWAP`` are second readings already.

    Raises:
        OSError: the private sub-folder cannot be looked at.
    """
    if isinstance(change, MendLog):
        yield from _of_log(ground, change)
    elif isinstance(change, SetAside):
        yield _gone(ground, change.names)
    elif isinstance(change, ReplaceFile):
        yield from _of_file(ground, change)


def _gone(ground: Ground, names: tuple[str, ...]) -> Work:
    files = {file.name: file for file in ground.part.files}
    rows = tuple((name, files[name].size, files[name].mtime_ns) for name in names)
    return VERIFY_GONE, GoneItem(place=ground.place, files=rows, keep=ground.keep)


def _of_log(ground: Ground, change: MendLog) -> Iterator[Work]:
    later = [base for base in ground.base_offsets if base > change.base_offset]
    yield (
        VERIFY_MENDED_LOG,
        MendedLogItem(
            place=ground.place,
            change=change,
            interval_bytes=int(ground.setting("index.interval.bytes")),
            keep=ground.keep,
            next_base=later[0] if later else -1,
        ),
    )
    for new in change.companions:
        if new.name.endswith(".txnindex"):
            yield _aborted(ground, new.name, ground.logs_now())


def _of_file(ground: Ground, change: ReplaceFile) -> Iterator[Work]:
    name = parse_file_name(change.name)
    if change.method == "remove":
        yield _gone(ground, (change.name,))
    elif change.name == LEADER_EPOCH_CHECKPOINT:
        yield _epochs(ground, change)
    elif name.kind is FileKind.SNAPSHOT:
        yield _snapshot(ground, change)
    elif name.kind is FileKind.TXN_INDEX:
        yield _aborted(ground, change.name, ground.logs_then()[0])


def _aborted(ground: Ground, name: str, logs: tuple[LogFile, ...]) -> Work:
    item = AbortedItem(
        place=ground.place,
        base_offset=int(name.partition(".")[0]),
        path=f"{ground.place.path}/{name}",
        original=ground.kept(name),
        logs=logs,
    )
    return VERIFY_ABORTED, item


def _epochs(ground: Ground, change: ReplaceFile) -> Work:
    policies = {word.strip() for word in ground.setting("cleanup.policy").split(",")}
    logs, whole = ground.logs_then()
    item = EpochsItem(
        place=ground.place,
        change=change,
        path=f"{ground.place.path}/{change.name}",
        original=ground.kept(change.name),
        logs=logs,
        logs_are_whole=whole,
        log_start=ground.log_start,
        compacts="compact" in policies,
        zero_counts=writes_epoch_zero(version_of(ground.plan.policy.broker_version)),
    )
    return VERIFY_EPOCHS, item


def _snapshot(ground: Ground, change: ReplaceFile) -> Work:
    version = version_of(ground.plan.policy.broker_version)
    earlier = []
    for file in ground.part.files:
        name = parse_file_name(file.name)
        if name.kind is FileKind.SNAPSHOT and not name.state and name.base_offset is not None:
            here = f"{ground.place.path}/{file.name}"
            taken = file.name == change.name or not ground.tree.is_there(here)
            earlier.append((name.base_offset, ground.kept(file.name) if taken else here))
    logs, whole = ground.logs_then()
    item = SnapshotItem(
        place=ground.place,
        change=change,
        path=f"{ground.place.path}/{change.name}",
        earlier=tuple(earlier),
        logs=logs,
        logs_are_whole=whole,
        log_start=ground.log_start,
        version=version or (),
        now_ms=ground.plan.policy.now_ms,
        expiry_ms=expiry_of(
            version,
            int(ground.setting("producer.id.expiration.ms", of_topic=False)),
            int(ground.setting("transactional.id.expiration.ms", of_topic=False)),
        ),
    )
    return VERIFY_SNAPSHOT, item


# -- the root


def read_checkpoint_again(name: str, kept: str, view: LogDir, engine: Engine, tree: Tree) -> list[str]:
    """What a second reading has against a root checkpoint that was mended.

    Only the last segments of partitions whose lines changed are read, where the engine runs.

    Args:
        name: of the file.
        kept: absolute path of its kept original. Without one there is nothing to hold it against.
        view: the log directory.
        engine: where logs are read.
        tree: below which all is.

    Raises:
        OSError: one of the two files cannot be read.
    """
    old = read_kept(kept, OFFSETS_AT_MOST_BYTES, tree)
    if old is None:
        return []
    new = read_whole(f"{view.path}/{name}", OFFSETS_AT_MOST_BYTES, tree)
    changed = changed_keys(old, new)
    ends = {(partition.topic, partition.number): -1 for partition in (*view.partitions, *view.marked)}
    to_read = [
        partition
        for partition in view.partitions
        if (partition.topic, partition.number) in changed and _has_an_end(partition)
    ]
    items = [LogEndItem(place=_place(view, partition), log=_last_log(partition)) for partition in to_read]
    for index, result in engine.run(READ_LOG_END, items):
        ends[to_read[index].topic, to_read[index].number] = result.offset
    return checkpoint_problems(name, old, new, ends)


def _has_an_end(partition: Partition) -> bool:
    """Whether the last segment that is there is the one that a broker would append to."""
    pending = any(leftover.kind in {"swap", "cleaned"} for leftover in partition.leftovers)
    odd = any(special.name.endswith(".log") for special in partition.specials)
    return bool(partition.segments) and not (partition.unreadable or pending or odd)


def _place(view: LogDir, partition: Partition) -> Place:
    return Place(host=view.host, log_dir=view.path, log_dir_inode=view.inode, folder=partition.folder)


def _last_log(partition: Partition) -> LogFile:
    segment = partition.segments[-1]
    return LogFile(base_offset=segment.base_offset, path=segment.log.path)
