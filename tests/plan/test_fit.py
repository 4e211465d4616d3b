"""What fits is asked for bytes and for files alike; a partition fits as a whole, or not at all."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from krepair.formats.filenames import SEGMENT_SUFFIXES
from krepair.logdir.space import VolumeSpace
from krepair.plan import space
from krepair.plan.build import build_plan
from krepair.plan.fit import fit_of, root_without, shortage_at_start, shortage_of, without_room
from krepair.plan.keep import AUTO, INPLACE, UNTIL_VERIFIED, is_freed_by_apply
from krepair.plan.model import ChangeLines, FileFingerprint, KeepOriginal, PartitionPlan, Plan, Room, RootPlan
from krepair.plan.planfile import kept_copy
from krepair.plan.space import ExtraSpace, extra_space, plan_copy_bytes
from krepair.rules.changed_entries import ChangedLine
from tests.plan.parts import MIB, part
from tests.plan.plans import COMMIT, FACTS, fingerprint, policy

PLENTY = 1 << 40


def planned(*parts: PartitionPlan, keep: str, room: Room | None = None) -> Plan:
    known = {} if room is None else {"room": room}
    return build_plan(FACTS, policy(keep=keep, **known), list(parts), COMMIT)


def room(free: int = PLENTY, files: int = PLENTY) -> Room:
    return Room(free_bytes=free, reserve_bytes=0, start_bytes=0, free_files=files, start_files=0)


def part_files(part_of: PartitionPlan, keep: str) -> int:
    return extra_space(planned(part_of, keep=keep).partitions[0], policy(keep=keep)).files


STAY = 5
"""Files of krepair that stay in a partition until the end."""


def whole(number: int, segments: int) -> PartitionPlan:
    """Segments with all their files, each of which is written anew by itself."""
    one = part(number, segments, 4 * MIB, MIB)
    names = [f"{base * 1000:020d}{suffix}" for base in range(segments) for suffix in SEGMENT_SUFFIXES[1:]]
    return replace(one, files=(*one.files, *(fingerprint(name, 10) for name in names)))


PARTS = tuple(whole(number, 4) for number in range(6))


@pytest.mark.parametrize("keep", [INPLACE, UNTIL_VERIFIED])
def test_as_many_partitions_fit_as_there_are_files_for(keep: str) -> None:
    plan = planned(*PARTS, keep=keep)
    assert without_room(plan, room()) == ()
    needed = part_files(PARTS[0], keep)
    assert len(fit_of(plan, room(files=needed)).left) == len(PARTS)  # and one for the copy of the plan
    assert fit_of(plan, room(files=needed)).lacks_files == 1
    if keep == UNTIL_VERIFIED:  # each frees what the next one needs
        assert without_room(plan, room(files=needed + 1 + STAY * (len(PARTS) - 1))) == ()
    else:
        assert len(without_room(plan, room(files=needed + 1))) == len(PARTS) - 1
        assert 0 < len(without_room(plan, room(files=4 * needed))) < len(PARTS) - 1


def test_what_auto_keeps_is_decided_with_files_too() -> None:
    def freed(files: int) -> int:
        plan = planned(*PARTS, keep=AUTO, room=room(files=files))
        return sum(is_freed_by_apply(change) for one in plan.changing for change in one.changes)

    every = sum(len(one.changes) for one in PARTS)
    needed = part_files(PARTS[0], INPLACE)
    assert freed(PLENTY) == 0
    assert freed(needed // 2) == every
    assert 0 < freed(4 * needed) < every


def test_a_start_that_needs_files_is_left_the_room_for_them() -> None:
    needed = sum(part_files(one, INPLACE) for one in PARTS)
    tight = replace(room(files=needed), start_files=needed - 40)
    plan = planned(*PARTS, keep=AUTO, room=tight)
    assert any(is_freed_by_apply(change) for one in plan.changing for change in one.changes)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("keep", [INPLACE, UNTIL_VERIFIED, AUTO])
def test_what_fits_fits_together_and_what_is_left_fits_nowhere_beside_it(keep: str, seed: int) -> None:
    chance = random.Random(seed)
    parts = [
        part(
            number,
            chance.randint(1, 4),
            (old := chance.randint(1, 64)) * 65_536,
            chance.randint(0, old) * 60_000,
        )
        for number in range(chance.randint(2, 7))
    ]
    has = room(chance.randint(0, 20 * MIB), chance.choice([PLENTY, chance.randint(0, 120)]))
    plan = planned(*parts, keep=keep, room=has)
    left = set(without_room(plan, has))
    nothing_fits = len(fit_of(plan, has).left) == len(plan.changing)
    assert bool(fit_of(plan, has).lacks or fit_of(plan, has).lacks_files) == nothing_fits
    if nothing_fits:
        assert left == set()
        return
    changing = [one if one.folder not in left else replace(one, changes=()) for one in plan.partitions]
    smaller = replace(plan, partitions=tuple(changing))
    assert fit_of(smaller, has).left == ()
    needs = fit_of(smaller, has).needs
    assert needs.peak <= has.free_bytes
    assert needs.files <= has.free_files  # type: ignore[operator]
    assert plan_copy_bytes(smaller) <= needs.peak


def test_the_copy_of_a_plan_costs_what_its_changing_partitions_take() -> None:
    many = [replace(part(number, 0, 0, 0), status="nothing") for number in range(100, 600)]
    few, more = planned(PARTS[0], keep=INPLACE), planned(PARTS[0], *many, keep=INPLACE)
    assert len(more.partitions) == 501
    assert plan_copy_bytes(more) == plan_copy_bytes(few)
    assert len(kept_copy(more)) <= plan_copy_bytes(more) < len(kept_copy(more)) + 2 * 4096


def root(*numbers: int) -> RootPlan:
    line = ChangeLines(
        change_id="./recovery-point-offset-checkpoint",
        name="recovery-point-offset-checkpoint",
        rule="KR801",
        lines=tuple(ChangedLine("__consumer_offsets", number, None, 7) for number in numbers),
        size_before=4,
        reason="a reason",
        undo=KeepOriginal(),
    )
    file = FileFingerprint(name=line.name, size=4, mtime_ns=1)
    return RootPlan(keeper=PARTS[0].folder, files=(file,), changes=(line,))


def test_no_line_of_the_root_is_left_without_the_changes_of_its_partition() -> None:
    (change,) = root_without(root(0, 1, 2), PARTS[1:2]).changes  # type: ignore[union-attr]
    assert [line.partition for line in change.lines] == [0, 2]  # type: ignore[union-attr]
    assert root_without(root(1), PARTS[1:2]) is None
    assert root_without(None, PARTS) is None


def test_why_a_plan_does_not_fit_names_bytes_or_files_or_both() -> None:
    plan = replace(planned(*PARTS, keep=INPLACE), log_dir="/")

    def text(free: int, files: int) -> str:
        lack = shortage_of(plan, VolumeSpace(free, files, 4096, mounted_read_only=False))
        return "" if lack is None else lack.text

    assert text(PLENTY, PLENTY) == text(PLENTY, -1) == ""
    assert "on top while it is applied, 4,096 (4.0 KiB) are free" in text(4096, -1)
    assert "new files while it is applied, the file system has room for 3" in text(PLENTY, 3)
    assert " and " in text(4096, 3)


@pytest.mark.parametrize(
    ("needs", "free", "lacks"),
    [
        ((8, 2), (8, 2), (0, 0)),
        ((8, 2), (7, 0), (1, 2)),
        ((8, 2), (-1, -1), (0, 0)),
        ((8, 2), (0, -1), (8, 0)),
    ],
)
def test_a_start_lacks_bytes_and_files(
    needs: tuple[int, int], free: tuple[int, int], lacks: tuple[int, int]
) -> None:
    assert shortage_at_start(*needs, *free) == lacks


@pytest.mark.parametrize(("files", "first"), [(20, "gives"), (100, "takes")])
def test_where_inodes_are_few_what_gives_some_back_comes_first(
    files: int, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen with 49 partitions and 33 inodes: those that need the fewest bytes took them all, and 4 fitted."""
    folders = {PARTS[0].folder: "takes", PARTS[1].folder: "takes", PARTS[2].folder: "gives"}
    needs = {"takes": ExtraSpace(90_000, -1, 16, 5), "gives": ExtraSpace(120_000, -1, 16, -15)}
    monkeypatch.setattr(space, "extra_space", lambda part, _: needs[folders[part.folder]])
    plan = planned(*PARTS[:3], keep=AUTO, room=room(files=files))
    assert folders[space.apply_order(plan)[0].folder] == first
