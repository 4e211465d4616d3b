"""What check forecasts where the loaders of the versions take different steps: a table of damages, judged by Kafka too.

``tests/lab/test_starts.py`` lets the loader classes of the four versions do what this table says.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from krepair.ops.reports import LogDirReport
from tests.lab.jars import LOADER_VERSIONS
from tests.ops.starts_by_version import (
    ACTIVE,
    TABLE,
    ZEROS_BEHIND,
    Row,
    checked,
    file,
    line,
    row,
    written,
)

NAMES = [f"{one.name}, {'clean' if one.clean else 'killed'}" for one in TABLE]


def refusals(report: LogDirReport) -> list[str]:
    return [one.evidence for one in report.findings if one.rule == "KR803"]


@pytest.mark.parametrize("one", TABLE, ids=NAMES)
def test_forecast_of_each_version(tmp_path: Path, one: Row) -> None:
    log_dir = written(tmp_path / "logs", one)
    said = {version: checked(log_dir, version) for version in LOADER_VERSIONS}
    assert {version: report.forecast[0].expected for version, report in said.items()} == one.expected
    refused = {version for version, report in said.items() if refusals(report)}
    assert refused == {version for version, what in one.expected.items() if what == "refuse"}


def test_what_keeps_a_broker_down_is_named_with_file_and_place(tmp_path: Path) -> None:
    zeros = next(one for one in TABLE if one.breaks is ZEROS_BEHIND and one.clean)
    end = file(written(tmp_path / "sound", row("", lambda _: None, "clean", "start")) / "t-0", ACTIVE, ".log")
    assert refusals(checked(written(tmp_path / "logs", zeros))) == [
        (
            "brokers 2.2.1, 3.9.2, 4.4.0 do not start: t-0/00000000000000000040.log: "
            f"position {end.stat().st_size}: a record size of 0, smaller than 14; broker 2.2.1 does not start with "
            "several log directories, either"
        )
    ]


def test_a_closed_segment_that_is_recovered_by_itself_is_cut_and_the_later_ones_stay(tmp_path: Path) -> None:
    """The cut of 2.2.1 costs a few bytes; of later versions the segment's rest and everything behind it."""
    log_dir = written(tmp_path / "logs", TABLE[-1])
    old, newer = line(log_dir, "2.2.1"), line(log_dir, "4.4.0")
    assert [base for base, _ in old.log_bytes] == [0, 20, 40]
    assert [base for base, _ in newer.log_bytes] == [0]
    assert old.log_bytes[0] == newer.log_bytes[0]
    assert "later segments stay, behind a gap" in old.text


def test_where_the_versions_differ_and_none_was_given_each_is_told(tmp_path: Path) -> None:
    log_dir = written(tmp_path / "logs", next(one for one in TABLE if one.name == "odd index, cut log"))
    found = line(log_dir)
    assert found.expected == "start"
    assert found.text.startswith("this depends on the version; 4.4.0: cleanly stopped")
    assert "2.2.1: truncate: " in found.text


def test_active_index_that_leads_past_the_log_makes_a_broker_forget_its_end(tmp_path: Path) -> None:
    def breaks(folder: Path) -> None:
        path = file(folder, ACTIVE, ".index")
        entries = bytearray(path.read_bytes())
        struct.pack_into(">i", entries, len(entries) - 4, 10**6)
        path.write_bytes(entries)

    log_dir = written(tmp_path / "logs", row("", breaks, "clean", "start"))
    report = checked(log_dir, "4.4.0")
    assert report.forecast[0].log_end == ACTIVE
    assert "takes 40 for the log end" in report.forecast[0].text
    assert ("KR203", f"{ACTIVE:020d}.index") in {(one.rule, one.file) for one in report.findings}
