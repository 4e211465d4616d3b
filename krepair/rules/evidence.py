"""Evidence about the other replicas of a partition, and what may therefore be removed from this replica.

The first half decides whether transaction markers and tombstones may be removed. The second half describes which
brokers have the records that a plan removes from a log.

Kafka brings a returning replica up to date by offsets and epochs alone. So a tombstone or a transaction marker may be
removed from one replica only if no other replica can later hold the older value, or the data of the transaction,
without it. A log directory does not show that. ``docs/replicas.md`` explains how replicas diverge, and what each kind
of evidence rests on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from msgspec import Struct

from krepair.next_command import Next
from krepair.rules.replicas.model import MISSING, ReplicaColumn

if TYPE_CHECKING:
    from krepair.logdir.cluster import Assignment

Kind = Literal["none", "in-sync", "only-replica", "as-broker", "replicas"]

NONE: Final = "none"
BY_TIME: Final[frozenset[Kind]] = frozenset({"in-sync", "as-broker"})
"""Kinds of evidence with which nothing younger than ``delete.retention.ms`` is removed."""

_ANY_TIME_MS: Final = 2**63 - 1


class OtherLog(Struct, frozen=True, kw_only=True):
    """Log of another replica that was read.

    Attributes:
        broker_id: id of the broker that has this replica.
        log_dir: absolute path of the replica's log directory.
        folder: partition folder in that log directory.
        digest: 32 hex digits over name, size and time of all files in the folder.
    """

    broker_id: int
    log_dir: str
    folder: str
    digest: str


class Evidence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reason why transaction markers and tombstones of one partition may be removed, or are kept.

    Attributes:
        kind: ``none`` (they are kept), ``replicas`` (the logs of all other replicas were read), ``in-sync`` (all other
            replicas are in sync without this one, by time), ``only-replica`` (there is no other replica), ``as-broker``
            (by time alone, by consent).
        why: explanation in one line, for the reviewer.
        logs: logs that were read for ``replicas``; ``apply`` needs them again, unchanged.
        always_bytes: bytes of superseded and aborted records and of retained empty batches, which may be removed
            without evidence (reader only).
        by_time_bytes: bytes of transaction markers and tombstones up to the horizon ``newest`` (reader only).
        later_bytes: bytes of transaction markers and tombstones that only a later horizon would remove (reader only).
    """

    kind: Kind
    why: str
    logs: tuple[OtherLog, ...] = ()
    always_bytes: int = 0
    by_time_bytes: int = 0
    later_bytes: int = 0

    @property
    def keeps_all(self) -> bool:
        """True if transaction markers and tombstones are kept whatever their age."""
        return self.kind == NONE


WITH_CLUSTER: Final = ("--cluster", "cluster.txt")
"""Option that reads the output of ``DESCRIBE``."""
DESCRIBE: Final = Next.by_hand("kafka-topics.sh --bootstrap-server HOST:PORT --describe > cluster.txt")


class EvidenceOption(
    Struct, frozen=True, tag_field="kind", tag="evidence", rename={"removes": "goes", "assumption": "rests"}
):
    """Option that allows krepair to remove transaction markers and tombstones.

    Attributes:
        option: option as the operator types it.
        when: situation in which it is the right option.
        removes: markers and tombstones that may be removed with the option.
        assumption: assumption on which it rests.
    """

    option: str
    when: str
    removes: str
    assumption: str


EVIDENCE_OPTIONS: Final = (
    EvidenceOption(
        "--cluster FILE",
        "The other brokers run. Type kafka-topics.sh --bootstrap-server HOST:PORT --describe > FILE after this broker "
        "has stopped.",
        "markers and tombstones older than delete.retention.ms",
        "all other replicas are in sync without this one",
    ),
    EvidenceOption(
        "--replicas ID=DIR, with --cluster FILE",
        "The log directories of the other brokers can be read here, and these brokers are stopped.",
        "exactly what no other replica needs, at any horizon",
        "the logs of all assigned replicas",
    ),
    EvidenceOption(
        "--only-replica TOPIC",
        "The topic has replication factor 1, or there is only this broker (then type '*').",
        "markers and tombstones, at any horizon",
        "your statement that there is no other replica",
    ),
    EvidenceOption(
        "--as-broker",
        "You accept what Kafka accepts: a replica away for longer than delete.retention.ms may diverge.",
        "markers and tombstones older than delete.retention.ms",
        "your consent",
    ),
)
"""Options that allow krepair to remove transaction markers and tombstones, in the order in which to try them."""


def latest_horizon_ms(kind: Kind, now_ms: int, delete_retention_ms: int) -> int:
    """Return the latest delete horizon that a kind of evidence allows, in epoch ms; 0 for ``none``."""
    if kind == NONE:
        return 0
    return now_ms - delete_retention_ms if kind in BY_TIME else _ANY_TIME_MS


CLOCKS_APART_MS: Final = 60_000
"""Tolerated difference in ms between this broker's clock and that of the host that asked the cluster."""


def why_outdated(as_of_ms: int, stopped_ms: int) -> str:
    """Return why a cluster state is too old (it was taken before this broker stopped); empty if it is new enough.

    Args:
        as_of_ms: time of the file with the state. It is never earlier than the answer, but a file that was copied or
            touched later has a later time and passes this test. ``why_not_in_sync`` then still rejects the output,
            because it lists this broker in the ISR, unless the output stems from an earlier stop.
        stopped_ms: time of this broker's last write.
    """
    if as_of_ms + CLOCKS_APART_MS < stopped_ms:
        late = (stopped_ms - as_of_ms) // 1000
        return (
            f"the state of the cluster is from {late} s before this broker's last write: run kafka-topics.sh after "
            "this broker has stopped"
        )
    return ""


def why_other_topic(topic_id: str, line: Assignment) -> str:
    """Return why a line of ``--describe`` is about another topic of the same name, or empty; unknown ids match all."""
    if not topic_id or not line.topic_id or line.topic_id == topic_id:
        return ""
    return f"its topic id is {topic_id}, the state of the cluster has {line.topic_id}"


def why_not_in_sync(broker_id: int, topic_id: str, line: Assignment | None) -> str:
    """Return why a line of ``--describe`` does not prove that all other replicas are in sync without this broker.

    An output that is newer than this broker's stop lists the broker as a replica that is not in sync. So does an output
    from an earlier stop; ``why_outdated`` excludes that case by the time.

    Args:
        broker_id: id of this broker, -1 if unknown.
        topic_id: topic id in the partition folder, empty if unknown.
        line: line of the partition, None if there is none.

    Returns:
        The reason, or empty.
    """
    if line is None:
        return "the output of --describe does not list it"
    if broker_id < 0:
        return "meta.properties does not say which broker this is"
    others = [broker for broker in line.replicas if broker != broker_id]
    behind = [broker for broker in others if broker not in line.isr]
    why = ""
    if broker_id not in line.replicas:
        why = f"broker {broker_id} is not among its replicas"
    elif other := why_other_topic(topic_id, line):
        why = other
    elif not others:
        why = (
            "this broker is its only replica there: if no replica was added or removed since, "
            "--only-replica TOPIC allows removing markers and tombstones"
        )
    elif broker_id in line.isr:
        why = f"broker {broker_id} is still in sync there: the output was written before this broker had stopped"
    elif line.leader not in others or line.leader not in line.isr:
        why = "no other replica that is in sync leads it"
    elif behind:
        noun, verb = ("replica", "is") if len(behind) == 1 else ("replicas", "are")
        why = f"{noun} {', '.join(map(str, behind))} {verb} not in sync"
    return why


# -- which other replicas have the records that a plan removes from a log, and which of them should lead  A broker that
# starts as the only member of the ISR leads, and all followers truncate their logs to its end, even if they have
# records above that end. Source: ReplicaFetcherThread.scala (2.2.1, 3.9.2); run on clusters of 2.2.1, 3.9.2 and 4.3.1.

OPEN: Final = -1
"""End of a range that continues as far as any replica has it."""


class CutPart(Enum):
    """Part of a log that a plan removes."""

    END = "end"
    MIDDLE = "middle"
    START = "start"
    EPOCHS = "epochs"


class CutRange(NamedTuple):
    """Range that a plan removes from one log.

    Attributes:
        part: part of the log. With ``EPOCHS`` no offset is removed, only the leader epoch file changes.
        first: first offset that is removed.
        end: offset after the last removed one, or ``OPEN``.
    """

    part: CutPart
    first: int = 0
    end: int = 0


class Holders(NamedTuple):
    """Brokers sorted by whether their replicas have the range that a plan removes.

    Attributes:
        confirmed: brokers that have the whole range and whose replicas the comparison calls right.
        unsure: brokers that may have the range: their log covers it, but the comparison does not call the log right,
            or the log may have holes, or it was not read to its end.
        lacking: brokers that lack the records.
    """

    confirmed: tuple[int, ...] = ()
    unsure: tuple[int, ...] = ()
    lacking: tuple[int, ...] = ()


def who_has(
    removed: CutRange,
    others: Iterable[ReplicaColumn],
    confirmed_brokers: Collection[int],
    diverges_from: int = -1,
) -> Holders:
    """Sort the other replicas by whether they have a range that a plan removes.

    Args:
        removed: range of offsets that is removed.
        others: columns of the other replicas.
        confirmed_brokers: brokers whose replicas the comparison calls right.
        diverges_from: offset from which this replica's history differs from the others, -1 if it does not.
    """
    history_diverges = diverges_from >= 0 and (removed.end == OPEN or diverges_from < removed.end)
    confirmed: list[int] = []
    unsure: list[int] = []
    lacking: list[int] = []
    for replica in others:
        covers = _covers(replica, removed)
        whole = removed.part is CutPart.EPOCHS or (
            replica.has_each(removed.first, removed.end) and not history_diverges
        )
        if covers and whole and replica.broker in confirmed_brokers:
            confirmed.append(replica.broker)
        elif covers or replica.limited or replica.state == MISSING:
            unsure.append(replica.broker)
        else:
            lacking.append(replica.broker)
    return Holders(tuple(confirmed), tuple(unsure), tuple(lacking))


def _covers(replica: ReplicaColumn, removed: CutRange) -> bool:
    if removed.part is CutPart.EPOCHS:
        return replica.log_end > replica.log_start
    if removed.end == OPEN:
        return replica.log_start <= removed.first < replica.log_end
    return replica.log_start <= removed.first and replica.log_end >= removed.end


class LossText(NamedTuple):
    """Sentences of a plan about a range that it removes from one log.

    Attributes:
        extent: the removed range.
        holders: replicas that have the range, may have it or lack it; empty if no replica was compared.
        advice: the broker that should lead, or the next step.
    """

    extent: str
    holders: str
    advice: str


def describe_loss(folder: str, removed: CutRange, holders: Holders) -> LossText:
    """Describe a removed range for the reader of a plan.

    Args:
        folder: name of the partition folder, ``topic-partition``.
        removed: range of offsets that is removed.
        holders: brokers by whether they have the range.
    """
    return LossText(
        _extent_text(folder, removed),
        " ".join(_holders_text(removed, holders)),
        " ".join(_advice(removed, holders)),
    )


def _extent_text(folder: str, removed: CutRange) -> str:
    if removed.part is CutPart.EPOCHS:
        return f"{folder}: its leader epochs change, and followers truncate their logs by the epochs of their leader."
    if removed.end == OPEN:
        ends = f"the log ends at offset {removed.first} after this plan"
        return f"{folder}: {ends}; later records are removed from this replica."
    offsets = f"offsets {removed.first} to {removed.end - 1}"
    if removed.part is CutPart.END:
        ends = f"the log ends at offset {removed.first} after this plan"
        return f"{folder}: {ends}; {offsets} are removed from this replica."
    if removed.part is CutPart.START:
        begins = f"the log begins at offset {removed.end} after this plan"
        return f"{folder}: {begins}; {offsets} are removed from this replica."
    return f"{folder}: {offsets} are removed from the middle of the log."


def _holders_text(removed: CutRange, holders: Holders) -> Iterator[str]:
    if holders.confirmed:
        has, whom = ("have", "them") if len(holders.confirmed) > 1 else ("has", "it")
        content = "an intact log" if removed.part is CutPart.EPOCHS else "them"
        yield f"{_ids(holders.confirmed)} {has} {content}, and krepair compare calls {whom} right."
    if holders.unsure:
        has, whom = ("have", "them") if len(holders.unsure) > 1 else ("has", "it")
        if removed.part is CutPart.EPOCHS:
            yield f"{_ids(holders.unsure)} {has} a log, but krepair compare does not call {whom} right."
        else:
            yield f"{_ids(holders.unsure)} may have them, or other records in their place, or none."
    if holders.lacking and removed.part is not CutPart.EPOCHS:
        many = len(holders.lacking) > 1
        yield f"{_ids(holders.lacking)} {'do' if many else 'does'} not have them."


def _advice(removed: CutRange, holders: Holders) -> Iterator[str]:
    if holders.confirmed:
        leader = holders.confirmed[0]
        if removed.part in (CutPart.MIDDLE, CutPart.START):
            yield f"This log never gets them back by itself: let broker {leader} lead, and fetch this replica again."
        else:
            yield (
                f"Let broker {leader} lead before this broker starts: this one then follows it and fetches what it "
                "lacks."
            )
        yield (
            "If this broker is alone in the ISR, it leads, and the others truncate their logs to its end: do not start "
            "it."
        )
    elif holders.unsure:
        yield "Compare the replicas before you apply this plan."
    else:
        yield "No replica that was given has them: they are lost unless another one has them."


def _ids(brokers: Sequence[int]) -> str:
    return f"{'Replicas' if len(brokers) > 1 else 'Replica'} {' and '.join(map(str, brokers))}"
