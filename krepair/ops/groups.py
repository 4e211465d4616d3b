"""``krepair groups``: show groups, members and commits recorded in ``__consumer_offsets``. Writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from operator import itemgetter
from typing import Final, Protocol, TypeVar, TypeVarTuple

from msgspec import Struct
from msgspec.structs import replace

from krepair.checks.catalogue import Finding
from krepair.engine.choice import WorkKind, choose_engine
from krepair.engine.engine import Engine
from krepair.engine.items import Failed
from krepair.engine.progress import Progress
from krepair.errors import ExitCode, UnreadableError
from krepair.fixes.checkpoints import log_ends
from krepair.fixes.context import log_of
from krepair.formats.damage import shown
from krepair.formats.filenames import OFFSETS_TOPIC
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_log_dir
from krepair.look.coordinators.groups import Group, Member, OffsetCommit
from krepair.look.coordinators.walk import DamagedPart
from krepair.next_command import NOTHING, Next
from krepair.options import Options
from krepair.report import Report
from krepair.start.coordinator_partitions import partition_of_name, partitions_of_topic
from krepair.start.log_dirs_given import check_named

RETURNS_AT_LEAST: Final = 2
"""Returns to earlier subscriptions before a group is reported: a single return may be a restart."""
_MOST_KINDS: Final = 5
_MOST_TOPICS: Final = 5


class GroupsReport(Report, frozen=True, kw_only=True):
    """Result of ``groups``.

    Attributes:
        log_dir: path of the log directory.
        now_ms: time from which ages count, epoch milliseconds.
        partitions: folders of ``__consumer_offsets`` that were read.
        partitions_of_topic: number of partitions of the topic, 0 if it is unknown.
        partitions_recorded: True if that number comes from the metadata log here, rather than from the folders.
        groups: groups by id; a deleted group has the state ``Dead``.
        findings: findings of rule KR609 on these groups.
        damaged: damaged parts that were skipped.
        damages: number of damaged parts.
        unknown: number of records with a key that krepair does not know.
        bytes_read: bytes of ``.log`` files that were read.
    """

    log_dir: str
    now_ms: int
    partitions: tuple[str, ...] = ()
    partitions_of_topic: int = 0
    partitions_recorded: bool = False
    groups: tuple[Group, ...] = ()
    findings: tuple[Finding, ...] = ()
    damaged: tuple[PassedOver, ...] = ()
    damages: int = 0
    unknown: int = 0
    bytes_read: int = 0

    @property
    def exit_code(self) -> ExitCode:
        """FOUND if there is a finding, a skipped part, or a commit that does not count as it stands; else DONE."""
        wrong = self.findings or self.damages or self.twice
        lost = any(
            group.unseen_commits or any(commit.out_of_range for commit in group.commits)
            for group in self.groups
        )
        return ExitCode.FOUND if wrong or lost else ExitCode.DONE

    @property
    def twice(self) -> tuple[str, ...]:
        """Groups that lie in several partitions of the topic, because its number of partitions was changed."""
        alive = Counter(group.group for group in self.groups if group.state != "Dead")
        return tuple(name for name, rows in alive.items() if rows > 1)


def groups(log_dir: str, options: Options, progress: Progress | None = None) -> GroupsReport:
    """Read every partition of ``__consumer_offsets`` in a log directory, in one job.

    Args:
        log_dir: path of the log directory.
        options: engine, partitions, clock, and the groups to show.
        progress: receiver of the bytes done so far.

    Raises:
        NotALogDirError: the path is no log directory, or a named partition is not in it.
        UnreadableError: a partition could not be read.
    """
    from krepair.look.coordinators.groups import read_groups

    view = read_log_dir(log_dir)
    check_named([view], options)
    chosen = partitions_of(view, OFFSETS_TOPIC, options.wants)
    starts = view.log_start.offsets
    items = [(log_of(view, partition), starts.get(partition.key, 0), options.group) for partition in chosen]
    read = sum(log.bytes_to_read for log, *_ in items)
    with closing(choose_engine(options.engine, options.master, {WorkKind.RECORDS: read}, progress)) as engine:
        results = read_partitions(engine, read_groups, items, "groups")
        all_groups = [group for result in results for group in result.groups]
        places = [(group.group, _partition_number(group)) for group in all_groups]
        number, recorded = partitions_of_topic([view], OFFSETS_TOPIC, places)
        placed = with_ranges(with_places(all_groups, number), view, engine)
    ordered = sorted(placed, key=lambda group: group.group)
    findings = tuple(finding for group in ordered for finding in subscription_findings(group))
    damaged = passed_over(chosen, results)
    return GroupsReport(
        log_dir=view.path,
        now_ms=options.now_ms,
        partitions=tuple(partition.folder for partition in chosen),
        partitions_of_topic=number,
        partitions_recorded=recorded,
        groups=tuple(ordered),
        findings=findings,
        damaged=damaged,
        damages=sum(result.damages for result in results),
        unknown=sum(result.unknown for result in results),
        bytes_read=read,
        engine=engine.why,
        next_command=_next_command(view.path, findings, bool(damaged)),
    )


def _next_command(log_dir: str, findings: tuple[Finding, ...], damaged: bool) -> Next:
    if damaged:
        return Next.of("check", log_dir, "--topic", OFFSETS_TOPIC)
    return Next.of("explain", findings[0].rule) if findings else NOTHING


def subscription_findings(group: Group) -> Iterator[Finding]:
    """Yield KR609 for a group whose members want different topics, at once or in turns."""
    kinds = Counter(_wants(member) for member in group.members if _wants(member))
    texts = []
    if len(kinds) > 1:
        parts = [f"{count} of {topics}" for topics, count in kinds.most_common(_MOST_KINDS)]
        if len(kinds) > _MOST_KINDS:
            parts.append(f"{len(kinds) - _MOST_KINDS} more kinds")
        texts.append(f"{len(group.members)} members subscribe to different topics: {'; '.join(parts)}")
    history = group.history
    if history.returns >= RETURNS_AT_LEAST:
        last = " / ".join(f"[{'; '.join(map(_short, subscription))}]" for subscription in history.seen[-2:])
        texts.append(
            f"in {history.generations} generations its subscriptions changed {history.changes} times and came back "
            f"{history.returns} times: {last}"
        )
    if texts:
        yield Finding(
            rule="KR609",
            partition=group.partition,
            evidence=f"group {shown(group.group)}: {'; '.join(texts)}",
        )


def _wants(member: Member) -> str:
    if member.topic_regex:
        return f"/{shown(member.topic_regex)}/"
    more = f" and {len(member.topics) - _MOST_TOPICS} more" if len(member.topics) > _MOST_TOPICS else ""
    return ", ".join(shown(topic) for topic in member.topics[:_MOST_TOPICS]) + more


def _short(topics: str) -> str:
    return shown(topics)


# -- the partition where the next coordinator looks, and whether commits lie within the logs here


def with_places(groups: Iterable[Group], partitions: int) -> tuple[Group, ...]:
    """Add to each group the partition where its coordinator looks, and count commits unseen there.

    Args:
        groups: groups as read from the logs.
        partitions: number of partitions of ``__consumer_offsets``, 0 if unknown.
    """
    if not partitions:
        return tuple(groups)
    return tuple(_with_place(group, partition_of_name(group.group, partitions)) for group in groups)


def _with_place(group: Group, looks_in: int) -> Group:
    unseen = 0 if looks_in == _partition_number(group) else len(group.commits)
    return replace(group, coordinator_partition=looks_in, unseen_commits=unseen)


def _partition_number(group: Group) -> int:
    return int(group.partition.rpartition("-")[2])


def _start_of(view: LogDir, partition: Partition) -> int:
    """Return the log start of a partition with segments; a tiered log's start may be in remote storage."""
    recorded = view.log_start.offsets.get(partition.key, -1)
    return recorded if recorded >= 0 else partition.segments[0].base_offset


def with_ranges(groups: Iterable[Group], view: LogDir, engine: Engine) -> tuple[Group, ...]:
    """Add log start and log end to each commit whose partition lies in the log directory."""
    groups = tuple(groups)
    committed = {(commit.topic, commit.partition) for group in groups for commit in group.commits}
    here = [partition for partition in view.partitions if partition.key in committed and partition.segments]
    ends = log_ends(view, engine, of=here)
    starts = {partition.key: _start_of(view, partition) for partition in here}

    def ranged(commit: OffsetCommit) -> OffsetCommit:
        key = (commit.topic, commit.partition)
        start, end = starts.get(key, -1), ends.get(key)
        if end is None or commit.problem:
            return replace(commit, log_start=start)
        out = not start <= commit.offset <= end
        return replace(commit, log_start=start, log_end=end, out_of_range=out)

    return tuple(replace(group, commits=tuple(map(ranged, group.commits))) for group in groups)


class PassedOver(Struct, frozen=True, kw_only=True):
    """Damaged part that was skipped, so its records are not in the answer.

    Attributes:
        partition: name of the partition folder.
        part: position and description of the damage.
    """

    partition: str
    part: DamagedPart


class PartitionResult(Protocol):
    """Return value of the function that reads one partition."""

    @property
    def damaged(self) -> tuple[DamagedPart, ...]:
        """Damaged parts that were skipped."""


Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result", bound=PartitionResult)


def partitions_of(view: LogDir, topic: str, wants: Callable[[str, int], bool]) -> list[Partition]:
    """Return the requested partitions of a topic.

    Raises:
        UnreadableError: a partition folder cannot be read.
    """
    chosen = [
        partition
        for partition in view.partitions
        if partition.topic == topic and wants(partition.topic, partition.number)
    ]
    unreadable = next((partition.unreadable for partition in chosen if partition.unreadable), "")
    if unreadable:
        raise UnreadableError(unreadable)
    return chosen


def read_partitions(
    engine: Engine,
    function: Callable[[*Arguments], Result | Failed],
    items: Sequence[tuple[*Arguments]],
    noun: str,
) -> list[Result]:
    """Map a function over partitions; return its results in the order of the items.

    Args:
        engine: engine that runs the function.
        function: function of ``look.coordinators``.
        items: arguments of the function for each partition.
        noun: noun for the message if a log cannot be read, such as ``groups``.

    Raises:
        UnreadableError: a log could not be read.
    """
    ordered: list[Result] = []
    for _, result in sorted(engine.map(function, items), key=itemgetter(0)):
        if isinstance(result, Failed):
            raise UnreadableError(f"{result.why}; the {noun} are unknown without it")
        ordered.append(result)
    return ordered


def passed_over(
    partitions: Sequence[Partition], results: Sequence[PartitionResult]
) -> tuple[PassedOver, ...]:
    """Return the damaged parts that were skipped in all partitions."""
    return tuple(
        PassedOver(partition=partition.folder, part=part)
        for partition, result in zip(partitions, results, strict=True)
        for part in result.damaged
    )
