"""Lines of a checkpoint of the root, by themselves: what the lines on the disk tell, and what is made again of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.commit.begin import Target, begin
from krepair.commit.by_disk import is_made, is_planned, may_be_replaced
from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import FileState
from krepair.errors import RefusedError, StalePlanError
from krepair.plan.model import ChangeLines, KeepOriginal, PartitionPlan
from krepair.rules.changed_entries import ChangedLine
from tests.commit.scene import PLAN_ID, UnsyncedDisk, put

POINTS, STARTS = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"
OLD, HALF, NEW = (
    b"0\n3\nt 0 10\nt 1 10\nt 2 5\n",
    b"0\n3\nt 0 90\nt 1 10\nt 2 5\n",
    b"0\n3\nt 0 90\nt 1 90\nt 2 5\n",
)
KEEP = f"krepair~{PLAN_ID}/keep"


class Site:
    """A folder with a checkpoint of which two lines change."""

    def __init__(self, root: Path, name: str = POINTS) -> None:
        self.name, self.path = name, root / "t-0"
        for place in ("stage", "keep", "out"):
            (self.path / f"krepair~{PLAN_ID}" / place).mkdir(parents=True)
        self.folder = PartitionFolder(UnsyncedDisk(), str(root), "t-0", PLAN_ID)
        partition = PartitionPlan(topic="t", partition=0, folder="t-0", status="change", files=(), changes=())
        self.target = Target(self.folder, partition, "P1")

    def change(self, size_before: int = len(OLD), old: int | None = 10) -> ChangeLines:
        return ChangeLines(
            change_id=f"./{self.name}",
            name=self.name,
            rule="KR601",
            lines=tuple(ChangedLine("t", number, old, 90) for number in (0, 1)),
            size_before=size_before,
            reason="",
            undo=KeepOriginal(),
        )

    def put(self, data: bytes | None) -> None:
        if data is not None:
            put(self.path / self.name, data, 1_000)

    def state(self) -> FileState:
        found = self.folder.state(self.name)
        assert found is not None
        return found


@pytest.mark.parametrize(
    ("name", "data", "planned", "made"),
    [
        (STARTS, OLD, True, False),
        (STARTS, HALF, False, False),
        (STARTS, NEW, False, True),
        (STARTS, b"0\n1\n", False, False),
        (STARTS, None, False, False),
        # of recovery points some lines may stay as they are
        (POINTS, OLD, True, False),
        (POINTS, HALF, True, True),
        (POINTS, NEW, False, True),
        (POINTS, b"0\n2\nt 0 90\nt 1 50\n", False, True),
        (POINTS, b"0\n2\nt 0 10\nt 1 50\n", False, False),
        (POINTS, b"0\n1\n", False, False),
        (POINTS, None, False, False),
    ],
)
def test_lines_on_the_disk_tell_what_is_planned_and_what_is_made(
    memory_dir: Path, name: str, data: bytes | None, planned: bool, made: bool
) -> None:
    site = Site(memory_dir, name)
    site.put(data)
    assert is_planned(site.folder, {}, site.change()) is planned
    assert is_made(site.folder, {}, site.change()) is made


@pytest.mark.parametrize(
    ("data", "size_before", "why"),
    [(None, len(OLD), "is gone since the plan was made"), (OLD, -1, "was not there when the plan was made")],
)
def test_a_checkpoint_that_came_or_went_since_the_plan_is_left_as_it_is(
    tmp_path: Path, data: bytes | None, size_before: int, why: str
) -> None:
    site = Site(tmp_path)
    site.put(data)
    with pytest.raises(StalePlanError, match=why):
        begin(site.target, site.change(size_before))


def test_a_checkpoint_that_is_not_there_as_planned_lacks_only_its_staged_file(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with pytest.raises(RefusedError, match="is missing"):
        begin(site.target, site.change(-1, None))


@pytest.mark.parametrize(("data", "ours"), [(NEW, True), (HALF, True), (b"0\n1\nt 0 90\n", False)])
def test_what_replaced_the_kept_file_is_ours_if_it_differs_by_the_lines_alone(
    memory_dir: Path, data: bytes, ours: bool
) -> None:
    site = Site(memory_dir)
    put(site.path / KEEP / POINTS, OLD, 900)
    site.put(data)
    assert may_be_replaced(site.folder, {}, site.change(), POINTS) is ours
