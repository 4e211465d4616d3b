"""Messages of v0 and v1 for the builders: encoded by zlib, struct and gzip alone, to judge krepair by."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Sequence

from hypothesis import strategies as st

from tests import builders
from tests.builders import NOW_MS, Batch

GZIP, LOG_APPEND_TIME = 1, 0x08


def _blob(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def raw_message(
    offset: int,
    value: bytes | None,
    *,
    magic: int,
    timestamp: int = NOW_MS,
    attributes: int = 0,
    key: bytes | None = None,
) -> bytes:
    """One message, its offset as it is stored."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    body += _blob(key) + _blob(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def plain(offset: int, value: bytes | None = b"value", *, magic: int = 1, timestamp: int = NOW_MS) -> Batch:
    """A plain message."""
    raw = raw_message(offset, value, magic=magic, timestamp=timestamp, key=b"key")
    return Batch(raw, offset, offset, 0, -1, -1, -1, timestamp if magic else -1, 1)


def wrapper(
    offset: int, times: Sequence[int], *, magic: int = 1, log_append_time: int | None = None
) -> Batch:
    """A gzip wrapper of one message per time, the first at ``offset``; its own offset is the last one's."""
    last = offset + len(times) - 1
    inner = b"".join(
        raw_message(number if magic else offset + number, b"%d" % number, magic=magic, timestamp=time)
        for number, time in enumerate(times)
    )
    timestamp = max(times) if log_append_time is None else log_append_time
    attributes = GZIP | (0 if log_append_time is None else LOG_APPEND_TIME)
    value = gzip.compress(inner, mtime=0)
    raw = raw_message(last, value, magic=magic, timestamp=timestamp, attributes=attributes)
    return Batch(raw, offset, last, 0, -1, -1, -1, timestamp if magic else -1, 1)


def _next(kind: str, offset: int, count: int, time: int, pid: int) -> Batch:
    times = [time + number * 7 % 5 for number in range(count)]
    made = {
        "v0": lambda: plain(offset, magic=0),
        "v1": lambda: plain(offset, None if count == 1 else b"x" * 40 * count, timestamp=time),
        "wrapper of v0": lambda: wrapper(offset, times, magic=0),
        "wrapper of v1": lambda: wrapper(offset, times),
        "log append time": lambda: wrapper(offset, times, log_append_time=time),
        "data": lambda: builders.data(offset, count, timestamp=time),
        "transaction": lambda: builders.data(offset, count, pid=pid, txn=True, timestamp=time),
        "emptied": lambda: builders.emptied(offset, pid=pid, timestamp=time),
        "commit": lambda: builders.commit(offset, pid=pid, timestamp=time),
        "abort": lambda: builders.abort(offset, pid=pid, timestamp=time),
    }
    return made[kind]()


KINDS = (
    "v0",
    "v1",
    "wrapper of v0",
    "wrapper of v1",
    "log append time",
    "data",
    "transaction",
    "emptied",
    "commit",
    "abort",
)


def mixed_log(seed: int, count: int = 60) -> list[Batch]:
    """The same from a seed, for tests whose judge is slow."""
    chance = random.Random(seed)
    batches: list[Batch] = []
    offset = 0
    for _ in range(count):
        kind, records = chance.choice(KINDS), chance.randint(1, 4)
        batches.append(_next(kind, offset, records, NOW_MS + chance.randint(-50, 50), chance.randint(1, 3)))
        offset = batches[-1].last_offset + 1
    return batches


@st.composite
def mixed_logs(draw: st.DrawFn, base_offset: int = 0) -> list[Batch]:
    """Batches of a log that goes from format to format in any order, its times in no order."""
    offset = base_offset
    batches = []
    steps = st.tuples(st.sampled_from(KINDS), st.integers(1, 4), st.integers(-50, 50), st.integers(1, 3))
    for kind, count, later, pid in draw(st.lists(steps, min_size=1, max_size=30)):
        batches.append(_next(kind, offset, count, NOW_MS + later, pid))
        offset = batches[-1].last_offset + 1
    return batches
