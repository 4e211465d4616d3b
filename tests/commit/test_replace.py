"""Files that are replaced or go, by themselves: each state on the way, and what somebody else changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.commit.begin import Target, begin
from krepair.commit.change_files import ChangeFiles
from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import Intent
from krepair.errors import KrepairError, RefusedError, StalePlanError, VerifyFailedError
from krepair.logdir.fingerprint import digest_bytes
from krepair.plan.model import KeepOriginal, PartitionPlan, ReplaceFile
from tests.commit.scene import PLAN_ID, UnsyncedDisk, fingerprint, name, put, tree, whole

OLD, NONE, GOES = name(0, ".timeindex"), name(10, ".timeindex"), name(0, ".log.deleted")
NEW = b"new bytes"
FILES = ChangeFiles()
KEEP, STAGE = f"krepair~{PLAN_ID}/keep", f"krepair~{PLAN_ID}/stage"


def change_of(file: str) -> ReplaceFile:
    return ReplaceFile(
        change_id=f"t-0/{file}",
        name=file,
        method="remove" if file.endswith(".deleted") else "regenerate",
        rule="KR201",
        size_before=3,
        size_after=-1 if file.endswith(".deleted") else len(NEW),
        digest_after=digest_bytes(NEW),
        reason="",
        undo=KeepOriginal(),
    )


class Site:
    """A partition with a file to replace, one to make, and one to remove."""

    def __init__(self, root: Path) -> None:
        self.root, self.path = root, root / "t-0"
        for place in ("stage", "keep", "out"):
            (self.path / f"krepair~{PLAN_ID}" / place).mkdir(parents=True)
        put(self.path / OLD, b"old", 1_000)
        put(self.path / GOES, b"gone soon", 1_001)
        for file in (OLD, NONE):
            put(self.path / STAGE / file, NEW, 2_000)
        self.before = tree(root, private=False)
        files = tuple(fingerprint(self.path / file) for file in (OLD, GOES))
        self.partition = PartitionPlan(
            topic="t", partition=0, folder="t-0", status="change", files=files, changes=()
        )

    def folder(self) -> PartitionFolder:
        return PartitionFolder(UnsyncedDisk(), str(self.root), "t-0", PLAN_ID)

    def begin(self, file: str) -> Intent:
        return begin(Target(self.folder(), self.partition, "P1"), change_of(file))


@pytest.fixture
def site(memory_dir: Path) -> Site:
    return Site(memory_dir / "logs")


Hand = Callable[[Site], object]


def write(file: str) -> Hand:
    return lambda site: put(site.path / file, b"by somebody else", 9_000)


def remove(file: str) -> Hand:
    return lambda site: (site.path / file).unlink()


@pytest.mark.parametrize(
    ("file", "hand", "can_go_on", "kind", "text"),
    [
        (OLD, write(OLD), True, StalePlanError, "changed while the apply was interrupted"),
        (OLD, remove(OLD), True, StalePlanError, "changed while the apply was interrupted"),
        (NONE, write(NONE), True, StalePlanError, "changed while the apply was interrupted"),
        (GOES, write(GOES), False, StalePlanError, "changed while the apply was interrupted"),
        (OLD, write(f"{STAGE}/{OLD}"), False, VerifyFailedError, "is not the file that krepair made"),
        (OLD, remove(f"{STAGE}/{OLD}"), False, VerifyFailedError, "is not the file that krepair made"),
    ],
)
def test_nothing_goes_over_what_somebody_else_wrote(
    site: Site, file: str, hand: Hand, can_go_on: bool, kind: type[KrepairError], text: str
) -> None:
    intent = site.begin(file)
    hand(site)
    before = tree(site.root, private=False)
    assert FILES.can_go_on(site.folder(), intent) is can_go_on
    with pytest.raises(kind, match=text) as caught:
        whole(FILES.go_on(site.folder(), [intent]))
    assert type(caught.value) is kind
    assert tree(site.root, private=False) == before


def test_file_that_goes_and_is_gone_already_without_being_kept_is_left_so(site: Site) -> None:
    intent = site.begin(GOES)
    (site.path / GOES).unlink()
    assert not FILES.can_go_on(site.folder(), intent)
    FILES.forget(site.folder(), [intent])
    assert not (site.path / GOES).exists()


def test_replaced_file_whose_original_was_lost_is_refused(site: Site) -> None:
    intent = site.begin(OLD)
    whole(FILES.go_on(site.folder(), [intent]))
    (site.path / KEEP / OLD).unlink()
    with pytest.raises(RefusedError, match="the original is not kept although it was replaced"):
        whole(FILES.go_on(site.folder(), [intent]))
    with pytest.raises(StalePlanError, match="the kept original is gone or changed, so the new file stays"):
        whole(FILES.undo(site.folder(), [intent]))
    assert (site.path / OLD).read_bytes() == NEW


@pytest.mark.parametrize("file", [OLD, NONE, GOES])
def test_file_that_was_written_since_stays(site: Site, file: str) -> None:
    intent = site.begin(file)
    whole(FILES.go_on(site.folder(), [intent]))
    put(site.path / file, b"by a broker", 9_000)
    for call in (
        lambda: FILES.check_undo(site.folder(), intent, "committed"),
        lambda: FILES.check_undo(site.folder(), intent, "undoing"),
        lambda: whole(FILES.undo(site.folder(), [intent])),
    ):
        with pytest.raises(StalePlanError, match="was written since the plan was applied"):
            call()
    assert (site.path / file).read_bytes() == b"by a broker"


def test_file_to_remove_that_the_plan_does_not_know_is_refused(site: Site) -> None:
    with pytest.raises(RefusedError, match="is to be changed, but the plan has no such file"):
        site.begin(name(5, ".log.deleted"))


def test_staged_file_is_told_as_it_is(site: Site) -> None:
    put(site.path / STAGE / OLD, b"short", 2_000)
    with pytest.raises(RefusedError, match="expected 9 bytes, found 5 bytes"):
        site.begin(OLD)
    (site.path / STAGE / OLD).unlink()
    with pytest.raises(RefusedError, match="expected 9 bytes, found nothing"):
        site.begin(OLD)
    put(site.path / STAGE / OLD, b"new BYTES", 2_000)
    with pytest.raises(VerifyFailedError, match="its bytes are no longer those of the plan"):
        site.begin(OLD)


def test_file_that_is_a_folder_or_a_link_is_refused(site: Site) -> None:
    (site.path / OLD).unlink()
    (site.path / OLD).mkdir()
    with pytest.raises(StalePlanError, match="expected a regular file"):
        site.begin(OLD)


@pytest.mark.parametrize("file", [OLD, GOES])
def test_what_was_kept_of_a_change_that_never_happened_goes(site: Site, file: str) -> None:
    intent, kept = site.begin(file), site.path / KEEP / file
    os.link(site.path / file, kept)
    FILES.forget(site.folder(), [intent])
    assert not kept.exists()
    assert tree(site.root, private=False) == site.before


def test_file_that_a_broker_deleted_before_it_was_kept_needs_nothing(site: Site) -> None:
    intents = [site.begin(OLD), site.begin(GOES)]
    os.link(site.path / OLD, site.path / KEEP / OLD)
    (site.path / GOES).unlink()
    FILES.forget(site.folder(), intents)
    assert not (site.path / KEEP / OLD).exists()
    assert not (site.path / GOES).exists()
