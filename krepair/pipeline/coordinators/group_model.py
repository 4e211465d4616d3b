"""What ``__consumer_offsets`` says of groups, as values that travel from a worker to the report."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

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
