"""What is left of a product of dimensions still has every pair of values in it."""

from __future__ import annotations

from itertools import combinations, product

from tests.pairs import meeting_in_pairs

DIMENSIONS = ("abcd", "vwxyz", "12", "pqr")


def pairs(cases: list[tuple[str, ...]]) -> set[object]:
    return {pair for case in cases for pair in combinations(enumerate(case), 2)}


def test_any_two_values_of_a_product_meet_in_a_fraction_of_it() -> None:
    every = list(product(*DIMENSIONS))
    chosen = meeting_in_pairs(every, lambda case: case)
    assert pairs(chosen) == pairs(every)
    assert len(chosen) < len(every) // 4
    assert chosen == sorted(chosen, key=every.index)


def test_what_never_meets_is_not_asked_for() -> None:
    some = [case for case in product(*DIMENSIONS) if (case[0] == "a") == (case[1] == "v")]
    chosen = meeting_in_pairs(some, lambda case: case)
    assert pairs(chosen) == pairs(some)
    assert set(chosen) <= set(some)
