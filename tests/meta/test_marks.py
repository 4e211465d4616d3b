"""The marks that ``make quick`` uses: a test that starts Java declares it, and a leak is an error."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations, product
from pathlib import Path

from tests.pairs import meeting_in_pairs

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import os, subprocess
import pytest

def run():
    assert subprocess.run(["{java}"], check=False).returncode == 0

def test_unmarked():
    run()

@pytest.mark.spark
def test_marked():
    run()

def test_child_is_told_of_no_java():
    assert "marked" in os.environ["JAVA_HOME"]

def test_leak():
    open("/dev/null")
"""


def test_unmarked_test_that_starts_java_fails_and_so_does_one_that_leaks(tmp_path: Path) -> None:
    java = tmp_path / "mvn"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    (tmp_path / "test_some.py").write_text(TESTS.replace("{java}", str(java)))
    config = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "tests.conftest"]
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *config, str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    ended = {line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith("FAILED")}
    assert {name.rpartition("::")[2] for name in ended} == {"test_unmarked", "test_leak"}, done.stdout
    assert "2 failed, 2 passed" in done.stdout
    assert "is marked neither broker nor spark" in done.stdout


def test_make_quick_leaves_out_exactly_what_is_marked() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nquick:")[2].partition("\n\n")[0]
    assert '-m "not broker and not spark and not slow"' in recipe


# -- of a product of dimensions every pair of values is tried


DIMENSIONS = ("abcd", "vwxyz", "12", "pqr")


def pairs(cases: list[tuple[str, ...]]) -> set[object]:
    return {pair for case in cases for pair in combinations(enumerate(case), 2)}


def test_any_two_values_of_a_product_meet_in_a_fraction_of_it() -> None:
    every = list(product(*DIMENSIONS))
    chosen = meeting_in_pairs(every, lambda case: case)
    assert pairs(chosen) == pairs(every)
    assert len(chosen) < len(every) // 4
    assert chosen == sorted(chosen, key=every.index)


def test_what_never_meets_is_not_asked_for() -> None:
    some = [case for case in product(*DIMENSIONS) if (case[0] == "a") == (case[1] == "v")]
    chosen = meeting_in_pairs(some, lambda case: case)
    assert pairs(chosen) == pairs(some)
    assert set(chosen) <= set(some)
