"""Transactions that are open, by the log and by their coordinator."""

from __future__ import annotations

import struct
from pathlib import Path

from krepair.ops.reports import LogDirReport
from tests import builders
from tests.builders import NOW_MS, Record, data
from tests.ops.inline import Inline

MINUTE = 60_000
LAST = NOW_MS - 60 * MINUTE


def checked(log_dir: Path, *more: tuple[str, str]) -> LogDirReport:
    settings = (("retention.ms", "-1"), *more)
    return Inline(now_ms=NOW_MS, broker_version="3.9.2").checked(log_dir, settings=settings)


def said(log_dir: Path, *more: tuple[str, str]) -> list[tuple[str, str]]:
    return [
        (each.rule, each.evidence)
        for each in checked(log_dir, *more).findings
        if each.rule in ("KR103", "KR107")
    ]


def rules(log_dir: Path) -> list[str]:
    return [rule for rule, _ in said(log_dir)]


def value(
    producer_id: int,
    status: int,
    partitions: tuple[tuple[str, int], ...],
    start_ms: int,
    *,
    timeout_ms: int = 60_000,
    version: int = 0,
) -> bytes:
    """A value of ``__transaction_state`` as brokers write it: 0 up to 3.7, 1 (flexible, with a tag) later."""
    out = struct.pack(">hqhib", version, producer_id, 0, timeout_ms, status)
    if version == 0:
        out += struct.pack(">i", len(partitions) or -1)
        for topic, number in partitions:
            out += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">ii", 1, number)
        return out + struct.pack(">qq", start_ms, start_ms)
    out += bytes([len(partitions) + 1 if partitions else 0])
    for topic, number in partitions:
        out += bytes([len(topic) + 1]) + topic.encode() + b"\2" + struct.pack(">i", number) + b"\0"
    return out + struct.pack(">qq", start_ms, start_ms) + b"\1\2\2\0\2"


def with_coordinator(root: Path, *values: bytes, file_age: int = 0) -> Path:
    """A transaction open at offset 0 of t-0; its file is older than the newest by ``file_age`` minutes."""
    directory = builders.LogDir(root)
    partition = directory.partition("t")
    partition.segment(data(0, pid=7, txn=True), mtime_ms=LAST - file_age * MINUTE)
    coordinator_log = directory.partition("__transaction_state")
    for offset, one in enumerate(values):
        key = struct.pack(">hh", 0, 2) + b"id"
        coordinator_log.segment(data(offset, [Record(key, one)], timestamp=LAST), mtime_ms=LAST)
    return directory.write()
