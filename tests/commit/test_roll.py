"""An empty segment at the log end, by itself: what is committed, what comes back, what somebody else wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.commit.begin import Target, begin
from krepair.commit.change_files import ChangeFiles
from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import Intent
from krepair.errors import RefusedError, StalePlanError
from krepair.plan.model import KeepOriginal, PartitionPlan, RollSegment
from tests.commit.scene import PLAN_ID, UnsyncedDisk, name, put, tree, whole

CHANGE = RollSegment(
    change_id=f"t-0/{100:020d}", base_offset=100, rule="KR701", reason="", undo=KeepOriginal()
)
NAMES = tuple(name(100, end) for end in (".index", ".timeindex", ".log"))
ROLLS = ChangeFiles()


class Site:
    """A partition at whose end a segment is to be put."""

    def __init__(self, root: Path) -> None:
        self.root, self.path = root, root / "t-0"
        for place in ("stage", "keep", "out"):
            (self.path / f"krepair~{PLAN_ID}" / place).mkdir(parents=True)
        put(self.path / name(0), b"log", 1_000)
        self.stage = self.path / f"krepair~{PLAN_ID}" / "stage"
        for file in NAMES:
            put(self.stage / file, b"", 2_000)
        self.before = tree(root, private=False)
        self.folder = PartitionFolder(UnsyncedDisk(), str(root), "t-0", PLAN_ID)
        partition = PartitionPlan(
            topic="t", partition=0, folder="t-0", status="change", files=(), changes=(CHANGE,)
        )
        self.target = Target(self.folder, partition, "P1")

    def begin(self) -> Intent:
        return begin(self.target, CHANGE)


@pytest.fixture
def site(memory_dir: Path) -> Site:
    return Site(memory_dir / "logs")


@pytest.mark.parametrize("file", NAMES)
def test_segment_into_which_somebody_wrote_is_not_taken_back(site: Site, file: str) -> None:
    intent = site.begin()
    whole(ROLLS.go_on(site.folder, [intent]))
    (site.path / file).write_bytes(b"by a broker")
    with pytest.raises(StalePlanError, match=f"{file}: was written since the plan was applied"):
        ROLLS.check_undo(site.folder, intent, "committed")


@pytest.mark.parametrize("file", NAMES)
def test_segment_of_which_a_file_is_gone_may_be_taken_back(site: Site, file: str) -> None:
    intent = site.begin()
    whole(ROLLS.go_on(site.folder, [intent]))
    (site.path / file).unlink()
    ROLLS.check_undo(site.folder, intent, "committed")


@pytest.mark.parametrize("file", NAMES)
def test_it_is_not_begun_where_a_name_is_taken_or_a_staged_file_is_not_empty(site: Site, file: str) -> None:
    put(site.stage / file, b"x", 2_000)
    with pytest.raises(RefusedError, match=f"{file}: expected 0 bytes, found 1 bytes"):
        site.begin()
    (site.stage / file).unlink()
    with pytest.raises(RefusedError, match=f"{file}: expected 0 bytes, found nothing"):
        site.begin()
    put(site.path / file, b"", 2_000)
    with pytest.raises(StalePlanError, match=f"{file}: was not there when the plan was made"):
        site.begin()


def test_index_that_a_broker_made_larger_before_the_log_came_stays_when_the_rest_is_taken_back(
    site: Site,
) -> None:
    intent = site.begin()
    whole(ROLLS.go_on(site.folder, [intent]))
    (site.path / name(100)).rename(site.stage / name(100))
    (site.path / name(100, ".index")).write_bytes(b"by a broker")
    ROLLS.forget(site.folder, [intent])
    assert sorted(file.name for file in site.path.iterdir() if file.is_file()) == [
        name(0),
        name(100, ".index"),
    ]
    assert (site.path / name(100, ".index")).read_bytes() == b"by a broker"
