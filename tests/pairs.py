"""Chooses from a product of dimensions so few cases that every pair of values still meets in one of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import combinations
from typing import TypeVar

Case = TypeVar("Case")


def meeting_in_pairs(cases: Sequence[Case], values: Callable[[Case], Sequence[Hashable]]) -> list[Case]:
    """Cases in their order; any two values that meet in one of all cases meet in one of these.

    Args:
        cases: all cases.
        values: the value of each dimension, of one case.
    """
    pairs = [set(combinations(enumerate(values(case)), 2)) for case in cases]
    left = set[object]().union(*pairs)
    chosen: list[int] = []
    while left:
        best = max(range(len(cases)), key=lambda number: len(pairs[number] & left))
        left -= pairs[best]
        chosen.append(best)
    return [cases[number] for number in sorted(chosen)]
