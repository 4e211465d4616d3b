"""A sample of flipped bits and exchanged files; ``make torture`` has all of them."""

from __future__ import annotations

import pytest

from tools.torture.bits import KINDS, flipped, journal_bits
from tools.torture.power_loss import placed
from tools.torture.scenes import build

SAMPLES = {"plan": 300, "journal": 25, "staged": 25, "exchanged": 8, "kept": 25}


def test_flipping_a_bit_twice_gives_the_bytes_back() -> None:
    data = b"krepair"
    assert all(flipped(flipped(data, bit), bit) == data != flipped(data, bit) for bit in range(len(data) * 8))


@pytest.mark.parametrize(
    "name",
    [
        "set-aside",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("markers", "tail-cut", "derived", "leftovers")
        ),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_never_taken_for_a_good_one(name: str, kind: str) -> None:
    with placed(build(name)) as site:
        tried = KINDS[kind](site, 0, SAMPLES[kind])
    assert [(wrong.what, wrong.why, wrong.case) for wrong in tried.wrong] == []
    # There is nothing to exchange where only one file is made.
    assert tried.cases or kind == "exchanged" or (name, kind) == ("set-aside", "staged")


@pytest.mark.parametrize(
    ("name", "bit"),
    [("keys", 20193), ("keys-and-others", 10096)],
    ids=["second of two groups, all but a snapshot out", "a group behind files, its swap pending"],
)
def test_damaged_last_record_of_a_half_done_change_is_neither_dropped_nor_taken_for_done(
    name: str, bit: int
) -> None:
    with placed(build(name)) as site:
        tried = journal_bits(site, 0, 1, only=bit, moment="half-applied")
    assert [(wrong.what, wrong.why, wrong.case) for wrong in tried.wrong] == []
    assert tried.cases == 2
