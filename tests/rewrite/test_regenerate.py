"""Companions made anew from the log, held against those that live brokers wrote and against plain code."""

from __future__ import annotations

import random
from operator import ne
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.formats import txn_index
from krepair.formats.txn_index import AbortedTxn
from krepair.rewrite.indexes.transactions import TxnSegment, regenerate_txn
from krepair.scan.segment_files import regenerate_offset_and_time
from tests import builders
from tests.builders import Batch
from tests.fixture_dirs import unpack
from tests.kernels.twins import index_entries
from tests.old_messages import mixed_logs


def segments_of(folder: Path, *, on_disk: bool = False) -> list[TxnSegment]:
    """All segments of a folder, with what their ``.txnindex`` says if wanted."""
    return [
        TxnSegment(
            str(log),
            log.stat().st_size,
            int(log.stem),
            read(log.with_suffix(".txnindex")) if on_disk else b"",
        )
        for log in sorted(folder.glob("*.log"))
    ]


def read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def partitions(logs: Path) -> list[Path]:
    return sorted(path for path in logs.iterdir() if list(path.glob("*.log")))


@settings(max_examples=40, deadline=None)
@given(mixed_logs(3), st.sampled_from([0, 60, 300, 4096]))
def test_bytes_are_those_of_the_twin_for_any_mix_of_formats(
    tmp_path_factory: pytest.TempPathFactory, batches: list[Batch], interval: int
) -> None:
    path = tmp_path_factory.mktemp("mixed") / "00000000000000000003.log"
    content = b"".join(batch.raw for batch in batches)
    path.write_bytes(content)
    offsets, times = index_entries(content, interval)
    found = regenerate_offset_and_time(str(path), len(content), 3, interval)
    assert found.index == b"".join(
        (offset - 3).to_bytes(4, "big") + position.to_bytes(4, "big") for offset, position in offsets
    )
    assert found.time_index == b"".join(
        time.to_bytes(8, "big") + (offset - 3).to_bytes(4, "big") for time, offset in times
    )
    assert (found.valid_bytes, found.damage_text, found.batches) == (len(content), "", len(batches))
    assert found.last_offset == batches[-1].last_offset


def test_damage_is_a_value_with_the_indexes_of_what_is_before_it(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    good = b"".join(builders.data(n, 1).raw for n in range(100))
    path.write_bytes(good + bytes(1000))
    found = regenerate_offset_and_time(str(path), len(good) + 1000, 0, 500)
    path.write_bytes(good)
    whole = regenerate_offset_and_time(str(path), len(good), 0, 500)
    assert (found.index, found.time_index, found.valid_bytes) == (whole.index, whole.time_index, len(good))
    assert found.damage_text == "a batch was expected, found zero bytes"


def test_entries_of_a_live_broker_are_found_again_in_a_log_that_was_not_compacted(tmp_path: Path) -> None:
    """2.2.1 wrote them as the markers came; it also has entries for abort markers without data."""
    entries = 0
    for folder in partitions(unpack("compact-2.2.1-before", tmp_path)):
        for segment, found in zip(
            segments_of(folder, on_disk=True),
            regenerate_txn(segments_of(folder), empty_markers=True),
            strict=True,
        ):
            assert txn_index.decode(found.txn_index) == txn_index.decode(segment.on_disk), folder.name
            assert (found.compacted, found.valid_bytes) == (False, segment.size)
            entries += len(segment.on_disk)
    assert entries > 0


def test_entries_that_a_cleaner_carried_are_kept_where_the_log_cannot_tell_them_again(tmp_path: Path) -> None:
    carried = 0
    for folder in partitions(unpack("compact-2.2.1-after-2.2.1", tmp_path)):
        segments = segments_of(folder, on_disk=True)
        by_logs = regenerate_txn(segments_of(folder))
        for segment, found, alone in zip(segments, regenerate_txn(segments), by_logs, strict=True):
            rebuilt = txn_index.decode(alone.txn_index)
            with_data = {(entry.producer_id, entry.last_offset) for entry in rebuilt}
            expected = [
                entry
                for entry in txn_index.decode(segment.on_disk)
                if (entry.producer_id, entry.last_offset) in with_data
            ]
            kept = [entry for entry in txn_index.decode(found.txn_index) if entry in expected]
            assert kept == expected, folder.name
            carried += sum(map(ne, txn_index.decode(found.txn_index), rebuilt))
    assert carried > 0


def compacted(tmp_path: Path, on_disk: tuple[AbortedTxn, ...]) -> AbortedTxn:
    """A log whose first batches of an aborted transaction are gone: the entry that is made for it."""
    path = tmp_path / "00000000000000000000.log"
    batches = [
        builders.data(0, 1, pid=7, txn=True),
        builders.commit(1, pid=7),
        builders.data(20, 1, pid=7, txn=True),
        builders.abort(30, pid=7),
    ]
    content = b"".join(batch.raw for batch in batches)
    path.write_bytes(content)
    made = regenerate_txn([TxnSegment(str(path), len(content), 0, txn_index.encode(on_disk))])[0]
    assert made.compacted
    return txn_index.decode(made.txn_index)[0]


REBUILT = AbortedTxn(0, 7, 20, 30, 31)


@pytest.mark.parametrize(
    ("entry", "kept"),
    [
        (AbortedTxn(0, 7, 10, 30, 12), True),
        (AbortedTxn(0, 7, 2, 30, 31), True),
        (AbortedTxn(0, 7, 1, 30, 31), False),
        (AbortedTxn(0, 7, 21, 30, 31), False),
        (AbortedTxn(0, 7, 10, 30, 32), False),
        (AbortedTxn(0, 7, 10, 30, -1), False),
        (AbortedTxn(1, 7, 10, 30, 12), False),
        (AbortedTxn(0, 8, 10, 30, 12), False),
        (AbortedTxn(0, 7, 10, 29, 12), False),
    ],
    ids=[
        "before the batches left",
        "right after the marker before",
        "at the marker before",
        "after the first batch left",
        "stable past the marker",
        "negative stable offset",
        "another version",
        "another producer",
        "another marker",
    ],
)
def test_an_entry_on_disk_is_kept_only_if_it_agrees_with_the_log(
    tmp_path: Path, entry: AbortedTxn, kept: bool
) -> None:
    assert compacted(tmp_path, (entry,)) == (entry if kept else REBUILT)


@pytest.mark.parametrize("seed", range(5))
def test_where_nothing_is_missing_what_is_on_disk_is_not_believed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    makers = [lambda offset, pid: builders.data(offset, 1, pid=pid, txn=True)] * 2 + [
        lambda offset, pid: builders.abort(offset, pid=pid),
        lambda offset, pid: builders.commit(offset, pid=pid),
    ]
    content = b"".join(chance.choice(makers)(offset, chance.randint(1, 3)).raw for offset in range(200))
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(content)
    true = regenerate_txn([TxnSegment(str(path), len(content), 0)])[0]
    entries = txn_index.decode(true.txn_index)
    lies = txn_index.encode(entry._replace(last_stable_offset=0) for entry in entries)
    again = regenerate_txn([TxnSegment(str(path), len(content), 0, lies)])[0]
    assert len(entries) > 5
    assert (again.txn_index, again.compacted) == (true.txn_index, False)


def test_up_to_2_7_abort_markers_without_data_have_entries_too(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    batches = [builders.data(0, 1, pid=1, txn=True), builders.abort(1, pid=2), builders.abort(2, pid=1)]
    content = b"".join(batch.raw for batch in batches)
    path.write_bytes(content)
    segment = TxnSegment(str(path), len(content), 0)
    since_2_8 = txn_index.decode(regenerate_txn([segment])[0].txn_index)
    up_to_2_7 = txn_index.decode(regenerate_txn([segment], empty_markers=True)[0].txn_index)
    assert since_2_8 == (AbortedTxn(0, 1, 0, 2, 3),)
    assert up_to_2_7 == (AbortedTxn(0, 2, 1, 1, 0), AbortedTxn(0, 1, 0, 2, 3))
