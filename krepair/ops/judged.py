"""What ``krepair compare`` says of single partitions, in the few words that a proof needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from krepair.logdir.values import LogDir
from krepair.ops.sides import Side
from krepair.options import Options


class Judgement(NamedTuple):
    """What was said of one partition.

    Attributes:
        right: brokers whose replica is right.
        wrong: whether the replica at hand is wrong.
        verdict: kinds and brokers, in words.
    """

    right: tuple[int, ...] = ()
    wrong: bool = False
    verdict: str = ""


def judge(
    view: LogDir, sides: Sequence[Side], partitions: Iterable[tuple[str, int]], options: Options
) -> Mapping[tuple[str, int], Judgement]:
    """Compare the replicas of some partitions.

    Args:
        view: the log directory at hand, of this broker.
        sides: the other brokers.
        partitions: topics and numbers.
        options: engine and scratch folder count.
    """
    del view, sides, partitions, options
    return {}
