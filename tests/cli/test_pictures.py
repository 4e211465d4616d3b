"""The pictures of a page add up to the figures of the plan or the report."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from krepair.checks.catalogue import Finding
from krepair.cli.views.page import MOST_CELLS, MOST_STRIPS, Cell, Strip, merged, strips_of
from krepair.findings.by_rule import by_rule
from krepair.plan.log_contents import Content, ContentRange
from krepair.plan.model import MendLog, PartitionPlan
from tests.plan.plans import completed_swap, fingerprint, good_plan, partition
from tests.plan.reviewed_loss import aside, log, removed


def only_strip(one: PartitionPlan) -> Strip:
    ((strip,), _) = strips_of(good_plan(one))
    return strip


def total(cells: tuple[Cell, ...]) -> int:
    return sum(cell.bytes for cell in cells)


def of_kind(cells: tuple[Cell, ...], content: Content) -> int:
    return sum(run.bytes for cell in cells for run in cell.runs if run.content == content)


def logs(*sizes: int) -> tuple[object, ...]:
    return tuple(fingerprint(f"{number * 100:020d}.log", size) for number, size in enumerate(sizes))


def mend(method: str, *ranges: tuple[int, int]) -> MendLog:
    return log(100, method=method, removed=tuple(removed(start=start, end=end) for start, end in ranges))


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
    strip = only_strip(partition(changes=(aside(200), mend("cut", (900, 1000))), files=logs(500, 1000, 200)))
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
    change = mend("cut", (0, 1000))
    strip = only_strip(partition(changes=(change,), files=logs(500, 1000)))
    assert (strip.segments_before, strip.segments_after) == (2, 2)
    assert [(cell.first_base, cell.bytes) for cell in strip.after] == [(0, 500), (100, 0)]


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


def of_another_size(number: int) -> PartitionPlan:
    """A partition whose active segment differs from those of all others."""
    longer = 1000 * number
    files = tuple(
        replace(file, size=file.size + longer * (file.name == f"{200:020d}.log"))
        for file in partition().files
    )
    return partition(
        partition=number,
        folder=f"__consumer_offsets-{number}",
        files=files,
        log_bytes_before=2500 + longer,
    )


def test_thousands_of_partitions_draw_a_few_and_count_the_rest():
    plan = good_plan(*map(of_another_size, range(1000)))
    strips, more = strips_of(plan)
    assert (len(strips), more) == (MOST_STRIPS, 1000 - MOST_STRIPS)


def test_rules_are_counted_the_worst_first():
    findings = (
        Finding(rule="KR101", partition="a-0", bytes=5),
        Finding(rule="KR302", partition="a-0", bytes=9),
        Finding(rule="KR101", partition="b-0", bytes=7),
        Finding(rule="KR101", partition="b-0"),
    )
    rules = by_rule(findings)
    assert [(row.rule, row.findings, len(row.partitions), row.bytes) for row in rules] == [
        ("KR302", 1, 1, 9),
        ("KR101", 3, 2, 12),
    ]
