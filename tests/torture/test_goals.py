"""How far each part is: done, wanted, wrong; and when a part has done enough."""

from __future__ import annotations

import subprocess
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.torture.programme import ROOT
from tools.torture import __main__ as programme
from tools.torture import goals, suites
from tools.torture.__main__ import PARTS, main
from tools.torture.goals import (
    GOALS,
    done_of,
    is_enough,
    is_reached,
    seeds_until_reached,
    states_of,
    table,
    wanted_of,
    wrong_of,
)
from tools.torture.state import CHANGED, State, source_digest


def test_each_goal_is_of_a_part() -> None:
    assert GOALS.keys() <= {part.name for part in PARTS}
    assert {part.name for part in PARTS if part.on_disk and part.name in GOALS} == goals.ON_DISKS


def test_what_is_done_wanted_and_wrong_is_said_for_each_file_system(tmp_path: Path) -> None:
    states = [State(tmp_path, "kills", "tmpfs"), State(tmp_path, "kills", "ext4")]
    for state in states:
        state.keep("unit", {"kills": 1000, "installed kills": 1, "sequences": 7})
    states[1].wrong("case", "apply ended with 1")
    assert table(states, "c1").splitlines()[-2:] == [
        "| processes killed | tmpfs | c1 | 1,001 | 10,000 | 0 | no |",
        "| processes killed | ext4 | c1 | 1,001 | 1,000 | 1 | no |",
    ]


@pytest.mark.parametrize(("here", "code"), [("c1", 0), ("c1" + CHANGED, 1), ("", 1)])
def test_a_report_has_a_row_for_each_file_system_and_counts_only_for_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], here: str, code: int
) -> None:
    monkeypatch.setattr(programme, "commit_here", lambda: here)
    report = ["--goals", "--report", "--state", str(tmp_path)]
    assert main(report) == 1
    for state in states_of(tmp_path / source_digest() / "goals", GOALS):
        state.keep("unit", dict.fromkeys((GOALS[state.part].figures[0], "killed"), wanted_of(state)))
    assert main(report) == code
    shown = capsys.readouterr().out
    assert f"| processes killed | xfs | {here or '?'} | 1,000 | 1,000 | 0 | yes |" in shown
    monkeypatch.setattr(programme, "source_digest", lambda: "another")
    assert main(report) == 1, "what another source did does not count"


def test_of_mutants_one_in_ten_may_live(tmp_path: Path) -> None:
    state = State(tmp_path, "mutants", "")
    state.keep("a", {"mutants": 300, "killed": 270})
    assert is_reached(state)
    state.keep("b", {"mutants": 2, "killed": 0})
    assert (wrong_of(state), is_reached(state)) == (2, False)


def test_a_part_goes_on_with_other_seeds_until_it_has_enough(tmp_path: Path) -> None:
    state = State(tmp_path, "between", "", enough=is_enough)
    seeds = []
    for one in seeds_until_reached(state, 7):
        seeds.append(one.start)
        state.keep(str(one), {"steps": 2400})
    assert seeds == [7, 8, 9]
    assert done_of(state) == 7200
    assert state.time_is_up()


def test_a_part_that_does_nothing_more_ends(tmp_path: Path) -> None:
    assert len(list(seeds_until_reached(State(tmp_path, "fuzz", "", enough=is_enough)))) < 100


def test_a_part_without_a_goal_is_refused() -> None:
    assert main(["--goals", "--part", "loads", "--report"]) == 64


def test_suites_are_the_files_that_ask_for_more_than_the_gate_has() -> None:
    found = suites.files()
    assert {
        "tests/brokers/test_purge_beside.py",
        "tests/look/test_huge.py",
        "tests/recovery/test_crash.py",  # by ``telling_stops``
    } <= set(found)
    assert all((ROOT / file).exists() for file in found)


def test_a_suite_says_which_tests_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(code: int, said: str) -> str:
        done = CompletedProcess([], code, said)
        monkeypatch.setattr(subprocess, "run", lambda *words, **options: done)
        return suites.failures_of("tests/a.py")

    assert ran(1, "F\nFAILED tests/a.py::test_b[c d] - AssertionError\n1 failed\n") == (
        "FAILED tests/a.py::test_b[c d] - AssertionError"
    )
    assert ran(4, "no such file") == "no such file"
    assert ran(0, "1 passed") == ran(5, "no tests ran") == ""
