"""The census of ``__consumer_offsets`` by windows counts what the walk record by record counts."""

from __future__ import annotations

import random
import socket
import struct
from pathlib import Path

import numpy as np
import pytest

from krepair.pipeline.compaction import census as key_census
from krepair.pipeline.compaction.census import CensusItem, CensusResult, take_census
from krepair.pipeline.compaction.items import CompactItem, OffsetFile
from krepair.pipeline.items import Place
from tests import builders
from tests.builders import NOW_MS, Batch, Record
from tests.compaction import twin
from tests.old_messages import plain


def record(chance: random.Random) -> Record:
    """A commit, metadata of a group, a key that is too short or unknown, or none."""
    name = b"group-%d" % chance.randrange(3000) + b"-" * chance.choice([0, 0, 1, 9, 40])
    value = None if chance.random() < 0.2 else bytes(chance.randrange(200))
    kind = chance.random()
    if kind < 0.05:
        return Record(None, value)
    if kind < 0.1:
        return Record(chance.randbytes(chance.randrange(6)), value)
    version = chance.choice([0, 1, 1, 1, 2, 70])
    return Record(struct.pack(">hh", version, len(name) + chance.choice([0, 0, 0, 500])) + name, value)


def log_of(chance: random.Random, other: str, *, transactions: bool = True) -> tuple[bytes, int]:
    """Some thousand records, with transactions and markers; and, if asked, something that is no plain v2 batch."""
    offset, batches = 0, []
    for number in range(900):
        count = chance.choice([1, 1, 1, 2, 7])
        batch: Batch
        if transactions and chance.random() < 0.1:
            batch = builders.commit(offset, pid=5)
        elif number == 500 and other == "old":
            batch = plain(offset)
        elif number == 500 and other == "large":
            batch = builders.data(offset, [Record(b"\0\1\0\1g", bytes(2 << 20))])
        else:
            txn = transactions and chance.random() < 0.3
            batch = builders.data(
                offset,
                [record(chance) for _ in range(count)],
                pid=chance.randrange(3) if txn else -1,
                txn=txn,
            )
        raw = batch.raw
        if number in {300, 301} and other == "packed":
            raw = bytes(twin.packed(builders.encode(offset, [record(chance), record(chance)]), 3))
            batches.append(raw)
            offset += 2
            continue
        batches.append(raw)
        offset = batch.last_offset + 1
    return b"".join(batches), offset


@pytest.mark.parametrize("other", ["", "old", "large", "packed"])
@pytest.mark.parametrize("seed", range(4))
def test_windows_count_what_the_walk_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, other: str
) -> None:
    chance = random.Random(f"{seed} {other}")
    log, end = log_of(chance, other)
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(log)
    stays = np.array(sorted(chance.sample(range(end), end // 3)), np.int64)
    aborted = np.array([[1, 100, 300], [2, 50, 900]], np.int64)
    item = CensusItem(
        place=Place(
            host=socket.gethostname(),
            log_dir=str(tmp_path),
            log_dir_inode=tmp_path.stat().st_ino,
            folder=folder.name,
        ),
        segments=(),
    )
    segment = CompactItem(
        place=item.place, base_offset=0, next_base=end, size=len(log), now_ms=NOW_MS, high_watermark=end,
        protected=(), drop_unstamped=bool(seed % 2), aborted=aborted.tobytes(),
        stays=(OffsetFile(data=stays.tobytes()),), forced=int(stays[5]) + 1, keyless=True,
    )  # fmt: skip
    item = CensusItem(place=item.place, segments=(segment,))

    def census() -> CensusResult:
        found = take_census(item)
        assert found.failure == ""
        return found

    by_windows = census()
    monkeypatch.setattr(key_census, "_front", lambda *_: 0)
    by_records = census()
    assert sum(kind.records for kind in by_windows.kinds) > 1000
    assert by_windows == by_records
