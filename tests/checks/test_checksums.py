"""The checksum of a whole window against the crc32c package batch by batch."""

from __future__ import annotations

import random
from typing import Any

import crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.checks.walk import CRC_BYTES, HEADER, crcs_are_right, first_wrong_crc, gathered
from krepair.formats.batch_v2 import CRC_START, LOG_OVERHEAD
from tests import builders
from tests.strategies import History, histories


def places_of(log: bytes) -> tuple[Any, Any, Any]:
    """Window, places and sizes of a log of whole batches."""
    window = np.frombuffer(log, np.uint8)
    places = [0]
    while places[-1] < len(log):
        places.append(
            places[-1] + LOG_OVERHEAD + int.from_bytes(log[places[-1] + 8 : places[-1] + 12], "big")
        )
    return window, np.array(places[:-1], np.int64), np.diff(places)


def wrong_by_the_package(log: bytes, places: Any, sizes: Any) -> list[int]:
    """Numbers of the batches whose CRC is wrong, one call each."""
    return [
        number
        for number, (place, size) in enumerate(zip(places.tolist(), sizes.tolist(), strict=True))
        if crc32c.crc32c(log[place + CRC_START : place + size])
        != int.from_bytes(log[place + 17 : place + 21], "big")
    ]


def judged(log: bytes, places: Any, sizes: Any, *, dirty: int = 0) -> tuple[bool, int]:
    buffer = np.full(len(log) + CRC_BYTES + 100, dirty, np.uint8)
    buffer[: len(log)] = np.frombuffer(log, np.uint8)
    headers = gathered(np.frombuffer(log, np.uint8), places, HEADER.size).view(HEADER.dtype)[:, 0]
    before = buffer.copy()
    right = crcs_are_right(buffer, places, headers, sizes, len(log))
    assert (buffer[len(log) :] == dirty).all()
    if not right:
        assert (buffer == before).all()
        return False, first_wrong_crc(buffer, places, sizes, headers["crc"])
    return True, first_wrong_crc(before, places, sizes, headers["crc"])


@settings(max_examples=80, deadline=None)
@given(histories(segments=1, steps=40), st.randoms(use_true_random=False), st.integers(0, 255))
def test_wrong_batches_are_noticed_and_the_first_is_named(
    history: History, chance: random.Random, dirty: int
) -> None:
    log = bytearray(b"".join(batch.raw for batch in history.batches * 3))
    _, places, sizes = places_of(bytes(log))
    assert judged(bytes(log), places, sizes, dirty=dirty) == (True, -1)
    for number in chance.sample(range(len(places)), min(3, len(places))):
        log[int(places[number]) + chance.randrange(17, int(sizes[number]))] ^= 1 << chance.randrange(8)
    wrong = wrong_by_the_package(bytes(log), places, sizes)
    assert wrong
    assert judged(bytes(log), places, sizes, dirty=dirty) == (False, wrong[0])


@pytest.mark.parametrize(
    "both", ["flip the same bit", "swap their bodies", "swap their CRCs", "zero a stretch"]
)
def test_two_batches_wrong_in_the_same_way_do_not_make_up_for_each_other(both: str) -> None:
    batches = [builders.data(n, [builders.Record(b"k%d" % n, b"v" * 40)], pid=n) for n in range(12)]
    log = bytearray(b"".join(batch.raw for batch in batches))
    _, places, sizes = places_of(bytes(log))
    assert len(set(sizes[:10].tolist())) == 1
    one, two, size = int(places[2]), int(places[7]), int(sizes[2])
    match both:
        case "flip the same bit":
            log[one + 70] ^= 4
            log[two + 70] ^= 4
        case "swap their bodies":
            log[one + 21 : one + size], log[two + 21 : two + size] = (
                log[two + 21 : two + size],
                log[one + 21 : one + size],
            )
        case "swap their CRCs":
            log[one + 17 : one + 21], log[two + 17 : two + 21] = (
                log[two + 17 : two + 21],
                log[one + 17 : one + 21],
            )
        case _:
            log[one + 80 : one + 90] = bytes(10)
            log[two + 80 : two + 90] = bytes(10)
    assert wrong_by_the_package(bytes(log), places, sizes) == [2, 7]
    assert judged(bytes(log), places, sizes) == (False, 2)
