"""Calls that fail or move too little: a seeded sample of ``make torture``, and how it judges."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from krepair.plan.keep import INPLACE, UNTIL_VERIFIED
from tests.torture.kills import PREFACE
from tests.torture.programme import IN_THE_GATE, of_scenes, run_part, run_script, wrong_of
from tools.torture.failing_calls import _loses, taken_for_durable
from tools.torture.faults import Call, Fault, Kind, Mode, mask
from tools.torture.runs import MAY_FAIL, MOVES_BYTES, parse_step
from tools.torture.scenes import Seen

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.mark.slow
def test_failing_calls_are_told_and_the_next_run_ends_right(tmp_path: Path) -> None:
    state = run_part("failing_calls", tmp_path, "--samples", "0.1", "--seeds", "0", *of_scenes(IN_THE_GATE))
    assert not state.all_wrong, wrong_of(state)
    assert state.figures["failing calls"] > 150
    kept = {unit.partition(":")[0].partition("~")[2] for unit in state.units}
    assert kept == {"", "until-verified"}


@pytest.mark.slow
def test_sync_whose_failure_is_swallowed_is_found_out() -> None:
    printed = run_script(
        PREFACE
        + """
import contextlib
from krepair.durable.real_disk import RealDisk
from tools.torture import failing_calls
scene = build("removals")
runner.warm_up([scene], work)
wanted = find_wanted(runner, scene, work)
whole = RealDisk.sync_dir
def wrong():
    steps = failing_calls.cases("removals:0:purge:fsyncEIO1", wanted, None)
    return sum(bool(failing_calls.try_case(runner, scene, wanted, one, work).wrong) for one in steps)
sound = wrong()
def careless(self, path):
    with contextlib.suppress(OSError):
        whole(self, path)
RealDisk.sync_dir = careless
print(sound, wrong() > 0)
"""
    )
    assert printed.split() == ["0", "True"]


class TestOfTheLastRecords:
    """Apply has freed all, and a sync fails while it removes its own folder: the rest of it waits for purge."""

    PRIVATE = "t-0/krepair~ID"
    FAILED = Call(Kind.FSYNC, errno.EIO, (1, 1), -1, 1, True, PRIVATE, "")

    def loses(
        self, *names: str, later: Kind = Kind.STAT, path: str = PRIVATE, keep: str = UNTIL_VERIFIED
    ) -> bool:
        after = self.FAILED._replace(kind=later, error=0, injected=False, path=path)
        seen = Seen(*([0] * len(Seen._fields)))
        found = {self.PRIVATE: seen} | {f"{self.PRIVATE}/{name}": seen for name in names}
        return _loses([self.FAILED, after], found, keep)

    def test_its_records_may_stay(self) -> None:
        assert not self.loses("journal", "plan")
        assert not self.loses()

    def test_originals_may_not(self) -> None:
        assert self.loses("journal", "plan", "keep/00000000000000000000.log")

    def test_nothing_may_be_changed_after_it(self) -> None:
        assert self.loses("journal", "plan", later=Kind.RENAME)

    def test_but_the_lock_that_krepair_made_goes(self) -> None:
        assert not self.loses("journal", "plan", later=Kind.UNLINK, path=".lock")

    def test_where_originals_are_kept_it_was_needed(self) -> None:
        assert self.loses("journal", "plan", keep=INPLACE)


class TestTakenForDurable:
    """A file of ten bytes, written, synced with a failure, and then used."""

    @pytest.fixture
    def calls(self, tmp_path: Path) -> list[Call]:
        file = tmp_path / "file"
        file.write_bytes(b"0123456789")
        inode = (file.stat().st_dev, file.stat().st_ino)
        write = Call(Kind.WRITE, 0, inode, 10, 1, False, "file", "")
        return [write, write._replace(kind=Kind.FSYNC, error=errno.EIO, amount=-1), write]

    def test_synced_again_without_being_written_again_it_is_named(
        self, tmp_path: Path, calls: list[Call]
    ) -> None:
        synced = calls[0]._replace(kind=Kind.FSYNC, amount=0)
        assert taken_for_durable([*calls[:2], synced], tmp_path).startswith("file is used")

    def test_written_again_it_is_right(self, tmp_path: Path, calls: list[Call]) -> None:
        assert taken_for_durable(calls, tmp_path) == ""

    def test_cut_off_again_it_is_right(self, tmp_path: Path, calls: list[Call]) -> None:
        cut = calls[0]._replace(kind=Kind.TRUNCATE, amount=0)
        assert taken_for_durable([*calls[:2], cut], tmp_path) == ""

    def test_removed_it_is_right(self, tmp_path: Path, calls: list[Call]) -> None:
        (tmp_path / "file").unlink()
        assert taken_for_durable(calls[:2], tmp_path) == ""

    def test_another_file_that_got_its_number_is_right(self, tmp_path: Path, calls: list[Call]) -> None:
        removed = calls[0]._replace(kind=Kind.UNLINK, amount=0)
        smaller = calls[0]._replace(amount=3, path="other")
        assert taken_for_durable([*calls[:2], removed, smaller], tmp_path) == ""

    def test_with_one_of_two_names_removed_it_is_named(self, tmp_path: Path, calls: list[Call]) -> None:
        linked = calls[0]._replace(kind=Kind.LINK, amount=0)
        removed = calls[0]._replace(kind=Kind.UNLINK, amount=0, path="other")
        assert taken_for_durable([linked, *calls[:2], removed], tmp_path).startswith("file is used")

    def test_interrupted_sync_loses_nothing(self, tmp_path: Path, calls: list[Call]) -> None:
        assert taken_for_durable([calls[0], calls[1]._replace(error=errno.EINTR)], tmp_path) == ""

    def test_file_that_krepair_did_not_write_loses_nothing(self, tmp_path: Path, calls: list[Call]) -> None:
        assert taken_for_durable(calls[1:2], tmp_path) == ""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("apply!9ENOSPC1", Fault(Mode.FAIL_ONCE, 9, errno.ENOSPC, MAY_FAIL["ENOSPC"], MAY_FAIL["ENOSPC"])),
        ("undo!2EIO*", Fault(Mode.FAIL_FOREVER, 2, errno.EIO, MAY_FAIL["EIO"], MAY_FAIL["EIO"])),
        ("purge!1EINTR3", Fault(Mode.FAIL_THRICE, 1, errno.EINTR, MAY_FAIL["EINTR"], MAY_FAIL["EINTR"])),
        ("apply!4fsyncEIO1", Fault(Mode.FAIL_ONCE, 4, errno.EIO, mask(Kind.FSYNC), mask(Kind.FSYNC))),
        ("apply!4short*", Fault(Mode.SHORT_FOREVER, 4, 0, MOVES_BYTES, MOVES_BYTES)),
        (
            "apply!4shortENOSPC*",
            Fault(Mode.SHORT_THEN_FAIL, 4, errno.ENOSPC, MOVES_BYTES, MAY_FAIL["ENOSPC"]),
        ),
    ],
)
def test_failures_are_read_as_they_are_written(text: str, fault: Fault) -> None:
    assert parse_step(text).fault == fault
