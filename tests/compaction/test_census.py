"""The census of ``__consumer_offsets`` by windows counts what the walk record by record counts."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from krepair.kernels.key_census import GROUP_COLUMNS
from krepair.pipeline.compaction import census as key_census
from krepair.pipeline.compaction.census import CensusItem, CensusResult, census_of, take_census
from krepair.pipeline.compaction.items import CompactItem, OffsetFile, SegmentCensus
from krepair.pipeline.compaction.tasks import compact
from krepair.pipeline.items import Place
from tests import builders
from tests.builders import NOW_MS, Batch, Record
from tests.compaction import twin
from tests.old_messages import plain


def record(chance: random.Random, *, keyless: bool = True) -> Record:
    """A commit, metadata of a group, a key that is too short or unknown, or none."""
    name = b"group-%d" % chance.randrange(3000) + b"-" * chance.choice([0, 0, 1, 9, 40])
    value = None if chance.random() < 0.2 else bytes(chance.randrange(200))
    kind = chance.random()
    if kind < 0.05 and keyless:
        return Record(None, value)
    if kind < 0.1:
        return Record(chance.randbytes(chance.randrange(6)), value)
    version = chance.choice([0, 1, 1, 1, 2, 70])
    return Record(struct.pack(">hh", version, len(name) + chance.choice([0, 0, 0, 500])) + name, value)


def log_of(
    chance: random.Random, other: str, offset: int = 0, *, transactions: bool = True, keyless: bool = True
) -> tuple[bytes, int]:
    """Some thousand records, with transactions and markers; and, if asked, something that is no plain v2 batch."""
    batches: list[bytes] = []
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
                [record(chance, keyless=keyless) for _ in range(count)],
                pid=chance.randrange(3) if txn else -1,
                txn=txn,
            )
        raw = batch.raw
        if number in {300, 301} and other == "packed":
            raw = bytes(
                twin.packed(builders.encode(offset, [record(chance, keyless=keyless) for _ in range(2)]), 3)
            )
            batches.append(raw)
            offset += 2
            continue
        batches.append(raw)
        offset = batch.last_offset + 1
    return b"".join(batches), offset


def items_of(folder: Path, chance: random.Random, others: Sequence[str]) -> CensusItem:
    """A partition with one segment for each of ``others``."""
    folder.mkdir()
    place = Place(
        host=socket.gethostname(),
        log_dir=str(folder.parent),
        log_dir_inode=folder.parent.stat().st_ino,
        folder=folder.name,
    )
    segments, begun = [], 0
    for other in others:
        log, end = log_of(chance, other, begun)
        (folder / f"{begun:020d}.log").write_bytes(log)
        stays = np.array(sorted(chance.sample(range(begun, end), (end - begun) // 3)), np.int64)
        aborted = np.array([[1, begun + 100, begun + 300], [2, begun + 50, begun + 900]], np.int64)
        segments.append(CompactItem(
            place=place, base_offset=begun, next_base=end, size=len(log), now_ms=NOW_MS, high_watermark=end,
            protected=(), drop_unstamped=chance.random() < 0.5, aborted=aborted.tobytes(),
            stays=(OffsetFile(data=stays.tobytes()),), forced=int(stays[5]) + 1, keyless=True,
        ))  # fmt: skip
        begun = end
    return CensusItem(place=place, segments=tuple(segments))


def census(item: CensusItem) -> CensusResult:
    """By the task that reads the segments for nothing else."""
    found = take_census(item)
    assert found.failure == ""
    assert sum(kind.records for kind in found.kinds) > 1000
    return found


def counted(segment: CompactItem, most_groups: int) -> SegmentCensus | None:
    """In the reading that finds the exact size."""
    found = compact(replace(segment, most_groups=most_groups))
    assert (found.failure, found.problem) == ("", "")
    assert replace(found, census=None) == compact(segment)
    return found.census


@pytest.mark.parametrize("other", ["", "old", "large", "packed"])
@pytest.mark.parametrize("seed", range(4))
def test_windows_count_what_the_walk_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, other: str
) -> None:
    item = items_of(tmp_path / "__consumer_offsets-0", random.Random(f"{seed} {other}"), [other])
    by_windows = census(item)
    monkeypatch.setattr(key_census, "_front", lambda *_: 0)
    assert by_windows == census(item)


def test_the_reading_for_the_exact_size_counts_what_the_census_counts(tmp_path: Path) -> None:
    others = ["", "old", "large", "packed", ""]
    item = items_of(tmp_path / "__consumer_offsets-0", random.Random(1), others)
    parts = [counted(segment, 1 << 20) for segment in item.segments]
    assert census_of([part for part in parts if part is not None]) == census(item)


def test_a_segment_with_more_groups_than_may_travel_is_not_counted_in_that_reading(tmp_path: Path) -> None:
    item = items_of(tmp_path / "__consumer_offsets-0", random.Random(2), ["", "old"])
    for segment in item.segments:
        part = counted(segment, 1 << 20)
        assert part is not None
        groups = len(part.groups) // (8 * GROUP_COLUMNS)
        assert counted(segment, groups) == part
        assert counted(segment, groups - 1) is None
