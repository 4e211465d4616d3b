"""A decision that forgets another replica, in the plan and again in apply, is found by the third reading of apply."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from krepair.errors import ExitCode
from krepair.fixes import compact, compact_staging
from krepair.replicas.evidence_check import _Intervals, _with_before
from tests.compaction.directories import Verbs
from tests.ops.replicas_read import FIXES, broker, cleaned, forgotten, value, verbs, whole

pytestmark = pytest.mark.replicas


def refused(run: Verbs, root: Path, why: str) -> None:
    plan = run.plan()
    before = {path.name: path.read_bytes() for path in (root / "b1" / "t-0").glob("*.log")}
    (result,) = run.apply(plan).results
    assert result.exit_code == ExitCode.VERIFY_FAILED, result
    assert why in result.why
    assert {path.name: path.read_bytes() for path in (root / "b1" / "t-0").glob("*.log")} == before


@pytest.mark.parametrize("fix", FIXES)
def test_a_marker_that_another_replica_needs_is_missed(
    fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker(tmp_path, 1, cleaned())
    behind = [batch for batch in whole() if batch.base_offset in {1, 2, 3, 5, 6, 7}]
    file = broker(tmp_path, 2, behind)
    forgotten(monkeypatch)
    run = verbs(tmp_path, fix, f"2={file}", replicas="1,2")
    refused(run, tmp_path, "the marker at offset 2 is gone, but a batch of its transaction (producer 7)")


def test_a_tombstone_that_another_replica_needs_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker(tmp_path, 1, [*cleaned()[:-1], value(7, "end")])
    broker(tmp_path, 2, [value(0, "gone"), *cleaned(tombstone=False)])
    for module in (compact, compact_staging):
        monkeypatch.setattr(module, "rows_elsewhere", lambda *_: ())
    run = verbs(tmp_path, "compact", f"2={tmp_path}/b2", replicas="1,2")
    refused(run, tmp_path, "the tombstone at offset 3 is gone, but an older record of its key stays")


# -- the pieces, against a slow twin


@pytest.mark.parametrize("seed", range(30))
def test_what_is_needed_is_what_a_slow_twin_finds(seed: int) -> None:
    chance = np.random.default_rng(seed)
    markers = [(int(chance.integers(4)), offset) for offset in range(100) if chance.random() < 0.3]
    before: dict[int, int] = {}
    pieces = []
    for first in range(0, len(markers), 7):
        part = np.array(markers[first : first + 7], np.int64).reshape(-1, 2)
        pieces.append(_with_before(part, before))
    rows = np.concatenate(pieces)
    twin = []
    for place, (producer, marker) in enumerate(markers):
        earlier = [offset for other_one, offset in markers[:place] if other_one == producer]
        twin.append((producer, max(earlier, default=-1), marker))
    assert rows.tolist() == [list(row) for row in twin]
    gone = rows[chance.random(len(rows)) < 0.5]
    if not len(gone):
        return
    for _ in range(40):
        producer, first = int(chance.integers(6)), int(chance.integers(110))
        last = first + int(chance.integers(3)) * int(chance.integers(20))
        one = [np.array([number], np.int64) for number in (producer, first, last)]
        needed = any(
            pid == producer and first < marker and last > before_it
            for pid, before_it, marker in gone.tolist()
        )
        assert bool(_Intervals(gone).needed(*one)) == needed, (producer, first, last)
