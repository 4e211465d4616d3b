"""A version that nobody has tried is taken for the latest that was, and the page says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.formats.broker_version import why_not_tried
from tests.hostile.verbs import run
from tests.ops.replica_scenes import directory


@pytest.mark.parametrize(
    ("version", "later"),
    [("", False), ("2.2.1", False), ("4.4.0", False), ("4.4", False), ("4.4.1", True), ("9.9", True)],
)
def test_check_and_plan_say_that_a_version_is_later_than_all_that_were_tried(
    version: str, later: bool, tmp_path: Path
) -> None:
    log_dir = str(directory(tmp_path))
    words = ("--broker-version", version, "--engine", "inline")
    told = f"{version} is later than 4.4.0, the latest that was tried: the forecast is that of 4.4.0."
    assert (told in run("check", log_dir, *words).out) is later
    row = f"{version} (later than 4.4.0, the latest that was tried)"
    run("plan", log_dir, *words, "--out", str(tmp_path / "plan"))
    assert (row in run("show", str(tmp_path / "plan")).out) is later
    assert bool(why_not_tried(version)) is later
