"""A folder that a broker has put aside: what it holds is said, and it may go only where another holds all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.builders import NOW_MS, LogDir, data

STRAY = "orders-0.0123456789abcdef0123456789abcdef-stray"


def told(root: Path) -> str:
    (report,) = check([str(root)], Options(engine=EngineName.INLINE, now_ms=NOW_MS)).log_dirs
    (found,) = [one.evidence for one in report.findings if one.rule == "KR604"]
    return found


def put_aside(tmp_path: Path, kept: int) -> Path:
    """``orders-0`` of 30 records put aside; in its place one with the first ``kept`` batches of ten."""
    log_dir = LogDir(tmp_path / "logs")
    log_dir.partition("orders").segment(*(data(start, 10) for start in (0, 10, 20)))
    path = log_dir.write()
    shutil.copytree(path / "orders-0", path / STRAY)
    for file in (path / "orders-0").iterdir():
        file.unlink()
    if kept:
        again = LogDir(tmp_path / "again")
        again.partition("orders").segment(*(data(start, 10) for start in (0, 10, 20)[:kept]))
        shutil.copytree(again.write() / "orders-0", path / "orders-0", dirs_exist_ok=True)
    else:
        (path / "orders-0" / f"{0:020d}.log").touch()
    return path


@pytest.mark.parametrize(("kept", "says"), [(0, "ends at offset 30, orders-0 at 0"), (2, "orders-0 at 20")])
def test_where_the_other_folder_is_empty_or_shorter_the_stray_one_is_kept(
    kept: int, says: str, tmp_path: Path
) -> None:
    text = told(put_aside(tmp_path, kept))
    assert says in text
    assert "its records are only here, so keep the folder" in text
    assert "delete" not in text.split("deletes it by itself")[-1]


def test_where_the_other_folder_holds_all_of_it_the_stray_one_may_go(tmp_path: Path) -> None:
    text = told(put_aside(tmp_path, 3))
    assert "orders-0 holds all of it" in text
    assert "it may be moved out of the log directory" in text


@pytest.mark.parametrize("suffix", ["swap", "deleted"])
def test_where_a_cleaning_of_the_stray_one_was_interrupted_it_is_kept(suffix: str, tmp_path: Path) -> None:
    """Its last segment lies in a file that nothing was held against; of the rest the other folder has all."""
    path = put_aside(tmp_path, 3)
    made = LogDir(tmp_path / "more")
    made.partition("orders").segment(data(30, 10))
    name = f"{30:020d}.log"
    shutil.copy(made.write() / "orders-0" / name, path / STRAY / f"{name}.{suffix}")
    text = told(path)
    assert f"{name}.{suffix} in {STRAY} was not read: keep the folder" in text
    assert "may be moved" not in text


def test_where_there_is_no_other_folder_the_stray_one_is_kept(tmp_path: Path) -> None:
    path = put_aside(tmp_path, 3)
    shutil.rmtree(path / "orders-0")
    assert "no orders-0 beside it can be read: keep the folder" in told(path)


@pytest.mark.parametrize("broken", [0, 1])
def test_where_the_stray_one_is_damaged_what_lies_behind_may_be_only_there(
    broken: int, tmp_path: Path
) -> None:
    path = put_aside(tmp_path, 1)
    log = path / STRAY / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[broken * len(data) // 3 + 40] ^= 1
    log.write_bytes(data)
    text = told(path)
    assert (
        f"its log is damaged at offset {10 * broken}, and what lies behind was not read: keep the folder"
        in text
    )
    assert "may be moved" not in text
    assert "if you do not need it" not in text


def test_of_one_in_two_directories_it_is_said_which_was_read_up_to_a_damage(tmp_path: Path) -> None:
    paths = []
    for name in ("here", "there"):
        log_dir = LogDir(tmp_path / name)
        log_dir.partition("orders").segment(*(data(start, 10) for start in (0, 10, 20)))
        paths.append(log_dir.write())
    log = paths[0] / "orders-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1])
    options = Options(engine=EngineName.INLINE, now_ms=NOW_MS)
    said = []
    for report in check([str(path) for path in paths], options).log_dirs:
        said += [one.evidence for one in report.findings if one.rule == "KR603"]
    assert "the log here ends at 20, there at 30; the one here is damaged there, and what" in said[0]
    assert "the log here ends at 30, there at 20; the one there is damaged there, and what" in said[1]


def test_of_one_in_two_directories_nothing_is_said_where_a_cleaning_was_interrupted(tmp_path: Path) -> None:
    paths = []
    for name in ("here", "there"):
        log_dir = LogDir(tmp_path / name)
        log_dir.partition("orders").segment(*(data(start, 10) for start in (0, 10, 20)))
        paths.append(log_dir.write())
    log = paths[0] / "orders-0" / f"{0:020d}.log"
    shutil.copy(log, f"{log}.swap")
    for report in check(
        [str(path) for path in paths], Options(engine=EngineName.INLINE, now_ms=NOW_MS)
    ).log_dirs:
        [said] = [one.evidence for one in report.findings if one.rule == "KR603"]
        assert f"cannot be compared with it: {log.name}.swap in orders-0 was not read" in said
