"""``plan --keep DIR`` when copies are damaged, gone, or not mounted: an original goes only for a copy that is there."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.durable.real_disk import RealDisk
from krepair.durable.writing_error import said_of_writing
from krepair.errors import ExitCode, KrepairError
from krepair.ops.apply import apply
from krepair.ops.by_id import purge_by_id, undo_by_id
from tests.durable.disks import FILE_CHANGING, Call, PassingDisk, RecordingDisk, SimulatedCrash
from tests.ops.test_keep_copies import Site, elsewhere
from tests.ops.test_resume import stops
from tools.torture.scenes import differences

__all__ = ["elsewhere"]


class Acting(PassingDisk):
    """Does something right before the nth call that changes a file, or before the first one that fits."""

    def __init__(self, act: Callable[[], None], number: int = 0, fits: str = "") -> None:
        super().__init__(RealDisk())
        self.act, self.number, self.fits = act, number, fits
        self.seen = 0
        self.freeing = False

    def _before(self, call: Call) -> None:
        self.freeing = self.freeing or (call.kind == "unlink" and "/keep/" in call.path)
        self.seen += call.kind in FILE_CHANGING
        if self.seen == self.number or (self.fits and call.kind == "unlink" and self.fits in call.path):
            self.number, self.fits = 0, ""
            self.act()


def crash() -> None:
    raise SimulatedCrash


def flip(file: Path) -> None:
    """Another byte in the middle, under the same time."""
    found, data = file.stat(), bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))


def contents(*places: Path) -> set[str]:
    files = [path for place in places for path in place.rglob("*") if path.is_file() and path.stat().st_size]
    return {hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def logs_of(site: Site) -> set[str]:
    return {
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in site.path.rglob("*.log")
        if path.stat().st_size
    }


def copies_in(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*.*") if path.is_file() and path.suffix in {".log", ".index"}
    )


def freed_but_all_here(memory_dir: Path, elsewhere: Path, name: str = "markers") -> Site:
    """Killed after the record ``freed``, before the first original went."""
    site = Site(name, memory_dir / "a", elsewhere)
    with pytest.raises(SimulatedCrash):
        site.run("apply", Acting(crash, fits="/keep/"))
    assert any(b'"freed"' in journal.read_bytes() for journal in site.path.rglob("journal"))
    return site


@pytest.mark.parametrize("name", ["markers", "leftovers", "everything"])
@pytest.mark.parametrize("harm", [flip, os.unlink], ids=["damaged", "gone"])
def test_originals_that_are_still_here_go_back_whatever_became_of_their_copies(
    memory_dir: Path, elsewhere: Path, name: str, harm: Callable[[Path], None]
) -> None:
    site = freed_but_all_here(memory_dir, elsewhere, name)
    for copy in copies_in(elsewhere):
        harm(copy)
    assert site.run("undo") == ExitCode.DONE, site.why
    assert differences(site.seen(), site.before) == ""
    assert (site.private(), list(elsewhere.iterdir())) == ([], [])


def test_a_purge_whose_copies_go_while_it_begins_is_refused_and_undo_still_works(
    memory_dir: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record that a purge was begun ends every undo: it comes only when nothing can refuse the purge any more."""
    site = Site("leftovers", memory_dir / "a", elsewhere)
    assert site.run("apply") == ExitCode.DONE
    away = elsewhere.with_name(f"{elsewhere.name}-away")

    def unmounted(*arguments: object) -> None:
        if elsewhere.exists():
            elsewhere.rename(away)

    with monkeypatch.context() as patch:
        patch.setattr("krepair.journal.purge.check_all_recorded", unmounted)
        assert site.run("purge") == ExitCode.REFUSED
    away.rename(elsewhere)
    assert site.run("undo") == ExitCode.DONE, site.why
    assert differences(site.seen(), site.before) == ""


def test_an_undo_that_cannot_bring_one_copy_leaves_all_that_is_kept_here(
    memory_dir: Path, elsewhere: Path
) -> None:
    site = freed_but_all_here(memory_dir, elsewhere)
    kept = sorted(site.path.rglob("keep/*"))
    before = logs_of(site) | contents(*kept)
    kept[0].unlink()
    flip(next(copy for copy in copies_in(elsewhere) if copy.name == kept[0].name))
    assert site.run("undo") == ExitCode.PARTLY
    assert "is not the original that was copied there" in " ".join(site.why)
    assert sorted(site.path.rglob("keep/*")) == kept[1:]
    assert contents(*kept[1:]) <= before


@pytest.mark.parametrize("harm", [flip, os.unlink], ids=["damaged", "gone"])
def test_an_apply_that_goes_on_with_freeing_makes_bad_copies_again_of_what_is_here(
    memory_dir: Path, elsewhere: Path, harm: Callable[[Path], None]
) -> None:
    site = freed_but_all_here(memory_dir, elsewhere)
    for copy in copies_in(elsewhere):
        harm(copy)
    assert site.run("apply") == ExitCode.DONE, site.why
    assert not [entry for entry in site.private() if "/keep/" in entry]
    assert site.run("undo") == ExitCode.DONE, site.why
    assert differences(site.seen(), site.before) == ""


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["damaged", "gone", "the whole folder"])
def test_no_original_is_lost_whenever_copies_are_harmed_before_the_first_one_is_freed(
    memory_dir: Path, elsewhere: Path, harm: str
) -> None:
    site = Site("markers", memory_dir / "whole", elsewhere)
    recording = RecordingDisk(RealDisk())
    assert site.run("apply", recording) == ExitCode.DONE
    calls = [call for call in recording.calls if call.kind in FILE_CHANGING]
    first = next(n for n, call in enumerate(calls, 1) if call.kind == "unlink" and "/keep/" in call.path)

    def act() -> None:
        for copy in copies_in(elsewhere):
            flip(copy) if harm == "damaged" else copy.unlink()
        if harm == "the whole folder":
            shutil.rmtree(elsewhere)
            elsewhere.mkdir()

    harmed = 0
    for stop in stops(first - 1, 60):
        shutil.rmtree(memory_dir / "try", ignore_errors=True)
        for left in elsewhere.iterdir():
            shutil.rmtree(left)
        site = Site("markers", memory_dir / "try", elsewhere)
        originals = logs_of(site)
        code = site.run("apply", Acting(act, stop))
        assert originals <= contents(site.path, elsewhere), (stop, code, site.why)
        harmed += code != ExitCode.DONE
        if code == ExitCode.DONE:
            assert site.run("undo") == ExitCode.DONE, (stop, site.why)
            assert differences(site.seen(), site.before) == "", stop
    assert harmed or harm != "the whole folder"


def test_copies_gone_right_before_the_first_original_is_freed_are_made_again(
    memory_dir: Path, elsewhere: Path
) -> None:
    site = Site("markers", memory_dir / "a", elsewhere)
    originals = logs_of(site)

    def act() -> None:
        for copy in copies_in(elsewhere):
            copy.unlink()

    recording = RecordingDisk(RealDisk())
    assert site.run("apply", recording) == ExitCode.DONE
    calls = [call for call in recording.calls if call.kind in FILE_CHANGING]
    first = next(n for n, call in enumerate(calls, 1) if call.kind == "unlink" and "/keep/" in call.path)
    assert site.run("undo") == ExitCode.DONE
    site = Site("markers", memory_dir / "b", elsewhere)
    assert site.run("apply", Acting(act, first - 1)) == ExitCode.DONE, site.why
    assert originals <= contents(site.path, elsewhere)


def unmounted(elsewhere: Path) -> Path:
    """An empty folder in the place of the one with the copies, as a mount point has it."""
    away = elsewhere.with_name("away")
    elsewhere.rename(away)
    elsewhere.mkdir()
    return away


def run_refused(site: Site, verb: Callable[[], object]) -> str:
    """What a verb says that is refused with 13."""
    with pytest.raises(KrepairError) as caught:
        verb()
    assert caught.value.exit_code == ExitCode.REFUSED
    return caught.value.message


@pytest.mark.parametrize("name", ["markers", "partitions", "everything"])
def test_every_verb_is_refused_while_the_folder_of_copies_is_not_mounted(
    memory_dir: Path, elsewhere: Path, name: str
) -> None:
    site = Site(name, memory_dir / "a", elsewhere)
    assert site.run("apply") == ExitCode.DONE
    applied, held = site.seen(), site.private()
    away = unmounted(elsewhere)
    copies = copies_in(away)
    path, plan_id = str(site.path), site.plan.plan_id
    for plan_copy in site.path.rglob("plan"):
        plan_copy.write_bytes(b"")  # the journals know, without the plan
    for verb in (
        lambda: site.run("purge"),
        lambda: site.run("undo"),
        lambda: site.run("apply"),
        lambda: purge_by_id(path, plan_id, site.options),
    ):
        assert "is its file system mounted?" in run_refused(site, verb)
    assert (site.seen(), site.private(), list(elsewhere.iterdir())) == (applied, held, [])
    assert copies_in(away) == copies
    elsewhere.rmdir()
    away.rename(elsewhere)
    assert purge_by_id(path, plan_id, site.options).exit_code == ExitCode.DONE
    assert (site.private(), list(elsewhere.iterdir())) == ([], [])


def test_another_folder_with_the_same_copies_is_not_the_one_of_the_plan(
    memory_dir: Path, elsewhere: Path
) -> None:
    site = Site("markers", memory_dir / "a", elsewhere)
    site.run("apply")
    identity = elsewhere / f"krepair~{site.plan.plan_id}" / "identity"
    whole = identity.read_bytes()
    identity.write_bytes(whole.replace(b'"identity":"', b'"identity":"0')[:-20] + b'"}\n')
    for verb in ("apply", "undo", "purge"):
        assert "is its file system mounted?" in run_refused(site, lambda verb=verb: site.run(verb))
    identity.write_bytes(whole)
    assert site.run("undo") == ExitCode.DONE, site.why


def test_undo_by_id_finds_the_copies_and_takes_the_identity_away_last(
    memory_dir: Path, elsewhere: Path
) -> None:
    site = Site("everything", memory_dir / "a", elsewhere)
    site.run("apply")
    assert undo_by_id(str(site.path), site.plan.plan_id, site.options).exit_code == ExitCode.DONE
    assert differences(site.seen(), site.before) == ""
    assert (site.private(), list(elsewhere.iterdir())) == ([], [])


def without_identity(site: Site, elsewhere: Path) -> None:
    """As an earlier krepair has left it: no identity, and no record that names it."""
    (elsewhere / f"krepair~{site.plan.plan_id}" / "identity").unlink()
    from krepair.journal.record import CopiesKept, Together, decode_records, encode_record

    for journal in site.path.rglob("journal"):
        records, _ = decode_records(journal.read_bytes(), str(journal))
        old = []
        for record in records:
            if isinstance(record, Together):
                record = Together(
                    records=tuple(one for one in record.records if not isinstance(one, CopiesKept))
                )
            if not isinstance(record, CopiesKept):
                old.append(encode_record(record))
        journal.write_bytes(b"".join(old))


@pytest.mark.parametrize("verb", ["apply", "undo", "purge"])
@pytest.mark.parametrize("name", ["markers", "everything"])
def test_copies_of_an_earlier_krepair_prove_themselves(
    memory_dir: Path, elsewhere: Path, verb: str, name: str
) -> None:
    site = Site(name, memory_dir / "a", elsewhere)
    site.run("apply")
    applied = site.seen()
    without_identity(site, elsewhere)
    away = unmounted(elsewhere)
    assert "is its file system mounted?" in run_refused(site, lambda: site.run(verb))
    elsewhere.rmdir()
    away.rename(elsewhere)
    assert site.run(verb) == ExitCode.DONE, site.why
    assert differences(site.seen(), site.before if verb == "undo" else applied) == ""
    if verb == "apply":
        assert site.run("undo") == ExitCode.DONE
    assert (site.private(), list(elsewhere.iterdir())) == ([], [])


def test_a_damaged_copy_of_an_earlier_krepair_is_no_proof_for_purge(
    memory_dir: Path, elsewhere: Path
) -> None:
    site = Site("markers", memory_dir / "a", elsewhere)
    site.run("apply")
    without_identity(site, elsewhere)
    flip(copies_in(elsewhere)[0])
    before = site.private()
    assert "is not the original" in run_refused(site, lambda: site.run("purge"))
    assert site.private() == before


def test_a_folder_exchanged_while_apply_runs_gets_nothing_and_no_original_goes(
    memory_dir: Path, elsewhere: Path
) -> None:
    """The real disk holds the folder that it opened; the path leads elsewhere meanwhile."""
    site = Site("markers", memory_dir / "a", elsewhere)
    originals = logs_of(site)
    from krepair.journal import forward

    real = forward.Forward._freed

    def exchanging(self: forward.Forward, intent: object) -> object:
        if not (elsewhere.parent / "away").exists():
            unmounted(elsewhere)
        return real(self, intent)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forward.Forward, "_freed", exchanging)
        report = apply(site.plan, site.options)
    assert report.exit_code == ExitCode.PARTLY
    assert any("is its file system mounted?" in one.why for one in report.results)
    assert list(elsewhere.iterdir()) == []
    assert originals <= contents(site.path)
    elsewhere.rmdir()
    (elsewhere.parent / "away").rename(elsewhere)
    assert site.run("apply") == ExitCode.DONE, site.why
    assert site.run("undo") == ExitCode.DONE, site.why
    assert differences(site.seen(), site.before) == ""


class Full(PassingDisk):
    """The file system of a folder has no space, for the first file that is copied there or for all of them."""

    def __init__(self, folder: Path, *, forever: bool) -> None:
        super().__init__(RealDisk())
        self.folder = folder
        self.forever = forever
        self.failed = 0

    def _before(self, call: Call) -> None:
        if call.kind == "copy" and call.target.startswith(f"{self.folder}/") and self._is_full():
            self.failed += 1
            raise said_of_writing(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), call.target)

    def _is_full(self) -> bool:
        return self.forever or not self.failed


def test_a_full_folder_of_copies_before_anything_is_applied_could_not_be_written(
    memory_dir: Path, elsewhere: Path
) -> None:
    site = Site("partitions", memory_dir / "a", elsewhere)
    assert site.run("apply", Full(elsewhere, forever=True)) == ExitCode.UNWRITABLE, site.why
    assert "no space is left on the file system" in " ".join(site.why)
    assert differences(site.seen(), site.before) == ""
    assert site.run("apply") == ExitCode.DONE, site.why
    assert site.run("undo") == ExitCode.DONE, site.why
    assert differences(site.seen(), site.before) == ""


def test_the_first_partition_s_failing_copy_does_not_fail_the_others(
    memory_dir: Path, elsewhere: Path
) -> None:
    site = Site("partitions", memory_dir / "a", elsewhere)
    changing = {partition.folder for partition in site.plan.partitions if partition.changes}
    assert len(changing) > 1
    report = apply(site.plan, site.options, disk=Full(elsewhere, forever=False))
    assert report.exit_code == ExitCode.PARTLY
    failed = {one.partition for one in report.results if one.outcome == "failed"}
    assert len(failed) == 1
    assert {one.partition for one in report.results if one.outcome == "committed"} >= changing - failed
    assert site.run("apply") == ExitCode.DONE, site.why
    assert site.run("undo") == ExitCode.DONE, site.why
    assert differences(site.seen(), site.before) == ""
