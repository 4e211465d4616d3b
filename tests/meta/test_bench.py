"""The benchmark's evaluation of its measurements; no test measures time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.bench import page
from tools.bench.__main__ import ASKED_FOR, PARTS
from tools.bench.page import GOALS, Kept, kept_in, section, write
from tools.bench.spent import Spent, spent_by
from tools.bench.table import MEASURES, Table

OURS, THEIRS = "krepair plan", "cleaner"


def a_table() -> Table:
    """Two lines of logs of 10 MB."""
    table = Table()
    for wall, cpu in ((2.0, 1.0), (4.0, 0.5), (3.0, 0.8)):
        table.note(OURS, 10_000_000, Spent(wall, cpu, 20_000_000))
    table.note(OURS, 10_000_000, Spent(5.0, 1.0, 20_000_000), cold=True)
    table.note(THEIRS, 10_000_000, Spent(6.0, 2.0))
    table.against(OURS, THEIRS)
    table.fact("memory (MiB)", 3.0)
    return table


def kept(part: str, table: Table) -> Kept:
    return Kept(part, "c1", "a machine", "2026-11-23", (0.1, 0.2), 3.0, "--runs 5", table)


def test_a_line_has_the_least_cpu_time_and_the_median_of_wall_times() -> None:
    line = a_table().lines[OURS]
    assert [line.seconds(measure) for measure in MEASURES] == [0.5, 3.0, 5.0]
    assert line.readings == 2.0
    assert line.row() == f"| {OURS} | MB | 0.500 | 20 | 3 | 2 | 2.0 |"


def test_a_ratio_is_there_for_what_both_were_measured_by() -> None:
    table = a_table()
    assert [table.ratio(OURS, THEIRS, measure) for measure in MEASURES] == [4.0, 2.0, None]
    assert table.ratio(OURS, "another one", MEASURES[0]) is None


def test_partitions_are_counted_where_there_are_many() -> None:
    table = Table()
    table.note("check", 1000, Spent(4.0, 2.0, 5000), partitions=200)
    assert table.lines["check"].row() == "| check | partitions | 2.000 | 100 | 50 |  |  |"


def test_what_one_of_several_cost_is_less_the_start() -> None:
    assert Spent(7.0, 4.0, 100).less(Spent(1.0, 1.0, 10)).one_of(3) == Spent(2.0, 1.0, 30)
    assert Spent(7.0).less(Spent(1.0, 1.0, 10)) == Spent(6.0)


def test_bytes_that_are_read_are_seen(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    spent = spent_by((tmp_path / "file").read_bytes)
    assert spent.read is not None
    assert spent.read >= 1 << 20


def test_the_page_is_written_from_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_table()
    kept("start", table).keep(tmp_path / "results")
    [read] = kept_in(tmp_path / "results")
    assert read.report() == kept("start", table).report()
    file = tmp_path / "page.md"
    file.write_text(f"before\n{page.FIRST}\nfigures of before\n{page.LAST}\nafter\n")
    monkeypatch.setattr(page, "PAGE", file)
    for _ in range(2):
        write([read])
    text = file.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "figures of before" not in text
    assert text.count("commit c1, 2026-11-23, load 0.1 and 0.2; a machine.") == 1
    assert "| memory (MiB) | 3.00 |" in text


def test_the_page_of_the_project_has_its_two_marks() -> None:
    text = page.PAGE.read_text()
    assert text.count(page.FIRST) == text.count(page.LAST) == 1


def test_a_goal_says_what_was_found_and_whether_it_is_reached() -> None:
    table = Table()
    for seconds, name in ((1.0, "krepair plan + apply + verify"), (4.0, "cleaner of 2.2.1")):
        table.note(f"1 kB records, zstd: {name}", 1000, Spent(seconds, seconds))
    rows = section([kept("compact", table)])
    assert (
        "1 kB records, zstd: plan + apply + verify, times as fast as the cleaner of 2.2.1 | 3 | 4.00 | yes |"
        in rows
    )
    assert "of 3.9.2 | 1.5 | not measured | |" in rows


def test_each_goal_is_of_a_part_that_is_run_without_being_asked_for() -> None:
    assert {goal.part for goal in GOALS} <= PARTS.keys() - ASKED_FOR
