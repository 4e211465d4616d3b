"""An output that cannot be written is reported as a write error; what the verb did stays done."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.checks.catalogue import CATALOGUE, Finding
from krepair.cli.views.check import check_view, verdict
from krepair.cli.views.reports import apply_view
from krepair.cli.views.writers import on_screen, plain
from krepair.commit.reports import ApplyReport
from krepair.commit.result import ChangeResult
from krepair.errors import ExitCode
from krepair.findings.reports import CheckReport, LogDirReport
from krepair.next_command import Next
from krepair.options import Options
from krepair.start.line import ForecastLine
from tests.cli.reported import summary

ROOT = Path(__file__).parents[2]


def shell(words: str) -> subprocess.CompletedProcess[str]:
    """The real command, with a shell's redirections."""
    command = f"{shlex.quote(sys.executable)} -m krepair {words}"
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


@pytest.mark.parametrize(
    "words", ["explain", "explain --json", "--version", "--help", "plan -h", "dump --help"]
)
def test_a_reader_that_has_left_ends_every_output_alike(words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "krepair", *words.split()],
            cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (done.stderr, done.returncode) == ("", 141)


@pytest.mark.parametrize("redirected", [">/dev/full", ">&-"])
@pytest.mark.parametrize("words", ["explain nonsense --json", "nonsense --json"])
def test_an_error_whose_document_nobody_takes_is_told_by_its_exit_code_and_a_line(
    words: str, redirected: str
) -> None:
    done = shell(f"{words} {redirected}")
    told = shell(words)
    assert (done.returncode, done.stderr) == (told.returncode, told.stderr) == (ExitCode.USAGE, told.stderr)


# -- check is quiet by default


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


MANY_RULES = tuple(
    Finding(rule=rule.code, partition=f"a-{number}", evidence="e", bytes=number)
    for rule in CATALOGUE
    for number in range(100)
)


@pytest.mark.parametrize(
    "findings", [(), MANY_RULES[:100], MANY_RULES], ids=["nothing", "one rule", "all rules"]
)
def test_of_two_thousand_partitions_a_screen_has_22_lines_and_a_page_60(
    findings: tuple[Finding, ...],
) -> None:
    report = replace(
        many(findings), next_command=Next.read("krepair plan /data --out PLAN"), engine="inline: small"
    )
    screen = on_screen(check_view(report, Options(), 80), 80).splitlines()
    assert len(screen) <= 22
    assert max(map(len, screen)) <= 80
    assert screen[-1] == "  krepair plan /data --out PLAN"
    assert len(plain(check_view(report)).splitlines()) <= 60
    assert len(on_screen(check_view(report, Options(every=True), 80), 80).splitlines()) > 60


def test_the_verdict_of_a_directory_in_use_has_at_most_six_lines_of_a_terminal() -> None:
    report = replace(many(MANY_RULES), left_out=("/data2", "/data3"))
    (one,) = report.log_dirs
    report = replace(
        report,
        log_dirs=(
            replace(
                one,
                uncleanable_partitions=2,
                uncleanable_bytes=9,
                start_needs_bytes=20_971_520,
                free_bytes=0,
                log_dir="/" + "x" * 90,
            ),
        ),
    )
    lines = verdict(report)
    assert (len(lines), lines[0]) == (6, "In use: e.")
    assert max(map(len, lines)) <= 80


def test_what_is_to_be_typed_is_whole_and_on_a_line_of_its_own() -> None:
    command = "krepair plan /data --fix tail=excise --accept-data-loss KR302:b-3:" + "7" * 60 + " --out PLAN"
    finding = Finding(
        rule="KR302", partition="b-3", file="x.log", position=7, evidence="CRC", command=Next.read(command)
    )
    for asked in (Options(rule="KR302"), Options(topics=("b",))):
        assert f"  {command}" in on_screen(check_view(many((finding,)), asked, 80), 80).splitlines()


def test_a_rule_that_is_asked_for_lists_each_of_its_findings_and_no_other_one() -> None:
    told = tuple(Finding(rule="KR311", partition=f"a-{n}", evidence="offsets") for n in range(500))
    worse = tuple(Finding(rule="KR302", partition=f"b-{n}", file="x.log", evidence="CRC") for n in range(9))
    page = plain(check_view(many((*told, *worse)), Options(rule="KR302")))
    assert page.count("\nKR302  data loss  b-") == 9
    assert "KR311" not in page
    assert plain(check_view(many(told), Options(every=True))).count("\ninformation  KR311") == 500


@pytest.mark.parametrize("width", [0, 80], ids=["file", "screen"])
def test_that_nothing_was_found_of_a_rule_that_is_asked_for_is_said(width: int) -> None:
    told = (Finding(rule="KR302", partition="b-3", file="x.log", evidence="CRC"),)
    assert "\nNo findings of KR605.\n" in plain(check_view(many(told), Options(rule="KR605"), width))
    assert "No finding" not in plain(check_view(many(told), Options(rule="KR302"), width))
    assert "No finding" not in plain(check_view(many(), Options(), width))


def test_of_a_rule_that_another_command_looks_for_that_command_is_named() -> None:
    page = plain(check_view(many(), Options(rule="KR650")))
    assert "\nNo findings of KR650. Only krepair compare looks for it.\n" in page


def test_all_lists_every_partition() -> None:
    page = plain(check_view(many(), Options(every=True)))
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


def test_an_apply_that_was_interrupted_before_its_first_change_does_not_say_that_there_was_nothing_to_do() -> (
    None
):
    page = plain(apply_view(ApplyReport(verb="apply", plan_id="0123abcd", log_dir="/data", interrupted=True)))
    assert "It was stopped before the first change began." in page
    assert "nothing to do" not in page.lower()
