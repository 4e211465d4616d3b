"""Which tombstones stay because of what other brokers have answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from krepair.errors import UnreadableError
from krepair.fixes.other_logs import OtherReplicas
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.items import Place
from krepair.rules.model import LeftAlone, MarkerPolicy, SegmentFacts

if TYPE_CHECKING:
    from krepair.pipeline.compaction.items import OffsetFile
    from krepair.pipeline.replicas.questions import Log

OTHER_LOG: Final = "the answers are to a question about another log: tombstones stay"
NO_ANSWER: Final = (
    "facts without an answer say nothing of tombstones: they stay (krepair plan LOGDIR --ask FILE)"
)


def log_below(
    place: Place, segments: Sequence[SegmentFacts], policy: MarkerPolicy
) -> tuple[Log, int] | LeftAlone:
    """The log of a replica, of which the tombstones below the bound of compaction are looked at; and that bound.

    Args:
        place: of the replica.
        segments: all of it, scanned.
        policy: of the partition.
    """
    from krepair.pipeline.replicas.questions import Log
    from krepair.rules.compaction import bound_of

    bound = bound_of(segments, policy)
    if isinstance(bound, LeftAlone):
        return bound
    inside = segments[: bound.span.segments]
    after = inside[-1].base_offset + 1 if inside else 0
    logs = tuple((facts.base_offset, facts.summary.valid_bytes) for facts in segments)
    return Log(place, logs, after), after


def with_answers(
    engine: Engine,
    place: Place,
    segments: Sequence[SegmentFacts],
    policy: MarkerPolicy,
    others: OtherReplicas,
    scratch: str,
) -> tuple[MarkerPolicy, tuple[OffsetFile, ...], str]:
    """What the answers of other brokers hold back.

    Args:
        engine: where tasks run.
        place: of this replica.
        segments: all of it, scanned.
        policy: of the partition.
        others: the other replicas.
        scratch: path of a scratch folder, empty if there is none.

    Returns:
        (the policy, which keeps all tombstones if nothing was answered; offsets of tombstones that stay; why all of
        them stay, or empty).

    Raises:
        UnreadableError: an answer, or a scratch file, cannot be read.
    """
    if not others.facts or policy.keeps_all:
        return policy, (), ""
    answers = [one.answer for one in others.facts if one.answer is not None]
    keeping = replace(policy, keeps_tombstones=True)
    if len(answers) < len(others.facts):
        why = "; ".join(one.not_answered for one in others.facts if one.not_answered)
        return keeping, (), f"tombstones stay: {why}" if why else NO_ANSWER
    from krepair.formats.facts_file import FactsDamagedError
    from krepair.pipeline.replicas.questions import Answer, NotReadError, held_tombstones, tombstones_of

    log = log_below(place, segments, policy)
    if isinstance(log, LeftAlone):
        return policy, (), ""
    first = answers[0]
    try:
        files = tombstones_of(engine, log[0], first.secret, scratch)
        held = held_tombstones(
            first.asked,
            first.secret,
            files,
            [Answer(one.reader, one.number, one.answered.held) for one in answers],
            min(others.reach, *(one.answered.end for one in answers)),
            scratch,
        )
    except (FactsDamagedError, NotReadError, OSError) as error:
        raise UnreadableError(f"{place.path}, answers of other brokers: {error}") from None
    return (keeping, (), OTHER_LOG) if held is None else (policy, held, "")


def why_tombstones_may_not_go(
    engine: Engine,
    place: Place,
    segments: Sequence[SegmentFacts],
    policy: MarkerPolicy,
    others: OtherReplicas,
    gone: Sequence[OffsetFile],
    scratch: str,
) -> str:
    """Hold the tombstones that are gone against the answers once more, without the decision; empty if all is right.

    Args:
        engine: where tasks run.
        place: of this replica.
        segments: all of it as it was, scanned.
        policy: of the partition.
        others: the other replicas.
        gone: offsets of the tombstones that are gone.
        scratch: path of a scratch folder, empty if there is none.

    Raises:
        UnreadableError: an answer, or a scratch file, cannot be read.
    """
    if not others.facts or not any(file.path or file.data for file in gone):
        return ""
    answers = [one.answer for one in others.facts if one.answer is not None]
    log = log_below(place, segments, policy)
    if len(answers) < len(others.facts) or isinstance(log, LeftAlone):
        return "tombstones are gone, but not every broker that is given as facts has answered for them"
    from krepair.formats.facts_file import FactsDamagedError
    from krepair.pipeline.replicas.answers_check import tombstone_without_leave
    from krepair.pipeline.replicas.questions import Answer, NotReadError, tombstones_of

    first = answers[0]
    try:
        offset = tombstone_without_leave(
            gone,
            first.asked,
            first.secret,
            tombstones_of(engine, log[0], first.secret, scratch),
            [Answer(one.reader, one.number, one.answered.held) for one in answers],
            min(others.reach, *(one.answered.end for one in answers)),
        )
    except (FactsDamagedError, NotReadError, OSError) as error:
        raise UnreadableError(f"{place.path}, answers of other brokers: {error}") from None
    return "" if offset < 0 else f"the tombstone at offset {offset} is gone, but the answers do not let it go"
