"""The table of starts: what each version does with a log."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from krepair.findings.reports import LogDirReport
from krepair.start.line import ForecastLine
from tests import builders
from tests.builders import NOW_MS, abort, data
from tests.lab.jars import LOADER_VERSIONS
from tests.ops.inline import Inline

OLD, NEWER = LOADER_VERSIONS[:1], LOADER_VERSIONS[1:]
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
