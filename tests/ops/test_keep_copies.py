"""``plan --keep DIR``: originals are copied to another file system, freed, and put back from there.

Stopped at every call: ``KREPAIR_EVERY_CALL=1 make test ARGS=tests/ops/test_keep_copies.py``.
"""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, RefusedError
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.rebuild import rebuild
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import Options
from krepair.plan.model import Plan
from tests.durable.disks import FILE_CHANGING, Call, PassingDisk, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.ops.stops import EVERY_CALL, telling_stops
from tests.ops.test_resume import stops
from tools.torture.scenes import Tree, build, differences, look, private, visible

NAMES = ("markers", "partitions", "everything", "leftovers")
VERBS = {"apply": apply, "undo": undo, "purge": purge}


@pytest.fixture
def elsewhere(tmp_path: Path, memory_dir: Path) -> Path:
    """A folder on another file system than the log directories of these tests."""
    if tmp_path.stat().st_dev == memory_dir.stat().st_dev:
        pytest.skip("there is one file system only")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


class Site:
    """A scene whose plan keeps copies elsewhere."""

    def __init__(self, name: str, root: Path, elsewhere: Path) -> None:
        scene = build(name)
        root.mkdir()
        self.path = scene.place(root).path
        self.options: Options = replace(scene.options, keep=str(elsewhere))
        self.before = self.seen()
        self.plan: Plan = make_plan(str(self.path), self.options)

    def seen(self) -> Tree:
        return visible(look(self.path))

    def run(self, verb: str, disk: object = None) -> ExitCode:
        report = VERBS[verb](self.plan, self.options, disk=disk)  # type: ignore[operator]
        self.why = [one.why for one in report.results if one.why]
        return report.exit_code  # type: ignore[no-any-return]

    def private(self) -> list[str]:
        return private(look(self.path))


@pytest.mark.parametrize("name", NAMES)
def test_what_was_copied_and_freed_is_put_back_byte_for_byte(
    memory_dir: Path, elsewhere: Path, name: str
) -> None:
    site = Site(name, memory_dir / "a", elsewhere)
    assert site.run("apply") == ExitCode.DONE, site.why
    applied = site.seen()
    own = elsewhere / f"krepair~{site.plan.plan_id}"
    copies = [path for path in elsewhere.rglob("*") if path.is_file() and path.parent != own]
    assert copies
    assert (own / "identity").is_file()
    assert all(path.parent.parent.name == f"krepair~{site.plan.plan_id}" for path in copies)
    kept = [entry for entry in site.private() if "/keep/" in entry]
    assert not kept or site.plan.root is not None or name in {"partitions", "everything"}
    assert verify_plan(site.plan, site.options).problems == ()
    assert site.run("apply") == ExitCode.DONE
    assert site.run("undo") == ExitCode.DONE, site.why
    assert differences(site.seen(), site.before) == ""
    assert (site.private(), list(elsewhere.iterdir())) == ([], [])
    site.plan = make_plan(
        str(site.path), site.options
    )  # the files are copies: the first plan knew the others
    assert site.run("apply") == ExitCode.DONE
    assert differences(site.seen(), applied) == ""
    assert site.run("purge") == ExitCode.DONE
    assert (site.private(), list(elsewhere.iterdir())) == ([], [])
    assert differences(site.seen(), applied) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["markers", "partitions"])
@pytest.mark.parametrize("verb", ["apply", "undo", "purge"])
def test_stopped_at_any_call_each_verb_goes_on_and_undo_gives_everything_back(
    memory_dir: Path, elsewhere: Path, name: str, verb: str
) -> None:
    site = Site(name, memory_dir / "whole", elsewhere)
    recording = RecordingDisk(RealDisk())
    assert site.run("apply", recording if verb == "apply" else None) == ExitCode.DONE
    applied = site.seen()
    if verb != "apply":
        assert site.run(verb, recording) == ExitCode.DONE
    calls = sum(call.kind in FILE_CHANGING for call in recording.calls)
    # Of several partitions a sample: each of them does the same.
    for stop in (
        stops(calls, 40) if name == "partitions" and not EVERY_CALL else telling_stops(recording.calls)
    ):
        shutil.rmtree(memory_dir / "try", ignore_errors=True)
        for left in elsewhere.iterdir():
            shutil.rmtree(left)
        site = Site(name, memory_dir / "try", elsewhere)
        disk = StoppingDisk(RealDisk(), stop)
        if verb != "apply":
            site.run("apply")
        with pytest.raises(SimulatedCrash):
            site.run(verb, disk)
        where = (stop, disk.stopped_at)
        if verb == "apply" and stop % 2:
            assert site.run("apply") == ExitCode.DONE, (where, site.why)
            assert differences(site.seen(), applied) == "", where
        if verb == "purge":
            assert site.run("purge") == ExitCode.DONE, (where, site.why)
            assert differences(site.seen(), applied) == "", where
        else:
            assert site.run("undo") == ExitCode.DONE, (where, site.why)
            assert differences(site.seen(), site.before) == "", where
        assert (site.private(), list(elsewhere.iterdir())) == ([], []), where


def test_a_folder_that_is_gone_is_said_and_nothing_is_changed(memory_dir: Path, elsewhere: Path) -> None:
    site = Site("markers", memory_dir / "a", elsewhere)
    site.run("apply")
    before, away = site.seen(), elsewhere.with_name("away")
    elsewhere.rename(away)
    for verb in VERBS:
        with pytest.raises(RefusedError, match="is not there"):
            site.run(verb)
    assert site.seen() == before
    away.rename(elsewhere)
    assert site.run("undo") == ExitCode.DONE


def test_a_copy_that_is_not_what_was_copied_is_not_put_back(memory_dir: Path, elsewhere: Path) -> None:
    site = Site("markers", memory_dir / "a", elsewhere)
    site.run("apply")
    before = site.seen()
    victim = max(elsewhere.rglob("*.log"))
    found = victim.stat()
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(bytes(data))
    os.utime(victim, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert site.run("undo") == ExitCode.VERIFY_FAILED
    assert "is not the original that was copied there" in " ".join(site.why)
    assert site.seen() == before
    assert not [entry for entry in site.private() if "/keep/" in entry]


def test_a_segment_that_a_broker_has_written_since_is_not_put_back_and_no_room_is_taken(
    memory_dir: Path, elsewhere: Path
) -> None:
    site = Site("markers", memory_dir / "a", elsewhere)
    site.run("apply")
    changed = max(
        site.path / part.folder / f"{change.base_offset:020d}.log"  # type: ignore[union-attr]
        for part in site.plan.partitions
        for change in part.changes
    )
    os.utime(changed, ns=(1, 1))
    before = site.seen()
    assert site.run("undo") == ExitCode.STALE_PLAN
    assert site.seen() == before
    assert not [entry for entry in site.private() if "/keep/" in entry]
    assert [path for path in elsewhere.rglob("*") if path.is_file()]


def test_a_link_planted_for_the_folder_of_copies_is_refused(
    memory_dir: Path, elsewhere: Path, tmp_path: Path
) -> None:
    site = Site("markers", memory_dir / "a", elsewhere)
    (tmp_path / "trap").mkdir()
    (elsewhere / f"krepair~{site.plan.plan_id}").symlink_to(tmp_path / "trap")
    assert site.run("apply") != ExitCode.DONE
    assert site.seen() == site.before
    assert list((tmp_path / "trap").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_somebody_else_is_refused(memory_dir: Path, elsewhere: Path) -> None:
    site = Site("markers", memory_dir / "a", elsewhere)
    folder = elsewhere / f"krepair~{site.plan.plan_id}"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    assert site.run("apply") == ExitCode.REFUSED
    assert site.seen() == site.before


def test_the_same_file_system_and_a_log_directory_are_refused(memory_dir: Path, elsewhere: Path) -> None:
    same = memory_dir / "same"
    same.mkdir()
    with pytest.raises(RefusedError, match="on the same file system"):
        Site("markers", memory_dir / "a", same)
    (elsewhere / "meta.properties").write_text("version=0\n")
    (elsewhere / "in").mkdir()
    with pytest.raises(RefusedError, match="is a log directory"):
        Site("markers", memory_dir / "b", elsewhere / "in")


@pytest.mark.parametrize("name", NAMES)
def test_after_damaged_journals_are_written_anew_copies_come_back_byte_for_byte(
    memory_dir: Path, elsewhere: Path, name: str
) -> None:
    site = Site(name, memory_dir / "a", elsewhere)
    assert site.run("apply") == ExitCode.DONE, site.why
    applied = site.seen()
    for journal in site.path.rglob("journal"):
        journal.write_bytes(b"")
    assert rebuild(site.plan, site.options).exit_code == ExitCode.DONE
    assert differences(site.seen(), applied) == ""
    assert site.run("undo") == ExitCode.DONE, site.why
    assert differences(site.seen(), site.before) == ""
    assert (site.private(), list(elsewhere.iterdir())) == ([], [])


def test_copies_that_are_gone_when_a_journal_is_written_anew_leave_the_new_files_in_place(
    memory_dir: Path, elsewhere: Path
) -> None:
    site = Site("markers", memory_dir / "a", elsewhere)
    assert site.run("apply") == ExitCode.DONE, site.why
    applied = site.seen()
    for file in [*site.path.rglob("journal")]:
        file.write_bytes(b"")
    for copy in elsewhere.rglob("*.log"):
        copy.unlink()
    report = rebuild(site.plan, site.options)
    assert (report.exit_code, report.next_command) == (ExitCode.DONE, "krepair apply PLAN")
    assert site.run("undo") == ExitCode.REFUSED
    assert differences(site.seen(), applied) == ""
    assert site.run("purge") == ExitCode.DONE
    assert differences(site.seen(), applied) == ""


class _Stays(PassingDisk):
    """The folder of the copies cannot be removed."""

    def _before(self, call: Call) -> None:
        if call.kind == "remove_dir" and os.path.basename(os.path.dirname(call.path)) == "elsewhere":
            raise OSError(errno.EIO, os.strerror(errno.EIO), call.path)


@pytest.mark.parametrize("verb", ["undo", "purge"])
def test_a_folder_of_copies_that_cannot_be_removed_is_named_and_goes_with_the_next_purge(
    memory_dir: Path, elsewhere: Path, verb: str
) -> None:
    site = Site("markers", memory_dir / "a", elsewhere)
    assert site.run("apply") == ExitCode.DONE, site.why
    own = elsewhere / f"krepair~{site.plan.plan_id}"
    report = VERBS[verb](site.plan, site.options, disk=_Stays(RealDisk()))  # type: ignore[operator]
    assert report.exit_code == ExitCode.DONE
    assert f"The folder of copies {own} stays: {own}: Input/output error (EIO)." in report.notes[-1]
    last = purge(site.plan, site.options)
    assert (last.exit_code, last.notes, list(elsewhere.iterdir())) == (ExitCode.DONE, (), [])
