"""A log with transactions and its operator."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from krepair.findings.reports import LogDirReport
from tests import builders
from tests.builders import NOW_MS, Record, abort, commit, data
from tests.flips import flip
from tests.look.transaction_records import key_of, value_of
from tests.ops.inline import Inline

MINUTE = 60_000
LAST = NOW_MS - 60 * MINUTE


@dataclass
class Scene:
    """A transaction of producer 7, epoch 5, at offset 2 of t-0, and what the coordinator's log says of it.

    Attributes:
        state: of its transactional id; empty for none at all, ``tombstone`` for a null value behind another one.
        owner: producer id of that state.
        epoch: of that state.
        partitions: of that state.
        ends_ms: time of the last batch of the coordinator's log.
        high_watermark: of the coordinator's log; its end if None.
        damaged: whether a byte of the coordinator's log is wrong.
        torn: whether the data log has a torn tail.
        age: minutes since the marker behind the transaction was written.
        second: another transactional id of the same producer id.
    """

    state: str = "CompleteCommit"
    owner: int = 7
    epoch: int = 5
    partitions: tuple[tuple[str, int], ...] = ()
    ends_ms: int = LAST
    high_watermark: int | None = None
    damaged: bool = False
    torn: bool = False
    age: int = 30
    second: bool = False

    def write(self, root: Path) -> Path:
        directory = builders.LogDir(root)
        part = directory.partition("t")
        first = (
            data(0, pid=7, epoch=5, txn=True),
            abort(1, pid=7, epoch=5, coordinator_epoch=3, timestamp=LAST - 50 * MINUTE),
        )
        part.segment(*first, mtime_ms=LAST - 40 * MINUTE)
        part.segment(data(2, 3, pid=7, epoch=5, sequence=1, txn=True), mtime_ms=LAST)
        part.segment(data(5, 2), commit(7, pid=98, timestamp=LAST - self.age * MINUTE), mtime_ms=LAST)
        directory.partition("u").segment(
            data(0, pid=99, txn=True), commit(1, pid=99, timestamp=LAST), mtime_ms=LAST
        )
        coordinator = directory.partition("__transaction_state")
        time = LAST - 45 * MINUTE
        old = value_of(7, "CompleteAbort", epoch=1, time_ms=time)
        records: list[tuple[str, bytes | None, int]] = [("id", old, time)] if self.state else []
        if self.state == "tombstone":
            records.append(("id", None, time))
        elif self.state:
            new = value_of(self.owner, self.state, *self.partitions, epoch=self.epoch, time_ms=time)
            records.append(("id", new, time))
        if self.second:
            records.append(("second", value_of(7, "Empty", epoch=9), time))
        records.append(("other", value_of(99, "Empty"), self.ends_ms))
        batches = [
            data(offset, [Record(key_of(name), value)], timestamp=time)
            for offset, (name, value, time) in enumerate(records)
        ]
        coordinator.segment(*batches, mtime_ms=LAST)
        marks = {} if self.high_watermark is None else {"__transaction_state-0": self.high_watermark}
        log_dir = directory.write(high_watermarks=marks)
        if self.damaged:
            log = log_dir / "__transaction_state-0" / f"{0:020d}.log"
            flip(log, -5)
        if self.torn:
            log = log_dir / "t-0" / f"{5:020d}.log"
            time_ns = log.stat().st_mtime_ns
            log.write_bytes(log.read_bytes() + b"\xff" * 70)
            os.utime(log, ns=(time_ns, time_ns))
        return log_dir


START = "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic t --partition 0 --start-offset 2"


def checked_of_age(log_dir: Path, *more: tuple[str, str]) -> LogDirReport:
    settings = (("retention.ms", "-1"), *more)
    return Inline(now_ms=NOW_MS, broker_version="3.9.2").checked(log_dir, settings=settings)


def said_of_age(log_dir: Path, *more: tuple[str, str]) -> list[tuple[str, str]]:
    return [
        (each.rule, each.evidence)
        for each in checked_of_age(log_dir, *more).findings
        if each.rule in ("KR103", "KR107")
    ]


def rules_of_age(log_dir: Path) -> list[str]:
    return [rule for rule, _ in said_of_age(log_dir)]


def with_coordinator(root: Path, *values: bytes, marker_age: int = 0) -> Path:
    """A transaction open at offset 0 of t-0; the marker behind it was written ``marker_age`` minutes ago."""
    directory = builders.LogDir(root)
    partition = directory.partition("t")
    marker = commit(1, pid=8, timestamp=LAST - marker_age * MINUTE)
    partition.segment(data(0, pid=7, txn=True), marker, mtime_ms=LAST)
    coordinator_log = directory.partition("__transaction_state")
    for offset, one in enumerate(values):
        coordinator_log.segment(data(offset, [Record(key_of("id"), one)], timestamp=LAST), mtime_ms=LAST)
    return directory.write()
