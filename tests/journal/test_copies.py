"""Copies of originals elsewhere, by themselves: whose folder it is, what is brought back, what goes."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from krepair.errors import RefusedError, VerifyFailedError
from krepair.journal.copies import IDENTITY_NAME, Copies
from krepair.journal.copies_told import CopiesTold, check_copies, told_of
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import CopiesKept, Done, FileState, Freed, Here, ReplaceIntent
from tests.journal.scene import PLAN_ID, UnsyncedDisk, name, put, tree

LOG, INDEX = name(0), name(0, ".index")
HERE = Here(
    host="host-1",
    log_dir="/data",
    file_system="ab",
    inode=7,
    cluster_id="",
    broker_id="",
    directory_id="",
    plan_digest="",
)
OTHER = msgspec.structs.replace(HERE, host="host-2")


class Site:
    """A partition with two originals, and an empty folder for their copies."""

    def __init__(self, root: Path) -> None:
        self.place = root / "copies"
        self.place.mkdir()
        self.path = root / "logs" / "t-0"
        self.path.mkdir(parents=True)
        put(self.path / LOG, b"log" * 20, 1_000)
        put(self.path / INDEX, b"index", 1_001)
        self.folder = PartitionFolder(UnsyncedDisk(), str(root / "logs"), "t-0", PLAN_ID)
        self.folder.make_private_folders()
        self.originals = [self.state(LOG), self.state(INDEX)]
        self.own = self.place / f"krepair~{PLAN_ID}"

    def state(self, relative: str) -> FileState:
        found = self.folder.state(relative)
        assert found is not None
        return found

    def copies(self) -> Copies:
        return Copies(UnsyncedDisk(), str(self.place), PLAN_ID)

    def kept(self, file: str) -> Path:
        return self.path / f"krepair~{PLAN_ID}" / "keep" / file

    def freed(self) -> dict[str, str]:
        """The originals are copied, and gone."""
        digests = self.copies().keep(self.folder, self.originals)
        for original in self.originals:
            (self.path / original.name).unlink()
        return digests


@pytest.fixture
def site(memory_dir: Path) -> Site:
    return Site(memory_dir)


def test_originals_are_copied_and_come_back_with_bytes_and_times(site: Site) -> None:
    before = tree(site.path, private=False)
    digests, copies = site.freed(), site.copies()
    assert copies.missing(site.folder, site.originals, digests) == site.originals
    came = copies.restore(site.folder, site.originals, digests)
    assert came.brought == (LOG, INDEX)
    assert tree(site.kept("").resolve()) == before
    assert [one.inode for one in came.states] == [site.kept(file).stat().st_ino for file in (LOG, INDEX)]
    assert copies.restore(site.folder, site.originals, digests).brought == ()


@pytest.mark.parametrize("wrong", ["gone", "time", "size", "bytes"])
def test_kept_file_that_is_not_the_original_is_brought_again(site: Site, wrong: str) -> None:
    digests, copies = site.freed(), site.copies()
    copies.restore(site.folder, site.originals, digests)
    kept = site.kept(LOG)
    match wrong:
        case "gone":
            kept.unlink()
        case "time":
            os.utime(kept, ns=(1, 1))
        case "size":
            put(kept, b"log" * 21, 1_000)
        case _:
            put(kept, b"LOG" * 20, 1_000)
    assert copies.missing(site.folder, site.originals, digests) == site.originals[:1]
    assert copies.restore(site.folder, site.originals, digests).brought == (LOG,)
    assert copies.missing(site.folder, site.originals, digests) == []


def test_copy_that_changed_is_not_brought_and_leaves_nothing(site: Site) -> None:
    digests, copies = site.freed(), site.copies()
    put(site.own / "t-0" / LOG, b"LOG" * 20, 1_000)
    with pytest.raises(VerifyFailedError, match="is not the original that was copied there"):
        copies.restore(site.folder, site.originals, digests)
    assert [path.name for path in site.path.rglob("*") if path.is_file()] == []


# -- whose folder it is


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[" * 9_000, b"[]"])
def test_identity_that_cannot_be_read_is_none(site: Site, data: bytes) -> None:
    site.copies().keep(site.folder, site.originals)
    (site.own / IDENTITY_NAME).write_bytes(data)
    assert site.copies().record() is None
    with pytest.raises(RefusedError, match="expected the identity 12 that the journals"):
        site.copies().check_is("12")


def test_every_directory_that_keeps_copies_is_written_down_also_beside_an_identity(site: Site) -> None:
    first, second = site.copies(), site.copies()
    first.used_by(HERE, ())
    first.keep(site.folder, site.originals)
    assert [noted.user.host for noted in second.users() if noted.user] == ["host-1"]
    second.used_by(OTHER, ())
    second.keep(site.folder, site.originals)
    assert sorted(noted.user.host for noted in second.users() if noted.user) == ["host-1", "host-2"]
    assert first.record() == second.record()


def test_where_nobody_says_which_directory_it_is_none_is_written_down(site: Site) -> None:
    for _ in range(2):
        site.copies().keep(site.folder, site.originals)
    assert site.copies().users() == []


# -- away


def test_copies_go_and_then_the_folder_with_its_identity(site: Site) -> None:
    copies = site.copies()
    copies.used_by(HERE, ())
    copies.keep(site.folder, site.originals)
    copies.close()
    assert (site.own / IDENTITY_NAME).exists(), "copies are left"
    assert copies.remove(site.folder) == sum(one.size for one in site.originals)
    assert copies.remove(site.folder) == 0
    copies.close()
    assert list(site.place.iterdir()) == []
    copies.close()


def test_copies_that_another_directory_may_need_stay_and_only_this_one_is_struck_out(site: Site) -> None:
    other = site.copies()
    other.used_by(OTHER, ())
    other.keep(site.folder, site.originals)
    copies = site.copies()
    copies.used_by(HERE, ("host-2",))
    copies.keep(site.folder, site.originals)
    held = tree(site.own / "t-0")
    assert copies.remove(site.folder) == 0
    copies.close()
    assert tree(site.own / "t-0") == held
    assert [noted.user.host for noted in copies.users() if noted.user] == ["host-2"]


# -- what journals tell


def tell(site: Site, *, identity: str, copies: str, purging: bool = False) -> CopiesTold:
    """What a journal tells whose one change is freed."""
    journal = site.folder.journal(to_write=True)
    original = site.originals[0]
    if identity:
        journal.append(CopiesKept(path=str(site.place), identity=identity))
    journal.append(ReplaceIntent(change_id="c", original=original, replacement=None))
    journal.append(Done(change_id="c", state="committed"))
    journal.append(Freed(change_id="c", originals={LOG: "d"}, copies=copies))
    if purging:
        journal.begin_purge(("c",))
    return told_of([site.folder])


@pytest.mark.parametrize("identity", ["", "12"])
@pytest.mark.parametrize("purging", [False, True])
def test_freed_originals_are_told_with_the_identity_of_their_folder(
    site: Site, identity: str, purging: bool
) -> None:
    told = tell(site, identity=identity, copies=f"{site.own}/t-0", purging=purging)
    assert told.paths == {str(site.place)}
    assert told.identities == ({identity} if identity else set())
    (freed,) = told.freed
    assert (freed.originals, freed.digests) == ((site.originals[0],), {LOG: "d"})
    assert (freed.identity, freed.going) == (identity, purging)


@pytest.mark.parametrize("copies", ["", "elsewhere/t-0", "krepair~0123abcd/t-1"])
def test_freed_originals_without_copies_of_this_plan_and_partition_are_not_told(
    site: Site, copies: str
) -> None:
    told = tell(site, identity="", copies=f"{site.place}/{copies}" if copies else "")
    assert told == CopiesTold(frozenset(), frozenset(), ())


def test_two_identities_in_the_journals_of_one_plan_are_refused(site: Site) -> None:
    copies = site.copies()
    copies.keep(site.folder, site.originals)
    kept = copies.record()
    assert kept is not None
    check_copies(site.copies(), CopiesTold(frozenset(), frozenset({kept.identity}), ()), whole=True)
    told = CopiesTold(frozenset(), frozenset({kept.identity, "12"}), ())
    with pytest.raises(
        RefusedError, match=f"more than one folder of copies: {', '.join(sorted(told.identities))};"
    ):
        check_copies(site.copies(), told, whole=True)
