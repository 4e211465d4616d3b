"""The words of a comparison: kinds of disagreement, verdicts, and what is said of each partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field

from krepair.next_command import Next

# what two replicas may disagree in
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

# verdicts, the worst first
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
"""State of a replica of which nothing is wrong."""
MUST_NOT_LEAD: Final = "must not lead"
"""State of a replica that is right, and does harm as the leader of one that is behind."""
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
"""Kind of disagreement -> its row in the catalogue. What is harmless has KR666."""
VERDICT_OF: Final = {kind: verdict for kind, (_, verdict) in _KINDS.items()}


class ServedKey(Struct, frozen=True, kw_only=True):
    """What one replica would serve of a key as leader, to a ``read_committed`` reader.

    Attributes:
        broker: whose replica.
        offset: of the last committed record below its last stable offset; -1 if it has none.
        tombstone: whether that record deletes the key.
        value: the value as ``krepair dump`` shows it, cut; empty if it cannot be shown (a facts file holds no values).
    """

    broker: int
    offset: int = -1
    tombstone: bool = False
    value: str = ""


class KeyLine(Struct, frozen=True, kw_only=True):
    """One key on which replicas disagree.

    Attributes:
        offset: of the record that one has and another lacks.
        key: as ``krepair dump`` shows it; of facts files only its hash.
        have: brokers that have the record.
        lack: brokers that have neither it nor a later one.
        served: what each would serve.
    """

    offset: int
    key: str
    have: tuple[int, ...] = ()
    lack: tuple[int, ...] = ()
    served: tuple[ServedKey, ...] = ()


class Disagreement(Struct, frozen=True, kw_only=True):
    """One thing in which replicas of a partition are not as they should be.

    Attributes:
        kind: what it is.
        rule: ``KRnnn``.
        brokers: whose replicas are wrong; of a fork and of what cannot be told, those that disagree.
        right: brokers whose replicas are right about it, as far as that can be said; empty if none is by itself.
        offset: first offset, -1 if it has none.
        count: how many records or keys, at least 1.
        text: what is there and what it means, one line.
        would_tell: of what cannot be told: what would tell; else empty.
        keys: the first of them.
        may_lead: of who leads decides: brokers that do no harm as leader, one of which must lead; else empty.
        must_not_lead: of who leads decides: brokers that do harm as leader; else empty.
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


def said(
    kind: str,
    brokers: Iterable[int],
    offset: int,
    text: str,
    *,
    count: int = 1,
    would_tell: str = "",
    keys: tuple[KeyLine, ...] = (),
) -> Disagreement:
    """A disagreement, with its row in the catalogue."""
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
    """One replica of a partition.

    Attributes:
        broker: whose.
        log_start: offset.
        log_end: offset.
        last_stable_offset: to which a ``read_committed`` reader gets.
        high_watermark: recorded, -1 none.
        cleaner_position: -1 none.
        clean_stop: whether its broker was cleanly stopped.
        log_bytes: of all ``.log``.
        segments: how many.
        state: in a word: ``as it should be``, a verdict, or ``wrong``.
        from_facts: whether it was read from a facts file.
        highest_hole: highest offset that has no record although it lies in the log, -1 none.
        limited: whether its broker runs, so that it was compared up to ``log_end`` only.
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
        """Whether it goes on to an end, and no offset is missing from a first one on, but for what a cleaner took.

        Nothing can be held against a part that another replica has lost. So nobody tells that it is gone here, too.
        """
        return self.log_end >= end and self.highest_hole < max(first, self.cleaner_position)


class Harmless(str):
    """What differs and does no harm, in words.

    Attributes:
        name: under which it is counted.
        more: what is said of it besides, may be empty.
    """

    name: str
    more: str

    def __new__(cls, name: str, more: str = "") -> Harmless:
        """Put the words together."""
        made = super().__new__(cls, f"{name} ({more})" if more else name)
        made.name, made.more = name, more
        return made


NEVER_CLEANED: Final = "never-cleaned"
"""Name of what does no harm only if the topic is compacted, which nobody has said."""


class PartitionVerdict(Struct, frozen=True, kw_only=True):
    """What is said of one partition.

    Attributes:
        topic: its name.
        partition: its number.
        verdict: the worst that is found; see ``VERDICTS``.
        disagreements: what is wrong, behind or cannot be told.
        harmless: names of what differs and does no harm.
        right: brokers whose replicas are right in everything that was compared.
        replicas: what each holds, by broker.
        records_read: whether records were compared, not only batches.
        next_command: what to type next, or empty.
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
        """``topic-partition``."""
        return f"{self.topic}-{self.partition}"

    def own_tail(self, broker: int) -> int:
        """Offset from which a replica has records that others have not, and loses them at its start; -1 if none.

        What it lacks itself begins at its end, never before.
        """
        end = next((one.log_end for one in self.replicas if one.broker == broker), -1)
        tails = [one.offset for one in self.disagreements if (one.kind, one.brokers) == (BEHIND, (broker,))]
        return min((offset for offset in tails if offset < end), default=-1)
