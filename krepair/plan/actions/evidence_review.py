"""Reviews what a plan removes against what it says of other replicas: an edited plan must not remove more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import UnsetType

from krepair.formats.filenames import offset_name
from krepair.formats.words import count_text
from krepair.plan.facts import PartitionFacts, is_plain_path, setting
from krepair.plan.model import Evidence, Others, Plan, RewriteSegments, SourceSegment
from krepair.plan.objection import Objection
from krepair.rules.evidence import BY_TIME, Kind, latest_horizon_ms
from krepair.rules.reasons import Reason

_GONE: Final = frozenset({Reason.MARKER.value, Reason.MARKER_STAMP_PAST.value, Reason.LAST_EMPTIED_NOW.value})
"""Reasons with which a marker goes, or is emptied, which is the same for a follower."""
_HORIZON_NAMES: Final = frozenset({"newest", "next-pass"})


def evidence_of_partition(facts: PartitionFacts, changes: Sequence[RewriteSegments]) -> Iterator[Objection]:
    """All objections to removals that the evidence does not allow."""
    others, evidence, where = facts.policy.others, facts.partition.evidence, facts.partition.folder
    sources = [source for change in changes for source in change.sources]
    if isinstance(evidence, UnsetType):
        yield Objection("RV33", where, "segments are rewritten, but nothing is said of other replicas")
        return
    why = _why_not_asked(others, evidence, facts.partition.topic)
    if why:
        yield Objection("RV33", where, f"its evidence is {evidence.kind!r}, but {why}")
    for source in sources:
        yield from _source(source, evidence, f"{where}/{offset_name(source.base_offset)}")
    latest = latest_horizon_ms(evidence.kind, facts.policy.now_ms, _retention_ms(facts))
    by_time = evidence.kind in BY_TIME or facts.policy.horizon in _HORIZON_NAMES
    if by_time:
        latest = min(latest, facts.policy.now_ms - _retention_ms(facts))
    if not evidence.keeps_all and facts.partition.horizon_ms > max(latest, 0):
        text = f"the delete horizon {facts.partition.horizon_ms} is later than {evidence.kind!r} allows: {latest}"
        yield Objection("RV33", where, text)


def evidence_of_searches(plan: Plan) -> Iterator[Objection]:
    """All objections to the directories in which ``apply`` looks for replicas that a broker is about to make.

    Every log that the plan rests on is in one of them, or in the plan's own.
    """
    others = plan.policy.others
    paths = [one.path for one in others.searched]
    if paths != sorted(set(paths)):
        yield Objection("RV33", "", "the log directories that were searched are not by path, each once")
    for path in paths:
        if not is_plain_path(path):
            yield Objection("RV33", "", f"{path!r} was searched, which is not an absolute, plain path")
    searched = {plan.log_dir, *paths}
    for part in plan.changing:
        logs = () if isinstance(part.evidence, UnsetType) else part.evidence.logs
        for log_dir in sorted({log.log_dir for log in logs} - searched):
            text = f"the plan rests on a log in {log_dir!r}, which is not among the directories that were searched"
            yield Objection("RV33", part.folder, text)


def _source(source: SourceSegment, evidence: Evidence, where: str) -> Iterator[Objection]:
    if source.keeps != evidence.keeps_all or isinstance(source.keeps_all, UnsetType):
        yield Objection("RV33", where, f"keeps_all does not fit the evidence {evidence.kind!r}")
    if not evidence.keeps_all:
        return
    markers, tombstones = _going(source)
    if markers or tombstones or source.drop_unstamped:
        goes = _goes_text(markers, tombstones)
        yield Objection("RV33", where, f"{goes} would go, but nothing is known of other replicas")


def _going(source: SourceSegment) -> tuple[int, int]:
    """(markers, tombstones) of a source that would go."""
    markers = sum(tally.batches for tally in source.reasons if tally.reason in _GONE)
    return markers, 0 if source.by_key is None else source.by_key.tombstones


def _goes_text(markers: int, tombstones: int) -> str:
    counts = ((markers, "marker"), (tombstones, "tombstone"))
    parts = [count_text(count, word) for count, word in counts if count]
    return " and ".join(parts) or "what has no delete horizon of its own"


def _why_not_asked(others: Others, evidence: Evidence, topic: str) -> str:
    """Why the options of the plan cannot have given this evidence, or empty."""
    given: dict[Kind, bool] = {
        "none": True,
        "in-sync": bool(others.cluster_digest) and others.cluster_source == "describe",
        "replicas": bool(others.cluster_digest) and bool(others.replicas),
        "only-replica": topic in others.only_replica
        or "*" in others.only_replica
        or bool(others.own_metadata),
        "as-broker": others.as_broker,
    }
    return "" if given[evidence.kind] else "no option of the plan says so"


def _retention_ms(facts: PartitionFacts) -> int:
    text = setting(facts.policy, facts.partition.topic, "delete.retention.ms")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 2**63 - 1
