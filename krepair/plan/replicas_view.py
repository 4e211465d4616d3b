"""The part of a plan's page about other replicas: what they decide, and what more could go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from krepair.plan.model import Evidence, KeyCompaction, PartitionPlan, Plan
from krepair.plan.short import left_out_bytes
from krepair.plan.view import Section, Table, bytes_words, count_text, size_text, table_of
from krepair.rules.evidence import BY_TIME, DESCRIBE, NONE
from krepair.rules.reasons import Reason

_WHAT: Final = {
    "none": "markers and tombstones stay whole",
    "replicas": "what no other replica needs goes",
    "in-sync": "by time, all other replicas are in sync without this one",
    "only-replica": "consent: no other replica",
    "as-broker": "consent: by time alone",
}
_MOST: Final = 3


def replicas_section(plan: Plan, with_evidence: str) -> Section:
    """What other replicas decide; nothing where nothing was decided on markers or keys.

    Args:
        plan: any plan.
        with_evidence: command that makes the plan again with what the other brokers say; it may be empty.
    """
    known = [(one, one.evidence) for one in plan.partitions if isinstance(one.evidence, Evidence)]
    left_out = left_out_bytes(plan)
    later = sum(evidence.later_bytes for _, evidence in known if evidence.keeps_all)
    lines = list(_found(known)) if known else []
    if left_out:
        lines.append(
            f"{bytes_words(left_out)} more would go with evidence that no other replica needs them. After this "
            "broker has stopped, ask the running brokers, and make the plan again:"
        )
    elif later:
        lines.append(
            f"Up to {bytes_words(later)} more would go with evidence and a later --delete-horizon: krepair explain "
            "evidence."
        )
    return Section(
        title="Other replicas",
        lines=tuple(lines),
        table=_parts(plan, known) if known else None,
        commands=(DESCRIBE, with_evidence) if left_out and with_evidence else (),
        part="replicas",
    )


def _found(known: Sequence[tuple[PartitionPlan, Evidence]]) -> Iterator[str]:
    """How many partitions there are of each kind, and why there is no evidence."""
    for kind, count in sorted(Counter(evidence.kind for _, evidence in known).items()):
        yield f"{count_text(count, 'partition')}: {_WHAT[kind]}."
    yield from _rounds([one for one, evidence in known if evidence.kind == "replicas"])
    used = Counter(evidence.why for _, evidence in known if not evidence.keeps_all)
    for why, count in used.most_common(_MOST):
        yield f"Evidence for {count_text(count, 'partition')}: {why}."
    reasons = Counter(evidence.why for _, evidence in known if evidence.keeps_all)
    for why, count in reasons.most_common(_MOST):
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
        size = size_text(sum(tally.bytes for tally in held))
        yield (
            f"First round: {count_text(sum(tally.batches for tally in held), 'marker')} of {size} and up to "
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
        return name, size_text(goes), size_text(of - goes)

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
    return table_of("what | # goes | # stays", rows)


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
