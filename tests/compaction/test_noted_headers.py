"""Notes from the first reading replace a second one, and change nothing in the result."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from krepair.rewrite.compaction import headers, log
from krepair.rewrite.compaction import tasks as compaction_tasks
from krepair.rewrite.compaction.batch_records import ContentError
from krepair.rewrite.compaction.headers import NO_NOTES, BatchNotes, NoteTaker
from krepair.rewrite.compaction.log import CompactedLog, StayRules
from tests.builders import NOW_MS, data
from tests.compaction import histories
from tests.compaction.cases import batch, rec
from tests.compaction.noted_headers import NO_RANGES, batches, headers_of, noted
from tests.compaction.trying import twin_rules, with_twin
from tests.old_messages import plain


class Reads:
    """A log that remembers which of its bytes were read."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.read = 0

    def into(self, buffer: memoryview, position: int) -> int:
        piece = self.raw[position : position + len(buffer)]
        buffer[: len(piece)] = piece
        self.read += len(piece)
        return len(piece)


def left(
    raw: bytes, stays: list[int], found: BatchNotes, *, keyless: bool = False
) -> tuple[bytes, list[int], int]:
    """What is left of a log, its tallies, and how much of it was read."""
    source = Reads(raw)
    stay = StayRules(np.array(stays, np.int64), NO_RANGES, 0, drop_unstamped=False, keyless=keyless)
    stream = CompactedLog(source.into, len(raw), stay, found)
    return b"".join(bytes(piece) for piece in stream.pieces()), stream.tallies.tolist(), source.read


@pytest.fixture
def small_batches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "LEAST_MEAN_BYTES", 1)


@pytest.mark.usefixtures("small_batches_too")
@pytest.mark.parametrize("gap", [0, 100, 1 << 16])
@pytest.mark.parametrize("seed", range(6))
def test_the_same_stays_whether_headers_were_noted_or_not(
    seed: int, gap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "GAP_BYTES", gap)
    chance = random.Random(seed)
    every = batches(chance)
    raw = b"".join(one.raw for one in every)
    found = noted(raw)
    assert len(found.headers) == 61 * len(every)
    offsets = [offset for one in every for offset in range(one.base_offset, one.last_offset + 1)]
    for share in (0.0, 0.05, 0.5, 1.0):
        stays = [offset for offset in offsets if chance.random() < share]
        for keyless in (False, True):
            whole, tallies, _ = left(raw, stays, NO_NOTES, keyless=keyless)
            assert left(raw, stays, found, keyless=keyless)[:2] == (whole, tallies)
            by_words = left(raw, stays, noted(raw, sizes=True), keyless=keyless)
            assert (headers_of(by_words[0]), by_words[1]) == (headers_of(whole), tallies)


def test_of_batches_of_which_nothing_stays_nothing_is_read() -> None:
    raw = b"".join(data(number, [rec("k", "v" * 9000)]).raw for number in range(300))
    found = noted(raw)
    assert left(raw, [], found)[2] == 0
    assert 0 < left(raw, [299], found)[2] < 10_000
    assert left(raw, list(range(300)), found)[2] == len(raw)
    assert left(raw, list(range(300)), noted(raw, sizes=True))[2] == 0


@pytest.mark.parametrize(
    ("more", "fit"),
    [
        ({}, True),
        ({"delta": 4095}, True),
        ({"delta": 4096}, False),
        ({"timestamp": NOW_MS + (1 << 23) - 1}, True),
        ({"timestamp": NOW_MS + (1 << 23)}, False),
        ({"timestamp": NOW_MS - (1 << 23)}, True),
        ({"timestamp": NOW_MS - (1 << 23) - 1}, False),
    ],
)
def test_a_log_with_a_record_that_no_word_can_tell_of_is_read_again(more: dict[str, Any], fit: bool) -> None:
    batch_of_two = data(1, [rec("a", "v" * 9000), rec("b", "v", **more)])
    raw, last = data(0, [rec("z", "v" * 9000)]).raw + batch_of_two.raw, batch_of_two.last_offset
    by_words, tallies, read = left(raw, [last], noted(raw, sizes=True))
    whole, its, _ = left(raw, [last], NO_NOTES)
    assert (headers_of(by_words), tallies, read == 0) == (headers_of(whole), its, fit)


def test_a_log_that_has_changed_since_its_headers_were_noted_is_refused() -> None:
    every = [data(number, [rec("k", "v" * 9000)]).raw for number in range(3)]
    found = noted(b"".join(every))
    other = data(1, [rec("k", "v" * 8000)]).raw
    with pytest.raises(ContentError, match="of the sizes that they had"):
        left(every[0] + other + every[2], [1], found)
    with pytest.raises(ContentError):
        left(b"".join(every[:2]), [2], found)


@pytest.mark.parametrize(
    "raw", [b"".join(batch(3 * n, *"abc").raw for n in range(20)), plain(0, b"v" * 9000).raw]
)
def test_headers_of_small_batches_and_of_old_formats_are_not_noted(raw: bytes) -> None:
    notes = NoteTaker(1 << 20)
    notes.take(np.frombuffer(raw, np.uint8), len(raw))
    assert notes.found() == NO_NOTES


def test_headers_are_not_noted_beyond_their_room() -> None:
    raw = b"".join(data(number, [rec("k", "v" * 9000)]).raw for number in range(300))
    assert noted(raw, 299 * 61, sizes=True) == NO_NOTES
    assert len(noted(raw, 300 * 61).headers) == 300 * 61
    many = b"".join(data(100 * number, [rec("k", "v" * 99)] * 100).raw for number in range(10))
    assert [len(noted(many, most, sizes=True).sizes) for most in (8000, 8001)] == [0, 8000]


@pytest.mark.usefixtures("small_batches_too")
@pytest.mark.parametrize("gap", [0, 300])
def test_histories_are_compacted_as_by_the_slow_twin_where_headers_were_noted(
    gap: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "GAP_BYTES", gap)
    used = 0

    class Counting(CompactedLog):
        def _beside_headers(self) -> Iterator[object]:
            nonlocal used
            used += 1
            return super()._beside_headers()

    monkeypatch.setattr(compaction_tasks, "CompactedLog", Counting)
    for seed in range(12):
        root = tmp_path / str(seed)
        with_twin(root, histories.of_seed(seed, codecs=seed % 2 == 1), twin_rules(seed))
        shutil.rmtree(root)
    assert used >= 40
