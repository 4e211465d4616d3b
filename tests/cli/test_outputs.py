"""Outputs that take nothing are errors of writing, told as such; what a verb did is done."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from krepair.checks.catalogue import Finding
from krepair.cli.views.check import check_view
from krepair.cli.views.reports import apply_view
from krepair.cli.views.text import plain
from krepair.errors import ExitCode
from krepair.ops.reports import (
    ApplyReport,
    ChangeResult,
    CheckReport,
    ForecastLine,
    LogDirReport,
    PartitionSummary,
)

ROOT = Path(__file__).parents[2]


def shell(words: str) -> subprocess.CompletedProcess[str]:
    """The real command, with a shell's redirections."""
    command = f"{shlex.quote(sys.executable)} -m krepair.cli.main {words}"
    return subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("redirected", "words"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
@pytest.mark.parametrize("verb", ["explain KR101", "explain KR101 --json", "--version"])
def test_a_full_or_closed_output_is_an_error_of_writing(verb: str, redirected: str, words: str) -> None:
    done = shell(f"{verb} {redirected}")
    assert done.returncode == ExitCode.UNWRITABLE
    assert done.stderr.startswith(f"krepair: standard output: could not be written: {words}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-"])
def test_an_output_for_errors_that_takes_nothing_leaves_the_exit_code_to_tell(redirected: str) -> None:
    done = shell(f"explain nonsense {redirected}")
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.USAGE, "", "")
    assert shell(f"explain KR101 {redirected}").returncode == ExitCode.DONE


def test_a_reader_that_leaves_is_no_error() -> None:
    done = shell("explain KR101 | true; exit ${PIPESTATUS:-0}")
    assert done.stderr == ""


# -- check is quiet by default


def summary(folder: str) -> PartitionSummary:
    return PartitionSummary(
        partition=folder, segments=3, log_bytes=1000, batches=9, markers=1, marker_bytes=78, emptied=0,
        emptied_bytes=0, log_start_offset=0, log_end_offset=9,
    )  # fmt: skip


def many(findings: tuple[Finding, ...] = ()) -> CheckReport:
    folders = [f"{topic}-{number}" for topic in ("a", "b") for number in range(1000)]
    forecast = [
        ForecastLine(partition=folder, expected="start", text="cleanly stopped: its logs are not read")
        for folder in folders
    ]
    forecast[7] = ForecastLine(partition="a-7", expected="recover", text="read", bytes_read=1000)
    log_dir = LogDirReport(
        log_dir="/data",
        findings=findings,
        partitions=tuple(map(summary, folders)),
        forecast=tuple(forecast),
    )
    return CheckReport(log_dirs=(log_dir,))


def test_two_thousand_partitions_are_one_line_for_each_topic_and_for_each_that_is_not_as_it_should_be() -> (
    None
):
    finding = Finding(rule="KR302", partition="b-3", file="x.log", position=7, evidence="CRC")
    page = plain(check_view(many((finding,))))
    assert len(page.splitlines()) < 40
    lines = [line.split() for line in page.splitlines()]
    assert ["a", "999", "2,997", "999,000", "999", "0"] in [line[:6] for line in lines]
    assert ["b", "999", "2,997", "999,000", "999", "0"] in [line[:6] for line in lines]
    assert [line[0] for line in lines if line and line[0].startswith(("a-", "b-"))] == [
        "a-7",
        "b-3",
        "a-7",
        "b-3",
    ]
    assert page.index("KR302") < page.index("a-7")


def test_what_is_only_information_and_the_same_of_many_is_a_few_lines() -> None:
    told = tuple(Finding(rule="KR311", partition=f"a-{n}", evidence="offsets") for n in range(500))
    worse = tuple(Finding(rule="KR302", partition=f"b-{n}", file="x.log", evidence="CRC") for n in range(9))
    page = plain(check_view(many((*told, *worse))))
    assert page.count("\nKR311") == 6
    assert "495 more of this kind; --all lists each" in page
    assert page.count("\nKR302") == 9
    assert plain(check_view(many(told), every=True)).count("\nKR311") == 500


def test_all_lists_every_partition() -> None:
    page = plain(check_view(many(), every=True))
    assert page.count("\na-") == page.count("\nb-") == 2000
    assert "by topic" not in page


def test_a_log_directory_of_the_configuration_that_was_not_given_is_named() -> None:
    report = CheckReport(log_dirs=(LogDirReport(log_dir="/data"),), left_out=("/data2", "/data3"))
    assert "more log directories than were given: /data2, /data3." in plain(check_view(report))


# -- what a run that changed nothing says


def results(*outcomes: str) -> tuple[ChangeResult, ...]:
    return tuple(
        ChangeResult(change_id=f"t-{n}", partition=f"t-{n}", outcome=outcome, why="w")  # type: ignore[arg-type]
        for n, outcome in enumerate(outcomes)
    )


@pytest.mark.parametrize(
    ("report", "heading"),
    [
        (results("committed", "already"), "applied,"),
        (results("already", "already"), "applied before,"),
        (results("failed", "skipped"), "not applied,"),
        (results("committed", "failed"), "applied in part,"),
        (results(), "nothing to do,"),
    ],
)
def test_the_heading_of_an_apply_promises_nothing_that_was_not_done(
    report: tuple[ChangeResult, ...], heading: str
) -> None:
    page = plain(apply_view(ApplyReport(verb="apply", plan_id="0123abcd", log_dir="/data", results=report)))
    assert f"Plan 0123abcd, {heading}" in page


def test_an_apply_that_was_interrupted_before_its_first_change_does_not_say_that_there_was_nothing_to_do() -> (
    None
):
    page = plain(apply_view(ApplyReport(verb="apply", plan_id="0123abcd", log_dir="/data", interrupted=True)))
    assert "not applied" in page
    assert "It was stopped before the first change was begun." in page
    assert "nothing to do" not in page.lower()
