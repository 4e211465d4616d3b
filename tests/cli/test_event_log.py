"""What happened, afterwards: ``--verbose``, ``--log FILE``, and the incident report that writes itself."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from tests.fixture_dirs import unpack
from tests.hostile.verbs import run
from tests.ops.scene import tree

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \w*: .+")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return unpack("timeindex-padded-2.2.1", tmp_path)


def planned(log_dir: Path, tmp_path: Path, *words: str) -> tuple[str, str]:
    plan = str(tmp_path / "one.krplan")
    ran = run("plan", str(log_dir), "--fix", "index", "--out", plan, *words)
    assert ran.code == ExitCode.FOUND
    return plan, ran.err


def test_a_log_grows_by_the_events_of_each_run_one_a_line(log_dir: Path, tmp_path: Path) -> None:
    log = tmp_path / "krepair.log"
    words = ("--log", str(log))
    plan, said = planned(log_dir, tmp_path, *words)
    assert said == ""
    for verb in ("apply", "verify", "undo"):
        assert run(verb, plan, *words).code == ExitCode.DONE
    lines = log.read_text().splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    text = log.read_text()
    assert [text.count(f"krepair {verb} of") for verb in ("plan", "apply", "verify", "undo")] == [1, 1, 1, 1]
    change = next(line.split()[2].rstrip(":") for line in lines if "to be changed by" in line)
    events = [line.split(f"{change}: ")[1] for line in lines if f"{change}: " in line]
    assert events == ["to be changed by KR203", "begun", "committed", "undo begun", "undone"]
    assert "engine inline" in text


def test_verbose_says_the_same_on_stderr_and_the_page_stays_as_it_is(log_dir: Path, tmp_path: Path) -> None:
    page = run("check", str(log_dir)).out
    ran = run("check", str(log_dir), "-v")
    assert ran.out == page
    assert any("KR201" in line and LINE.fullmatch(line) for line in ran.err.splitlines())


def test_what_was_refused_is_in_the_log(log_dir: Path, tmp_path: Path) -> None:
    plan, _ = planned(log_dir, tmp_path)
    for path in log_dir.glob("*/*.timeindex"):
        path.write_bytes(path.read_bytes() + b"x")
    log = tmp_path / "krepair.log"
    assert run("apply", plan, "--log", str(log)).code == ExitCode.STALE_PLAN
    assert "not done: " in log.read_text() or "stopped: " in log.read_text()


def test_a_log_is_never_written_into_the_log_directory_nor_where_no_folder_is(
    log_dir: Path, tmp_path: Path
) -> None:
    before = tree(log_dir)
    assert run("check", str(log_dir), "--log", str(log_dir / "krepair.log")).code == ExitCode.REFUSED
    assert run("check", str(log_dir), "--log", str(tmp_path / "none/krepair.log")).code == ExitCode.USAGE
    assert tree(log_dir) == before


def test_apply_undo_and_purge_add_to_the_report_beside_the_plan(log_dir: Path, tmp_path: Path) -> None:
    plan, _ = planned(log_dir, tmp_path)
    assert not os.path.exists(f"{plan}.report.md")
    for verb in ("apply", "undo", "apply", "purge"):
        assert run(verb, plan).code == ExitCode.DONE
    text = Path(f"{plan}.report.md").read_text()
    assert text.startswith("# Incident report of plan ")
    assert text.count("## The plan") == 1
    runs = re.findall(r"^## \S+Z krepair (\w+): (\d+), ", text, re.MULTILINE)
    assert runs == [("apply", "0"), ("undo", "0"), ("apply", "0"), ("purge", "0")]
    for path in log_dir.glob("*/*.timeindex"):
        path.write_bytes(path.read_bytes() + b"x")
    assert run("apply", plan).code == ExitCode.STALE_PLAN
    assert "krepair apply: 12, " in Path(f"{plan}.report.md").read_text()


def test_a_report_that_cannot_be_written_changes_nothing_else(log_dir: Path, tmp_path: Path) -> None:
    plan, _ = planned(log_dir, tmp_path)
    Path(f"{plan}.report.md").mkdir()
    ran = run("apply", plan)
    assert (ran.code, "the report cannot be written" in ran.err) == (ExitCode.DONE, True)
    other = tmp_path / "one.krplan.report.md"
    other.rmdir()
    other.write_text("mine")
    assert run("undo", plan).code == ExitCode.DONE
    assert other.read_text() == "mine"
