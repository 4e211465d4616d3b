"""Any bytes at all: every decoder gives its documented result, in little time and memory."""

from __future__ import annotations

import random
import resource
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.decoders import DECODERS, Decoder, change_json

KEPT = Path(__file__).with_name("inputs")
"""Inputs on which a decoder once failed: ``inputs/<decoder>/<name>``."""
EXAMPLES = 150
MOST_SECONDS = 2.0
MOST_NEW_BYTES = 512 << 20

BY_NAME = {decoder.name: decoder for decoder in DECODERS}


def kept() -> list[tuple[str, Path]]:
    return [(folder.name, file) for folder in sorted(KEPT.iterdir()) for file in sorted(folder.iterdir())]


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_input_that_is_right_passes(decoder: Decoder) -> None:
    for seed in decoder.seeds():
        decoder.attempt(seed)


@pytest.mark.parametrize(
    ("decoder", "file"), kept(), ids=lambda value: value if isinstance(value, str) else value.name
)
def test_input_that_once_failed_passes(decoder: str, file: Path) -> None:
    BY_NAME[decoder].attempt(file.read_bytes())


@st.composite
def changed(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A right input with a few bytes exchanged, put in, taken out or repeated."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        size = draw(st.sampled_from([0, 1, 1, 2, 8, 40]))
        kind = draw(st.sampled_from(["exchange", "insert", "remove", "repeat"]))
        if kind == "exchange":
            new = draw(st.binary(min_size=1, max_size=4))
            data[place : place + len(new)] = new
        elif kind == "insert":
            data[place:place] = draw(st.binary(min_size=1, max_size=8))
        elif kind == "remove":
            del data[place : place + size]
        else:
            data[place:place] = data[place : place + size]
    return bytes(data)


@pytest.mark.parametrize("decoder", [one for one in DECODERS if one.json], ids=lambda decoder: decoder.name)
def test_any_value_in_the_place_of_another_gives_the_documented_result(decoder: Decoder) -> None:
    chance = random.Random(decoder.name)
    for seed in decoder.seeds():
        for _ in range(EXAMPLES):
            data = seed
            for _ in range(chance.randint(1, 3)):
                data = change_json(data, chance)
            decoder.attempt(data)


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_any_bytes_give_the_documented_result(decoder: Decoder) -> None:
    seeds = decoder.seeds()
    slowest = 0.0

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(changed(seeds) | st.binary(max_size=200))
    def any_bytes(data: bytes) -> None:
        nonlocal slowest
        started = time.process_time()
        decoder.attempt(data)
        slowest = max(slowest, time.process_time() - started)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    any_bytes()
    assert slowest < MOST_SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MOST_NEW_BYTES
