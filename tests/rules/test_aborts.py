"""The scan alone shows that a log has no aborted transaction; such a log is not replayed."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.engine.engine import InlineEngine
from krepair.engine.items import bytes_to_read
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.options import EngineName, Options
from krepair.rewrite.indexes.transactions import replayed
from krepair.rules.aborts import may_be_untrue, may_have_aborts
from tests import builders
from tests.builders import Batch, abort, commit, data, emptied, joined
from tests.kernels.scanning import scan_bytes
from tests.strategies import History, histories

BASE = 100


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(histories(), histories(aborted_data=False), histories(emptied=True)),
    st.randoms(use_true_random=False),
)
def test_where_the_scan_sees_no_abort_a_replay_finds_none(history: History, chance: random.Random) -> None:
    few = chance.random() < 0.5
    with tempfile.TemporaryDirectory() as room:
        segments, summaries = [], []
        for base_offset, batches, _ in history.segments:
            left = [one for one in batches if not (few and one.control and chance.random() < 0.9)]
            log = joined(left)
            path = Path(room) / f"{base_offset:020d}.log"
            path.write_bytes(log)
            segments.append((base_offset, len(log)))
            summaries.append(scan_bytes(log, base_offset))
        for summary, found in zip(summaries, replayed(room, segments), strict=True):
            entries = [one for one in found.entries if one.first_offset != one.last_offset]
            assert may_have_aborts(summary) or not entries


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([data(100, 2, pid=7, txn=True), commit(102, pid=7), commit(103, pid=8)], False),
        ([commit(100, pid=7), abort(101, pid=7)], False),  # nothing was open, as the log shows
        ([commit(100, pid=7), data(101, 1, pid=7, txn=True), abort(102, pid=7)], True),
        ([abort(100, pid=7)], True),  # its transaction may begin in the segment before
        ([commit(100, pid=7), emptied(101, 102, pid=7, txn=True), abort(103, pid=7)], True),
        ([data(100, 2)], False),
    ],
)
def test_what_a_scan_tells(batches: list[Batch], expected: bool) -> None:
    assert may_have_aborts(scan_bytes(joined(batches), BASE)) is expected


def test_a_damaged_log_may_hold_an_abort_behind_its_damage() -> None:
    log = bytearray(joined([commit(100, pid=7), commit(101, pid=7), commit(102, pid=7)]))
    assert not may_have_aborts(scan_bytes(bytes(log), BASE))
    log[100] ^= 1
    assert may_have_aborts(scan_bytes(bytes(log), BASE))


@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("aborted", [False, True])
def test_an_index_may_be_untrue_where_one_has_an_entry_or_a_segment_may_have_an_abort(
    entries: bool, aborted: bool
) -> None:
    plain = scan_bytes(joined([data(100, 2)]), BASE)
    second = scan_bytes(joined([abort(100, pid=7)]), BASE) if aborted else plain
    assert may_be_untrue(entries=entries, summaries=(plain, second)) == (entries or aborted)


@pytest.mark.parametrize(("aborted", "readings"), [(False, 1), (True, 2)])
@pytest.mark.parametrize("verb", ["plan", "check"])
def test_markers_are_read_once_where_nothing_was_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, aborted: bool, readings: int
) -> None:
    root = tmp_path / "logs"
    directory = builders.LogDir(root)
    partition = directory.partition("__consumer_offsets")
    for base in (0, 100):
        batches = [data(base, 1, pid=7, txn=True)]
        batches += [
            (abort if aborted and n == 1 else commit)(base + n, pid=7 if n % 2 else 8) for n in range(1, 40)
        ]
        partition.segment(*batches)
    directory.write()
    if verb == "plan":
        (root / ".kafka_cleanshutdown").unlink()
        (root / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    read: dict[str, int] = {}
    run = InlineEngine.map

    def counted(self: InlineEngine, function: Any, items: Any) -> Any:
        read[function.__name__] = read.get(function.__name__, 0) + sum(map(bytes_to_read, items))
        return run(self, function, items)

    monkeypatch.setattr(InlineEngine, "map", counted)
    options = Options(engine=EngineName.INLINE, now_ms=builders.NOW_MS, only_replica=("*",))
    if verb == "plan":
        make_plan(str(root), replace(options, fixes=("recovery",), broker_version="3.9.2"))
    else:
        check([str(root)], options)
    logs = sum(path.stat().st_size for path in root.glob("*/*.log"))
    assert read.get("inspect_txn", 0) == (readings - 1) * logs
    if verb == "plan":
        assert sum(read.values()) == readings * logs
