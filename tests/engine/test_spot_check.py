"""Index entries looked up in the log: certain only if everything is as brokers write it; never a verdict."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from krepair.scan.segment_files import SpotCheck
from tests import builders, old_messages

Entries = list[tuple[int, int]]
BATCHES = [
    builders.data(0, 11, timestamp=100),
    builders.data(20, 6, timestamp=120),
    builders.data(26, 4, timestamp=110),
]
PLACES = [0, *np.cumsum([len(batch.raw) for batch in BATCHES]).tolist()]


def look(path: Path, offsets: Entries, times: Entries, log: bytes = b"") -> SpotCheck:
    path.write_bytes(log or b"".join(batch.raw for batch in BATCHES))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        columns = [np.array(entries, np.int64).reshape(-1, 2) for entries in (offsets, times)]
        return SpotCheck(descriptor, path.stat().st_size, *columns)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("offsets", "times"),
    [
        ([], [(100, 10), (120, 25)]),
        ([(25, PLACES[1]), (29, PLACES[2])], [(100, 10), (120, 25)]),
        ([(20, PLACES[1])], [(100, 0)]),
        ([(15, PLACES[1])], []),  # of offsets that compaction took away
        ([(11, PLACES[1]), (29, PLACES[2])], []),
        ([(9, 0), (15, PLACES[1])], []),
    ],
)
def test_what_brokers_write_is_certain(tmp_path: Path, offsets: Entries, times: Entries) -> None:
    assert look(tmp_path / "log", offsets, times).certain


@pytest.mark.parametrize(
    ("offsets", "times"),
    [
        ([(10, PLACES[1])], []),  # the batch before ends there
        ([(15, PLACES[1] + 1)], []),
        ([(25, PLACES[1] - 1)], []),
        ([(29, PLACES[3])], []),
        ([(30, PLACES[2])], []),  # past the last offset
        ([(10, PLACES[1]), (29, PLACES[2])], []),
        ([], [(101, 10)]),
        ([], [(130, 30)]),
    ],
)
def test_anything_else_needs_the_whole_log(tmp_path: Path, offsets: Entries, times: Entries) -> None:
    assert not look(tmp_path / "log", offsets, times).certain


def test_wrapper_of_old_messages_names_its_last_one_and_is_certain(tmp_path: Path) -> None:
    batches = [old_messages.plain(0, timestamp=50), old_messages.wrapper(1, [60, 60, 60])]
    log, place = b"".join(batch.raw for batch in batches), len(batches[0].raw)
    assert look(tmp_path / "log", [(1, place)], [(60, 3)], log).certain
    assert not look(tmp_path / "log", [(0, place)], [(60, 3)], log).certain
