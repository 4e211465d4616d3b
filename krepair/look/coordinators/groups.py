"""For ``krepair groups``: what one partition of ``__consumer_offsets`` says of its groups, in the order of its log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from msgspec import Struct

from krepair.durable.tree import Tree
from krepair.engine.items import LogsItem
from krepair.engine.place import in_its_place
from krepair.engine.progress import shown
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
        member_id: given by the coordinator.
        instance_id: of a static member, else empty.
        client_id: of the client.
        client_host: where it runs.
        topics: what it subscribes to, sorted; empty if the bytes are not of the consumer protocol. Of a streams group:
            what its topology reads, patterns between slashes.
        topic_regex: a pattern instead of topics, else empty.
        assigned: topic (or topic id, in newer groups; subtopology of active tasks, in streams groups) to partitions.
    """

    member_id: str
    instance_id: str = ""
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    topic_regex: str = ""
    assigned: dict[str, tuple[int, ...]] = {}


class OffsetCommit(Struct, frozen=True, kw_only=True):
    """A committed offset.

    Attributes:
        topic: topic.
        partition: partition.
        offset: the next offset that the group reads.
        leader_epoch: of the last record read, -1 if not known.
        metadata: what the client added.
        commit_timestamp: ms; when it was committed.
        expire_timestamp: ms; -1 by the broker's retention.
        record_offset: of the record in ``__consumer_offsets``.
        transactional: whether it was part of a transaction, which is committed.
        problem: why the value could not be read, else empty.
        log_start: where the log of its partition begins, -1 if that is not here.
        log_end: where it ends, -1 if that is not known.
        out_of_range: whether the offset lies outside of them; a consumer begins by its ``auto.offset.reset`` then.
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
    """An offset in a transaction that has not ended.

    Attributes:
        topic: topic.
        partition: partition.
        offset: the offset that would be committed, -1 if the value could not be read.
        metadata: what the client added.
        commit_timestamp: ms.
        record_offset: of the record in ``__consumer_offsets``.
        producer_id: of the transaction.
        producer_epoch: of the producer.
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
    """How the subscriptions of a group went, as far as its records are still there.

    Attributes:
        generations: records of the group seen.
        changes: how often the subscriptions of its members together were others than before.
        returns: how often they became again what they had been before.
        seen: the different ones, the last at the end; each is the topics of each kind of member.
    """

    generations: int = 0
    changes: int = 0
    returns: int = 0
    seen: tuple[tuple[str, ...], ...] = ()


class Group(Struct, frozen=True, kw_only=True):
    """One group.

    Attributes:
        group: group id.
        partition: folder of ``__consumer_offsets`` that holds it.
        kind: classic (the protocol before KIP-848), consumer, share, streams, or offsets without any group.
        state: Kafka's word, as a broker that loads the partition would say; ``Dead`` for what was deleted.
        generation: generation or group epoch, -1 without.
        protocol_type: of a classic group.
        protocol: the assignor of a classic group.
        leader: member id.
        state_timestamp: ms; of the last change of state, -1 if not known.
        members: by member id.
        commits: by topic and partition.
        pending: commits of open transactions, likewise.
        commit_records: records with a commit of the group that are in the log.
        tombstones: records that delete something of the group.
        history: of its subscriptions.
        problems: records of it that could not be read, the first few.
        coordinator_partition: number of the partition in which the next coordinator looks for it, -1 if not known.
        unseen_commits: commits here that the next coordinator does not see, since it looks in another partition.
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
_MOST_SEEN: Final = 64
_STABLE: Final[dict[GroupKind, int]] = {"consumer": 0, "streams": 1}
"""``MemberState.STABLE`` of ``modern`` (3.9, 4.3) and of ``streams`` (4.3): each enumeration has its own bytes."""
_KINDS: Final[tuple[GroupKind, ...]] = ("consumer", "share", "streams")


@dataclass
class _Modern:
    """A group of the newer coordinator, by record type and member."""

    kind: GroupKind
    epoch: int = -1
    assignment_epoch: int = -1
    validated_topology_epoch: int = -1
    topology: dict[str, Any] | None = None
    members: dict[str, dict[str, Any]] = field(default_factory=dict)
    current: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class _Subscriptions:
    """Subscriptions of a group over time; only different ones are kept, and not more than so many."""

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
    """Everything of one group but its commits."""

    classic: dict[str, Any] | None = None
    modern: _Modern | None = None
    deleted: bool = False
    tombstones: int = 0
    history: _Subscriptions = field(default_factory=_Subscriptions)
    problems: list[str] = field(default_factory=list)


class GroupBook:
    """The groups of one partition.

    Args:
        partition: folder name.
        wanted: group ids to keep; empty for all.
    """

    def __init__(self, partition: str, wanted: frozenset[str]) -> None:
        self.partition = partition
        self._wanted = wanted
        self._entries: dict[str, _GroupEntry] = {}
        self.unknown = 0

    def take(self, record: CoordinatorRecord, offset: int) -> None:
        """Take one record that is no commit.

        Args:
            record: as it was read.
            offset: of it in the log.
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
        what = record.type.removeprefix(f"{kind}_group_")
        group = entry.modern
        if group is None or group.kind != kind:
            if record.tombstone:
                entry.deleted = entry.deleted or what == "metadata"
                return
            group = entry.modern = _Modern(kind)
        if what != "metadata":
            _take_part(entry, group, what, record)
        elif record.value is None:
            entry.modern, entry.deleted = None, True
        else:
            group.epoch, entry.classic, entry.deleted = record.value["epoch"], None, False
            group.validated_topology_epoch = record.value.get("validated_topology_epoch", -1)

    # -- the result --------------------------------------------------------------------------
    def groups(self, stored: Commits) -> list[Group]:
        """All groups, by id."""
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


def _take_part(entry: _GroupEntry, group: _Modern, what: str, record: CoordinatorRecord) -> None:
    """Take a record of a group of the newer coordinator that is not its metadata."""
    member, value = record.key.get("member_id", ""), record.value
    if what == "target_assignment_metadata":
        group.assignment_epoch = -1 if value is None else value["assignment_epoch"]
    elif what == "topology":
        group.topology = value
        entry.history.take(_picture([_sources(value)] if value is not None else []))
    elif what == "member_metadata":
        _put(group.members, member, value)
        if group.kind != "streams":
            entry.history.take(_picture(map(_modern_topics, group.members.values())))
    elif what == "current_member_assignment":
        _put(group.current, member, value)


def _put(rows: dict[str, dict[str, Any]], member: str, value: dict[str, Any] | None) -> None:
    if value is None:
        rows.pop(member, None)
    else:
        rows[member] = value


def _picture(topics: Any) -> tuple[str, ...]:
    """The different subscriptions of the members of one generation, each as one text."""
    return tuple(sorted({", ".join(topic) for topic in topics}))


def _modern_topics(member: dict[str, Any]) -> tuple[str, ...]:
    regex = member.get("subscribed_topic_regex")
    if regex:
        return (f"/{regex}/",)
    return tuple(sorted(set(member.get("subscribed_topic_names", ()))))


def _sources(topology: dict[str, Any] | None) -> tuple[str, ...]:
    """What all members of a streams group read, whichever of them runs the task: topics, then patterns."""
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
    """As ``maybeUpdateGroupState`` of ``ConsumerGroup`` (3.9, 4.3) and of ``StreamsGroup`` (4.3) finds it.

    A share group knows two states only. A streams group waits until the topics of its topology are there.
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


class GroupsItem(LogsItem, frozen=True, kw_only=True):
    """One partition.

    Attributes:
        log_start: records of lower offsets do not count.
        groups: ids to keep; empty for all.
    """

    log_start: int = 0
    groups: tuple[str, ...] = ()


class GroupsResult(Struct, frozen=True, kw_only=True):
    """What one partition says.

    Attributes:
        groups: by id.
        damaged: what was passed over, the first ``MOST_RANGES``.
        damages: how many such parts there are.
        unknown: records with a key that krepair does not know, or none.
        batches: batches read.
        bytes: bytes of ``.log`` read.
    """

    groups: tuple[Group, ...] = ()
    damaged: tuple[DamagedPart, ...] = ()
    damages: int = 0
    unknown: int = 0
    batches: int = 0
    bytes: int = 0


class _Records:
    """Hands every record of a partition to the commits and the book."""

    def __init__(self, commits: Commits, book: GroupBook, log_start: int) -> None:
        self._commits, self._book, self._log_start = commits, book, log_start

    def take(self, part: RecordsRead | LargeRecordRead) -> None:
        """Take records. What is too large for the tables of commits, and is no commit, goes to the book alone."""
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


@shown("groups")
@in_its_place
def read_groups(item: GroupsItem, tree: Tree) -> GroupsResult:
    """Read one partition."""
    commits, book = Commits(), GroupBook(item.place.folder, frozenset(item.groups))
    log, records = CoordinatorRecords(item, tree), _Records(commits, book, item.log_start)
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
