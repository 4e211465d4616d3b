"""A snapshot of 200,000 producers: brokers start on it and keep all; KR506 counts what Kafka's dump tool lists."""

from __future__ import annotations

import re
import struct
import subprocess
import time
from pathlib import Path

import crc32c
import pytest

from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.brokers.serving import PASSIVE
from tests.builders import LogDir, data
from tests.lab.broker import Broker, Topic
from tests.lab.jars import LATEST
from tests.lab.jvm import java

pytestmark = [pytest.mark.broker, pytest.mark.every_broker]

MANY = 200_000
TOOL = {
    "2.2.1": "kafka.tools.DumpLogSegments",
    "3.9.2": "kafka.tools.DumpLogSegments",
    LATEST: "org.apache.kafka.tools.DumpLogSegments",
}


def snapshot(now_ms: int) -> bytes:
    """Every third producer has sent one batch only, every fifth has a transaction open."""
    rows = (
        (number, 0, 0 if number % 3 == 0 else 7, 9, 0, now_ms, -1, 9 if number % 5 == 0 else -1)
        for number in range(MANY)
    )
    body = struct.pack(">i", MANY) + b"".join(struct.pack(">qhiqiqiq", *row) for row in rows)
    return struct.pack(">hI", 1, crc32c.crc32c(body)) + body


def told(log_dir: Path, version: str) -> list[str]:
    options = Options(
        engine=EngineName.INLINE, broker_version=version, settings=(("cleanup.policy", "delete"),)
    )
    (report,) = check([str(log_dir)], options).log_dirs
    assert {line.expected for line in report.forecast} == {"start"}
    return [one.evidence for one in report.findings if one.rule == "KR506"]


def listed(file: Path, version: str) -> list[tuple[str, ...]]:
    """First sequence and first offset of the open transaction of each producer, as Kafka's tool prints them."""
    argv = java(version, TOOL[version], "--files", file)
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return re.findall(r"currentTxnFirstOffset: (\S+).* firstSequence: (-?\d+)", said)


@pytest.mark.parametrize("version", TOOL)
def test_a_broker_starts_with_them_and_keeps_them(version: str, tmp_path: Path) -> None:
    now = int(time.time() * 1000)
    log_dir = LogDir(tmp_path / "logs")
    log_dir.partition("t").segment(data(0, 10, timestamp=now), mtime_ms=now)
    path = log_dir.write()
    (path / "t-0" / f"{10:020d}.snapshot").write_bytes(snapshot(now))
    before = told(path, version)
    with Broker(version, path, PASSIVE, {"t": Topic(1, {"retention.ms": "-1"})}) as broker:
        broker.stop()
    file = path / "t-0" / f"{10:020d}.snapshot"
    rows = listed(file, version)
    once = sum(first == "0" for _, first in rows)
    opened = sum("9" in offset for offset, _ in rows)
    assert (len(rows), once, opened) == (MANY, (MANY + 2) // 3, MANY // 5)
    counted = (
        f"{MANY:,} producer ids, {once:,} of them of one batch only, {file.stat().st_size} bytes; 1 snapshot"
    )
    for (text,) in (before, told(path, version)):
        assert text.startswith(counted)
        assert text.endswith(f"; {opened:,} have a transaction open, and stay")
