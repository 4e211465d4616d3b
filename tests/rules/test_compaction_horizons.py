"""How many tombstones go with each choice of the delete horizon, and their bytes."""

from __future__ import annotations

import random
from dataclasses import replace

from krepair.rules.compaction import RecordTally, tombstone_horizons
from krepair.rules.model import SpanDecision
from tests.builders import NOW_MS
from tests.rules.facts import POLICY, facts

TALLY = RecordTally(
    unstamped=3, unstamped_bytes=300, stamp_past=2, stamp_past_bytes=20, stamp_to_come=5, tombstones_kept=4
)


def test_what_goes_with_a_horizon_is_counted_with_its_bytes() -> None:
    segments = [facts(0, mtime_ms=NOW_MS - 5000), facts(10, mtime_ms=NOW_MS - 1000), facts(20)]
    span = SpanDecision(0, 20, 2, "", "")
    found = {one.name: one for one in tombstone_horizons(segments, [TALLY, TALLY], span, POLICY)}
    assert found.keys() >= {"unlimited", "none"}
    assert (found["unlimited"].dropped, found["unlimited"].dropped_bytes) == (10, 640)
    assert found["unlimited"].horizon_ms == 2**63 - 1
    assert (found["none"].dropped, found["none"].dropped_bytes) == (0, 0)
    for one in found.values():
        assert one.dropped + one.kept == 20


def test_of_any_tallies_bytes_go_with_their_tombstones() -> None:
    chance = random.Random(5)
    for _ in range(50):
        tallies = [
            replace(
                TALLY,
                unstamped=(n := chance.randrange(9)),
                unstamped_bytes=7 * n,
                stamp_past=(m := chance.randrange(9)),
                stamp_past_bytes=7 * m,
            )
            for _ in range(3)
        ]
        segments = [facts(10 * place, mtime_ms=NOW_MS - chance.randrange(10**6)) for place in range(4)]
        for one in tombstone_horizons(segments, tallies, SpanDecision(0, 30, 3, "", ""), POLICY):
            assert one.dropped_bytes == 7 * one.dropped, one
