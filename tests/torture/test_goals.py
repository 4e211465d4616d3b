"""How far each part is: done, wanted, wrong; and when a part has done enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.programme import ROOT
from tools.torture import __main__ as programme
from tools.torture import goals, suites
from tools.torture.__main__ import PARTS, main
from tools.torture.goals import (
    GOALS,
    all_lines,
    done_of,
    is_one_programme,
    is_reached,
    lines,
    seeds_until_reached,
    table,
    why_not_here,
)
from tools.torture.state import CHANGED, State


def test_each_goal_is_of_a_part() -> None:
    assert GOALS.keys() <= {part.name for part in PARTS}
    assert {part.name for part in PARTS if part.on_disk and part.name in GOALS} == goals.ON_DISKS


def test_what_is_done_wanted_and_wrong_is_said_for_each_file_system(tmp_path: Path) -> None:
    states = [
        State(tmp_path, "kills", "tmpfs"),
        State(tmp_path, "kills", "ext4"),
        State(tmp_path, "loads", ""),
    ]
    for state in states:
        state.keep("unit", {"kills": 1000, "installed kills": 1, "sequences": 7})
    states[1].wrong("case", "apply ended with 1")
    assert [
        (line.file_system, line.done, line.wanted, line.wrong, line.is_reached) for line in lines(states)
    ] == [
        ("tmpfs", 1001, 10_000, 0, False),
        ("ext4", 1001, 1000, 1, False),
    ]
    assert "| processes killed | tmpfs | ? | 1,001 | 10,000 | 0 | no |" in table(lines(states))


def done_on(commit: str, folder: Path) -> None:
    """All goals are reached on this commit."""
    for line in all_lines(folder, GOALS):
        figures = dict.fromkeys((GOALS[line.part].figures[0], "killed"), line.wanted)
        State(folder, line.part, line.file_system, commit=commit).keep("unit", figures)


def test_a_report_has_a_row_for_each_file_system_and_says_on_which_commit_it_ran(tmp_path: Path) -> None:
    assert not is_one_programme(all_lines(tmp_path, GOALS))
    done_on("c1", tmp_path)
    found = all_lines(tmp_path, GOALS)
    assert [line.file_system for line in found if line.part == "kills"] == ["ext4", "tmpfs", "xfs"]
    assert is_one_programme(found)
    assert "| processes killed | xfs | c1 | 1,000 | 1,000 | 0 | yes |" in table(found)


def test_rows_of_several_commits_or_of_none_are_no_programme(tmp_path: Path) -> None:
    done_on("c1", tmp_path)
    State(tmp_path, "replicas", "", commit="c2").keep("more", {"histories": 1})
    found = all_lines(tmp_path, GOALS)
    assert all(line.is_reached for line in found)
    assert not is_one_programme(found)
    assert "Not one programme: the rows are of 2 commits." in table(found)
    done_on("", tmp_path / "unknown")
    assert not is_one_programme(all_lines(tmp_path / "unknown", GOALS))


def test_what_another_source_did_is_told_but_not_gone_on_with(tmp_path: Path) -> None:
    done_on("c1", tmp_path)
    path = tmp_path / "kills-tmpfs.json"
    path.write_text(path.read_text().replace(State(tmp_path, "kills", "tmpfs").source, "0" * 16))
    assert is_one_programme(all_lines(tmp_path, GOALS))
    assert "with changes" in why_not_here(tmp_path, "c1")


@pytest.mark.parametrize(
    ("here", "why"),
    [("c1", ""), ("c2", "is of commit c1, and this is c2"), ("c1" + CHANGED, "Commit it first")],
)
def test_only_on_the_same_commit_is_a_programme_gone_on_with(tmp_path: Path, here: str, why: str) -> None:
    done_on("c1", tmp_path)
    assert why in why_not_here(tmp_path, here)
    assert bool(why_not_here(tmp_path, here)) == bool(why)


def test_the_command_refuses_to_mix_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done_on("c1", tmp_path / "goals")
    monkeypatch.setattr(programme, "commit_here", lambda: "c2")
    assert main(["--goals", "--state", str(tmp_path)]) == 64
    assert "Go on there" in capsys.readouterr().err
    assert main(["--goals", "--report", "--state", str(tmp_path)]) == 0
    assert "| mutants | any | c1 |" in capsys.readouterr().out


def test_of_mutants_one_in_ten_may_live(tmp_path: Path) -> None:
    state = State(tmp_path, "mutants", "")
    state.keep("a", {"mutants": 300, "killed": 270})
    assert [line.is_reached for line in lines([state])] == [True]
    state.keep("b", {"mutants": 2, "killed": 0})
    assert [(line.wrong, line.is_reached) for line in lines([state])] == [(2, False)]


def test_a_part_goes_on_with_other_seeds_until_it_has_enough(tmp_path: Path) -> None:
    state = State(tmp_path, "between", "", enough=is_reached)
    seeds = []
    for one in seeds_until_reached(state, 7):
        seeds.append(one.start)
        state.keep(str(one), {"steps": 2400})
    assert seeds == [7, 8, 9]
    assert done_of(state) == 7200
    assert state.time_is_up()


def test_a_part_that_does_nothing_more_ends(tmp_path: Path) -> None:
    assert len(list(seeds_until_reached(State(tmp_path, "fuzz", "", enough=is_reached)))) < 100


def test_a_part_without_a_goal_is_refused() -> None:
    assert main(["--goals", "--part", "loads", "--report"]) == 64
    assert goals.wanted_of("loads", "") == 0


def test_suites_are_the_files_that_ask_for_more_than_the_gate_has() -> None:
    found = suites.files()
    assert {
        "tests/brokers/test_purge_beside.py",
        "tests/look/test_huge.py",
        "tests/recovery/test_crash.py",  # by ``telling_stops``
    } <= set(found)
    assert all((ROOT / file).exists() for file in found)


def test_the_end_of_a_suite_is_read() -> None:
    said = (
        "FAILED tests/a.py::test_b[c d] - AssertionError\n=== 1 failed, 651 passed, 2 skipped in 14.48s ===\n"
    )
    figures, failed = suites.read_end(said, 1, "tests/a.py")
    assert figures == {"tests failed": 1, "tests passed": 651, "tests skipped": 2}
    assert failed == ["tests/a.py::test_b[c_d]"]
    assert suites.read_end("", 4, "tests/a.py") == ({}, ["tests/a.py"])
