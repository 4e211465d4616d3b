"""Copies of originals elsewhere, by themselves: whose folder it is, what is brought back, what goes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from krepair.errors import RefusedError, StalePlanError, VerifyFailedError
from krepair.journal.copies import IDENTITY_NAME, Copies, check_place
from krepair.journal.copies_told import CopiesTold, FreedOriginals, check_copies, told_of
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import CopiesKept, Done, FileState, Freed, ReplaceIntent
from krepair.logdir.fingerprint import digest_content
from tests.durable.disks import RecordingDisk
from tests.journal.scene import HERE, PLAN_ID, UnsyncedDisk, name, put, tree

LOG, INDEX = name(0), name(0, ".index")
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


# -- the folder itself


def test_folder_that_is_gone_a_link_or_exchanged_is_refused_before_anything_is_copied(site: Site) -> None:
    copies = site.copies()
    moved = site.place.with_name("moved")
    site.place.rename(moved)
    with pytest.raises(RefusedError, match="is not there, or is a link"):
        copies.keep(site.folder, site.originals)
    assert not copies.is_there()
    site.place.symlink_to(moved)
    with pytest.raises(RefusedError, match="is not there, or is a link"):
        copies.keep(site.folder, site.originals)
    assert list(moved.iterdir()) == []


def test_folder_with_another_identity_than_the_one_that_was_checked_is_refused(site: Site) -> None:
    copies = site.copies()
    digests = copies.keep(site.folder, site.originals)
    known = copies.record()
    assert known is not None
    again = site.copies()
    again.check_is(known.identity)
    (site.own / IDENTITY_NAME).unlink()
    for used in (copies, again):
        with pytest.raises(RefusedError, match=f"expected the identity {known.identity}"):
            used.check_there()
        with pytest.raises(RefusedError, match=f"expected the identity {known.identity}"):
            used.keep(site.folder, site.originals)
        with pytest.raises(RefusedError, match=f"expected the identity {known.identity}"):
            used.make_sure(site.folder, site.originals, digests)


@pytest.mark.parametrize("field", ["magic", "plan_id"])
def test_identity_of_another_plan_or_program_is_none(site: Site, field: str) -> None:
    site.copies().keep(site.folder, site.originals)
    found = msgspec.json.decode((site.own / IDENTITY_NAME).read_bytes())
    (site.own / IDENTITY_NAME).write_bytes(msgspec.json.encode(found | {field: "other"}))
    assert site.copies().record() is None


def test_copies_of_another_log_directory_are_not_mixed_with_these(site: Site) -> None:
    site.copies().keep(site.folder, site.originals)
    found = msgspec.json.decode((site.own / IDENTITY_NAME).read_bytes())
    (site.own / IDENTITY_NAME).write_bytes(msgspec.json.encode(found | {"log_dir": "/other"}))
    with pytest.raises(
        RefusedError, match=f"holds copies of originals of /other, not of {site.folder.log_dir}"
    ):
        site.copies().keep(site.folder, site.originals)


def test_folders_of_copies_are_the_owners_alone_and_durable_before_a_journal_names_them(site: Site) -> None:
    disk = RecordingDisk(UnsyncedDisk())
    Copies(disk, str(site.place), PLAN_ID).keep(site.folder, site.originals)
    assert [path.stat().st_mode & 0o777 for path in (site.own, site.own / "t-0")] == [0o700] * 2
    calls = [(call.kind, call.target or call.path) for call in disk.calls]
    named = calls.index(("rename", f"{site.own}/{IDENTITY_NAME}"))
    first = calls.index(("copy", f"{site.own}/t-0/{LOG}"))
    assert {("sync_dir", str(site.own)), ("sync_dir", str(site.place))} <= set(calls[named:first])
    assert ("sync_dir", f"{site.own}/t-0") in calls[first:]


@pytest.mark.parametrize("inner", [False, True])
def test_file_in_the_place_of_a_folder_of_copies_is_refused(site: Site, inner: bool) -> None:
    if inner:
        site.copies().keep(site.folder, site.originals[:0])
        (site.own / "t-0").rmdir()
    place = site.own / "t-0" if inner else site.own
    place.write_bytes(b"")
    with pytest.raises(RefusedError, match="expected a folder of krepair's own"):
        site.copies().keep(site.folder, site.originals)


def test_what_a_killed_run_left_of_an_identity_is_written_anew(site: Site) -> None:
    site.own.mkdir()
    (site.own / f"{IDENTITY_NAME}.new").write_bytes(b"{")
    copies = site.copies()
    copies.keep(site.folder, site.originals)
    assert sorted(path.name for path in site.own.iterdir()) == [IDENTITY_NAME, "t-0"]
    assert site.copies().record() == copies.record()


# -- copies that are there already


def test_copy_of_a_run_that_met_an_error_is_made_anew_as_its_bytes_may_be_lost(site: Site) -> None:
    """Its sync failed, and then it could not be removed. A later sync ends well, whatever became of the bytes."""
    digests = site.copies().keep(site.folder, site.originals)
    disk = RecordingDisk(UnsyncedDisk())
    assert Copies(disk, str(site.place), PLAN_ID).keep(site.folder, site.originals) == digests
    own = [str(site.own / "t-0" / file) for file in (LOG, INDEX)]
    assert [call.path for call in disk.calls if call.kind == "unlink"] == own
    assert [call.target for call in disk.calls if call.kind == "copy"] == own


def test_recorded_copy_that_is_right_is_used_and_one_that_is_not_is_made_again(site: Site) -> None:
    digests = site.copies().keep(site.folder, site.originals)
    right, wrong = site.own / "t-0" / LOG, site.own / "t-0" / INDEX
    inode = right.stat().st_ino
    wrong.write_bytes(b"INDEX")
    disk = RecordingDisk(UnsyncedDisk())
    assert Copies(disk, str(site.place), PLAN_ID).keep(site.folder, site.originals, recorded=True) == digests
    assert [call.target for call in disk.calls if call.kind == "copy"] == [str(wrong)]
    assert right.stat().st_ino == inode
    assert (wrong.read_bytes(), wrong.stat().st_mtime_ns) == (b"index", site.originals[1].mtime_ns)


def test_original_that_is_kept_already_is_copied_from_there(site: Site) -> None:
    os.link(site.path / LOG, site.kept(LOG))
    put(site.path / LOG, b"new segment", 2_000)
    site.kept(LOG).unlink()
    with pytest.raises(StalePlanError, match=f"{LOG}: is not the original of 60 bytes"):
        site.copies().keep(site.folder, site.originals)
    put(site.kept(LOG), b"log" * 20, 1_000)
    site.copies().keep(site.folder, site.originals)
    assert (site.own / "t-0" / LOG).read_bytes() == b"log" * 20


@pytest.mark.parametrize("wrong", ["gone", "bytes", "time", "size", "folder"])
def test_copy_that_is_not_right_before_its_original_goes_is_made_again_from_what_is_kept(
    site: Site, wrong: str
) -> None:
    digests = site.copies().keep(site.folder, site.originals)
    for original in site.originals:
        os.rename(site.path / original.name, site.kept(original.name))
    copy = site.own / "t-0" / LOG
    match wrong:
        case "gone":
            copy.unlink()
        case "bytes":
            put(copy, b"LOG" * 20, 1_000)
        case "time":
            os.utime(copy, ns=(1, 1))
        case "size":
            put(copy, b"log" * 21, 1_000)
        case _:
            shutil.rmtree(copy.parent)
    copies = site.copies()
    assert copies.what_is_missing(site.folder, site.originals, digests).startswith(f"{copy}: is not ")
    copies.make_sure(site.folder, site.originals, digests)
    assert copies.what_is_missing(site.folder, site.originals, digests) == ""
    assert copies.digests(site.folder, site.originals) == digests
    assert (copy.read_bytes(), copy.stat().st_mtime_ns) == (b"log" * 20, site.originals[0].mtime_ns)


@pytest.mark.parametrize("wrong", ["gone", "bytes"])
@pytest.mark.parametrize("kept", ["gone", "bytes"])
def test_copy_that_cannot_be_made_again_is_told_and_nothing_goes(site: Site, wrong: str, kept: str) -> None:
    digests = site.copies().keep(site.folder, site.originals)
    copy = site.own / "t-0" / LOG
    if kept == "bytes":
        put(site.kept(LOG), b"LOG" * 20, 1_000)
    if wrong == "gone":
        copy.unlink()
    else:
        put(copy, b"LoG" * 20, 1_000)
    kind = RefusedError if wrong == "gone" else VerifyFailedError
    with pytest.raises(kind, match=f"{copy}: .*; what is still kept of its change stays") as caught:
        site.copies().make_sure(site.folder, site.originals, digests)
    assert type(caught.value) is kind
    assert site.copies().digests(site.folder, site.originals) == (
        {} if wrong == "gone" else digests | {LOG: digest_content(str(copy))}
    )


def test_of_an_index_only_its_blocks_are_brought_back_and_of_a_log_all_bytes(site: Site) -> None:
    with (site.path / INDEX).open("r+b") as file:
        file.truncate(1 << 20)
    index = site.state(INDEX)
    copies = site.copies()
    assert copies.bytes_of(site.folder, index) == 1 << 20, "there is no copy yet"
    copies.keep(site.folder, [site.originals[0], index])
    blocks = (site.own / "t-0" / INDEX).stat().st_blocks * 512
    assert copies.bytes_of(site.folder, index) == blocks < 1 << 20
    assert copies.bytes_of(site.folder, site.originals[0]) == site.originals[0].size


# -- copies of a krepair that gave the folder no identity


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("named", ["", "identity", "going"])
def test_copies_that_no_journal_names_prove_themselves(site: Site, whole: bool, named: str) -> None:
    digests = site.freed()
    freed = FreedOriginals(
        site.folder, site.originals, digests, "12" if named == "identity" else "", named == "going"
    )
    told = CopiesTold(frozenset({str(site.place)}), frozenset(), (freed,))
    assert told.needed(site.copies())
    check_copies(site.copies(), told, whole=whole)
    put(site.own / "t-0" / INDEX, b"INDEX", 1_001)
    if whole and not named:
        with pytest.raises(
            RefusedError, match=f"{INDEX}: is not the original that was copied there; nothing"
        ):
            check_copies(site.copies(), told, whole=whole)
    else:
        check_copies(site.copies(), told, whole=whole)
    shutil.rmtree(site.own)
    if named:
        check_copies(site.copies(), told, whole=whole)
    else:
        with pytest.raises(RefusedError, match="the journal says that originals were copied into it"):
            check_copies(site.copies(), told, whole=whole)


def test_a_place_for_copies_is_a_folder_and_no_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    for wrong in ("file", "link", "nothing"):
        with pytest.raises(RefusedError, match="is not there, or is a link"):
            check_place(str(tmp_path / wrong), "/dev")
