"""Screens of 80 columns of the verbs, kept as text; KREPAIR_WRITE_SCREENS=1 writes them anew.

``check``, ``verify``, ``apply``, ``undo`` and ``purge`` fit 24 lines for any number of partitions; a plan is a page.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Literal

import pytest
from msgspec.structs import replace

from krepair.checks.catalogue import Finding
from krepair.cli.views.check import Asked, check_view
from krepair.cli.views.diff import diff_view
from krepair.cli.views.reports import apply_view, verify_view
from krepair.cli.views.text import on_screen
from krepair.ops.reports import (
    ApplyReport,
    ChangeOutcome,
    ChangeResult,
    CheckReport,
    ForecastLine,
    LogDirReport,
    PartitionSummary,
    Problem,
    VerifyReport,
)
from krepair.ops.show import show_view
from krepair.plan.diff import diff_plans
from krepair.plan.model import PartitionPlan
from krepair.plan.planfile import seal
from krepair.plan.view import View
from tests.plan.plans import good_plan, partition

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


def carried_out(verb: Literal["apply", "undo", "purge"], count: int) -> View:
    """All went well but for the last partition of several."""
    done: dict[str, ChangeOutcome] = {"apply": "committed", "undo": "undone", "purge": "purged"}
    results = [
        ChangeResult(
            change_id=f"__consumer_offsets-{number}/{0:020d}",
            partition=f"__consumer_offsets-{number}",
            outcome=done[verb],
            bytes_freed=541_436,
        )
        for number in range(count)
    ]
    if count > 1:
        why = "00000000000000000000.log: 1308238 bytes, expected 1308200; it was changed after the plan was made"
        results[-1] = replace(results[-1], outcome="failed", exit_code=12, why=why, bytes_freed=0)
    return apply_view(
        ApplyReport(
            verb=verb,
            plan_id="32ae8eb2",
            log_dir="/var/lib/kafka",
            results=tuple(results),
            next_command="krepair verify offsets.krplan",
            digest="3" * 64,
        )
    )


def changing(number: int) -> PartitionPlan:
    folder = f"__consumer_offsets-{number}"
    changes = tuple(replace(one, change_id=f"{folder}/{0:020d}") for one in partition().changes)
    return partition(partition=number, folder=folder, changes=changes)


def planned(count: int) -> View:
    return show_view(good_plan(*map(changing, range(count))), "offsets.krplan")


def differing(count: int) -> View:
    """The same partitions by a later clock, and freed as soon as all is verified."""
    first = good_plan(*map(changing, range(count)))
    dearer = tuple(replace(one, peak_extra_bytes=one.peak_extra_bytes + 4096) for one in first.partitions)
    policy = replace(first.policy, now_ms=first.policy.now_ms + 60_000, keep="until-verified")
    return diff_view(
        diff_plans(first, seal(replace(first, partitions=dearer, policy=policy))),
        "first.krplan",
        "second.krplan",
    )


VIEWS: Final[dict[str, Callable[[int], View]]] = {
    "check": checked,
    "verify": verified,
    "apply": partial(carried_out, "apply"),
    "undo": partial(carried_out, "undo"),
    "purge": partial(carried_out, "purge"),
    "plan": planned,
    "diff": differing,
}
DIGEST: Final = re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{7,}\b(?!\.)")
PAGES: Final = frozenset({"plan", "diff"})


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("verb", VIEWS)
def test_the_screen_is_the_one_that_was_read_and_agreed_on(verb: str, count: int) -> None:
    # digests change with the model of a plan, which is nothing to look at
    shown = DIGEST.sub(lambda found: "0" * len(found[0]), on_screen(VIEWS[verb](count), 80))
    path = SCREENS / f"{verb}-{count}.txt"
    if os.environ.get("KREPAIR_WRITE_SCREENS"):
        path.write_text(shown)
    assert shown == path.read_text()
    assert max(map(len, shown.splitlines())) <= 80
    if verb not in PAGES:
        assert len(shown.splitlines()) <= 24
