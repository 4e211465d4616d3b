"""What stays of a log is read straight into the reader's buffer, without changing any byte."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from krepair.formats.arrays import Uint8s
from krepair.rewrite.compaction import log
from krepair.rewrite.compaction.headers import NO_NOTES
from krepair.rewrite.compaction.log import CompactedLog, StayRules
from tests.builders import NOW_MS, reading
from tests.compaction.noted_headers import NO_RANGES, batches, noted


def streamed(stream: CompactedLog, sizes: list[int]) -> bytes:
    """All of a stream, read with buffers of these sizes in turns."""
    found, turns = b"", itertools.cycle(sizes)
    while True:
        buffer = bytearray(next(turns))
        got = stream.read_into(memoryview(buffer), len(found))
        if got == 0:
            return found
        found += buffer[:got]


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_buffers_of_any_size_get_the_same_stream(
    seed: int, headers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "WINDOW_BYTES", 100_000)
    chance = random.Random(seed)
    made = batches(chance)
    raw = b"".join(one.raw for one in made)
    offsets = sorted({one.last_offset for one in made if chance.random() < 0.3})
    stay = StayRules(np.array(offsets, np.int64), NO_RANGES, NOW_MS, drop_unstamped=True, keyless=False)

    def stream() -> CompactedLog:
        return CompactedLog(reading(raw), len(raw), stay, noted(raw) if headers else NO_NOTES)

    wanted = b"".join(bytes(piece) for piece in stream().pieces())
    for sizes in ([1 << 20], [100_000], [99_999], [1 << 20, 77], [300_000, 50, 100_000]):
        one = stream()
        assert streamed(one, sizes) == wanted
        assert one.size == len(wanted)


def test_bytes_that_are_passed_over_are_not_written_into_the_buffer() -> None:
    made = batches(random.Random(5))
    raw = b"".join(one.raw for one in made)
    stay = StayRules(
        np.array([one.last_offset for one in made], np.int64), NO_RANGES, NOW_MS, drop_unstamped=True
    )
    whole = streamed(CompactedLog(reading(raw), len(raw), stay), [1 << 20])
    for skipped in (1, 61, 5000, len(whole) // 2, len(whole) - 99):
        stream = CompactedLog(reading(raw), len(raw), stay)
        buffer = bytearray(1 << 20)
        got = stream.read_into(memoryview(buffer), skipped)
        assert got > 0
        assert buffer[:got] == whole[skipped : skipped + got]


def test_a_large_buffer_takes_what_stays_without_a_copy() -> None:
    raw = b"".join(one.raw for one in batches(random.Random(1)) if len(one.raw) < log.WINDOW_BYTES)
    stay = StayRules(np.empty(0, np.int64), NO_RANGES, NOW_MS, drop_unstamped=True, keyless=False)
    stream = CompactedLog(reading(raw), len(raw), stay)
    between: Uint8s = stream._out
    between[:] = 0xEE
    assert streamed(stream, [1 << 20])
    assert (between == 0xEE).all()
