"""A disk that fails, or returns other bytes: that partition keeps its point. Also undo after someone else wrote."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.commit.reports import ApplyReport
from krepair.ops.apply import apply
from krepair.ops.undo import undo
from krepair.rewrite import recovered
from tests.ops.scene import tree
from tests.recovery.scene import POINTS, Verbs, planned, points_of, set_points, write_unclean


def name_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


def fails_for(name: str, size: int | None = None) -> Callable[..., None]:
    """Stands for ``make_sure_it_is_written``: it fails for a file of ``t-0``, or only while that has this size."""

    def fails(descriptor: int, *, barrier: bool) -> None:
        del barrier
        if name_of(descriptor).endswith(f"t-0/{name}") and size in {None, os.fstat(descriptor).st_size}:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    return fails


def why_it_stopped(report: ApplyReport, path: Path) -> str:
    """Why ``t-0`` was stopped; the other partition was not, and its point has risen alone."""
    failed = {one.partition: one.why for one in report.results if one.outcome == "failed"}
    assert set(failed) == {"t-0"}
    assert points_of(path) == {"t": 250, "o": 3}
    return failed["t-0"]


@pytest.mark.parametrize(
    "name", [f"{300:020d}.log", f"{400:020d}.log", f"{200:020d}.index", f"{100:020d}.snapshot"]
)
def test_file_that_cannot_be_written_out_stops_its_partition_and_no_other(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, verbs, plan = planned(tmp_path / "logs")
    before = tree(path / "t-0")
    monkeypatch.setattr(recovered, "make_sure_it_is_written", fails_for(name))
    why = why_it_stopped(apply(plan, verbs.options()), path)
    assert f"{name}: could not be written to the disk" in why
    assert tree(path / "t-0") == before


@pytest.mark.parametrize("stale", ["", "cleaner-offset-checkpoint", "replication-offset-checkpoint"])
def test_bytes_that_come_back_from_the_disk_otherwise_stop_their_partition(
    stale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the same plan mends a line of that partition in another checkpoint."""
    path = write_unclean(tmp_path / "logs")
    if stale:
        (path / stale).write_text("0\n1\nt 0 99999\n")
    # Records below the high watermark of an only replica are gone: that the line may go needs a consent.
    losses = ("KR312:t-0:450",) if stale.startswith("replication") else ()
    verbs = Verbs(path, fixes=("checkpoints", "recovery"), accepted_losses=losses)
    plan = verbs.plan()
    assert plan.root is not None
    assert len(plan.root.changes) == (2 if stale else 1)

    def lies(descriptor: int) -> None:
        if name_of(descriptor).endswith(f"t-0/{300:020d}.log"):
            log = path / "t-0" / f"{300:020d}.log"
            found = log.stat()
            with log.open("r+b") as file:
                file.seek(200)
                file.write(b"\0\0")
            os.utime(log, ns=(found.st_atime_ns, found.st_mtime_ns))

    monkeypatch.setattr(recovered, "forget_pages", lies)
    assert "CRC-32C" in why_it_stopped(apply(plan, verbs.options()), path)


def test_disk_that_fails_after_the_cut_of_a_torn_tail_keeps_the_point_and_the_other_one_rises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_unclean(tmp_path / "logs")
    log = path / "t-0" / f"{400:020d}.log"
    log.write_bytes(log.read_bytes() + b"\0" * 70)
    before = tree(path)
    verbs = Verbs(path)
    plan = verbs.plan()
    fails = fails_for(log.name, log.stat().st_size - 70)
    with monkeypatch.context() as patched:
        patched.setattr(recovered, "make_sure_it_is_written", fails)
        report = apply(plan, verbs.options())
    assert "its recovery point stays" in why_it_stopped(report, path)
    verbs.undo(plan)
    assert tree(path) == before


def test_undo_takes_nothing_back_of_a_partition_whose_point_a_broker_has_written_since(
    tmp_path: Path,
) -> None:
    path, verbs, plan = planned(tmp_path / "logs")
    verbs.apply(plan)
    set_points(path, {"t": 460, "o": 3})
    before = tree(path)
    report = undo(plan, verbs.options())
    failed = {one.partition for one in report.results if one.outcome == "failed"}
    assert failed == {".", "t-0", "o-0"}
    assert tree(path, private=False) == {name: one for name, one in before.items() if "krepair~" not in name}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_new_files_have_the_owner_and_mode_of_their_neighbours(tmp_path: Path) -> None:
    path = write_unclean(tmp_path / "logs")
    for place in (path, *path.rglob("*")):
        os.chown(place, 4242, 4343)
        os.chmod(place, 0o750 if place.is_dir() else 0o640)
    verbs = Verbs(path)
    verbs.apply(verbs.plan())
    news = [path / POINTS, *(path / "t-0").glob(f"{450:020d}.*")]
    assert len(news) == 5
    for place in news:
        found = place.stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (4242, 4343, 0o640), place
