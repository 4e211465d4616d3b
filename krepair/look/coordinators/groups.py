"""The groups in one partition of ``__consumer_offsets``, read in the order of its log, for ``krepair groups``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from msgspec import Struct

from krepair.durable.tree import Tree
from krepair.engine.items import LogsItem
from krepair.engine.place import with_log_dir
from krepair.engine.progress import shown_as
from krepair.formats import batch_v2, group_metadata
from krepair.formats.coordinator_record import CoordinatorRecord
from krepair.formats.damage import Damage
from krepair.kernels import dump_rows as r
from krepair.look.coordinators.commits import LARGEST_RECORD, Commits, StoredCommit, StoredPending
from krepair.look.coordinators.walk import CoordinatorRecords, DamagedPart, in_a_buffer
from krepair.scan.log_records import LargeRecordRead, RecordsRead

GroupKind = Literal["classic", "consumer", "share", "streams", "offsets only"]


class Member(Struct, frozen=True, kw_only=True):
    """One member of a group.

    Attributes:
        member_id: id given by the coordinator.
        instance_id: id of a static member, else empty.
        client_id: id of the member's client.
        client_host: host of the member's client.
        topics: subscribed topics, sorted; empty if the bytes are not of the consumer protocol. For a streams group: the
            topics that its topology reads, with patterns between slashes.
        topic_regex: subscribed pattern in place of topics, else empty.
        assigned: partitions by topic (or topic id in newer groups, or subtopology of active tasks in streams groups).
    """

    member_id: str
    instance_id: str = ""
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    topic_regex: str = ""
    assigned: dict[str, tuple[int, ...]] = {}


class OffsetCommit(Struct, frozen=True, kw_only=True):
    """Committed offset.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        offset: next offset that the group reads.
        leader_epoch: leader epoch of the last record read, -1 if unknown.
        metadata: text that the client added.
        commit_timestamp: time of the commit in epoch milliseconds.
        expire_timestamp: expiry time in epoch milliseconds; -1 if the broker's retention decides.
        record_offset: offset of the record in ``__consumer_offsets``.
        transactional: True if the commit was part of a transaction, which is committed.
        problem: reason why the value could not be read, else empty.
        log_start: log start offset of the partition, -1 if the partition is not here.
        log_end: log end offset of the partition, -1 if unknown.
        out_of_range: True if the offset lies outside of the log; a consumer then follows its ``auto.offset.reset``.
    """

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = -1
    expire_timestamp: int = -1
    record_offset: int = -1
    transactional: bool = False
    problem: str = ""
    log_start: int = -1
    log_end: int = -1
    out_of_range: bool = False


class PendingCommit(Struct, frozen=True, kw_only=True):
    """Offset committed in an open transaction.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        offset: offset that would be committed, -1 if the value could not be read.
        metadata: text that the client added.
        commit_timestamp: time of the commit in epoch milliseconds.
        record_offset: offset of the record in ``__consumer_offsets``.
        producer_id: producer id of the transaction.
        producer_epoch: producer epoch of the transaction.
    """

    topic: str
    partition: int
    offset: int
    metadata: str
    commit_timestamp: int
    record_offset: int
    producer_id: int
    producer_epoch: int


class SubscriptionHistory(Struct, frozen=True, kw_only=True):
    """History of a group's subscriptions, as far as its records still exist.

    Attributes:
        generations: number of group records.
        changes: number of times that the subscriptions of all members together changed.
        returns: number of times that a subscription returned to an earlier state.
        seen: distinct states, the latest last; each lists the topics of each kind of member.
    """

    generations: int = 0
    changes: int = 0
    returns: int = 0
    seen: tuple[tuple[str, ...], ...] = ()


class Group(Struct, frozen=True, kw_only=True):
    """One group.

    Attributes:
        group: id of the consumer group.
        partition: folder of ``__consumer_offsets`` that holds the group.
        kind: classic (the protocol before KIP-848), consumer, share, streams, or offsets without any group.
        state: Kafka's word for the state after loading the partition; ``Dead`` for a deleted group.
        generation: generation or group epoch, -1 if there is none.
        protocol_type: protocol type of a classic group.
        protocol: assignor of a classic group.
        leader: member id of the leader.
        state_timestamp: time of the last change of state in epoch milliseconds, -1 if unknown.
        members: members in the order of their ids.
        commits: commits by topic and partition.
        pending: commits of open transactions, by topic and partition.
        commit_records: number of records in the log with a commit of the group.
        tombstones: number of records that delete something of the group.
        history: history of the group's subscriptions.
        problems: first few of the group's records that could not be read.
        coordinator_partition: number of the partition in which the next coordinator looks for the group, -1 if unknown.
        unseen_commits: number of commits here that the next coordinator does not see, because it reads another
            partition.
    """

    group: str
    partition: str
    kind: GroupKind = "offsets only"
    state: str = "Empty"
    generation: int = -1
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    state_timestamp: int = -1
    members: tuple[Member, ...] = ()
    commits: tuple[OffsetCommit, ...] = ()
    pending: tuple[PendingCommit, ...] = ()
    commit_records: int = 0
    tombstones: int = 0
    history: SubscriptionHistory = SubscriptionHistory()
    problems: tuple[str, ...] = ()
    coordinator_partition: int = -1
    unseen_commits: int = 0


_MOST_PROBLEMS: Final = 10
"""Largest number of unreadable records that are shown of a group."""
_MOST_SEEN: Final = 64
"""Largest number of distinct subscriptions that are kept of a group."""
_STABLE: Final[dict[GroupKind, int]] = {"consumer": 0, "streams": 1}
"""Value of ``MemberState.STABLE`` in ``modern`` (3.9, 4.3) and ``streams`` (4.3), whose enumerations differ."""
_KINDS: Final[tuple[GroupKind, ...]] = ("consumer", "share", "streams")


@dataclass
class _Modern:
    """Group of the newer coordinator, by record type and member."""

    kind: GroupKind
    epoch: int = -1
    assignment_epoch: int = -1
    validated_topology_epoch: int = -1
    topology: dict[str, Any] | None = None
    members: dict[str, dict[str, Any]] = field(default_factory=dict)
    current: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class _Subscriptions:
    """Collector of a group's subscriptions over time, which keeps distinct subscriptions up to a limit."""

    generations: int = 0
    changes: int = 0
    returns: int = 0
    last: tuple[str, ...] = ()
    seen: dict[tuple[str, ...], None] = field(default_factory=dict)

    def take(self, picture: tuple[str, ...]) -> None:
        self.generations += 1
        if not picture or picture == self.last:
            return
        self.changes += bool(self.last)
        self.returns += picture in self.seen
        self.seen.pop(picture, None)
        self.seen[picture] = None
        if len(self.seen) > _MOST_SEEN:
            del self.seen[next(iter(self.seen))]
        self.last = picture

    def value(self) -> SubscriptionHistory:
        return SubscriptionHistory(
            generations=self.generations, changes=self.changes, returns=self.returns, seen=tuple(self.seen)
        )


@dataclass
class _GroupEntry:
    """State of one group, without its commits."""

    classic: dict[str, Any] | None = None
    modern: _Modern | None = None
    deleted: bool = False
    tombstones: int = 0
    history: _Subscriptions = field(default_factory=_Subscriptions)
    problems: list[str] = field(default_factory=list)


class GroupBook:
    """Groups of one partition.

    Args:
        partition: name of the partition's folder.
        wanted: group ids to keep; empty for all.
    """

    def __init__(self, partition: str, wanted: frozenset[str]) -> None:
        self.partition = partition
        self._wanted = wanted
        self._entries: dict[str, _GroupEntry] = {}
        self.unknown = 0

    def take(self, record: CoordinatorRecord, offset: int) -> None:
        """Add one record that is not a commit.

        Args:
            offset: offset of the record in the log.
        """
        group = record.key.get("group", record.key.get("group_id"))
        if group is None:
            self.unknown += 1
            return
        if self._wanted and group not in self._wanted:
            return
        entry = self._entries.setdefault(group, _GroupEntry())
        entry.tombstones += record.tombstone
        if record.problem:
            self._problem(entry, f"record {offset}: {record.problem}")
        elif record.key_version == group_metadata.GROUP_METADATA:
            self._classic(entry, record.value)
        else:
            self._modern(entry, record)

    def _problem(self, entry: _GroupEntry, text: str) -> None:
        if len(entry.problems) < _MOST_PROBLEMS:
            entry.problems.append(text)

    def _classic(self, entry: _GroupEntry, value: dict[str, Any] | None) -> None:
        entry.classic = value
        entry.deleted = value is None
        if value is not None:
            entry.modern = None
            if value["protocol_type"] == group_metadata.CONSUMER_PROTOCOL:
                topics = (
                    group_metadata.subscribed_topics(member["subscription"]) for member in value["members"]
                )
                entry.history.take(_picture(topic for topic in topics if topic is not None))

    def _modern(self, entry: _GroupEntry, record: CoordinatorRecord) -> None:
        kind = next((kind for kind in _KINDS if record.type.startswith(kind)), None)
        if kind is None:
            return
        part = record.type.removeprefix(f"{kind}_group_")
        group = entry.modern
        if group is None or group.kind != kind:
            if record.tombstone:
                entry.deleted = entry.deleted or part == "metadata"
                return
            group = entry.modern = _Modern(kind)
        if part != "metadata":
            _take_part(entry, group, part, record)
        elif record.value is None:
            entry.modern, entry.deleted = None, True
        else:
            group.epoch, entry.classic, entry.deleted = record.value["epoch"], None, False
            group.validated_topology_epoch = record.value.get("validated_topology_epoch", -1)

    # -- the result --------------------------------------------------------------------------
    def groups(self, stored: Commits) -> list[Group]:
        """List all groups, by id."""
        commits: dict[str, list[OffsetCommit]] = {}
        counts: dict[str, list[int]] = {}
        for commit in stored.commits():
            self._commit(commit, commits, counts)
        pending: dict[str, list[PendingCommit]] = {}
        for waiting in stored.pending():
            self._pending(waiting, pending)
        names = sorted({*self._entries, *counts, *pending})
        return [
            self._group(name, commits.get(name, []), counts.get(name, [0, 0]), pending.get(name, []))
            for name in names
        ]

    def _commit(
        self, stored: StoredCommit, commits: dict[str, list[OffsetCommit]], counts: dict[str, list[int]]
    ) -> None:
        key = group_metadata.read_commit_key(stored.key)
        if isinstance(key, Damage):
            self.unknown += 1
            return
        if self._wanted and key["group"] not in self._wanted:
            return
        count = counts.setdefault(key["group"], [0, 0])
        count[0] += stored.commits
        count[1] += stored.tombstones
        if stored.value is None:
            return
        place = {"topic": key["topic"], "partition": key["partition"], "record_offset": stored.record_offset}
        value = group_metadata.read_commit_value(stored.value)
        if isinstance(value, Damage):
            commit = OffsetCommit(**place, problem=f"expected {value.expected}, found {value.found}")
        else:
            commit = OffsetCommit(
                **place,
                offset=value["offset"],
                leader_epoch=value.get("leader_epoch", -1),
                metadata=value["metadata"],
                commit_timestamp=value["commit_timestamp"],
                expire_timestamp=value.get("expire_timestamp", -1),
                transactional=stored.transactional,
            )
        commits.setdefault(key["group"], []).append(commit)

    def _pending(self, stored: StoredPending, pending: dict[str, list[PendingCommit]]) -> None:
        key = group_metadata.read_commit_key(stored.key)
        if isinstance(key, Damage) or (self._wanted and key["group"] not in self._wanted):
            return
        value = group_metadata.read_commit_value(stored.value)
        if isinstance(value, Damage):
            value = {"offset": -1, "metadata": "", "commit_timestamp": -1}
        pending.setdefault(key["group"], []).append(
            PendingCommit(
                topic=key["topic"],
                partition=key["partition"],
                offset=value["offset"],
                metadata=value["metadata"],
                commit_timestamp=value["commit_timestamp"],
                record_offset=stored.record_offset,
                producer_id=stored.producer_id,
                producer_epoch=stored.producer_epoch,
            )
        )

    def _group(
        self, name: str, commits: list[OffsetCommit], counts: list[int], pending: list[PendingCommit]
    ) -> Group:
        entry = self._entries.get(name, _GroupEntry())
        base: dict[str, Any] = {
            "group": name,
            "partition": self.partition,
            "commits": tuple(sorted(commits, key=lambda each: (each.topic, each.partition))),
            "pending": tuple(
                sorted(pending, key=lambda each: (each.topic, each.partition, each.producer_id))
            ),
            "commit_records": counts[0],
            "tombstones": counts[1] + entry.tombstones,
            "history": entry.history.value(),
            "problems": tuple(entry.problems),
        }
        if entry.classic is not None:
            return _classic_group(base, entry.classic)
        if entry.modern is not None:
            return _modern_group(base, entry.modern)
        gone = not commits and not pending
        return Group(**base, state="Dead" if gone else "Empty")


def _take_part(entry: _GroupEntry, group: _Modern, part: str, record: CoordinatorRecord) -> None:
    """Add a record of a group of the newer coordinator that is not its metadata."""
    member, value = record.key.get("member_id", ""), record.value
    if part == "target_assignment_metadata":
        group.assignment_epoch = -1 if value is None else value["assignment_epoch"]
    elif part == "topology":
        group.topology = value
        entry.history.take(_picture([_sources(value)] if value is not None else []))
    elif part == "member_metadata":
        _put(group.members, member, value)
        if group.kind != "streams":
            entry.history.take(_picture(map(_modern_topics, group.members.values())))
    elif part == "current_member_assignment":
        _put(group.current, member, value)


def _put(rows: dict[str, dict[str, Any]], member: str, value: dict[str, Any] | None) -> None:
    if value is None:
        rows.pop(member, None)
    else:
        rows[member] = value


def _picture(topics: Any) -> tuple[str, ...]:
    """List the distinct subscriptions of one generation's members, each as one text."""
    return tuple(sorted({", ".join(topic) for topic in topics}))


def _modern_topics(member: dict[str, Any]) -> tuple[str, ...]:
    regex = member.get("subscribed_topic_regex")
    if regex:
        return (f"/{regex}/",)
    return tuple(sorted(set(member.get("subscribed_topic_names", ()))))


def _sources(topology: dict[str, Any] | None) -> tuple[str, ...]:
    """List the topics, and then the patterns, that the topology of a streams group reads."""
    parts = () if topology is None else topology["subtopologies"]
    topics = sorted({topic for part in parts for topic in part["source_topics"]})
    patterns = sorted({pattern for part in parts for pattern in part["source_topic_regex"]})
    return (*topics, *(f"/{pattern}/" for pattern in patterns))


def _classic_group(base: dict[str, Any], value: dict[str, Any]) -> Group:
    consumer = value["protocol_type"] == group_metadata.CONSUMER_PROTOCOL
    members = []
    for each in value["members"]:
        assigned = group_metadata.assigned_partitions(each["assignment"]) if consumer else None
        members.append(
            Member(
                member_id=each["member_id"],
                instance_id=each.get("group_instance_id") or "",
                client_id=each["client_id"],
                client_host=each["client_host"],
                topics=(group_metadata.subscribed_topics(each["subscription"]) or ()) if consumer else (),
                assigned={topic: tuple(parts) for topic, parts in (assigned or {}).items()},
            )
        )
    return Group(
        **base,
        kind="classic",
        state="Stable" if members else "Empty",
        generation=value["generation"],
        protocol_type=value["protocol_type"],
        protocol=value["protocol"] or "",
        leader=value["leader"] or "",
        state_timestamp=value.get("current_state_timestamp", -1),
        members=tuple(sorted(members, key=lambda member: member.member_id)),
    )


def _modern_group(base: dict[str, Any], group: _Modern) -> Group:
    members = []
    sources = _sources(group.topology)
    for member_id, each in sorted(group.members.items()):
        current = group.current.get(member_id, {})
        members.append(
            Member(
                member_id=member_id,
                instance_id=each.get("instance_id") or "",
                client_id=each["client_id"],
                client_host=each["client_host"],
                topics=sources or tuple(sorted(set(each.get("subscribed_topic_names", ())))),
                topic_regex=each.get("subscribed_topic_regex") or "",
                assigned={
                    row.get("topic_id", row.get("subtopology_id")): tuple(row["partitions"])
                    for row in current.get("assigned_partitions", current.get("active_tasks", ()))
                },
            )
        )
    return Group(
        **base, kind=group.kind, state=_modern_state(group), generation=group.epoch, members=tuple(members)
    )


def _modern_state(group: _Modern) -> str:
    """Compute the state as ``maybeUpdateGroupState`` of ``ConsumerGroup`` (3.9, 4.3) and ``StreamsGroup`` (4.3) does.

    A share group has only two states. A streams group waits until the topics of its topology exist.
    """
    if not group.members:
        return "Empty"
    if group.kind == "share":
        return "Stable"
    if group.kind == "streams" and (
        group.topology is None or group.topology["epoch"] != group.validated_topology_epoch
    ):
        return "NotReady"
    if group.epoch > group.assignment_epoch:
        return "Assigning"
    settled = all(
        (current := group.current.get(member)) is not None
        and current["state"] == _STABLE[group.kind]
        and current["member_epoch"] == group.assignment_epoch
        for member in group.members
    )
    return "Stable" if settled else "Reconciling"


_LAST_VERSION_OF_COMMITS = b"\x00\x01"


class GroupsResult(Struct, frozen=True, kw_only=True):
    """Content of one partition.

    Attributes:
        groups: groups in the order of their ids.
        damaged: damaged parts of the log that were skipped, at most ``MOST_RANGES``.
        damages: number of all damaged parts.
        unknown: number of records whose key is missing or of an unknown type.
        batches: number of batches read.
        bytes: bytes of ``.log`` read.
    """

    groups: tuple[Group, ...] = ()
    damaged: tuple[DamagedPart, ...] = ()
    damages: int = 0
    unknown: int = 0
    batches: int = 0
    bytes: int = 0


class _Records:
    """Distributor of a partition's records to the commits and the book."""

    def __init__(self, commits: Commits, book: GroupBook, log_start: int) -> None:
        self._commits, self._book, self._log_start = commits, book, log_start

    def take(self, part: RecordsRead | LargeRecordRead) -> None:
        """Add records: commits to the tables of commits, all others to the book of groups."""
        if isinstance(part, RecordsRead):
            self._take_rows(part)
            return
        record = part.record
        key, value = record.key or b"", record.value or b""
        control = part.batch["attributes"] & batch_v2.CONTROL
        if len(key) + len(value) <= LARGEST_RECORD:
            self._take_rows(in_a_buffer(part))
        elif not control and record.offset >= self._log_start:
            if len(key) < 2 or key[:2] > _LAST_VERSION_OF_COMMITS:
                self._book.take(group_metadata.RECORDS.decode(record.key, record.value), record.offset)
            else:
                cut = record._replace(value=value[:LARGEST_RECORD])
                self._take_rows(in_a_buffer(part._replace(record=cut)))

    def _take_rows(self, part: RecordsRead) -> None:
        buf = part.buffer
        others = self._commits.take(buf, part.batches, part.counts, part.records, self._log_start)
        for batch, record in others:
            key, value = (
                None
                if record[column + 1] < 0
                else buf[record[column] : record[column] + record[column + 1]].tobytes()
                for column in (r.R_KEY, r.R_VALUE)
            )
            offset = int(batch["base_offset"] + record[r.R_OFFSET_DELTA])
            self._book.take(group_metadata.RECORDS.decode(key, value), offset)


@shown_as("groups")
@with_log_dir
def read_groups(item: LogsItem, tree: Tree, log_start: int = 0, wanted: tuple[str, ...] = ()) -> GroupsResult:
    """Read the groups of one partition.

    Args:
        log_start: log start offset; records below it are ignored.
        wanted: group ids to keep; empty for all.
    """
    commits, book = Commits(), GroupBook(item.place.folder, frozenset(wanted))
    log, records = CoordinatorRecords(item, tree), _Records(commits, book, log_start)
    for part in log.parts():
        records.take(part)
    groups = tuple(book.groups(commits))
    return GroupsResult(
        groups=groups,
        damaged=tuple(log.damaged),
        damages=log.damages,
        unknown=book.unknown,
        batches=log.batches_read,
        bytes=sum(size for _, size in item.segments),
    )
