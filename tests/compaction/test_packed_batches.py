"""The remains of compressed batches do not depend on how many share a window, or on what lies between them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from krepair.rewrite.compaction.batch_records import ContentError
from krepair.rewrite.compaction.log import CompactedLog, StayRules
from tests import builders, codecs, naive
from tests.builders import Record, commit, data, emptied
from tests.compaction import twin
from tests.compaction.noted_headers import NO_RANGES
from tests.old_messages import plain

CODECS = (1, 2, 3, 4)


def left(raw: bytes, stays: list[int]) -> bytes:
    """What is left of a log."""
    stay = StayRules(np.array(stays, np.int64), NO_RANGES, 0, drop_unstamped=False, keyless=False)
    stream = CompactedLog(builders.reading(raw), len(raw), stay)
    return b"".join(bytes(piece) for piece in stream.pieces())


def by_twin(raw: bytes, stays: list[int]) -> bytes:
    """The same, batch by batch."""
    among, found = set(stays), []
    for batch in naive.parse(raw):
        one = raw[batch.position : batch.position + batch.size]
        records = twin.records(one) if batch.records and not batch.control else []
        kept = [record for record in records if record.offset in among]
        found.append(one if len(kept) == len(records) else twin.left_of(one, batch, kept))
    return b"".join(found)


def packed(offset: int, codec: int, sizes: list[int], chance: random.Random) -> bytes:
    """A batch with values of these sizes, which can be compressed well."""
    records = [
        Record(b"%d" % chance.randrange(99), (chance.randbytes(30) * (size // 30 + 1))[:size])
        for size in sizes
    ]
    return codecs.packed(data(offset, records).raw, codec)


def log_of(chance: random.Random, sizes: tuple[int, ...], count: int) -> tuple[bytes, int]:
    """Compressed batches with others between them, and the offset after the last."""
    found, offset = [], 0
    for _ in range(count):
        kind = chance.randrange(12)
        if kind == 0:
            found.append(data(offset, 3).raw)
        elif kind == 1:
            found.append(commit(offset, pid=7).raw)
        elif kind == 2:
            found.append(emptied(offset, pid=3).raw)
        else:
            some = [chance.choice(sizes) for _ in range(3)]
            found.append(packed(offset, chance.choice(CODECS), some, chance))
        offset += 3
    return b"".join(found), offset


@pytest.mark.parametrize(
    ("sizes", "count"),
    [((0, 1, 8), 9000), ((20_000, 60_000), 300), ((10, 700_000), 60), ((300,), 800)],
    ids=["more-than-rows", "more-than-fits-unpacked", "larger-than-is-unpacked-at-once", "usual"],
)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_many_batches_of_all_codecs_in_a_window(sizes: tuple[int, ...], count: int, share: float) -> None:
    chance = random.Random(f"{sizes} {share}")
    raw, end = log_of(chance, sizes, count)
    stays = [offset for offset in range(end) if chance.random() < share]
    assert left(raw, stays) == by_twin(raw, stays)


def broken(raw: bytes, how: str) -> bytes:
    """A batch whose records cannot be read."""
    if how == "count":
        return raw[:57] + (int.from_bytes(raw[57:61], "big") + 1).to_bytes(4, "big") + raw[61:]
    return raw[:61] + b"\0" * (len(raw) - 61)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("count", "4 records were expected, found 3"),
        ("stream", "stream was expected"),
    ],
)
def test_the_first_broken_batch_is_named_among_others(codec: int, how: str, words: str) -> None:
    chance = random.Random(f"{codec} {how}")
    every = [packed(3 * number, codec, [50] * 3, chance) for number in range(40)]
    for number in (0, 17, 39):
        for behind in range(number, 40, 11):
            some = [broken(raw, how) if place in (number, behind) else raw for place, raw in enumerate(every)]
            with pytest.raises(ContentError, match=words) as caught:
                left(b"".join(some), list(range(0, 120, 2)))
            assert caught.value.position == sum(map(len, every[:number]))


def test_broken_batch_of_which_nothing_stays_is_not_looked_at() -> None:
    chance = random.Random(1)
    every = [packed(3 * number, 3, [50] * 3, chance) for number in range(9)]
    raw = b"".join(broken(one, "stream") if place == 4 else one for place, one in enumerate(every))
    assert left(raw, [1, 25]) == by_twin(b"".join(every), [1, 25])


def test_a_message_of_an_old_format_between_compressed_batches_is_refused() -> None:
    chance = random.Random(2)
    front = packed(0, 3, [9] * 3, chance)
    with pytest.raises(ContentError, match="found a message of v0 or v1") as caught:
        left(front + plain(3).raw + packed(4, 4, [9] * 3, chance), [1, 3, 5])
    assert caught.value.position == len(front)
