"""Decisions of ``--keep auto``: which originals are kept, which are freed, and what does not fit at all."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from krepair.plan.build import build_plan
from krepair.plan.change_words import words_of
from krepair.plan.facts import OnDisk
from krepair.plan.fit import fit_of
from krepair.plan.keep import AUTO, is_freed_by_apply
from krepair.plan.model import NewFile, PartitionPlan, Plan, Room
from krepair.plan.planfile import dumps
from krepair.plan.render import plan_view
from krepair.plan.review import review
from krepair.plan.space import (
    apply_order,
    changes_extra_space,
    extra_space,
    plan_copy_bytes,
    plan_peak_bytes,
    space_of,
    without_undo,
)
from tests.pages import facts, titled
from tests.plan.parts import MIB, part
from tests.plan.plans import COMMIT, DIGEST, FACTS, completed_swap, policy, removed_file, replaced_file
from tests.plan.reviewed_loss import log, removed


def planned(*parts: PartitionPlan, free: int, reserve: int = 0, start: int = 0) -> Plan:
    room = Room(free_bytes=free, reserve_bytes=reserve, start_bytes=start)
    return build_plan(FACTS, policy(keep=AUTO, room=room), list(parts), COMMIT)


def freed(plan: Plan) -> list[str]:
    """What is freed of each partition in the order of apply: ``f`` and ``k``, one for each group."""
    return [
        "".join("f" if is_freed_by_apply(change) else "k" for change in one.changes)
        for one in apply_order(plan)
    ]


def fit(plan: Plan) -> tuple[int, tuple[str, ...]]:
    assert isinstance(plan.policy.room, Room)
    found = fit_of(plan, plan.policy.room)
    return found.lacks, found.left


PARTS = tuple(part(number, 4, 4 * MIB, MIB) for number in range(3))
ALL_KEPT = 13 * MIB


def test_where_the_disk_has_room_for_all_everything_is_kept() -> None:
    plan = planned(*PARTS, free=ALL_KEPT)
    assert freed(plan) == ["kkkk"] * 3
    assert plan_peak_bytes(plan) <= ALL_KEPT
    assert (fit(plan), without_undo(plan)) == ((0, ()), [])


def test_where_it_has_room_for_one_group_the_first_ones_are_freed_and_the_rest_is_kept() -> None:
    plan = planned(*PARTS, free=2 * MIB)
    assert freed(plan) == ["fkkk", "fkkk", "fkkk"]
    assert plan_peak_bytes(plan) <= 2 * MIB
    assert fit(plan) == (0, ())


def test_what_the_next_start_needs_is_left_free() -> None:
    assert freed(planned(*PARTS, free=2 * MIB, start=8 * MIB)) == ["ffff", "kkkk", "fkkk"]
    assert "f" in "".join(freed(planned(*PARTS, free=ALL_KEPT, start=2 * MIB)))


def test_without_room_for_one_group_it_says_how_much_is_missing() -> None:
    plan = planned(*PARTS, free=MIB)
    lacks, left = fit(plan)
    assert len(left) == 3
    assert fit(planned(*PARTS, free=MIB + lacks))[0] == 0
    assert fit(planned(*PARTS, free=MIB + lacks - 1))[0] == 1


@pytest.mark.parametrize(("gives_back", "fits"), [(True, True), (False, False)])
def test_what_only_root_has_counts_for_what_comes_back_at_once(*, gives_back: bool, fits: bool) -> None:
    one = part(0, 1, 4 * MIB if gives_back else MIB // 2, MIB)
    assert (fit(planned(one, free=0, reserve=2 * MIB))[0] == 0) == fits


def test_a_partition_that_never_fits_is_named_and_the_others_are_changed() -> None:
    plan = planned(*PARTS, part(7, 1, 90 * MIB, 80 * MIB), free=2 * MIB)
    assert fit(plan) == (0, ("__consumer_offsets-7",))
    assert freed(plan)[:3] == ["fkkk", "fkkk", "fkkk"]
    first = titled(plan_view(plan), "Space and time")
    assert "There is no room for __consumer_offsets-7; apply leaves them, and ends with 3." in first.lines


def test_the_page_says_what_it_needs_to_begin_and_what_has_no_undo() -> None:
    page = plan_view(planned(*PARTS, free=2 * MIB))
    told = facts(titled(page, "Space and time"))
    assert told["needed to begin"].endswith("; 2.0 MiB were free when it was made")
    assert facts(page.sections[0])["No undo"].startswith("3 of 12 changes, in ")


def test_the_same_directory_policy_and_free_bytes_give_the_same_plan() -> None:
    assert dumps(planned(*PARTS, free=2 * MIB)) == dumps(planned(*PARTS[::-1], free=2 * MIB))
    assert planned(*PARTS, free=2 * MIB).plan_id != planned(*PARTS, free=2 * MIB + 1).plan_id


def test_a_plan_in_which_something_else_is_freed_than_may_be_is_objected_to() -> None:
    assert not [one for one in review(planned(*PARTS, free=2 * MIB)) if one.code == "RV05"]


@pytest.mark.parametrize("seed", range(60))
def test_no_moment_of_apply_needs_more_than_is_free_and_undo_reaches_all_that_is_kept(seed: int) -> None:
    chance = random.Random(seed)
    parts = [
        part(
            number,
            chance.randint(1, 5),
            (old := chance.randint(1, 64)) * 65_536,
            chance.randint(0, old) * 60_000,
        )
        for number in range(chance.randint(1, 6))
    ]
    free, start = chance.randint(0, 30 * MIB), chance.choice([0, MIB])
    plan = planned(*parts, free=free, start=start)
    lacks, left = fit(plan)
    if not left:
        assert changes_extra_space(plan).peak + plan_copy_bytes(plan) <= free
        if without_undo(plan) and len(without_undo(plan)) < sum(len(one.changes) for one in plan.changing):
            after = sum(extra_space(one, plan.policy).after for one in plan.changing) + plan_copy_bytes(plan)
            assert after + start <= free
    for text in freed(plan):
        # Undo takes the last one first, and stops at what is freed.
        assert ("k", "f") not in set(pairwise(text))
    assert (lacks > 0) == (len(left) == len(plan.changing))


# -- what single changes cost and touch


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
