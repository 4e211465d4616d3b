"""A partition that the first apply could not prepare: the next one does, and advances its recovery point."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.commit.journal import Intent, JournalHeader, decode_lines
from krepair.commit.reports import ApplyReport
from krepair.durable.disk import Disk
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from tests.durable.disks import RecordingDisk, SimulatedCrash, StoppingDisk
from tests.ops.scene import tree
from tests.ops.stops import telling_stops
from tests.recovery.scene import POINTS, Verbs, points_of, write_unclean

OLD, RAISED = {"t": 250, "o": 0}, {"t": 450, "o": 3}
PARTLY = {"t": 250, "o": 3}


def failed(report: ApplyReport) -> set[str]:
    """Partitions with a failure."""
    return {one.partition for one in report.results if one.outcome == "failed"}


def outcome(report: ApplyReport, name: str) -> set[str]:
    """What was said of the changes of a file."""
    return {one.outcome for one in report.results if one.change_id.endswith(name)}


class Scene:
    """An unclean directory of which ``t-0`` was in the way of the first apply, and no longer is."""

    def __init__(self, root: Path, **common: object) -> None:
        self.path = write_unclean(root)
        self.before = tree(self.path)
        self.verbs = Verbs(self.path, **common)
        self.plan = self.verbs.plan()
        self.log = self.path / "t-0" / f"{300:020d}.log"
        self.time = self.log.stat().st_mtime_ns
        self._apply_beside_what_is_in_the_way()

    def _apply_beside_what_is_in_the_way(self) -> None:
        self.put_in_the_way()
        assert failed(self.apply()) == {"t-0"}
        assert points_of(self.path) == PARTLY
        self.take_out_of_the_way()

    def begin_anew(self) -> None:
        """Everything is taken back, and then as after the first apply."""
        self.verbs.undo(self.plan)
        assert tree(self.path) == self.before
        self._apply_beside_what_is_in_the_way()

    def put_in_the_way(self) -> None:
        """A log that is not as it was planned."""
        self.log.touch()

    def take_out_of_the_way(self) -> None:
        """The log is as it was planned."""
        os.utime(self.log, ns=(self.time, self.time))

    def apply(self, disk: Disk | None = None) -> ApplyReport:
        """``krepair apply``; partitions may fail."""
        return apply(self.plan, self.verbs.options(), disk=disk)


def test_next_apply_raises_the_point_that_stayed_and_undo_takes_all_points_back(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    report = scene.apply()
    assert (report.exit_code, failed(report)) == (ExitCode.DONE, set())
    assert outcome(report, POINTS) == {"committed"}
    assert points_of(scene.path) == RAISED
    assert scene.verbs.wrong(scene.plan) == []
    assert outcome(scene.apply(), POINTS) == {"already"}
    scene.verbs.undo(scene.plan)
    assert tree(scene.path) == scene.before


def test_while_it_stays_in_the_way_every_apply_and_verify_says_so_and_no_point_is_lowered(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path / "logs")
    told = scene.verbs.wrong(scene.plan)
    assert any("t-0 its recovery point is not raised" in text for text in told), told
    scene.put_in_the_way()
    for _ in range(2):
        report = scene.apply()
        assert report.exit_code != ExitCode.DONE
        assert "t-0" in failed(report)
        assert points_of(scene.path) == PARTLY
    scene.take_out_of_the_way()
    scene.verbs.apply(scene.plan)
    scene.verbs.undo(scene.plan)
    assert tree(scene.path) == scene.before


def test_undo_while_it_is_in_the_way_takes_the_other_point_back(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    scene.put_in_the_way()
    assert not (scene.path / "t-0" / f"{450:020d}.log").exists()
    scene.verbs.undo(scene.plan)
    assert points_of(scene.path) == OLD


def test_after_a_purge_the_next_apply_raises_the_point_too_and_its_undo_takes_back_what_it_raised(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path / "logs")
    purge(scene.plan, scene.verbs.options())
    report = scene.apply()
    assert (report.exit_code, failed(report)) == (ExitCode.DONE, set())
    assert points_of(scene.path) == RAISED
    assert scene.verbs.wrong(scene.plan) == []
    undone = undo(scene.plan, scene.verbs.options())
    assert failed(undone) == {"o-0"}  # its originals were purged
    assert points_of(scene.path) == PARTLY
    assert not (scene.path / "t-0" / f"{450:020d}.log").exists()


def test_where_originals_are_freed_the_next_apply_raises_the_point_that_stayed(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs", keep="until-verified")
    report = scene.apply()
    assert (report.exit_code, failed(report)) == (ExitCode.DONE, set())
    assert points_of(scene.path) == RAISED
    assert scene.verbs.wrong(scene.plan) == []


def test_file_that_a_broker_wrote_since_is_left_to_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    written = b"0\n2\nt 0 250\no 0 3\n\n"
    (scene.path / POINTS).unlink()
    (scene.path / POINTS).write_bytes(written)
    scene.apply()
    assert (scene.path / POINTS).read_bytes() == written


@pytest.mark.slow
def test_second_apply_stopped_at_any_call_can_be_ended_and_taken_back(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    recording = RecordingDisk(RealDisk())
    scene.apply(recording)
    scene.begin_anew()
    raised = 0
    for stop in telling_stops(recording.calls):
        with pytest.raises(SimulatedCrash):
            scene.apply(StoppingDisk(RealDisk(), stop))
        points = points_of(scene.path)
        assert points in (PARTLY, RAISED, OLD)
        raised += points == RAISED
        if stop % 2:
            report = scene.apply()
            assert (report.exit_code, failed(report)) == (ExitCode.DONE, set())
            assert points_of(scene.path) == RAISED
        scene.begin_anew()
    assert raised > 0


def test_journal_of_the_second_apply_keeps_the_first_original(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    scene.verbs.apply(scene.plan)
    journals = sorted(scene.path.glob("*/krepair~*/journal"))
    lines = [one for path in journals for one in decode_lines(path.read_bytes(), str(path))[0]]
    steps = [step for line in lines if not isinstance(line, JournalHeader) for step in line]
    first, second = [one for one in steps if isinstance(one, Intent) and one.names == (POINTS,)]
    assert (first.over, second.over) == (None, first.new(POINTS))
    assert second.originals == first.originals
