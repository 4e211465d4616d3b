"""Transactions of other replicas are kept in scratch files, because they may take a third of those logs' size."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from krepair.durable import scratch
from krepair.engine.engine import InlineEngine
from krepair.engine.items import Failed, LogsItem, Place
from krepair.formats.arrays import Int64s
from krepair.replicas import headers as reading
from krepair.replicas import items
from krepair.replicas.headers import find_markers_to_keep, read_headers_of_all
from krepair.replicas.items import ReplicaItem
from krepair.rules.replicas.replica import ReplicaHeaders
from tests.builders import Batch, LogDir, abort, commit, data, emptied


def history(seed: int) -> list[list[Batch]]:
    """Segments of transactions of some producers, some with emptied batches, some without their marker."""
    chance = random.Random(seed)
    offset, segments = 0, []
    for _ in range(4):
        batches = []
        for _ in range(30):
            producer = chance.randrange(4)
            make = chance.choice([partial(data, txn=True), emptied, commit, commit, abort])
            batches.append(make(offset, pid=producer))
            offset = batches[-1].last_offset + 1
        segments.append(batches)
    return segments


def written(root: Path, segments: list[list[Batch]]) -> tuple[Place, tuple[tuple[int, int], ...]]:
    partition = LogDir(root).partition("t")
    for batches in segments:
        partition.segment(*batches)
    folder = partition.write()
    logs = sorted(folder.glob("*.log"))
    place = Place(host="", log_dir=str(root), log_dir_inode=root.stat().st_ino, folder=folder.name)
    return place, tuple((int(log.stem), log.stat().st_size) for log in logs)


def kept(root: Path, seed: int, scratch: str) -> tuple[list[ReplicaHeaders], Int64s]:
    """The headers of two other replicas, each without some batches, and the markers of this one that stay for them."""
    whole = history(seed)
    chance = random.Random(seed)
    sides = [
        [[one for one in batches if chance.random() < 0.7] or batches[:1] for batches in whole]
        for _ in range(2)
    ]
    (mine, segments), *others = [written(root / str(n), side) for n, side in enumerate([whole, *sides])]
    asked = [
        ReplicaItem(place=place, segments=logs, evidence=True, scratch=scratch) for place, logs in others
    ]
    engine = InlineEngine("")
    headers = [found for _, found in sorted(read_headers_of_all(engine, asked), key=lambda one: one[0])]
    item = LogsItem(place=mine, segments=segments), tuple(one.runs for one in headers)
    [(_, found)] = engine.map(find_markers_to_keep, [item])
    assert not isinstance(found, Failed), found
    return headers, found


@pytest.mark.parametrize("seed", range(12))
def test_the_same_markers_stay_where_runs_lie_in_scratch_files_in_parts_and_pieces(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers, at_once = kept(tmp_path / "memory", seed, "")
    assert not any(runs.path for one in headers for runs in one.runs)
    monkeypatch.setattr(scratch, "_INLINE", 0)
    monkeypatch.setattr(reading, "_PIECE", 3)
    monkeypatch.setattr(items, "_PART_BYTES", 1)
    (tmp_path / "scratch").mkdir()
    headers, in_pieces = kept(tmp_path / "files", seed, str(tmp_path / "scratch"))
    assert len(at_once)
    np.testing.assert_array_equal(in_pieces, at_once)
    for one in headers:
        assert len(one.runs) == 4
        assert all(runs.path.startswith(str(tmp_path / "scratch")) and not runs.data for runs in one.runs)


def test_a_result_does_not_grow_with_the_transactions_that_were_committed(tmp_path: Path) -> None:
    batches = [one for n in range(0, 10_000, 2) for one in (emptied(n, pid=7), commit(n + 1, pid=7))]
    place, logs = written(tmp_path / "logs", [batches])
    (tmp_path / "scratch").mkdir()
    item = ReplicaItem(place=place, segments=logs, evidence=True, scratch=str(tmp_path / "scratch"))
    [(_, headers)] = read_headers_of_all(InlineEngine(""), [item])
    [runs] = headers.runs
    assert len(runs.rows) == 5_000
    assert (runs.data, len(headers.transactions) < 1000) == (b"", True)
