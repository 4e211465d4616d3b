"""The first line of a page is what is read at night: it claims nothing that some result contradicts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import Any

import pytest

from krepair.cli.views.check import check_view
from krepair.cli.views.reports import apply_view
from krepair.cli.views.writers import plain
from krepair.commit.reports import ApplyReport
from krepair.commit.result import ChangeResult
from krepair.errors import EXIT_CODE_MEANING, ExitCode
from krepair.findings.reports import CheckReport, LogDirReport
from krepair.options import Options
from krepair.start.line import ForecastLine

OUTCOMES = {
    "apply": ("committed", "already", "failed", "skipped"),
    "undo": ("undone", "already", "gone", "failed", "skipped"),
    "purge": ("purged", "already", "gone", "failed"),
}
# How a headline tells of each outcome where there are others beside it.
TOLD = {
    ("apply", "committed"): "{n} {change} made",
    ("apply", "already"): "{n} {change} done before",
    ("undo", "undone"): "{n} {change} undone",
    ("undo", "already"): "{n} {change} not applied here",
    ("undo", "gone"): "{n} {folder} deleted by the broker",
    ("purge", "purged"): "the originals in {n} {folder} were purged",
    ("purge", "already"): "nothing was kept in {n} {folder}",
    ("purge", "gone"): "{n} {folder} deleted by the broker",
}
# What only a headline of results that are all alike may say.
OF_ALL = {
    "every change was done before": {"already"},
    "nothing of this plan": {"already"},
    "nothing was changed": {"failed", "skipped"},
    "no damaged journal": {"already"},
    "Done": {"committed", "undone", "purged", "already", "gone"},
}


def mixtures() -> Iterator[tuple[str, tuple[str, ...]]]:
    for verb, outcomes in OUTCOMES.items():
        for many in (1, 2, 3, 4):
            for mixed in combinations_with_replacement(outcomes, many):
                yield verb, mixed


def report_of(verb: str, outcomes: tuple[str, ...], **more: Any) -> ApplyReport:
    code = {"failed": int(ExitCode.REFUSED)}
    results = tuple(
        ChangeResult(
            change_id=f"t-{number}/x",
            partition=f"t-{number}",
            outcome=outcome,  # type: ignore[arg-type]
            exit_code=code.get(outcome, 0),
            why="w" if outcome in {"failed", "skipped", "gone"} else "",
        )
        for number, outcome in enumerate(outcomes)
    )
    return ApplyReport(
        verb=verb,  # type: ignore[arg-type]
        plan_id="0123abcd",
        log_dir="/data",
        results=results,
        **more,
    )


def head(report: ApplyReport) -> str:
    """The line below the heading."""
    return apply_view(report).sections[0].lines[0]


def told(verb: str, outcome: str, count: int) -> str:
    one = count == 1
    return TOLD[verb, outcome].format(
        n=count,
        change="change" if one else "changes",
        folder="folder" if one else "folders",
    )


@pytest.mark.parametrize("verb", OUTCOMES)
def test_a_headline_tells_of_every_outcome_and_of_none_that_is_not_there(verb: str) -> None:
    for found, mixed in mixtures():
        if found != verb:
            continue
        report = report_of(verb, mixed)
        line = head(report)
        for words, these in OF_ALL.items():
            assert words not in line or set(mixed) <= these, (mixed, line)
        if report.exit_code not in {ExitCode.DONE, ExitCode.PARTLY}:
            assert EXIT_CODE_MEANING[report.exit_code][1:] in line
            assert set(mixed) <= {"failed", "skipped"}
            continue
        for outcome in OUTCOMES[verb]:
            count = mixed.count(outcome)
            if outcome in {"failed", "skipped"}:
                continue
            if not count:
                # A run that is done in part says that none was done now.
                pattern = r"\d+ \w+".join(map(re.escape, TOLD[verb, outcome].split("{n} ", 1)))
                pattern = re.sub(r"\\\{\w+\\\}", "", pattern)
                assert set(re.findall(pattern, line)) <= {told(verb, outcome, 0)}, (mixed, line)
            elif set(mixed) != {"already"}:
                assert told(verb, outcome, count) in line, (mixed, line)
        missed = sum(outcome in {"failed", "skipped"} for outcome in mixed)
        assert (f"; {missed} not done" in line) is bool(missed), (mixed, line)


def test_room_that_an_undo_takes_is_not_promised_to_come_back_with_a_purge() -> None:
    bigger = ChangeResult(change_id="t-0/x", partition="t-0", outcome="undone", bytes_freed=-100)
    report = ApplyReport(verb="undo", plan_id="0123abcd", log_dir="/data", results=(bigger,))
    lines = apply_view(report).sections[0].lines
    assert "It takes 100 bytes more now." in lines


def test_what_a_start_needs_is_held_against_its_own_disk() -> None:
    """Several directories may have a disk each: their sum is not held against the fullest."""

    def of(name: str, needs: int, free: int) -> LogDirReport:
        line = ForecastLine(partition="t-0", expected="start", text="")
        return LogDirReport(log_dir=name, forecast=(line,), start_needs_bytes=needs, free_bytes=free)

    def said(*dirs: LogDirReport) -> str:
        return next(
            line
            for line in plain(check_view(CheckReport(log_dirs=dirs), Options(), 80)).split("\n")
            if "of disk" in line
        )

    assert said(of("/a", 20 << 20, 1 << 30)) == "It reads no logs; it needs 20.0 MiB of disk, 1.0 GiB free."
    assert said(of("/a", 20 << 20, 1 << 30), of("/b", 1024, 10 << 20)) == (
        "It reads no logs; it needs 20.0 MiB of disk, in /b 1.0 KiB of 10.0 MiB free."
    )


def test_files_that_a_start_lacks_are_in_the_verdict_as_bytes_are() -> None:
    """A file system without a free inode takes no checkpoint, however many bytes are free."""

    def said(*free: int) -> str:
        line = ForecastLine(partition="t-0", expected="start", text="")
        dirs = tuple(
            LogDirReport(
                log_dir=f"/{place}",
                forecast=(line,),
                start_needs_bytes=4096,
                free_bytes=1 << 30,
                start_needs_files=4,
                free_files=files,
            )
            for place, files in enumerate(free)
        )
        text = plain(check_view(CheckReport(log_dirs=dirs), Options(), 80))
        return next(line for line in text.split("\n") if "of disk" in line)

    assert said(4) == said(-1) == "It reads no logs; it needs 4.0 KiB of disk, 1.0 GiB free."
    assert said(3).endswith("1.0 GiB free; and up to 4 new files, 3 free.")
    assert said(3, 0).endswith("; and up to 4 new files in /1, 0 free.")
