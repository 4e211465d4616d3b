"""What ``krepair compare`` says of single partitions, in the few words that a proof needs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from krepair.logdir.values import LogDir
from krepair.ops.sides import Side
from krepair.options import Options
from krepair.rules.replicas.model import DAMAGED, DIVERGED, FORK, VERDICT_OF, Disagreement, PartitionVerdict

if TYPE_CHECKING:
    from krepair.ops.compare import CompareReport

_POLICY: Final = "cleanup.policy"
_WRONG: Final = frozenset({DIVERGED, DAMAGED})


class Judgement(NamedTuple):
    """What was said of one partition.

    Attributes:
        right: brokers whose replica is right.
        wrong: whether the replica at hand is wrong, and another one right.
        verdict: kinds and brokers, in words.
    """

    right: tuple[int, ...] = ()
    wrong: bool = False
    verdict: str = ""


def judge(
    view: LogDir,
    broker_id: int,
    sides: Sequence[Side],
    partitions: Iterable[tuple[str, int]],
    options: Options,
    policies: Mapping[str, str],
) -> Mapping[tuple[str, int], Judgement]:
    """Compare the replicas of some partitions, those of one ``cleanup.policy`` together.

    Args:
        view: the log directory at hand.
        broker_id: whose it is.
        sides: the other brokers.
        partitions: topics and numbers.
        options: settings, engine and scratch folder count.
        policies: ``cleanup.policy`` by topic, as the cluster says; what was typed goes before it.

    Raises:
        KrepairError: see ``krepair.ops.compare.compare``.
    """
    typed = options.topic_config or any(key == _POLICY for key, _ in options.settings)
    by_policy: dict[str, list[tuple[str, int]]] = {}
    for name in partitions:
        by_policy.setdefault("" if typed else policies.get(name[0], ""), []).append(name)
    found: dict[tuple[str, int], Judgement] = {}
    for policy, names in by_policy.items():
        report = compared(view, broker_id, sides, tuple(names), _with_policy(options, policy))
        found |= {(one.topic, one.partition): _of(one, broker_id, view, sides) for one in report.partitions}
    return found


def compared(
    view: LogDir,
    broker_id: int,
    sides: Sequence[Side],
    partitions: tuple[tuple[str, int], ...],
    options: Options,
) -> CompareReport:
    """What ``krepair compare`` says of some partitions of the log directory at hand and other brokers.

    Raises:
        KrepairError: see ``krepair.ops.compare.compare``.
    """
    from krepair.ops.compare import compare

    mine = Side(broker_id=broker_id, log_dirs=(view.path,))
    all_sides = sorted((mine, *sides), key=lambda side: side.broker_id)
    return compare(all_sides, replace(options, topics=(), partitions=partitions))


def _with_policy(options: Options, policy: str) -> Options:
    """Whether a topic is compacted decides what a missing record means."""
    return replace(options, settings=(*options.settings, (_POLICY, policy))) if policy else options


def _of(verdict: PartitionVerdict, broker_id: int, view: LogDir, sides: Sequence[Side]) -> Judgement:
    mine = [one for one in verdict.disagreements if broker_id in one.brokers]
    wrong = any(VERDICT_OF.get(one.kind) in _WRONG and one.right for one in mine)
    words = [verdict.verdict, *_words(verdict.disagreements)]
    if any(one.kind == FORK for one in mine):
        words.append(_fork(f"{verdict.topic}-{verdict.partition}", view, sides))
    return Judgement(right=verdict.right, wrong=wrong, verdict="; ".join(words))


def _words(disagreements: Iterable[Disagreement]) -> Iterator[str]:
    for one in disagreements:
        who = ", ".join(map(str, one.brokers))
        at = f" from offset {one.offset}" if one.offset >= 0 else ""
        would = f" ({one.would_tell})" if one.would_tell else ""
        yield f"{one.kind} on {who}{at}: {one.text}{would}"


def _fork(folder: str, view: LogDir, sides: Sequence[Side]) -> str:
    """Both sides, to be looked at: nobody is right by itself."""
    dirs = [view.path, *(path for side in sides for path in side.log_dirs)]
    places = [f"{path}/{folder}" for path in dirs]
    commands = [f"krepair dump {shlex.quote(place)} > FILE" for place in places if os.path.isdir(place)]
    commands += [
        f"on the host of broker {side.broker_id} krepair dump LOGDIR/{folder} > FILE"
        for side in sides
        if side.facts
    ]
    return (
        "a fork: nobody is right by itself; write both sides to files and decide by what is in them: "
        + " and ".join(commands)
    )
