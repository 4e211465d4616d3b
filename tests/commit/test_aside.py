"""A segment that is taken out, by itself: what is committed, what comes back, what somebody else changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.commit.begin import Target, begin
from krepair.commit.change_files import ChangeFiles
from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import Intent
from krepair.errors import RefusedError, StalePlanError
from krepair.plan.model import KeepOriginal, PartitionPlan, SetAside
from tests.commit.scene import PLAN_ID, UnsyncedDisk, fingerprint, name, put, tree, whole
from tests.durable.disks import RecordingDisk

LOG, INDEX, TIMES = (name(100, end) for end in (".log", ".index", ".timeindex"))
NAMES = (LOG, INDEX, TIMES)
KEEP = f"krepair~{PLAN_ID}/keep"
ASIDE = ChangeFiles()


class Site:
    """A partition with one segment that is to be taken out."""

    def __init__(self, root: Path) -> None:
        self.root, self.path = root, root / "t-0"
        for place in ("stage", "keep", "out"):
            (self.path / f"krepair~{PLAN_ID}" / place).mkdir(parents=True)
        for number, file in enumerate(NAMES):
            put(self.path / file, file.encode(), 1_000 + number)
        self.before = tree(root, private=False)
        files = tuple(fingerprint(self.path / file) for file in NAMES)
        self.partition = PartitionPlan(
            topic="t", partition=0, folder="t-0", status="change", files=files, changes=()
        )

    def folder(self, disk: RecordingDisk | None = None) -> PartitionFolder:
        return PartitionFolder(disk or UnsyncedDisk(), str(self.root), "t-0", PLAN_ID)

    def begin(self, names: tuple[str, ...] = NAMES) -> Intent:
        change = SetAside(
            change_id=f"t-0/{100:020d}",
            base_offset=100,
            names=names,
            bytes=0,
            records=0,
            rule="",
            consent="",
            reason="",
            undo=KeepOriginal(),
        )
        return begin(Target(self.folder(), self.partition, "P1"), change)


@pytest.fixture
def site(memory_dir: Path) -> Site:
    return Site(memory_dir / "logs")


def test_it_is_out_once_its_log_is_and_on_its_way_back_with_its_first_file(site: Site) -> None:
    intent, folder = site.begin(), site.folder()
    whole(ASIDE.go_on(folder, [intent]))
    assert (ASIDE.is_committed(folder, intent), ASIDE.is_back(folder, intent)) == (True, False)
    (site.path / KEEP / INDEX).rename(site.path / INDEX)
    assert (ASIDE.is_committed(folder, intent), ASIDE.is_back(folder, intent)) == (True, True)
    (site.path / KEEP / LOG).rename(site.path / LOG)
    assert (ASIDE.is_committed(folder, intent), ASIDE.is_back(folder, intent)) == (False, True)


def test_log_that_is_gone_and_not_kept_is_not_set_aside(site: Site) -> None:
    intent, folder = site.begin(), site.folder()
    (site.path / LOG).unlink()
    assert not ASIDE.is_committed(folder, intent)
    assert not ASIDE.can_go_on(folder, intent)


def test_each_file_has_to_be_there_or_kept(site: Site) -> None:
    intent, folder = site.begin(), site.folder()
    (site.path / INDEX).rename(site.path / KEEP / INDEX)
    assert ASIDE.can_go_on(folder, intent)
    (site.path / TIMES).unlink()
    assert not ASIDE.can_go_on(folder, intent)


def test_file_that_is_gone_already_but_kept_is_passed_over(site: Site) -> None:
    intent, folder = site.begin(), site.folder()
    (site.path / INDEX).rename(site.path / KEEP / INDEX)
    whole(ASIDE.go_on(folder, [intent]))
    assert ASIDE.is_committed(folder, intent)


@pytest.mark.parametrize("file", NAMES)
@pytest.mark.parametrize("kept", [True, False])
def test_file_that_changed_meanwhile_is_not_taken_out(site: Site, file: str, kept: bool) -> None:
    intent = site.begin()
    if kept:
        (site.path / file).rename(site.path / KEEP / file)
    put(site.path / file, b"by a broker", 9_000)
    with pytest.raises(StalePlanError, match=f"{file}: changed while the apply was interrupted"):
        whole(ASIDE.go_on(site.folder(), [intent]))
    assert (site.path / file).read_bytes() == b"by a broker"


def test_another_segment_of_the_name_stays(site: Site) -> None:
    intent = site.begin()
    whole(ASIDE.go_on(site.folder(), [intent]))
    put(site.path / LOG, b"by a broker", 9_000)
    before = tree(site.root)
    with pytest.raises(StalePlanError, match=f"{LOG}: was written since the plan was applied"):
        whole(ASIDE.undo(site.folder(), [intent]))
    assert tree(site.root) == before


def test_index_of_the_name_that_a_broker_made_gives_way(site: Site) -> None:
    intent = site.begin()
    whole(ASIDE.go_on(site.folder(), [intent]))
    put(site.path / INDEX, b"by a broker", 9_000)
    whole(ASIDE.undo(site.folder(), [intent]))
    assert tree(site.root, private=False) == site.before


def test_nothing_comes_back_where_a_kept_file_is_gone(site: Site) -> None:
    intent = site.begin()
    whole(ASIDE.go_on(site.folder(), [intent]))
    (site.path / KEEP / TIMES).unlink()
    before = tree(site.root)
    with pytest.raises(StalePlanError, match=f"{TIMES}: is not the original of"):
        whole(ASIDE.undo(site.folder(), [intent]))
    assert tree(site.root) == before


def test_file_that_the_plan_does_not_know_is_not_begun(site: Site) -> None:
    with pytest.raises(RefusedError, match="the plan has no such file"):
        site.begin((*NAMES, name(100, ".txnindex")))
