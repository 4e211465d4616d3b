"""What single changes cost and touch, by themselves."""

from __future__ import annotations

import pytest

from krepair.plan.actions.mend import Mend
from krepair.plan.actions.replace import Replace
from krepair.plan.actions.swap import Swap
from krepair.plan.model import NewFile
from tests.plan.plans import DIGEST, completed_swap, removed_file, replaced_file
from tests.plan.reviewed_loss import log, removed


@pytest.mark.parametrize(
    ("name", "logs_out"),
    [
        (f"{9:020d}.log.deleted", 7),
        (f"{9:020d}.log.swap", 7),
        (f"{9:020d}.log.cleaned", 7),
        (f"{9:020d}.index.deleted", 0),
        (f"{9:020d}.timeindex", 0),
        (f"{9:020d}.snapshot", 0),
        ("leader-epoch-checkpoint", 0),
    ],
)
def test_removed_log_gives_back_its_bytes_and_a_small_file_counts_for_nothing(
    name: str, logs_out: int
) -> None:
    space = Replace().space(removed_file(name, size_before=7), {})
    assert (space.logs_out, space.taken_out, space.made, space.log_shrinks) == (logs_out, 7, 0, 0)


def test_swap_touches_its_own_files_and_those_of_the_segments_that_it_replaces() -> None:
    log, index, swapped = f"{100:020d}.log", f"{100:020d}.index", f"{100:020d}.index.swap"
    other = f"{150:020d}.log"
    change = completed_swap(
        100,
        last_offset=180,
        replaces=(100, 150),
        goes=(index, swapped, log, other),
        makes=(NewFile(name=index, size=8, digest=DIGEST),),
    )
    touched = Swap().touches(change)
    assert touched.segments == (100, 150)
    assert touched.makes == (log, index)
    assert touched.removes == (f"{log}.swap", swapped, other)


@pytest.mark.parametrize(("before", "taken_out"), [(-1, 0), (0, 0), (1, 1), (12, 12)])
def test_file_made_anew_takes_out_what_was_there_and_nothing_where_there_was_none(
    before: int, taken_out: int
) -> None:
    change = replaced_file(f"{9:020d}.timeindex", size_before=before, size_after=24)
    space = Replace().space(change, {})
    assert (space.made, space.taken_out, space.logs_out) == (24, taken_out, 0)


@pytest.mark.parametrize(("records", "shown"), [(1234, "1,234"), (1, "1"), (0, "0"), (-1, "?")])
def test_row_of_a_removed_range_says_how_many_records_go_if_that_is_known(records: int, shown: str) -> None:
    change = log(removed=(removed(start=3000, end=4000, first_lost=40, last_lost=49, records=records),))
    (row,) = Mend().rows(change)
    assert row[1:-1] == ("KR302", "excise", "3,000", "1,000", "40 to 49", shown)
