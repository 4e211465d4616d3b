"""Screens of 80 columns of ``check`` and ``verify``, kept as text; KREPAIR_WRITE_SCREENS=1 writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.checks.catalogue import Finding
from krepair.cli.views.check import Asked, check_view
from krepair.cli.views.reports import verify_view
from krepair.cli.views.text import on_screen
from krepair.ops.reports import (
    CheckReport,
    ForecastLine,
    LogDirReport,
    PartitionSummary,
    Problem,
    VerifyReport,
)
from krepair.plan.view import View

SCREENS = Path(__file__).parent / "screens"
COUNTS = (1, 62, 2000)


def checked(count: int) -> View:
    folders = [f"__consumer_offsets-{number}" for number in range(count)]
    log_dir = LogDirReport(
        log_dir="/var/lib/kafka",
        findings=(
            Finding(rule="KR302", partition=folders[0], file="x.log", position=7, evidence="CRC", bytes=317),
            *(Finding(rule="KR101", partition=name, evidence="markers", bytes=541_436) for name in folders),
        ),
        partitions=tuple(
            PartitionSummary(
                partition=name,
                segments=9,
                log_bytes=1_308_238,
                batches=17_899,
                markers=17_000,
                marker_bytes=1_300_000,
                emptied=0,
                emptied_bytes=0,
                log_start_offset=0,
                log_end_offset=28_234,
            )
            for name in folders
        ),
        forecast=tuple(
            ForecastLine(partition=name, expected="recover", text="read", bytes_read=1_308_238, seconds=0.5)
            for name in folders
        ),
        scanned_bytes=1_308_238 * count,
        start_needs_bytes=20_971_520,
        free_bytes=0,
    )
    command = "krepair plan /var/lib/kafka --fix markers,tail --out PLAN"
    return check_view(CheckReport(log_dirs=(log_dir,), next_command=command), Asked(width=80))


def verified(count: int) -> View:
    problem = Problem(partition="__consumer_offsets-0", file="0.log", position=7, text="CRC 1, expected 2")
    return verify_view(
        VerifyReport(
            target="/var/lib/kafka",
            problems=(problem,),
            partitions=count,
            segments=count,
            batches=count,
            bytes_read=count,
            next_command="krepair check /var/lib/kafka",
        )
    )


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("verb", ["check", "verify"])
def test_the_screen_is_the_one_that_was_read_and_agreed_on(verb: str, count: int) -> None:
    shown = on_screen({"check": checked, "verify": verified}[verb](count), 80)
    path = SCREENS / f"{verb}-{count}.txt"
    if os.environ.get("KREPAIR_WRITE_SCREENS"):
        path.write_text(shown)
    assert shown == path.read_text()
    assert len(shown.splitlines()) <= 24
    assert max(map(len, shown.splitlines())) <= 80
