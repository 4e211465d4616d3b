"""Result of ``compare`` for one partition: kinds of disagreement, verdicts, and one column for each replica."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field

from krepair.next_command import Next

# Kinds of disagreement between replicas.
TOMBSTONE_MISSED: Final = "tombstone-missed"
ABORTED_TO_COMMITTED: Final = "aborted-to-committed"
COMMITTED_TO_ABORTED: Final = "committed-to-aborted"
TOMBSTONE_OR_ABORT_MISSED: Final = "tombstone-or-abort-missed"
MARKER_MISSED: Final = "marker-missed"
STUCK: Final = "stuck"
FORK: Final = "fork"
RECORD_DIFFERS: Final = "record-differs"
LOST: Final = "lost"
CUT: Final = "cut"
TOPIC_ID: Final = "topic-id"
CORRUPT: Final = "corrupt"
TORN: Final = "torn-tail"
FORK_UNSURE: Final = "fork-uncommitted"
UNKNOWN_LOSS: Final = "missing-or-deleted"
UNREADABLE: Final = "unreadable"
NOT_AT_REST: Final = "not-at-rest"
BEHIND: Final = "behind"
LEADER_DECIDES: Final = "leader-decides"

# Verdicts; ``VERDICTS`` has their order.
DIVERGED: Final = "diverged"
DAMAGED: Final = "damaged"
MISSING: Final = "missing"
CANNOT_TELL: Final = "cannot tell"
DECIDED_BY_LEADER: Final = "leader decides"
IS_BEHIND: Final = "behind"
HARMLESS: Final = "harmless"
BYTE_EQUAL: Final = "byte-equal"
ALONE: Final = "alone"
AS_IT_SHOULD_BE: Final = "as it should be"
"""State of a replica with which nothing is wrong."""
MUST_NOT_LEAD: Final = "must not lead"
"""State of a right replica that must not lead: a replica that is behind would become wrong by following it."""
VERDICTS: Final = (
    DIVERGED,
    DAMAGED,
    DECIDED_BY_LEADER,
    MISSING,
    CANNOT_TELL,
    IS_BEHIND,
    HARMLESS,
    BYTE_EQUAL,
    ALONE,
)

_KINDS: Final = {
    TOMBSTONE_MISSED: ("KR650", DIVERGED),
    ABORTED_TO_COMMITTED: ("KR651", DIVERGED),
    COMMITTED_TO_ABORTED: ("KR652", DIVERGED),
    TOMBSTONE_OR_ABORT_MISSED: ("KR653", DIVERGED),
    STUCK: ("KR654", DIVERGED),
    FORK: ("KR655", DIVERGED),
    RECORD_DIFFERS: ("KR656", DIVERGED),
    LOST: ("KR657", DIVERGED),
    CUT: ("KR658", DIVERGED),
    TOPIC_ID: ("KR659", DIVERGED),
    CORRUPT: ("KR660", DAMAGED),
    TORN: ("KR661", DAMAGED),
    FORK_UNSURE: ("KR662", CANNOT_TELL),
    UNKNOWN_LOSS: ("KR662", CANNOT_TELL),
    MARKER_MISSED: ("KR663", DIVERGED),
    UNREADABLE: ("KR664", MISSING),
    NOT_AT_REST: ("KR664", MISSING),
    BEHIND: ("KR665", IS_BEHIND),
    LEADER_DECIDES: ("KR667", DECIDED_BY_LEADER),
}
RULE_OF: Final = {kind: rule for kind, (rule, _) in _KINDS.items()}
"""Finding code of each kind of disagreement. Harmless differences have KR666."""
VERDICT_OF: Final = {kind: verdict for kind, (_, verdict) in _KINDS.items()}


class ServedKey(Struct, frozen=True, kw_only=True):
    """Last record of a key that a ``read_committed`` reader would get if one replica were leader.

    Attributes:
        broker: id of the broker that has the replica.
        offset: offset of the last committed record below the last stable offset; -1 if there is none.
        tombstone: True if that record deletes the key.
        value: value as ``krepair dump`` shows it, shortened; empty if it cannot be shown (a facts file holds no
            values).
    """

    broker: int
    offset: int = -1
    tombstone: bool = False
    value: str = ""


class KeyLine(Struct, frozen=True, kw_only=True):
    """Key on which replicas disagree.

    Attributes:
        offset: offset of the record that one replica has and another lacks.
        key: key as ``krepair dump`` shows it; only its hash if it comes from a facts file.
        have: brokers that have the record.
        lack: brokers that have neither the record nor a later record of the key.
        served: record that each replica would serve.
    """

    offset: int
    key: str
    have: tuple[int, ...] = ()
    lack: tuple[int, ...] = ()
    served: tuple[ServedKey, ...] = ()


class Disagreement(Struct, frozen=True, kw_only=True):
    """One fault of a replica, or one contradiction between replicas.

    Attributes:
        kind: kind of the disagreement, a stable word.
        rule: finding code ``KRnnn``.
        brokers: brokers whose replicas are wrong; for a fork or an undecidable case, those that disagree.
        right: brokers whose replicas are right at these offsets, as far as that is known; empty if no replica can be
            called right.
        offset: first offset concerned, -1 if there is none.
        count: number of records or keys, at least 1.
        text: description of the disagreement and of its effect, in one line.
        would_tell: evidence that would decide an undecidable case; else empty.
        keys: first of the keys concerned.
        may_lead: brokers that do no harm as leader, one of which must lead, for ``leader-decides``; else empty.
        must_not_lead: brokers that do harm as leader, for ``leader-decides``; else empty.
    """

    kind: str
    rule: str
    brokers: tuple[int, ...]
    offset: int
    text: str
    right: tuple[int, ...] = ()
    count: int = 1
    would_tell: str = ""
    keys: tuple[KeyLine, ...] = ()
    may_lead: tuple[int, ...] = ()
    must_not_lead: tuple[int, ...] = ()


def disagreement_of(
    kind: str,
    brokers: Iterable[int],
    offset: int,
    text: str,
    *,
    count: int = 1,
    would_tell: str = "",
    keys: tuple[KeyLine, ...] = (),
) -> Disagreement:
    """Build a disagreement; its finding code follows from its kind."""
    return Disagreement(
        kind=kind,
        rule=RULE_OF[kind],
        brokers=tuple(sorted(brokers)),
        offset=offset,
        text=text,
        count=count,
        would_tell=would_tell,
        keys=keys,
    )


class ReplicaColumn(Struct, frozen=True, kw_only=True):
    """One replica of a partition, as one column of the page.

    Attributes:
        broker: id of the broker that has the replica.
        log_start: log start offset of the replica.
        log_end: log end offset of the replica.
        last_stable_offset: offset up to which a ``read_committed`` reader can read.
        high_watermark: recorded high watermark, -1 for none.
        cleaner_position: recorded first dirty offset, -1 for none.
        clean_stop: True if the broker was stopped cleanly.
        log_bytes: size of all ``.log`` files in bytes.
        segments: number of segments in the log.
        state: state in a word: ``as it should be``, a verdict, or ``wrong``.
        from_facts: True if the replica was read from a facts file.
        highest_hole: highest offset within the log that has no record, -1 for none.
        limited: True if the broker is running, so that the replica was compared only up to ``log_end``.
    """

    broker: int
    log_start: int
    log_end: int
    last_stable_offset: int
    high_watermark: int
    cleaner_position: int
    clean_stop: bool
    log_bytes: int
    segments: int
    state: str = ""
    from_facts: bool = False
    highest_hole: int = -1
    limited: bool = False

    def has_each(self, first: int, end: int) -> bool:
        """Return whether the replica has every offset from ``first`` to ``end``, except those that a cleaner removed.

        If both replicas lack an offset, the comparison shows no difference; so a hole above the cleaner's position
        counts as missing.
        """
        return self.log_end >= end and self.highest_hole < max(first, self.cleaner_position)


class Harmless(str):
    """Harmless difference, in words.

    Attributes:
        name: name under which the difference is counted.
        more: additional explanation, may be empty.
    """

    name: str
    more: str

    def __new__(cls, name: str, more: str = "") -> Harmless:
        """Join name and explanation."""
        made = super().__new__(cls, f"{name} ({more})" if more else name)
        made.name, made.more = name, more
        return made


NEVER_CLEANED: Final = "never-cleaned"
"""Name of a difference that is harmless if the topic is compacted; krepair assumes that it is, but does not know."""


class PartitionVerdict(Struct, frozen=True, kw_only=True):
    """Result for one partition.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        verdict: worst verdict that applies; see ``VERDICTS``.
        disagreements: faults, replicas that are behind, and undecidable differences.
        harmless: names of harmless differences.
        right: brokers whose replicas are right in everything that was compared.
        replicas: columns of the replicas, by broker.
        records_read: True if records were compared, not only batches.
        next_command: command to type next, or empty.
    """

    topic: str
    partition: int
    verdict: str
    disagreements: tuple[Disagreement, ...] = ()
    harmless: tuple[Harmless, ...] = ()
    right: tuple[int, ...] = ()
    replicas: tuple[ReplicaColumn, ...] = ()
    records_read: bool = False
    next_command: Next = field(default_factory=Next)

    @property
    def name(self) -> str:
        """Name ``topic-partition`` of the partition."""
        return f"{self.topic}-{self.partition}"

    def diverges_from(self, broker: int) -> int:
        """Return the first offset of the tail that this replica would truncate as a follower; -1 for none.

        No possible leader has that tail. Its first offset lies below the log end of this replica.
        """
        end = next((column.log_end for column in self.replicas if column.broker == broker), -1)
        tails = [
            fact.offset for fact in self.disagreements if (fact.kind, fact.brokers) == (BEHIND, (broker,))
        ]
        return min((offset for offset in tails if offset < end), default=-1)
