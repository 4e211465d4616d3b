"""Verify of a plan says which files it checked, and how: none that it read counts for nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.cli.views.reports import verify_view
from krepair.cli.views.text import on_screen, plain
from krepair.ops.apply import apply
from krepair.ops.reports import CheckedFiles, VerifyReport
from krepair.ops.verify import verify_log_dir, verify_plan
from krepair.options import Options
from krepair.plan.model import Plan
from tests.builders import LogDir
from tests.fixture_dirs import unpack
from tests.hostile.verbs import run
from tools.torture.scenes import build

NOTHING = re.compile(r"\bno (batch|segment|file)\b|(?<![0-9,])0 bytes")


def files_of(plan: Plan) -> int:
    parts = (*plan.partitions, *([plan.root] if plan.root else []))
    return sum(len(part.changes) for part in parts)


def test_a_plan_that_only_cuts_indexes_says_that_they_were_held_against_their_logs(tmp_path: Path) -> None:
    logs, plan = str(unpack("timeindex-padded-2.2.1", tmp_path)), str(tmp_path / "u.krplan")
    assert run("plan", logs, "--fix", "index", "--engine", "inline", "--out", plan).code == 2
    assert run("apply", plan, "--engine", "inline").code == 0
    ran = run("verify", plan, "--engine", "inline")
    words = " ".join(ran.out.split())
    assert ran.code == 0
    assert not NOTHING.search(words), words
    assert (
        "Looked at 1 partition. Indexes: 4 files. Checked of each: size, digest and attributes against the plan, and "
        "its entries against the log. Everything is as it should be." in words
    )


SCENES = (
    "markers", "partitions", "indexes", "derived", "everything", "leftovers", "removals", "tail-cut", "excise",
    "set-aside", "keys", "recovery",
)  # fmt: skip


@pytest.mark.parametrize("name", SCENES)
def test_every_kind_of_change_is_told_of(memory_dir: Path, name: str) -> None:
    scene = build(name)
    placed = scene.place(memory_dir)
    before = verify_plan(placed.plan, scene.options)
    assert before.checked == ()
    shown = plain(verify_view(before))
    assert "No file of this plan was checked" in shown
    assert "as it should be" not in shown
    apply(placed.plan, scene.options)
    report = verify_plan(placed.plan, replace(scene.options, originals=True))
    assert report.problems == ()
    assert sum(one.files for one in report.checked) >= files_of(placed.plan)
    page = plain(verify_view(report))
    for one in report.checked:
        assert f"{one.what.capitalize()}: {one.files} file" in page
        assert one.how in page
    assert not NOTHING.search(page), page
    assert bool(report.bytes_read) is ("of .log" in page)
    assert bool(report.segments) <= bool(report.bytes_read)


def test_logs_that_are_empty_are_called_that(tmp_path: Path) -> None:
    made = LogDir(tmp_path / "logs")
    made.partition("t").segment(base_offset=0)
    report = verify_log_dir(str(made.write()), Options())
    assert "Read 1 partition, 1 segment, all empty." in plain(verify_view(report))


def test_the_page_of_a_plan_fits_a_screen_for_any_number_of_partitions() -> None:
    how = "size, digest and attributes against the plan, and its entries against the log"
    checked = tuple(CheckedFiles(what=f"kind {n}", files=2000, how=how) for n in range(5))
    report = VerifyReport(target="/d", plan_id="0123abcd", partitions=2000, checked=checked, next_command="k")
    assert len(on_screen(verify_view(report), 80).splitlines()) <= 24
