"""Indexes and other files rebuilt from the log equal those of running brokers, and those of plain code."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.engine.items import LogsItem
from krepair.formats import txn_index
from krepair.formats.txn_index import AbortedTxn
from krepair.rewrite.indexes.transactions import TxnResult, inspect_txn, replayed
from krepair.scan.segment_files import rebuild_offset_and_time
from tests import builders
from tests.builders import Batch
from tests.fixture_dirs import unpack
from tests.old_messages import mixed_logs
from tests.places import place_of


def sizes_of(folder: Path) -> list[tuple[int, int]]:
    """(base offset, size of the log) of all segments of a folder."""
    return [(int(log.stem), log.stat().st_size) for log in sorted(folder.glob("*.log"))]


def looked_at(folder: Path) -> TxnResult:
    """What a replay has against the ``.txnindex`` files of a folder, and the true bytes of each."""
    sizes = sizes_of(folder)
    bases = tuple(base for base, _ in sizes)
    place = place_of(folder)
    result = inspect_txn(LogsItem(place=place, segments=tuple(sizes)), bases)
    assert isinstance(result, TxnResult)
    return result


def read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def partitions(logs: Path) -> list[Path]:
    return sorted(path for path in logs.iterdir() if list(path.glob("*.log")))


@settings(max_examples=40, deadline=None)
@given(mixed_logs(3), st.sampled_from([0, 60, 300, 4096]))
def test_indexes_are_those_of_a_brokers_recovery_for_any_mix_of_formats(
    tmp_path_factory: pytest.TempPathFactory, batches: list[Batch], interval: int
) -> None:
    path = tmp_path_factory.mktemp("mixed") / "00000000000000000003.log"
    content = b"".join(batch.raw for batch in batches)
    path.write_bytes(content)
    found = rebuild_offset_and_time(str(path), len(content), 3, interval)
    assert (found.index, found.time_index) == builders.indexes(3, batches, interval)
    assert (found.valid_bytes, found.damage_text, found.batches) == (len(content), "", len(batches))
    assert found.last_offset == batches[-1].last_offset


def test_damage_is_a_value_with_the_indexes_of_what_is_before_it(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    good = b"".join(builders.data(n, 1).raw for n in range(100))
    path.write_bytes(good + bytes(1000))
    found = rebuild_offset_and_time(str(path), len(good) + 1000, 0, 500)
    path.write_bytes(good)
    whole = rebuild_offset_and_time(str(path), len(good), 0, 500)
    assert (found.index, found.time_index, found.valid_bytes) == (whole.index, whole.time_index, len(good))
    assert found.damage_text == "a batch was expected, found zero bytes"


def test_entries_of_a_live_broker_are_found_again_in_a_log_that_was_not_compacted(tmp_path: Path) -> None:
    """2.2.1 wrote them as the markers came; it also has entries for abort markers without data."""
    entries = 0
    for folder in partitions(unpack("compact-2.2.1-before", tmp_path)):
        for found in replayed(str(folder), sizes_of(folder)):
            on_disk = read(folder / f"{found.base_offset:020d}.txnindex")
            assert found.entries == txn_index.decode(on_disk), folder.name
            assert (found.compacted, found.valid_bytes) == (False, found.size)
            entries += len(on_disk)
    assert entries > 0


def test_entries_that_a_cleaner_carried_are_kept_where_the_log_cannot_tell_them_again(tmp_path: Path) -> None:
    carried = 0
    for folder in partitions(unpack("compact-2.2.1-after-2.2.1", tmp_path)):
        result = looked_at(folder)
        assert result.problems == (), folder.name
        for found in replayed(str(folder), sizes_of(folder)):
            on_disk = txn_index.decode(read(folder / f"{found.base_offset:020d}.txnindex"))
            assert txn_index.decode(result.made[found.base_offset]) == on_disk
            rebuilt = {(entry.producer_id, entry.last_offset): entry for entry in found.entries}
            carried += sum(entry != rebuilt[entry.producer_id, entry.last_offset] for entry in on_disk)
    assert carried > 0


def compacted(tmp_path: Path, on_disk: bytes, *batches: Batch) -> tuple[str, list[AbortedTxn]]:
    """A log from which batches are gone: what is said of its index, and the true one."""
    folder = tmp_path / "logs" / "f-t-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(b"".join(batch.raw for batch in batches))
    (folder / f"{0:020d}.txnindex").write_bytes(on_disk)
    result = looked_at(folder)
    return "; ".join(one.text for one in result.problems), list(txn_index.decode(result.made[0]))


WITHOUT_ITS_FRONT = (
    builders.data(0, 1, pid=7, txn=True),
    builders.commit(1, pid=7),
    builders.data(20, 1, pid=7, txn=True),
    builders.data(21, 9),
    builders.abort(30, pid=7),
)
EARLIER = AbortedTxn(0, 7, 10, 30, 12)
REBUILT = AbortedTxn(0, 7, 20, 30, 31)


@pytest.mark.parametrize(
    ("on_disk", "said", "true"),
    [
        (txn_index.encode([EARLIER]), "", EARLIER),
        (txn_index.encode([AbortedTxn(0, 8, 10, 30, 12)]), "producer 7 at 20", REBUILT),
        (txn_index.encode([AbortedTxn(0, 7, 10, 29, 12)]), "producer 7 at 20", REBUILT),
        (b"", "producer 7 at 20", REBUILT),
        (txn_index.encode([EARLIER]) + bytes(20), "expected a multiple of 34 bytes", REBUILT),
        (txn_index.encode([AbortedTxn(256, 7, 10, 30, 12)]), "expected version 0", REBUILT),
        (txn_index.encode([AbortedTxn(0, 7, 10, 30, -1)]), "expected last_stable_offset", REBUILT),
        (txn_index.encode([AbortedTxn(0, 7, 21, 30, 12)]), "at 21 to 30 (stable 12) is not 7 at 20", REBUILT),
        (txn_index.encode([AbortedTxn(0, 7, 1, 30, 12)]), "at 1 to 30 (stable 12) is not 7 at 20", REBUILT),
    ],
    ids=[
        "the cleaner's",
        "another producer",
        "another marker",
        "none",
        "a torn end",
        "another version",
        "negative stable offset",
        "begins behind a batch of it",
        "begins with the marker of the transaction before",
    ],
)
def test_an_entry_that_a_broker_can_have_written_stays_in_a_compacted_log_unless_the_file_is_damaged(
    tmp_path: Path, on_disk: bytes, said: str, true: AbortedTxn
) -> None:
    text, found = compacted(tmp_path, on_disk, *WITHOUT_ITS_FRONT)
    assert said in text
    assert bool(said) == bool(text)
    assert found == [true]


@pytest.mark.parametrize(
    ("between", "believed"),
    [
        ([], True),  # offset 1 is missing: a cleaner up to 2.2.1 has removed the commit marker there
        ([builders.emptied(1, pid=7, control=True)], True),  # or has emptied it
        ([builders.data(1, 1)], False),
    ],
)
def test_an_entry_that_begins_behind_a_batch_is_believed_where_a_marker_may_be_gone_in_between(
    tmp_path: Path, between: list[Batch], believed: bool
) -> None:
    begins_late = AbortedTxn(0, 7, 2, 3, 4)
    text, found = compacted(
        tmp_path,
        txn_index.encode([begins_late]),
        builders.data(0, 1, pid=7, txn=True),
        *between,
        builders.data(2, 1, pid=7, txn=True),
        builders.abort(3, pid=7),
        builders.data(9, 1),
    )
    assert (text == "", found == [begins_late]) == (believed, believed)


@pytest.mark.parametrize(
    ("begins", "opened", "stable", "believed"),
    [
        (3, 8, 2, True),
        (3, 8, 3, True),
        (3, 8, 4, False),
        (3, 7, 3, False),  # of the same producer: a broker leaves it out
        (2, 9, 3, False),  # another one begins before
    ],
)
def test_a_follower_says_where_the_next_transaction_of_another_producer_begins(
    tmp_path: Path, begins: int, opened: int, stable: int, believed: bool
) -> None:
    """It looks when all batches of an append are entered, and a leader when there is nothing behind the marker."""
    folder = tmp_path / "logs" / "f-t-0"
    folder.mkdir(parents=True)
    batches = [builders.data(0, 1, pid=7, txn=True), builders.abort(1, pid=7)]
    batches += [
        builders.data(offset, 1, **({"pid": opened, "txn": True} if offset == begins else {}))
        for offset in (2, 3)
    ]
    (folder / f"{0:020d}.log").write_bytes(b"".join(batch.raw for batch in batches))
    (folder / f"{0:020d}.txnindex").write_bytes(txn_index.encode([AbortedTxn(0, 7, 0, 1, stable)]))
    assert (looked_at(folder).problems == ()) is believed


@pytest.mark.parametrize(
    ("stable", "believed"), [(2, True), (6, True), (9, True), (10, False), (2**40, False)]
)
def test_a_last_stable_offset_past_its_segment_is_not_believed_of_a_compacted_log_either(
    tmp_path: Path, stable: int, believed: bool
) -> None:
    """A fetch looks at no entry behind it, so consumers would read what was aborted at 8."""
    directory = builders.LogDir(tmp_path / "logs")
    directory.partition("f-t").segment(
        builders.data(0, 1, pid=7, txn=True),
        builders.abort(5, pid=7),
        builders.data(6, 2, pid=7, txn=True),
        builders.abort(8, pid=7),
    ).segment(builders.data(9, 1))
    index = directory.write() / "f-t-0" / f"{0:020d}.txnindex"
    first, second = txn_index.decode(index.read_bytes())
    index.write_bytes(txn_index.encode([first._replace(last_stable_offset=stable), second]))
    found = looked_at(index.parent)
    assert (found.problems == ()) is believed
    assert found.made[0] == txn_index.encode(
        [first._replace(last_stable_offset=stable if believed else 6), second]
    )


@pytest.mark.parametrize("seed", range(5))
def test_where_nothing_is_missing_what_is_on_disk_is_not_believed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    makers = [lambda offset, pid: builders.data(offset, 1, pid=pid, txn=True)] * 2 + [
        lambda offset, pid: builders.abort(offset, pid=pid),
        lambda offset, pid: builders.commit(offset, pid=pid),
    ]
    folder = tmp_path / "logs" / "f-t-0"
    folder.mkdir(parents=True)
    log, index = folder / f"{0:020d}.log", folder / f"{0:020d}.txnindex"
    log.write_bytes(
        b"".join(chance.choice(makers)(offset, chance.randint(1, 3)).raw for offset in range(200))
    )
    true = looked_at(folder).made[0]
    entries = txn_index.decode(true)
    index.write_bytes(txn_index.encode(entry._replace(last_stable_offset=0) for entry in entries))
    again = looked_at(folder)
    assert len(entries) > 5
    assert (again.made[0], len(again.problems)) == (true, 1)


def test_abort_markers_without_data_have_entries_of_the_replay_that_are_neither_missed_nor_minded(
    tmp_path: Path,
) -> None:
    """Brokers up to 2.7 write them, later ones do not. Only with the marker's own offset they hide nothing."""
    folder = tmp_path / "logs" / "f-t-0"
    folder.mkdir(parents=True)
    batches = [builders.data(0, 1, pid=1, txn=True), builders.abort(1, pid=2), builders.abort(2, pid=1)]
    (folder / f"{0:020d}.log").write_bytes(b"".join(batch.raw for batch in batches))
    found = next(replayed(str(folder), sizes_of(folder))).entries
    assert found == (AbortedTxn(0, 2, 1, 1, 0), AbortedTxn(0, 1, 0, 2, 3))
    for entries in (found[1:], found):
        (folder / f"{0:020d}.txnindex").write_bytes(txn_index.encode(entries))
        assert looked_at(folder).problems == ()
        assert looked_at(folder).made[0] == txn_index.encode(entries)
    (folder / f"{0:020d}.txnindex").write_bytes(txn_index.encode([AbortedTxn(0, 2, 0, 1, 0), found[1]]))
    [problem] = looked_at(folder).problems
    assert problem.text == "2 at 0 to 1 (stable 0) is not 2 at 1 to 1 (stable 0)"
