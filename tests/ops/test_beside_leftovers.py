"""A file that an interrupted cleaning left hides nothing: neither from ``check``, nor from a plan that mends beside it.

A start deletes a ``.cleaned`` and reads all other files as they are. A ``.swap`` becomes a segment first.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from krepair.errors import ExitCode
from krepair.formats.filenames import log_name, segment_name
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.reports import LogDirReport
from krepair.ops.room import not_mended
from krepair.options import EngineName, Options
from krepair.plan.model import PartitionPlan, Plan
from tests.fixture_dirs import unpack

NOW_MS = 1_795_261_500_763  # an hour after the newest record of the padded indexes
EPOCHS, PADDED = "leader-epochs-2.2.1-corrupt", "timeindex-padded-2.2.1"
FOLDERS = {EPOCHS: "e-all-0", PADDED: "f-t-0"}


def options(*fixes: str, version: str = "") -> Options:
    return Options(fixes=fixes, engine=EngineName.INLINE, now_ms=NOW_MS, broker_version=version)


def left_in(tmp_path: Path, fixture: str, left: str) -> Path:
    """A real directory, with what a broker left in a partition of it; a swap is a copy of the last but one segment."""
    log_dir = unpack(fixture, tmp_path)
    folder = log_dir / FOLDERS[fixture]
    if left == "swap":
        log = sorted(folder.glob("*.log"))[-2]
        shutil.copy2(log, f"{log}.swap")
    elif left:
        (folder / f"{log_name(240)}.{left}").write_bytes(b"")
    return log_dir


def checked(log_dir: Path, version: str = "", **more: Any) -> LogDirReport:
    (report,) = check([str(log_dir)], replace(options(version=version), **more)).log_dirs
    return report


def expected(report: LogDirReport, folder: str) -> str:
    return next(line.expected for line in report.forecast if line.partition == folder)


@pytest.mark.parametrize("left", ["", "deleted", "cleaned", "swap"])
def test_epochs_that_no_broker_reads_are_told_beside_what_was_left(tmp_path: Path, left: str) -> None:
    log_dir = left_in(tmp_path, EPOCHS, left)
    report = checked(log_dir)
    told = {one.rule: one for one in report.findings if one.partition == "e-all-0"}
    assert {"KR401", "KR803"} <= told.keys()
    assert expected(report, "e-all-0") == "refuse"
    assert ("has to become a segment first" in told["KR401"].evidence) is (left == "swap")
    assert ("--fix leftovers " in str(told["KR401"].command)) is (left in {"cleaned", "swap"})


def test_epochs_with_a_negative_number_are_told_beside_a_swap(tmp_path: Path) -> None:
    log_dir = left_in(tmp_path, EPOCHS, "swap")
    (log_dir / "e-all-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\n-3 0\n")
    report = checked(log_dir, "3.9.2")
    assert {"KR402", "KR803"} <= {one.rule for one in report.findings if one.partition == "e-all-0"}
    assert expected(report, "e-all-0") == "refuse"


def test_sound_epochs_beside_a_swap_are_no_finding(tmp_path: Path) -> None:
    """A swap may hold batches that no segment has: what the segments do not show is no contradiction."""
    log_dir = left_in(tmp_path, EPOCHS, "swap")
    (log_dir / "e-all-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\n7 999\n")
    told = {one.rule for one in checked(log_dir).findings if one.partition == "e-all-0"}
    assert not told & {"KR401", "KR402", "KR803"}


@pytest.mark.parametrize("left", ["", "deleted", "cleaned", "swap"])
def test_segments_that_retention_deletes_are_told_beside_what_was_left(tmp_path: Path, left: str) -> None:
    report = checked(left_in(tmp_path, PADDED, left), "3.9.2", settings=(("cleanup.policy", "delete"),))
    assert [one.file for one in report.findings if one.rule == "KR802"] == [log_name(0)]
    assert expected(report, "f-t-0") == "delete"


def test_of_segments_behind_a_swap_no_deletion_is_told(tmp_path: Path) -> None:
    log_dir = left_in(tmp_path, PADDED, "")
    shutil.copy2(log_dir / "f-t-0" / log_name(0), log_dir / "f-t-0" / f"{log_name(0)}.swap")
    assert "KR802" not in {one.rule for one in checked(log_dir, "3.9.2").findings}


@pytest.mark.parametrize("left", ["", "deleted", "cleaned", "swap"])
def test_a_snapshot_that_no_broker_loads_is_told_beside_what_was_left(tmp_path: Path, left: str) -> None:
    log_dir = left_in(tmp_path, PADDED, left)
    (log_dir / "f-t-0" / segment_name(1000, ".snapshot")).write_bytes(b"\xa5" * 40)
    assert "KR501" in {one.rule for one in checked(log_dir).findings}


# -- plans


def damage(folder: Path, fix: str) -> None:
    """Something that a fix mends; the indexes are padded, and the epochs damaged, in what was unpacked."""
    if fix == "snapshots":
        (folder / segment_name(1000, ".snapshot")).write_bytes(b"\xa5" * 40)
    elif fix == "tail":
        with open(folder / log_name(960), "ab") as log:
            log.write(b"\xa5" * 30)


CASES = [(EPOCHS, "epochs"), (PADDED, "index"), (PADDED, "snapshots"), (PADDED, "tail")]
WORDS = {"epochs": "leader epochs", "index": "indexes", "snapshots": "producer snapshots", "tail": "logs"}
cases = pytest.mark.parametrize(("fixture", "fix"), CASES, ids=lambda value: value)


def planned(log_dir: Path, fixture: str, *fixes: str) -> tuple[Plan, PartitionPlan]:
    plan = make_plan(str(log_dir), options(*fixes))
    return plan, next(one for one in plan.partitions if one.folder == FOLDERS[fixture])


@cases
def test_what_a_fix_would_mend_beside_what_was_left_is_left_alone_and_named(
    tmp_path: Path, fixture: str, fix: str
) -> None:
    log_dir = left_in(tmp_path, fixture, "cleaned")
    damage(log_dir / FOLDERS[fixture], fix)
    plan, part = planned(log_dir, fixture, fix)
    assert (part.status, part.code, part.changes) == ("left alone", "leftovers", ())
    assert part.why == (
        f"{log_name(240)}.cleaned: a broker left it, and one plan cannot mend both: first --fix leftovers, then plan "
        f"its {WORDS[fix]} again"
    )
    assert str(part.next_command) == "krepair plan LOGDIR --fix leftovers --out PLAN"
    assert not any("left alone" in note for note in part.notes)
    assert plan.exit_code == ExitCode.FOUND
    assert str(not_mended(plan).commands[0]).startswith(f"krepair plan {log_dir} --fix leftovers")


@cases
def test_of_leftovers_and_a_fix_the_second_plan_is_named_and_mends_it(
    tmp_path: Path, fixture: str, fix: str
) -> None:
    log_dir = left_in(tmp_path, fixture, "cleaned")
    damage(log_dir / FOLDERS[fixture], fix)
    plan, part = planned(log_dir, fixture, "leftovers", fix)
    assert [change.change_id for change in part.changes] == [f"{part.folder}/{log_name(240)}.cleaned"]
    note, second = [one for one in part.notes if "left alone" in one or "second one" in one]
    assert note.startswith(f"its {WORDS[fix]} are left alone: {log_name(240)}.cleaned: a broker left it")
    assert f"--fix {fix} --partition {part.folder} --out PLAN" in second
    assert apply(plan, options()).exit_code == ExitCode.DONE
    _, again = planned(log_dir, fixture, fix)
    assert (again.status, bool(again.changes)) == ("change", True)


@pytest.mark.parametrize("fix", ["epochs", "snapshots", "tail"])
@pytest.mark.parametrize("left", ["cleaned", "swap"])
def test_where_nothing_is_to_be_mended_beside_what_was_left_nothing_is_to_do(
    tmp_path: Path, fix: str, left: str
) -> None:
    _, part = planned(left_in(tmp_path, PADDED, left), PADDED, fix)
    assert (part.status, part.code) == ("nothing", "")


@cases
def test_beside_a_swap_what_would_be_mended_is_left_alone_and_named(
    tmp_path: Path, fixture: str, fix: str
) -> None:
    log_dir = left_in(tmp_path, fixture, "swap")
    damage(log_dir / FOLDERS[fixture], fix)
    _, part = planned(log_dir, fixture, fix)
    assert (part.status, part.code, part.changes) == ("left alone", "leftovers", ())
    assert ".log.swap: a broker left it" in part.why
