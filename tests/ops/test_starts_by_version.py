"""What check forecasts where the loaders of the versions take different steps: a table of damages, judged by Kafka too.

``tests/lab/test_starts.py`` lets the loader classes of the four versions do what this table says.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from krepair.ops.reports import LogDirReport
from krepair.start.line import ForecastLine
from tests import builders
from tests.builders import NOW_MS, abort, data
from tests.ops.inline import Inline

VERSIONS = ("2.2.1", "2.8.2", "3.9.2", "4.3.1")
OLD, NEWER = VERSIONS[:1], VERSIONS[1:]
INTERVAL = {"index.interval.bytes": "100"}
CLOSED, ACTIVE = 0, 40


def file(folder: Path, base: int, suffix: str) -> Path:
    return folder / f"{base:020d}{suffix}"


def append(base: int, suffix: str, content: bytes) -> Callable[[Path], None]:
    def breaks(folder: Path) -> None:
        path = file(folder, base, suffix)
        path.write_bytes((path.read_bytes() if path.exists() else b"") + content)

    return breaks


def cut(base: int, suffix: str, by: int) -> Callable[[Path], None]:
    def breaks(folder: Path) -> None:
        path = file(folder, base, suffix)
        os.truncate(path, path.stat().st_size - by)

    return breaks


def batch_starts(log: bytes) -> list[int]:
    found, position = [], 0
    while position < len(log):
        found.append(position)
        position += 12 + struct.unpack_from(">i", log, position + 8)[0]
    return found


def offset_of_last_batch(base: int, offset: int) -> Callable[[Path], None]:
    def breaks(folder: Path) -> None:
        path = file(folder, base, ".log")
        log = bytearray(path.read_bytes())
        struct.pack_into(">q", log, batch_starts(bytes(log))[-1], offset)
        path.write_bytes(log)

    return breaks


def both(*breaks: Callable[[Path], None]) -> Callable[[Path], None]:
    def together(folder: Path) -> None:
        for one in breaks:
            one(folder)

    return together


def aborted(version: int, last_offset: int) -> bytes:
    return struct.pack(">hqqqq", version, 7, 0, last_offset, last_offset)


ZEROS_BEHIND = append(ACTIVE, ".log", bytes(20))
NEGATIVE_BEHIND = append(ACTIVE, ".log", struct.pack(">qiib", 80, -1, 0, 2) + bytes(9))
TORN_HEADER = append(ACTIVE, ".log", bytes(17))
OTHER_VERSION = append(CLOSED, ".txnindex", aborted(0x0100, 30))
BELOW_BASE = append(ACTIVE, ".txnindex", aborted(0, 5))
ODD_INDEX = cut(CLOSED, ".index", 3)
PADDED_TIMES = append(CLOSED, ".timeindex", bytes(24))
ODD_TIMES = append(CLOSED, ".timeindex", bytes(5))
CUT_CLOSED = cut(CLOSED, ".log", 130)
GOES_BACK = offset_of_last_batch(ACTIVE, 41)
PADDED_ACTIVE_TIMES = append(ACTIVE, ".timeindex", bytes(24))


@dataclass(frozen=True)
class Row:
    """One damage, how the broker stopped, and what happens by version."""

    name: str
    breaks: Callable[[Path], None]
    clean: bool
    expected: dict[str, str]


def row(name: str, breaks: Callable[[Path], None], stop: str, old: str, newer: str | None = None) -> Row:
    expected = dict.fromkeys(OLD, old) | dict.fromkeys(NEWER, newer or old)
    return Row(name, breaks, stop == "clean", expected)


TABLE = (
    row("zeros behind the active log", ZEROS_BEHIND, "clean", "refuse"),
    row("zeros behind the active log", ZEROS_BEHIND, "killed", "truncate"),
    row("negative size behind the active log", NEGATIVE_BEHIND, "clean", "refuse"),
    row("17 bytes of zeros are read as the end", TORN_HEADER, "clean", "start"),
    row("transaction index of another version", OTHER_VERSION, "clean", "refuse"),
    row("transaction index of another version", OTHER_VERSION, "killed", "refuse"),
    row("abort below the base offset", BELOW_BASE, "clean", "recover"),
    row("abort below the base, torn log", both(BELOW_BASE, cut(ACTIVE, ".log", 9)), "clean", "truncate"),
    row("index of an odd size", ODD_INDEX, "clean", "recover", "start"),
    row("padded time index", PADDED_TIMES, "clean", "recover", "start"),
    row("time index of an odd size", ODD_TIMES, "clean", "recover", "start"),
    row("odd index, cut log", both(ODD_INDEX, CUT_CLOSED), "clean", "truncate", "start"),
    row(
        "offset that goes back beside a padded time index",
        both(GOES_BACK, PADDED_ACTIVE_TIMES),
        "killed",
        "refuse",
        "truncate",
    ),
    row("cut closed segment, odd time index", both(CUT_CLOSED, ODD_TIMES), "killed", "truncate"),
)
NAMES = [f"{one.name}, {'clean' if one.clean else 'killed'}" for one in TABLE]


def written(root: Path, one: Row) -> Path:
    """Partition t-0 with the segments 0, 20 and 40, damaged; returns the log directory."""
    directory = builders.LogDir(root)
    partition = directory.partition("t", index_interval_bytes=100)
    for base in (0, 20, 40):
        batches = [
            data(base + n, 2, pid=7, txn=True, sequence=base + n, timestamp=NOW_MS + base + n)
            for n in range(0, 18, 2)
        ]
        partition.segment(*batches, abort(base + 18, pid=7, timestamp=NOW_MS + base + 18))
    log_dir = directory.write(clean_stop=one.clean)
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    one.breaks(log_dir / "t-0")
    return log_dir


def checked(log_dir: Path, version: str = "") -> LogDirReport:
    settings = (*INTERVAL.items(), ("retention.ms", "-1"))
    return Inline(now_ms=NOW_MS + 60_000, settings=settings).checked(log_dir, broker_version=version)


def line(log_dir: Path, version: str = "") -> ForecastLine:
    return checked(log_dir, version).forecast[0]


def refusals(report: LogDirReport) -> list[str]:
    return [one.evidence for one in report.findings if one.rule == "KR803"]


@pytest.mark.parametrize("one", TABLE, ids=NAMES)
def test_forecast_of_each_version(tmp_path: Path, one: Row) -> None:
    log_dir = written(tmp_path / "logs", one)
    said = {version: checked(log_dir, version) for version in VERSIONS}
    assert {version: report.forecast[0].expected for version, report in said.items()} == one.expected
    refused = {version for version, report in said.items() if refusals(report)}
    assert refused == {version for version, what in one.expected.items() if what == "refuse"}


def test_what_keeps_a_broker_down_is_named_with_file_and_place(tmp_path: Path) -> None:
    zeros = next(one for one in TABLE if one.breaks is ZEROS_BEHIND and one.clean)
    end = file(written(tmp_path / "sound", row("", lambda _: None, "clean", "start")) / "t-0", ACTIVE, ".log")
    assert refusals(checked(written(tmp_path / "logs", zeros))) == [
        (
            "brokers 2.2.1, 3.9.2, 4.3.1 do not start: t-0/00000000000000000040.log: "
            f"position {end.stat().st_size}: a record size of 0, smaller than 14; broker 2.2.1 does not start with "
            "several log directories, either"
        )
    ]


def test_a_closed_segment_that_is_recovered_by_itself_is_cut_and_the_later_ones_stay(tmp_path: Path) -> None:
    """The cut of 2.2.1 costs a few bytes; of later versions the segment's rest and everything behind it."""
    log_dir = written(tmp_path / "logs", TABLE[-1])
    old, newer = line(log_dir, "2.2.1"), line(log_dir, "4.3.1")
    assert [base for base, _ in old.log_bytes] == [0, 20, 40]
    assert [base for base, _ in newer.log_bytes] == [0]
    assert old.log_bytes[0] == newer.log_bytes[0]
    assert "later segments stay, behind a gap" in old.text


def test_where_the_versions_differ_and_none_was_given_each_is_told(tmp_path: Path) -> None:
    log_dir = written(tmp_path / "logs", next(one for one in TABLE if one.name == "odd index, cut log"))
    found = line(log_dir)
    assert found.expected == "start"
    assert found.text.startswith("this depends on the version; 4.3.1: cleanly stopped")
    assert "2.2.1: truncate: " in found.text


def test_active_index_that_leads_past_the_log_makes_a_broker_forget_its_end(tmp_path: Path) -> None:
    def breaks(folder: Path) -> None:
        path = file(folder, ACTIVE, ".index")
        entries = bytearray(path.read_bytes())
        struct.pack_into(">i", entries, len(entries) - 4, 10**6)
        path.write_bytes(entries)

    log_dir = written(tmp_path / "logs", row("", breaks, "clean", "start"))
    report = checked(log_dir, "4.3.1")
    assert report.forecast[0].log_end == ACTIVE
    assert "takes 40 for the log end" in report.forecast[0].text
    assert ("KR203", f"{ACTIVE:020d}.index") in {(one.rule, one.file) for one in report.findings}
