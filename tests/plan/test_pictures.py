"""What a page draws of a plan adds up to the plan's own figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from krepair.plan.log_contents import Content, ContentRange
from krepair.plan.model import (
    ChangeLines,
    KeepOriginal,
    MendLog,
    PartitionPlan,
    Plan,
    RemovedRange,
    ReplaceFile,
    SetAside,
)
from krepair.plan.pictures import (
    MOST_BARS,
    MOST_BINS,
    MOST_CELLS,
    MOST_STRIPS,
    BeforeAfter,
    Cell,
    MarkerAges,
    Pictures,
    Strip,
    merged,
    most_first,
    pictures_of,
)
from krepair.rules.checkpoint_lines import ChangedLine
from tests.plan.plans import completed_swap, fingerprint, good_plan, nothing, partition, replaced_file

DAY_NS = 86_400_000_000_000
FIRST_NS = 1_700_000_000_000_000_000


def drawn(*partitions: PartitionPlan) -> Pictures:
    return pictures_of(good_plan(*partitions))


def only_strip(one: PartitionPlan) -> Strip:
    (strip,) = drawn(one).strips
    return strip


def total(cells: tuple[Cell, ...]) -> int:
    return sum(cell.bytes for cell in cells)


def of_kind(cells: tuple[Cell, ...], content: Content) -> int:
    return sum(run.bytes for cell in cells for run in cell.runs if run.content == content)


def file_of(name: str, method: str, before: int, after: int) -> ReplaceFile:
    return replaced_file(name, folder="t-0", method=method, size_before=before, size_after=after)


def logs(*sizes: int) -> tuple[object, ...]:
    return tuple(fingerprint(f"{number * 100:020d}.log", size) for number, size in enumerate(sizes))


def mend(method: str, *ranges: tuple[int, int], before: int = 1000, after: int = 900) -> MendLog:
    return MendLog(
        change_id=f"t-0/{100:020d}.log",
        name=f"{100:020d}.log",
        base_offset=100,
        method=method,  # type: ignore[arg-type]
        removed=tuple(
            RemovedRange(start=start, end=end, rule="KR302", consent="", first_lost=1, last_lost=2, records=1)
            for start, end in ranges
        ),
        size_before=before,
        size_after=after,
        digest_removed="",
        digest_after="",
        mtime_ns=0,
        last_offset=0,
        companions=(),
        front_bytes=0,
        reason="",
        undo=KeepOriginal(),
    )


def test_strips_of_a_rewrite_are_as_long_as_the_logs_before_and_after():
    one = partition()
    strip = only_strip(one)
    assert total(strip.before) == 2500
    assert total(strip.after) == 1078
    assert (strip.segments_before, strip.segments_after) == (3, 2)
    assert [cell.first_base for cell in strip.before] == [0, 100, 200]


def test_a_strip_says_what_each_segment_holds():
    strip = only_strip(partition())
    assert strip.before[0].runs == (
        ContentRange(Content.RECORDS, 300),
        ContentRange(Content.MARKERS, 78 + 312),
        ContentRange(Content.EMPTIED, 310),
    )
    # of the two together: the records, a marker each, one emptied batch and one that is emptied now
    assert strip.after[0].runs == (
        ContentRange(Content.RECORDS, 300),
        ContentRange(Content.MARKERS, 156),
        ContentRange(Content.EMPTIED, 122),
    )
    assert strip.before[2].runs == strip.after[1].runs == (ContentRange(Content.LEFT, 500),)


def test_damage_that_is_cut_out_is_drawn_where_it_is():
    one = partition(changes=(mend("excise", (300, 350), (600, 650)),), files=logs(500, 1000, 200))
    strip = only_strip(one)
    left, damaged = Content.LEFT, Content.DAMAGED
    assert strip.before[1].runs == (
        ContentRange(left, 300),
        ContentRange(damaged, 50),
        ContentRange(left, 250),
        ContentRange(damaged, 50),
        ContentRange(left, 350),
    )
    assert total(strip.before) - of_kind(strip.before, damaged) == total(strip.after) == 1600


def test_what_a_cut_takes_with_it_and_segments_behind_it_are_told_apart():
    aside = SetAside(
        change_id=f"t-0/{200:020d}",
        base_offset=200,
        names=(f"{200:020d}.log",),
        bytes=200,
        records=1,
        rule="KR302",
        consent="",
        reason="",
        undo=KeepOriginal(),
    )
    strip = only_strip(partition(changes=(aside, mend("cut", (900, 1000))), files=logs(500, 1000, 200)))
    assert of_kind(strip.before, Content.CUT) == 100
    assert of_kind(strip.before, Content.ASIDE) == 200
    assert (strip.segments_before, strip.segments_after) == (3, 2)
    assert total(strip.after) == 1400


def test_segments_that_a_completed_swap_replaces_go():
    swap = completed_swap(0, folder="t-0", log_bytes=600, last_offset=199, replaces=(0, 100))
    strip = only_strip(partition(changes=(swap,), files=logs(500, 1000, 200)))
    assert of_kind(strip.before, Content.REPLACED) == 1500
    assert (total(strip.after), strip.segments_after) == (800, 2)


def test_an_empty_active_segment_counts_before_and_after():
    strip = only_strip(partition(changes=(mend("excise", (0, 100)),), files=logs(500, 1000, 0)))
    assert (strip.segments_before, strip.segments_after) == (3, 3)


def test_a_log_that_is_cut_to_nothing_is_still_a_segment():
    change = mend("cut", (0, 1000), after=0)
    strip = only_strip(partition(changes=(change,), files=logs(500, 1000)))
    assert (strip.segments_before, strip.segments_after) == (2, 2)
    assert [(cell.first_base, cell.bytes) for cell in strip.after] == [(0, 500), (100, 0)]


def test_a_checkpoint_whose_new_size_is_not_known_has_no_bar():
    change = ChangeLines(
        change_id="t-0/lines",
        name="lines",
        rule="KR502",
        lines=(ChangedLine(topic="t", partition=0, old=7, new=9),),
        size_before=20,
        reason="",
        undo=KeepOriginal(),
    )
    assert drawn(partition(changes=(change,))).files == ()


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=2000), st.integers(1, MOST_CELLS))
def test_joined_cells_lose_no_byte_and_no_segment(sizes: list[int], most: int):
    cells = [
        Cell(
            first_base=n,
            segments=1,
            runs=(ContentRange(Content.MARKERS, size), ContentRange(Content.LEFT, 1)),
        )
        for n, size in enumerate(sizes)
    ]
    joined = merged(cells, most)
    assert len(joined) <= most
    assert sum(cell.segments for cell in joined) == len(cells)
    assert total(joined) == sum(sizes) + len(sizes)
    assert [cell.first_base for cell in joined] == sorted(cell.first_base for cell in joined)


@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**12)), max_size=60))
def test_bars_of_many_partitions_add_up(figures: list[tuple[int, int]]):
    rows = [BeforeAfter(name=f"t-{n}", before=b, after=a) for n, (b, a) in enumerate(figures)]
    shown = most_first(rows)
    assert len(shown) <= MOST_BARS + 1
    assert sum(row.before * (1 + row.alike) for row in shown) == sum(row.before for row in rows)
    assert sum(row.after * (1 + row.alike) for row in shown) == sum(row.after for row in rows)
    assert sum(row.partitions * (1 + row.alike) for row in shown) == len(rows)
    gains = [abs(row.before - row.after) for row in shown[:MOST_BARS]]
    assert gains == sorted(gains, reverse=True)


def aged(horizon_ms: int, *days: int) -> MarkerAges | None:
    sources = tuple(
        replace(partition().changes[0].sources[0], base_offset=n * 100)  # type: ignore[union-attr]
        for n in range(len(days))
    )
    change = replace(partition().changes[0], sources=sources)
    files = tuple(
        fingerprint(f"{n * 100:020d}.log", 1000, FIRST_NS + day * DAY_NS) for n, day in enumerate(days)
    )
    ages = drawn(partition(changes=(change,), files=files, horizon_ms=horizon_ms)).ages
    return ages[0] if ages else None


def test_markers_lie_in_time_on_the_side_of_the_horizon_where_their_segment_is():
    horizon = (FIRST_NS + 5 * DAY_NS) // 1_000_000
    ages = aged(horizon, 0, 0, 10)
    assert ages is not None
    assert (ages.kept, ages.gone) == (3, 12)
    assert ages.first_ms < FIRST_NS // 1_000_000 < horizon < ages.last_ms
    at = (horizon - ages.first_ms) * len(ages.bins) // (ages.last_ms - ages.first_ms)
    assert sum(bin_.kept + bin_.gone for bin_ in ages.bins[:at]) == 10
    assert sum(bin_.kept + bin_.gone for bin_ in ages.bins[at:]) == 5


@given(
    st.lists(st.integers(-700, 10**5), min_size=1, max_size=80),
    st.sampled_from([0, -5, 1, FIRST_NS // 1_000_000, 2**63 - 1, 2**62]),
)
def test_no_marker_is_lost_between_the_bins(days: list[int], horizon_ms: int):
    ages = aged(horizon_ms, *days)
    assert ages is not None
    assert 1 <= len(ages.bins) <= MOST_BINS
    assert sum(bin_.kept for bin_ in ages.bins) == ages.kept == len(days)
    assert sum(bin_.gone for bin_ in ages.bins) == ages.gone == 4 * len(days)
    assert ages.horizon_ms == -1 or ages.first_ms <= ages.horizon_ms <= ages.last_ms


@pytest.mark.parametrize(
    ("method", "before", "after", "tails"),
    [
        ("truncate", 1200, 240, [(240, 960, 20)]),
        ("truncate", 1200, 0, [(0, 1200, 0)]),
        ("regenerate", 1200, 240, []),
        ("truncate", 240, 240, []),
        ("remove", 240, -1, []),
    ],
)
def test_only_a_time_index_that_is_cut_has_a_tail_of_zeros(
    method: str, before: int, after: int, tails: list[tuple[int, int, int]]
):
    change = file_of(f"{0:020d}.timeindex", method, before, after)
    other = file_of(f"{0:020d}.index", "truncate", 800, 80)
    found = drawn(partition(changes=(change, other))).tails
    assert [(tail.entry_bytes, tail.zero_bytes, tail.entries) for tail in found] == tails


def test_files_that_are_no_logs_have_bars_of_their_own():
    change = file_of(f"{0:020d}.timeindex", "truncate", 1200, 240)
    gone = file_of(f"{0:020d}.log.deleted", "remove", 77, -1)
    pictures = drawn(partition(changes=(change, gone)))
    assert pictures.logs == ()
    assert pictures.strips == ()
    assert [(row.before, row.after) for row in pictures.files] == [(1277, 240)]


def test_space_goes_down_partition_by_partition_and_comes_back_at_purge():
    plan = good_plan(*(partition(partition=n, folder=f"__consumer_offsets-{n}") for n in range(4)))
    space = pictures_of(plan).space
    assert space is not None
    assert [step.bytes for step in space.applying] == [0, -8192, -16384, -24576, -32768]
    assert [step.done for step in space.applying] == [0, 0.25, 0.5, 0.75, 1]
    assert (space.after_apply, space.after_purge) == (plan.freed_at_apply, plan.freed_at_purge)
    assert space.lowest == -plan.peak_extra_bytes < space.after_apply < 0 < space.after_purge


def test_a_plan_without_a_change_draws_nothing():
    plan: Plan = good_plan(nothing())
    assert pictures_of(plan) == Pictures(
        logs=(), files=(), strips=(), strips_left_out=0, ages=(), tails=(), tails_left_out=0, space=None
    )


def of_another_size(number: int) -> PartitionPlan:
    """A partition whose active segment and times differ from those of all others."""
    longer = 1000 * number
    files = tuple(
        replace(file, size=file.size + longer * (file.name == f"{200:020d}.log"))
        for file in partition().files
    )
    return partition(
        partition=number,
        folder=f"__consumer_offsets-{number}",
        files=files,
        horizon_ms=1_699_000_000_000 + number,
        log_bytes_before=2500 + longer,
    )


def test_partitions_that_look_alike_are_drawn_once_and_named():
    many = [partition(partition=n, folder=f"__consumer_offsets-{n}") for n in range(31)]
    pictures = drawn(
        *many,
        partition(partition=40, folder="__consumer_offsets-40", files=logs(9, 9, 9), log_bytes_before=2600),
    )
    alike = [strip for strip in pictures.strips if strip.alike]
    assert [strip.alike for strip in alike] == [30]
    assert alike[0].alike_names == tuple(f"__consumer_offsets-{n}" for n in (1, 2, 3, 4, 5))
    assert pictures.strips_left_out == 0
    assert [ages.alike for ages in pictures.ages] == [30, 0]
    assert sorted(row.alike for row in pictures.logs) == [0, 30]


def test_thousands_of_partitions_draw_a_few_and_count_the_rest():
    many = [of_another_size(n) for n in range(1000)]
    pictures = drawn(*many)
    assert len(pictures.strips) == len(pictures.ages) == MOST_STRIPS
    assert pictures.strips_left_out == 1000 - MOST_STRIPS
    assert pictures.space is not None
    assert len(pictures.space.applying) <= 202
    assert pictures.space.applying[-1].bytes == -8192 * 1000
