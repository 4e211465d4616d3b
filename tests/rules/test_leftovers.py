"""What becomes of pending swaps: completed where every broker ends with the same records, else both sides are told."""

from __future__ import annotations

import pytest

from krepair.rules.leftovers import LiveSegment, PendingSwap, SwapDecision, Version, decide_swaps

LIVE = (
    LiveSegment(0, 100, 1000, 10),
    LiveSegment(100, 200, 1000, 10),
    LiveSegment(200, 300, 1000, 10),
    LiveSegment(300, 400, 1000, 10),
    LiveSegment(400, 450, 500, 5),
)


def swap(base: int, end: int, batches: int = 5, problem: str = "") -> PendingSwap:
    return PendingSwap(base, end, batches * 100, batches, problem)


def decided(
    *swaps: PendingSwap,
    live: tuple[LiveSegment, ...] = LIVE,
    cleaned: tuple[int, ...] = (),
    version: Version = None,
) -> SwapDecision:
    return decide_swaps(swaps, live, cleaned, version)


def replaced(decision: SwapDecision) -> list[tuple[int, tuple[int, ...]]]:
    return [
        (one.swap.base_offset, tuple(segment.base_offset for segment in one.replaces))
        for one in decision.completions
    ]


def test_nothing_pending_decides_nothing():
    assert decided() == SwapDecision()


def test_a_swap_replaces_the_segments_that_begin_in_it():
    assert replaced(decided(swap(100, 400))) == [(100, (100, 200, 300))]


def test_a_swap_that_ends_early_leaves_the_segments_behind_its_end():
    assert replaced(decided(swap(100, 250))) == [(100, (100, 200))]
    assert replaced(decided(swap(100, 150))) == [(100, (100,))]


def test_a_swap_over_nothing_becomes_the_segment():
    assert replaced(decided(swap(100, 400), live=(LIVE[0], LIVE[4]))) == [(100, ())]
    assert replaced(decided(swap(100, 400), live=())) == [(100, ())]


def test_a_split_is_completed_part_by_part():
    whole = (LIVE[0], LiveSegment(100, 400, 3000, 30), LIVE[4])
    decision = decided(swap(100, 200), swap(200, 300), swap(300, 400), live=whole)
    assert replaced(decision) == [(100, (100,)), (200, ()), (300, ())]


@pytest.mark.parametrize(
    ("swaps", "live", "told"),
    [
        ((swap(100, 150, problem="position 7: bad CRC"),), LIVE, "before 3.0 cuts it there"),
        ((swap(100, 100, batches=0),), LIVE, "holds no batch"),
        ((swap(100, 250), swap(200, 300)), LIVE, "begins inside of"),
        ((swap(400, 440),), LIVE, "take the log end back"),
        ((swap(150, 200),), LIVE, "before 3.0 deletes that segment, a later one keeps both"),
        ((swap(100, 200), swap(300, 400)), LIVE, "since 3.0 deletes the 1 segments between them"),
    ],
)
def test_what_brokers_would_not_do_alike_or_lose_records_by_is_left_with_both_sides(
    swaps: tuple[PendingSwap, ...], live: tuple[LiveSegment, ...], told: str
):
    decision = decided(*swaps, live=live)
    assert (decision.completions, decision.void) == ((), ())
    assert told in decision.left
    assert len(decision.sides) == len(swaps)


def test_two_groups_are_completed_for_a_broker_that_keeps_what_lies_between():
    two = (swap(100, 200), swap(300, 400))
    assert replaced(decided(*two, version=(2, 2, 1))) == [(100, (100,)), (300, (300,))]
    assert decided(*two, version=(3, 9, 2)).left
    neighbours = (swap(100, 200), swap(200, 300))
    assert replaced(decided(*neighbours, version=(3, 9, 2))) == [(100, (100,)), (200, (200,))]


def test_a_cleaned_at_or_below_makes_a_swap_void_and_one_above_does_not():
    assert decided(swap(100, 400), cleaned=(100,)).void == (swap(100, 400),)
    assert decided(swap(100, 400), cleaned=(0,)).void == (swap(100, 400),)
    assert replaced(decided(swap(100, 400), cleaned=(101,))) == [(100, (100, 200, 300))]


@pytest.mark.parametrize(
    "pending", [swap(100, 400)._replace(missing=1), swap(100, 400, problem="position 7: bad CRC")]
)
def test_a_void_swap_stays_unless_each_of_its_batches_is_in_a_segment_that_is_there(pending: PendingSwap):
    decision = decided(pending, cleaned=(100,))
    assert decision.left
    assert not decision.void
