"""What single changes cost and touch, by themselves."""

from __future__ import annotations

import pytest

from krepair.plan.change_words import words_of
from krepair.plan.facts import OnDisk
from krepair.plan.model import NewFile
from krepair.plan.space import space_of
from tests.plan.plans import DIGEST, completed_swap, removed_file, replaced_file
from tests.plan.reviewed_loss import log, removed


@pytest.mark.parametrize("blocks", [0, 4096, 20 << 20], ids=["a hole", "a block", "allocated ahead"])
def test_removed_file_gives_back_its_blocks_whatever_its_size(blocks: int) -> None:
    name = f"{9:020d}.log.deleted"
    space = space_of(removed_file(name, size_before=7), OnDisk({name: 7}, {name: blocks}, 4096))
    assert (space.back, space.made, space.log_shrinks) == (blocks, 0, 0)


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
    assert change.segments == (100, 150)
    assert change.leaves == (log, index)
    assert change.takes_out == (f"{log}.swap", swapped, other)


@pytest.mark.parametrize(("size", "block", "takes"), [(24, 4096, 4096), (24, 1024, 1024), (0, 4096, 0)])
def test_file_made_anew_takes_whole_blocks(size: int, block: int, takes: int) -> None:
    change = replaced_file(f"{9:020d}.timeindex", size_before=-1, size_after=size)
    space = space_of(change, OnDisk({}, {}, block))
    assert (space.made, space.back) == (takes, 0)


@pytest.mark.parametrize(("records", "shown"), [(1234, "1,234"), (1, "1"), (0, "0"), (-1, "?")])
def test_row_of_a_removed_range_says_how_many_records_go_if_that_is_known(records: int, shown: str) -> None:
    change = log(removed=(removed(start=3000, end=4000, first_lost=40, last_lost=49, records=records),))
    (row,) = words_of(change).rows(change)
    assert row[1:-1] == ("KR302", "excise", "3,000", "1,000", "40 to 49", shown)
