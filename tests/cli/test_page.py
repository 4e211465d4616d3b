"""The browser page is one file that fetches and runs nothing, and shows the content of the plan and the report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from typer.testing import CliRunner

from krepair.checks.catalogue import Finding
from krepair.cli.main import app
from krepair.cli.views.check import check_view
from krepair.cli.views.page import found_page, plan_page
from krepair.findings.reports import CheckReport, LogDirReport
from krepair.next_command import Next
from krepair.ops.show import show_view
from krepair.options import Options
from krepair.plan.model import Commit, Plan, ReplaceFile
from krepair.plan.planfile import dumps
from krepair.plan.view import visible
from krepair.start.line import ForecastLine
from tests.cli.page_reader import PageReader
from tests.cli.reported import summary
from tests.pages import facts, titled
from tests.plan.plans import fingerprint, good_plan, left_alone, nothing, partition, replaced_file

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><style>*{display:none}",
    "</svg><a href='javascript:alert(1)'>x</a>",
    "{{ 7 * 7 }}{% raw %}",
    "<!-- -->",
    "a\x1b[2J\nb\u202ec\x00",
    "name-\udcff",
    "&amp;&lt;",
)
names = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(), min_size=1, max_size=30))


def check_page(report: CheckReport) -> str:
    return found_page(check_view(report, Options(every=True), browser=True))


def page_of(plan: Plan) -> str:
    return plan_page(plan, show_view(plan, "my plan.krplan"))


def padded(folder: str) -> ReplaceFile:
    return replaced_file(
        f"{0:020d}.timeindex", folder=folder, method="truncate", size_before=1200, size_after=240
    )


def report_of(name: str) -> CheckReport:
    return CheckReport(
        log_dirs=(
            LogDirReport(
                log_dir=f"/data/{name}",
                findings=(
                    Finding(rule="KR302", partition=name, file=name, position=7, evidence=name, bytes=9),
                    Finding(rule="KR201", partition=name, file="0.timeindex", position=24, bytes=1176),
                ),
                partitions=(summary(name),),
                forecast=(
                    ForecastLine(
                        partition=name, expected="truncate", text=name, bytes_read=5, log_bytes=((0, 400),)
                    ),
                ),
                start_needs_bytes=20_971_520,
                free_bytes=1 << 30,
            ),
        ),
        engine=name,
        next_command=Next.read(f"krepair plan {name}"),
    )


def test_the_page_of_a_plan_is_well_formed_and_fetches_and_runs_nothing():
    read = PageReader(page_of(good_plan()))
    assert read.faults == []
    assert "svg" in read.tags
    assert "default-src 'none'" in read.text


def test_the_page_says_all_that_the_text_says():
    plan = good_plan()
    view = show_view(plan, "my plan.krplan")
    text = PageReader(page_of(plan)).text
    missing: list[str] = []
    for part in view.sections:
        rows = part.table.rows if part.table is not None else ()
        missing += [
            words
            for words in (
                part.title,
                *part.lines,
                *map(str, part.commands),
                *(cell for row in rows for cell in row),
            )
            if words not in text
        ]
    assert missing == []
    assert plan.digest in text


@given(name=names)
@settings(max_examples=40, deadline=None)
def test_hostile_names_in_a_plan_stay_text(name: str):
    def plan(called: str) -> Plan:
        return good_plan(
            partition(
                topic=called, folder=called, notes=(called,), changes=(*partition().changes, padded(called))
            ),
            left_alone(folder=called, why=called, next_command=called, code=called),
        )

    read, harmless = PageReader(page_of(plan(name))), PageReader(page_of(plan("plain")))
    assert read.faults == []
    # the review says more of an impossible name: only tables may be longer
    assert set(read.tags) == set(harmless.tags) | ({"details", "summary"} & set(read.tags))
    assert visible(name) in read.text


@given(name=names)
@settings(max_examples=40, deadline=None)
def test_hostile_names_in_what_was_found_stay_text(name: str):
    read, harmless = PageReader(check_page(report_of(name))), PageReader(check_page(report_of("plain")))
    assert read.faults == []
    assert read.tags == harmless.tags
    assert visible(name) in read.text


@pytest.mark.parametrize(
    "changed",
    [
        {"size_before": 2**63 - 1},
        {"size_before": -(2**63)},
        {"size_after": 2**63 - 1},
        {"size_before": 0, "size_after": 0},
    ],
)
def test_absurd_figures_of_a_plan_are_drawn_within_the_picture(changed: dict[str, int]):
    change = replace(padded("t-0"), **changed)
    files = (fingerprint(f"{0:020d}.log", -5), fingerprint(f"{7:020d}.log", 2**62))
    read = PageReader(page_of(good_plan(partition(changes=(change, *partition().changes), files=files))))
    assert read.faults == []
    assert read.boxes
    for box in read.boxes:
        assert 0 <= float(box["x"]) <= 1000
        assert 0 <= float(box["width"]) <= 1000
        assert 0 <= float(box["y"]) <= float(box["y"]) + float(box["height"]) <= 160.1


def test_a_plan_without_a_change_has_a_page_without_pictures():
    read = PageReader(page_of(good_plan(nothing())))
    assert read.faults == []
    assert "svg" not in read.tags
    assert "This plan changes nothing." in read.text


def test_what_the_review_objects_comes_first():
    page = page_of(replace(good_plan(), commit=Commit(order="P2", fence=True, why="x")))
    assert page.index("apply will refuse it: the review objects (RV04)") < page.index("What will happen")


def test_thousands_of_changes_are_summed_and_folded():
    many = [
        partition(partition=number, folder=f"__consumer_offsets-{number}", notes=("one producer is active",))
        for number in range(2000)
    ]
    plan = good_plan(*many)
    page = page_of(plan)
    read = PageReader(page)
    assert read.faults == []
    assert "Plan: 2,000 partitions change" in read.text
    assert "and 1,999 like it" in read.text
    assert "1,992 more partitions have logs that change" in read.text
    assert "__consumer_offsets-0 and 1,999 like it" in read.text
    assert (
        "__consumer_offsets-0, __consumer_offsets-1, __consumer_offsets-2 and 1,997 more: one producer"
        in read.text
    )
    assert len(page) < 2_000_000
    assert len(read.boxes) < 3_000


def test_a_check_that_found_nothing_says_so():
    read = PageReader(check_page(CheckReport(log_dirs=(LogDirReport(log_dir="/data"),))))
    assert read.faults == []
    assert "Nothing found." in read.text


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_show_writes_the_page_to_standard_output(tmp_path: Path):
    path = tmp_path / "p.krplan"
    path.write_bytes(dumps(good_plan()))
    code, page, _ = run("show", str(path), "--format", "html")
    assert code == 0
    assert PageReader(page).faults == []
    assert "krepair apply" in PageReader(page).text


def log_dir_with_a_page(tmp_path: Path) -> tuple[Path, Path]:
    root = tmp_path / "logs"
    root.mkdir()
    (root / "meta.properties").write_text("version=0\nbroker.id=1\n")
    return root, tmp_path / "found.html"


def test_check_writes_the_page_beside_its_answer_and_again_over_its_own(tmp_path: Path):
    root, page = log_dir_with_a_page(tmp_path)
    for _ in range(2):
        code, text, _ = run("check", str(root), "--engine", "inline", "--html", str(page))
        assert code in {0, 2}
        assert "krepair check" in text
        assert PageReader(page.read_text()).faults == []
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["found.html", "logs"]


def test_check_never_writes_its_page_over_a_file_of_somebody_else_or_into_the_log_directory(tmp_path: Path):
    root, page = log_dir_with_a_page(tmp_path)
    page.write_text("<!doctype html><p>mine</p>")
    code, _, error = run("check", str(root), "--engine", "inline", "--html", str(page))
    assert (code, page.read_text()) == (13, "<!doctype html><p>mine</p>")
    assert "was not written by krepair" in error
    code, _, error = run("check", str(root), "--engine", "inline", "--html", str(root / "x.html"))
    assert code == 13
    assert "never written into the log directory" in error
    assert [entry.name for entry in root.iterdir()] == ["meta.properties"]
    code, _, error = run("check", str(root), "--engine", "inline", "--html", str(tmp_path / "no" / "x.html"))
    assert code == 64
    assert re.search("the folder .* is not there", error)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "less than a minute"),
        (59.9, "less than a minute"),
        (75, "about 75 s"),
        (600, "about 10 minutes"),
        (10_000, "about 3 hours"),
    ],
)
def test_the_time_of_apply_is_told_as_an_estimate(seconds: float, text: str):
    plan = replace(good_plan(), expected_seconds=seconds)
    rows = facts(titled(show_view(plan, "p"), "Space and time"))
    assert rows["expected time of apply"] == text
