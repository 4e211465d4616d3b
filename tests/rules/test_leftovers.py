"""Pending swaps: completed if every broker version gets the same records, else both outcomes are reported."""

from __future__ import annotations

import pytest

from krepair.formats.broker_version import Version
from krepair.logdir.values import FileRef, Leftover, Special
from krepair.rules.leftovers import (
    LiveSegment,
    PendingSwap,
    SwapDecision,
    decide_removals,
    decide_swaps,
    no_brokers_name,
)

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
        ((swap(100, 150, problem="position 7: bad CRC"),), LIVE, "before 3.0 truncates a swap where"),
        (
            (swap(200, 200, batches=0),),
            LIVE,
            f"{200:020d}.log.swap: holds no batch, and every broker replaces the segment at 200 by it",
        ),
        (
            (swap(100, 201), swap(200, 300)),
            LIVE,
            f"{200:020d}.log.swap: begins inside of {100:020d}.log.swap, which ends at 201",
        ),
        (
            (swap(400, 449),),
            LIVE,
            "ends at 449, but the log ends at 450: completing it would lower the log end",
        ),
        ((swap(150, 200),), LIVE, "before 3.0 deletes that segment, a later one keeps both"),
        ((swap(199, 300),), LIVE, "segment 100 begins below the swap and ends inside it, at 200"),
        ((swap(100, 200), swap(300, 400)), LIVE, "since 3.0 deletes the 1 segment between them"),
    ],
)
def test_what_brokers_would_not_do_alike_or_lose_records_by_is_left_with_both_sides(
    swaps: tuple[PendingSwap, ...], live: tuple[LiveSegment, ...], told: str
):
    decision = decided(*swaps, live=live)
    assert (decision.completions, decision.void) == ((), ())
    assert told in decision.skip_reason
    assert len(decision.comparisons) == len(swaps)


def test_two_groups_are_completed_for_a_broker_that_keeps_what_lies_between():
    two = (swap(100, 200), swap(300, 400))
    assert replaced(decided(*two, version=(2, 2, 1))) == [(100, (100,)), (300, (300,))]
    assert decided(*two, version=(3, 9, 2)).skip_reason
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
    assert decision.skip_reason
    assert not decision.void


def test_one_batch_in_no_segment_is_told_and_how_many_there_are():
    pending = swap(100, 400, batches=9)
    assert decided(pending, cleaned=(100,)).skip_reason == ""
    told = decided(pending._replace(missing=3), cleaned=(90, 95)).skip_reason
    assert told.startswith(f"{100:020d}.log.swap: the .cleaned at 90 makes every broker delete this swap")
    assert "no segment has 3 of its 9 batches" in told
    broken = decided(pending._replace(problem="position 7: bad CRC"), cleaned=(100,)).skip_reason
    assert (
        "but krepair cannot compare it with the segments: position 7: bad CRC; by hand, move it out" in broken
    )


def test_a_cleaned_at_offset_0_counts():
    decision = decided(swap(0, 100), cleaned=(0,))
    assert (decision.void, decision.skip_reason) == ((swap(0, 100),), "")
    assert "the .cleaned at 0 makes" in decided(swap(0, 100)._replace(missing=1), cleaned=(0,)).skip_reason


def test_swaps_below_the_cleaned_are_completed_and_those_above_are_void():
    decision = decided(swap(0, 100), swap(200, 300), cleaned=(150, 180))
    assert replaced(decision) == [(0, (0,))]
    assert decision.void == (swap(200, 300),)
    assert [name for name, _ in decision.comparisons] == [f"{n:020d}.log.swap" for n in (0, 200)]


def test_of_a_swap_that_cannot_be_read_it_is_said_what_a_person_does_and_whether_a_start_is_safe():
    """It was left alone with the reason only, and no plan or finding said more."""
    here = decided(swap(100, 150, problem="position 7: bad CRC")).skip_reason
    assert here.endswith(
        f"by hand, move the {100:020d}.*.swap files out of the folder and keep them; then a start is safe"
    )
    damaged = (LIVE[0], LIVE[1]._replace(damaged=True), *LIVE[2:])
    for live in (damaged, (LIVE[0], *LIVE[2:])):
        gone = decided(swap(100, 150, problem="position 7: bad CRC"), live=live).skip_reason
        assert "no start is safe: segment 100 is gone or damaged" in gone
        assert "Compare the replicas first" in gone


def test_both_sides_are_told_with_their_figures():
    one = decided(swap(100, 300))
    assert one.skip_reason == ""
    text = "500 bytes, 5 batches, ends at 300; against segments 100 to 200 (2): 2000 bytes, 20 batches, end at 300"
    assert one.comparisons == ((f"{100:020d}.log.swap", f"{text}; the log ends at 450"),)
    alone = decided(swap(50, 90, problem="position 7: bad CRC"), live=())
    text = "500 bytes, 5 batches, ends at 90, position 7: bad CRC; no segment that it replaces is left"
    assert alone.comparisons == ((f"{50:020d}.log.swap", text),)
    assert (
        decided(swap(50, 90))
        .comparisons[0][1]
        .endswith("no segment that it replaces is left; the log ends at 450")
    )


def test_active_segment_may_be_replaced_by_a_swap_that_reaches_the_log_end():
    assert replaced(decided(swap(400, 450))) == [(400, (400,))]
    assert replaced(decided(swap(300, 450))) == [(300, (300, 400))]


def test_damaged_segment_that_ends_early_may_be_replaced_by_a_swap_that_goes_further():
    live = (LIVE[0], LiveSegment(100, 120, 1000, 10, damaged=True))
    assert replaced(decided(swap(100, 200), live=live)) == [(100, (100,))]


def test_largest_end_of_what_is_replaced_counts():
    live = (LIVE[0], LiveSegment(100, 330, 1000, 10), LiveSegment(200, 300, 1000, 10))
    told = decided(swap(100, 320), live=live).skip_reason
    assert told.endswith("ends at 320, but the log ends at 330: completing it would lower the log end")


def test_swap_that_begins_inside_of_a_segment_that_another_replaces_is_completed():
    live = (LIVE[0], LiveSegment(100, 400, 3000, 30), LIVE[4])
    assert decided(swap(100, 200), swap(200, 400), live=live).skip_reason == ""


@pytest.mark.parametrize("version", [None, (3, 0, 0), (4, 3, 1)])
def test_segment_between_two_swaps_is_told_for_brokers_that_delete_it(version: Version):
    live = (*LIVE[:2], LIVE[2], LiveSegment(300, 310, 9, 1), *LIVE[4:])
    told = decided(swap(0, 100), swap(400, 450), live=live, version=version).skip_reason
    assert told.startswith(f"{0:020d}.log.swap and {400:020d}.log.swap: ")
    assert "deletes the 3 segments between them (from 100 on)" in told
    assert decided(swap(0, 100), swap(400, 450), live=live, version=(2, 8, 2)).skip_reason == ""


def test_segment_at_the_end_of_the_last_swap_is_not_between():
    assert decided(swap(100, 200), swap(200, 300), version=(3, 9, 2)).skip_reason == ""
    below = (LiveSegment(0, 50, 1000, 10), *LIVE[1:])
    assert decided(swap(100, 200), swap(200, 300), live=below, version=(3, 9, 2)).skip_reason == ""


def file(name: str) -> FileRef:
    return FileRef(
        name, f"/logs/t-0/{name}", 10, 0, inode=1, device=1, uid=0, gid=0, mode=0o644, nlink=1, blocks=0
    )


def left(kind: str, base: int, suffix: str) -> Leftover:
    return Leftover(kind, base, file(f"{base:020d}{suffix}"))


def removed(
    *leftovers: Leftover,
    orphans: tuple[str, ...] = (),
    missing: tuple[int, ...] = (),
    log_swaps: tuple[int, ...] = (),
    decision: SwapDecision | None = None,
    version: Version = None,
) -> list[tuple[str, str]]:
    found = decide_removals(
        leftovers, [file(name) for name in orphans], missing, log_swaps, decision or SwapDecision(), version
    )
    return [(one.kind, one.file.name.lstrip("0")) for one in found]


def test_void_swaps_go_before_the_cleaned_file_that_makes_them_void():
    cleaned, void = left("cleaned", 100, ".log.cleaned"), left("swap", 200, ".log.swap")
    index = left("swap", 200, ".index.swap")
    decision = SwapDecision(void=(swap(200, 300),))
    assert removed(cleaned, void, index, log_swaps=(200,), decision=decision) == [
        ("void swap", "200.log.swap"),
        ("void swap", "200.index.swap"),
        ("cleaned", "100.log.cleaned"),
    ]


def test_the_indexes_of_a_swap_that_is_completed_stay_and_those_without_a_log_go():
    own, alone = left("swap", 100, ".index.swap"), left("swap", 300, ".timeindex.swap")
    log = left("swap", 100, ".log.swap")
    assert removed(own, log, alone, log_swaps=(100,)) == [("index swap", "300.timeindex.swap")]


def test_an_orphan_index_stays_where_a_swap_becomes_its_log_or_its_segment_is_missing():
    orphans = (f"{100:020d}.index", f"{300:020d}.index", f"{400:020d}.index")
    assert removed(orphans=orphans, missing=(400,), log_swaps=(100,)) == [("orphan", "300.index")]


def test_files_of_other_programs_are_no_removals():
    assert removed(Leftover("foreign", -1, file("notes.txt"))) == []


@pytest.mark.parametrize(
    ("version", "told", "not_told"),
    [
        ((2, 8, 2), "one before 3.0 deletes", "since 3.0 renames"),
        ((3, 0, 0), "since 3.0 renames", "before 3.0"),
    ],
)
def test_an_index_swap_alone_is_told_as_the_next_broker_treats_it(version: Version, told: str, not_told: str):
    (one,) = decide_removals([left("swap", 300, ".index.swap")], [], (), (), SwapDecision(), version)
    assert told in one.why
    assert not_told not in one.why


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("swap", "100.log.swap", "no broker names a file so"),
        ("cleaned", "100.log.cleaned", "no broker names a file so"),
        ("swap", f"{100:020d}.snapshot.swap", "no broker names a file so"),
        ("deleted", f"{100:020d}.log\n.deleted", "not a name that a plan can hold"),
        ("deleted", "100.log.deleted", ""),
    ],
)
def test_a_name_that_no_broker_makes_leaves_the_folder_to_a_person(kind: str, name: str, told: str):
    found = no_brokers_name([Leftover(kind, 100, file(name))], [])
    assert told in found
    assert bool(found) == bool(told)


def test_a_device_in_the_place_of_a_log_is_left_and_a_foreign_one_is_nobodys_business():
    log = f"{100:020d}.log"
    assert "expected, found a FIFO" in no_brokers_name([], [Special(log, f"/logs/t-0/{log}", "FIFO")])
    assert no_brokers_name([], [Special("pipe", "/logs/t-0/pipe", "FIFO")]) == ""
