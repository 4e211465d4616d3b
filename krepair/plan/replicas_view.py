"""The first lines of a plan's page: what other replicas decide, which consents were given, and what more could go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from krepair.plan.model import Evidence, KeyCompaction, PartitionPlan, Plan
from krepair.plan.view import Section, Table, bytes_text, bytes_words, count_text, table_of
from krepair.rules.evidence import BY_TIME, NONE, WAYS
from krepair.rules.reasons import Reason

WITH_CLUSTER: Final = ("--cluster", "cluster.txt")
DESCRIBE: Final = "kafka-topics.sh --bootstrap-server HOST:PORT --describe > cluster.txt"
_WHAT: Final = {
    "none": "markers and tombstones stay whole",
    "replicas": "what no other replica needs goes",
    "in-sync": "by time, all other replicas are in sync without this one",
    "only-replica": "consent: no other replica",
    "as-broker": "consent: by time alone",
}
_AS_BROKER: Final = (
    "Consent --as-broker: markers and tombstones go by time alone. A replica that was away for longer than "
    "delete.retention.ms and comes back may serve deleted values again, and read_committed readers may stand still."
)
_ONLY_REPLICA: Final = (
    "Consent --only-replica: that there is no other replica is your word. {held} If there is one, it may serve deleted "
    "values again after this plan, and read_committed readers may stand still at it."
)
_NOTHING_HELD: Final = (
    "No metadata log was found that could contradict it, in this log directory or where --config puts it."
)
_YOUR_WORD: Final = ("is your word", "is your word too", "this is the time of the copy")
_ASSUMED: Final = (
    "Consent --assume-high-watermark: what is removed rests on records that may not be on other replicas. If this "
    "broker loses them after its start, the older records are gone."
)


def replicas_sections(plan: Plan, again: str) -> Iterator[Section]:
    """What other replicas decide; nothing where nothing was decided on markers or keys.

    Args:
        plan: any plan.
        again: command that makes the plan again with what the other brokers say; it may be empty.
    """
    known = [(one, one.evidence) for one in plan.partitions if isinstance(one.evidence, Evidence)]
    left_out = sum(evidence.by_time_bytes for _, evidence in known if evidence.keeps_all)
    later = sum(evidence.later_bytes for _, evidence in known if evidence.keeps_all)
    lines = [*_consents(plan, known), *_found(known)] if known else []
    if left_out:
        lines.append(
            f"{bytes_words(left_out)} more would go with evidence that no other replica needs them. After this "
            "broker has stopped, ask the running brokers, and make the plan again:"
        )
    elif later:
        lines.append(
            f"No horizon by itself lets markers or tombstones go here. With one of the options below, and a later "
            f"--delete-horizon, up to {bytes_words(later)} more would go."
        )
    commands = (DESCRIBE, again) if left_out and again else ()
    yield Section(
        title="What other replicas decide",
        lines=tuple(lines),
        table=_parts(plan, known) if known else None,
        commands=commands,
    )
    ways = tuple((way.option, way.when, way.goes, way.rests) for way in WAYS)
    yield Section(
        title="Options that let markers and tombstones go, in the order in which to try them",
        table=table_of("option | when | what may go | it rests on", ways if left_out or later else ()),
    )


def _consents(plan: Plan, known: Sequence[tuple[PartitionPlan, Evidence]]) -> Iterator[str]:
    kinds = {evidence.kind for _, evidence in known}
    others = plan.policy.others
    if plan.policy.assume_high_watermark:
        yield _ASSUMED
    if "as-broker" in kinds:
        yield _AS_BROKER
    if "only-replica" in kinds and others.only_replica:
        logs = ", ".join(others.own_metadata)
        yield _ONLY_REPLICA.format(held=f"{logs} does not contradict it." if logs else _NOTHING_HELD)


def _found(known: Sequence[tuple[PartitionPlan, Evidence]]) -> Iterator[str]:
    """How many partitions there are of each kind, and why there is no evidence."""
    for kind, count in sorted(Counter(evidence.kind for _, evidence in known).items()):
        yield f"{count_text(count, 'partition')}: {_WHAT[kind]}."
    yield from _rounds([one for one, evidence in known if evidence.kind == "replicas"])
    words = Counter(
        clause
        for _, evidence in known
        if not evidence.keeps_all
        for clause in evidence.why.split("; ")
        if clause.endswith(_YOUR_WORD)
    )
    for clause, count in sorted(words.items()):
        yield f"{count_text(count, 'partition')}: {clause}."
    reasons = Counter(evidence.why for _, evidence in known if evidence.keeps_all)
    for why, count in reasons.most_common(3):
        yield f"No evidence for {count_text(count, 'partition')}: {why}."


def _rounds(partitions: Sequence[PartitionPlan]) -> Iterator[str]:
    """Which round this is, where a cluster is done broker by broker, and what the next one will free."""
    if not partitions:
        return
    held = [tally for one in partitions for tally in one.reasons if tally.reason == Reason.MARKER_HELD.value]
    tombstones = sum(
        one.compaction.tombstones_kept for one in partitions if isinstance(one.compaction, KeyCompaction)
    )
    if held or tombstones:
        size = bytes_text(sum(tally.bytes for tally in held))
        yield (
            f"First round: {count_text(sum(tally.batches for tally in held), 'marker')} of {size} bytes and up to "
            f"{count_text(tombstones, 'tombstone')} stay, since another replica still holds older data, or their time "
            "has not come. Plan, apply, "
            "verify and purge on the other brokers, one by one; then a second plan here frees what they let go."
        )
    else:
        yield "Last round: other replicas hold nothing back."


def _parts(plan: Plan, known: Sequence[tuple[PartitionPlan, Evidence]]) -> Table:
    always = sum(evidence.always_bytes for _, evidence in known)
    by_time, later = 0, 0
    for partition, evidence in known:
        goes = _bytes_by_horizon(plan, partition, evidence)
        by_time += min(goes, evidence.by_time_bytes)
        later += min(max(goes - evidence.by_time_bytes, 0), evidence.later_bytes)

    def row(name: str, goes: int, of: int) -> tuple[str, str, str]:
        return name, bytes_text(goes), bytes_text(of - goes)

    rows = (
        row("superseded and aborted records, emptied batches", always, always),
        row(
            "markers and tombstones up to the horizon newest",
            by_time,
            sum(evidence.by_time_bytes for _, evidence in known),
        ),
        row(
            "markers and tombstones up to a later horizon, at most",
            later,
            sum(evidence.later_bytes for _, evidence in known),
        ),
    )
    return table_of("part | # bytes in this plan | # bytes left out", rows)


def _bytes_by_horizon(plan: Plan, partition: PartitionPlan, evidence: Evidence) -> int:
    """Bytes of markers and tombstones that the chosen horizon lets go."""
    if evidence.keeps_all:
        return 0
    after = {choice.name: choice.log_bytes_after for choice in partition.horizons}
    chosen = next((choice.name for choice in partition.horizons if choice.chosen), "")
    if not chosen or NONE not in after:
        # A plan without the result of each choice.
        later = plan.policy.horizon.isdigit() and evidence.kind not in BY_TIME
        return evidence.by_time_bytes + (evidence.later_bytes if later else 0)
    keys = partition.compaction.horizons if isinstance(partition.compaction, KeyCompaction) else ()
    goes = {choice.name: choice.dropped_bytes for choice in keys}
    return max(after[NONE] - after[chosen] + goes.get(chosen, 0) - goes.get(NONE, 0), 0)
