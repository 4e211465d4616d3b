"""Second readings of what small changes made, by tasks that share no code with what made it (``pipeline.readings``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from krepair.durable.tree import Tree
from krepair.errors import KrepairError
from krepair.fixes.staging import Staging, Work
from krepair.formats.broker_version import version_of
from krepair.formats.cleanup_policy import policies_of
from krepair.formats.filenames import (
    FileKind,
    log_name,
    parse_file_name,
    private_folder,
)
from krepair.kernels.scan import INT64_MAX
from krepair.logdir.reading import read_whole
from krepair.logdir.values import LogDir, Partition
from krepair.pipeline.engines.engine import Engine
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
from krepair.plan.effects import log_effect
from krepair.plan.figures import setting
from krepair.plan.model import Change, MendLog, PartitionPlan, Plan, ReplaceFile
from krepair.rules.epochs import writes_epoch_zero
from krepair.rules.snapshots import expiry_of

if TYPE_CHECKING:
    from krepair.pipeline.readings.partition import LogFile, Reading

OFFSETS_AT_MOST_BYTES = 64 << 20
Job = tuple[Task[Any, "Reading"], Any]


class Applied(NamedTuple):
    """A partition whose applied changes are read.

    Attributes:
        plan: the whole plan.
        part: what it says of the partition.
        place: of the partition.
        segments: (base offset, bytes of the ``.log``) of what is there now, ascending.
        log_start: what ``log-start-offset-checkpoint`` says of the partition, -1 if nothing.
        tree: below which all is.
        freed: names of the files whose originals apply has freed.
    """

    plan: Plan
    part: PartitionPlan
    place: Place
    segments: tuple[tuple[int, int], ...]
    log_start: int
    tree: Tree
    freed: frozenset[str] = frozenset()

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
        from krepair.pipeline.readings.partition import LogFile

        return tuple(
            LogFile(base_offset=base, path=f"{self.place.path}/{log_name(base)}", bytes=size)
            for base, size in self.segments
        )

    def logs_before_compaction(self) -> tuple[tuple[LogFile, ...], bool]:
        """The logs as they would be without the plan's compaction; whether all of them are still to be had.

        Epochs and producers are worked out from the logs after damage is gone, and before segments are written anew.

        Raises:
            OSError: a file cannot be looked at.
        """
        from krepair.pipeline.readings.partition import LogFile

        effects = [log_effect(change) for change in self.part.changes]
        gone = {base for effect in effects for base in effect.segments}
        mended = {base: change for effect in effects for base, change in effect.ranges.items()}
        logs, whole = [], True
        for file in self.part.files:
            name = parse_file_name(file.name)
            if name.kind is not FileKind.LOG or name.state or name.base_offset is None:
                continue
            base = name.base_offset
            if base in gone:
                continue
            kept = f"{self.keep}/{file.name}"
            is_kept = base not in mended and bool(self.keep) and self.tree.is_there(kept)
            path = kept if is_kept else f"{self.place.path}/{file.name}"
            expected = file.size
            if base in mended:
                expected = file.size - sum(end - start for start, end in mended[base][1])
            found = self.tree.status(path)
            whole = whole and found is not None and found.st_size == expected
            logs.append(LogFile(base_offset=base, path=path, bytes=expected))
        ordered = tuple(sorted(logs, key=lambda log: log.base_offset))
        return (ordered, True) if whole else (self.logs_now(), False)

    def setting(self, key: str, *, of_topic: bool = True) -> str:
        """A setting as the plan has it."""
        return setting(self.plan.policy, self.part.topic if of_topic else "", key)


def read_again(
    work: Work, stagings: Sequence[Staging], jobs_of: Callable[[Applied, Change], Iterable[Job]]
) -> None:
    """Run the second readings of changes; what they have against them is put into ``work``.

    Args:
        work: what verifies.
        stagings: whose changes are read.
        jobs_of: the tasks and items of one change.
    """
    jobs: dict[str, list[tuple[Staging, Change, Job]]] = {}
    for staging in stagings:
        try:
            applied = _applied(work, staging)
            for change in staging.changes:
                for job in jobs_of(applied, change):
                    jobs.setdefault(job[0].name, []).append((staging, change, job))
        except (KrepairError, OSError) as error:
            work.found_all(staging, error)
    for some in jobs.values():
        task = some[0][2][0]
        for index, result in work.engine.run(task, [item for _, _, (_, item) in some]):
            staging, change, _ = some[index]
            work.segments += 1
            for text in result.problems:
                work.found(staging, change, text)


def _applied(work: Work, staging: Staging) -> Applied:
    partition = staging.listed
    return Applied(
        plan=work.plan,
        part=staging.plan,
        place=work.place(staging),
        segments=tuple((segment.base_offset, segment.log.size) for segment in partition.segments),
        log_start=work.view.log_start.offsets.get((partition.topic, partition.number), -1),
        tree=work.disk.tree,
        freed=frozenset(staging.freed),
    )


def gone_job(applied: Applied, names: tuple[str, ...]) -> Job:
    """Files that are gone, and kept as they were, unless apply has freed them."""
    from krepair.pipeline.readings.logs import GoneItem

    files = {file.name: file for file in applied.part.files}
    rows = tuple((name, files[name].size, files[name].mtime_ns) for name in names)
    keep = "" if applied.freed.intersection(names) else applied.keep
    return VERIFY_GONE, GoneItem(place=applied.place, files=rows, keep=keep)


def mended_log_jobs(applied: Applied, change: MendLog) -> Iterator[Job]:
    """A log without its damage, and the ``.txnindex`` that changed with it."""
    from krepair.pipeline.readings.logs import MendedLogItem

    later = [base for base, _ in applied.segments if base > change.base_offset]
    yield (
        VERIFY_MENDED_LOG,
        MendedLogItem(
            place=applied.place,
            change=change,
            interval_bytes=int(applied.setting("index.interval.bytes")),
            keep=applied.keep,
            next_base=later[0] if later else -1,
        ),
    )
    for new in change.companions:
        if new.name.endswith(".txnindex"):
            yield aborted_job(applied, new.name, applied.logs_now())


def aborted_job(applied: Applied, name: str, logs: tuple[LogFile, ...]) -> Job:
    """A ``.txnindex``, held against a replay of the logs."""
    from krepair.pipeline.readings.aborted import AbortedItem

    item = AbortedItem(
        place=applied.place,
        base_offset=int(name.partition(".")[0]),
        path=f"{applied.place.path}/{name}",
        original=applied.kept(name),
        logs=logs,
    )
    return VERIFY_ABORTED, item


def epochs_job(applied: Applied, change: ReplaceFile, since: int = 0) -> Job:
    """A leader epoch checkpoint, held against the logs; of one made from ``since`` on, against those alone."""
    from krepair.pipeline.readings.epochs import EpochsItem

    logs, whole = applied.logs_before_compaction()
    item = EpochsItem(
        place=applied.place,
        change=change,
        path=f"{applied.place.path}/{change.name}",
        original=applied.kept(change.name),
        logs=tuple(log for log in logs if log.base_offset >= since),
        logs_are_whole=whole,
        log_start=applied.log_start,
        compacts="compact" in policies_of(applied.setting("cleanup.policy")),
        zero_counts=writes_epoch_zero(version_of(applied.plan.policy.broker_version)),
    )
    return VERIFY_EPOCHS, item


def snapshot_job(applied: Applied, change: ReplaceFile, recovered_from: int = INT64_MAX) -> Job:
    """A producer snapshot, held against the logs, and the snapshots that it was built on; see ``SnapshotItem``."""
    from krepair.pipeline.readings.snapshots import SnapshotItem

    version = version_of(applied.plan.policy.broker_version)
    earlier = []
    for file in applied.part.files:
        name = parse_file_name(file.name)
        usable = name.kind is FileKind.SNAPSHOT and not name.state
        if usable and name.base_offset is not None and name.base_offset <= recovered_from:
            here = f"{applied.place.path}/{file.name}"
            taken = file.name == change.name or not applied.tree.is_there(here)
            earlier.append((name.base_offset, applied.kept(file.name) if taken else here))
    logs, whole = applied.logs_before_compaction()
    item = SnapshotItem(
        place=applied.place,
        change=change,
        path=f"{applied.place.path}/{change.name}",
        earlier=tuple(earlier),
        logs=logs,
        logs_are_whole=whole,
        log_start=applied.log_start,
        recovered_from=recovered_from,
        version=version or (),
        now_ms=applied.plan.policy.now_ms,
        expiry_ms=expiry_of(
            version,
            int(applied.setting("producer.id.expiration.ms", of_topic=False)),
            int(applied.setting("transactional.id.expiration.ms", of_topic=False)),
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
    from krepair.pipeline.readings.checkpoints import LogEndItem, changed_keys, checkpoint_problems
    from krepair.pipeline.readings.partition import read_kept

    old = read_kept(kept, OFFSETS_AT_MOST_BYTES, tree)
    if old is None:
        return []
    new = read_whole(f"{view.path}/{name}", OFFSETS_AT_MOST_BYTES, tree)
    changed = changed_keys(old, new)
    ends = {(partition.topic, partition.number): -1 for partition in (*view.partitions, *view.marked)}
    to_read = [
        partition
        for partition in view.partitions
        if (partition.topic, partition.number) in changed and partition.has_an_end
    ]
    items = [LogEndItem(place=_place(view, partition), log=_last_log(partition)) for partition in to_read]
    for index, result in engine.run(READ_LOG_END, items):
        ends[to_read[index].topic, to_read[index].number] = result.offset
    return checkpoint_problems(name, old, new, ends)


def _place(view: LogDir, partition: Partition) -> Place:
    return Place(host=view.host, log_dir=view.path, log_dir_inode=view.inode, folder=partition.folder)


def _last_log(partition: Partition) -> LogFile:
    from krepair.pipeline.readings.partition import LogFile

    segment = partition.segments[-1]
    return LogFile(base_offset=segment.base_offset, path=segment.log.path, bytes=segment.log.size)
