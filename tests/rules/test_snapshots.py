"""Producer state at an offset against a replay batch by batch, and the snapshots that may stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.formats import producer_snapshot
from krepair.formats.arrays import Int64s
from krepair.formats.broker_version import Version
from krepair.formats.damage import Damage
from krepair.rules.snapshots import (
    KEEPS_BELOW_LOG_START,
    MARKERS_HAVE_TIMES,
    PRODUCER_ID_EXPIRATION,
    REMOVES_STRAYS,
    ProducerTable,
    SnapshotFacts,
    SnapshotFile,
    SnapshotReason,
    StateRules,
    expiry_of,
    judge_snapshots,
)
from tests.builders import NOW_MS, Batch, Replay, joined
from tests.kernels.scanning import scan_bytes
from tests.rules.facts import row, rows
from tests.strategies import History, histories

NEVER = 2**60
NONE = np.empty((0, 8), np.int64)
DAMAGED = Damage(0, 0, "10 bytes", "none")


def replayed(batches: list[Batch], replay: Replay | None = None) -> Replay:
    replay = replay or Replay()
    for batch in batches:
        replay.take(batch)
    return replay


def rows_from(history: History, start: int) -> list[Int64s]:
    """What the kernel says of each segment from an offset on."""
    found = []
    for base_offset, batches, _ in history.segments:
        before = [batch for batch in batches if batch.last_offset < start]
        if len(before) < len(batches):
            scanned = scan_bytes(joined(batches), base_offset, start_position=len(joined(before)))
            found.append(scanned.rows)
    return found


@settings(max_examples=300)
@given(histories(), st.data())
def test_state_is_that_of_a_replay_from_any_snapshot_or_none(history: History, draw: st.DataObject) -> None:
    batches = history.batches
    cut = draw.draw(st.integers(0, len(batches)))
    start = batches[cut].base_offset if cut < len(batches) else batches[-1].last_offset + 1
    loaded = producer_snapshot.table(replayed(batches[:cut]).snapshot())
    table = ProducerTable(loaded, rows_from(history, start), 0, StateRules(None, NOW_MS, NEVER))
    assert producer_snapshot.encode_table(table.entries()) == replayed(batches).snapshot()


@settings(max_examples=100)
@given(histories())
def test_before_2_4_1_the_time_is_that_of_the_last_data(history: History) -> None:
    table = ProducerTable(NONE, rows_from(history, 0), 0, StateRules((2, 2, 1), 0, NEVER)).entries()
    times: dict[int, tuple[int, int]] = {}
    for batch in history.batches:
        if batch.producer_id >= 0 and not batch.control:
            times[batch.producer_id] = (batch.epoch, batch.max_timestamp)
    epochs = {pid: producer.epoch for pid, producer in replayed(history.batches).producers.items()}
    expected = {
        pid: times[pid][1] if pid in times and times[pid][0] == epoch else -1 for pid, epoch in epochs.items()
    }
    assert {row[0]: row[5] for row in table.tolist()} == expected


def table_of(*rows: tuple[int, ...]) -> Int64s:
    return np.array(rows, np.int64).reshape(-1, 8)


@pytest.mark.parametrize(
    ("version", "stays"),
    [((2, 3, 1), [2]), ((2, 4, 0), [1, 2, 3]), ((4, 3, 1), [1, 2, 3]), (None, [1, 2, 3])],
)
def test_until_2_3_producers_below_the_log_start_are_forgotten_on_loading(
    version: Version, stays: list[int]
) -> None:
    loaded = table_of(
        (1, 0, 5, 99, 0, NOW_MS, -1, -1),
        (2, 0, 5, 100, 0, NOW_MS, -1, -1),
        (3, 0, -1, -1, 0, NOW_MS, 2, -1),
    )
    assert ProducerTable(loaded, [], 100, StateRules(version, NOW_MS, 1000)).entries()[:, 0].tolist() == stays


def test_producer_is_forgotten_at_its_expiry_unless_its_transaction_is_open() -> None:
    loaded = table_of(
        (1, 0, 5, 9, 0, NOW_MS - 1000, -1, -1),
        (2, 0, 5, 9, 0, NOW_MS - 999, -1, -1),
        (3, 0, 5, 9, 0, 0, -1, 9),
    )
    assert ProducerTable(loaded, [], 0, StateRules(None, NOW_MS, 1000)).entries()[:, 0].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("version", "expected"), [((2, 2, 1), 7), ((3, 3, 2), 7), ((3, 4, 0), 1), ((4, 3, 1), 1), (None, 7)]
)
def test_which_expiry_counts_is_by_version(version: Version, expected: int) -> None:
    assert expiry_of(version, 1, 7) == expected


def file(offset: int, *, damage: Damage | None = None) -> SnapshotFile:
    return SnapshotFile(f"{offset:020d}.snapshot", offset, 10, damage, 0)


def judged(files: list[SnapshotFile], log_start: int = 0) -> tuple[list[tuple[int, str]], int, bool]:
    """Of a log of segments 0, 100 and 200 that ends at 250."""
    found = judge_snapshots(files, [0, 100, 200], log_start, 250)
    wrong = [(one.offset, reason.name) for one, reason in found.wrong]
    return wrong, found.base.offset if found.base else -1, found.at_end


def test_snapshots_of_a_healthy_folder_all_stay() -> None:
    assert judged([file(offset) for offset in (0, 100, 120, 200, 230, 250)]) == ([], 250, True)


def test_what_is_damaged_past_the_end_or_a_stray_does_not_stay_and_is_nothing_to_start_from() -> None:
    files = [file(50), file(100), file(200, damage=DAMAGED), file(250, damage=DAMAGED), file(251)]
    assert judged(files) == (
        [(50, "OF_NO_SEGMENT"), (200, "UNREADABLE"), (250, "UNREADABLE"), (251, "PAST_END")],
        100,
        False,
    )
    assert SnapshotReason.UNREADABLE.value == "cannot be read"


def test_snapshot_at_or_below_the_log_start_is_nothing_to_start_from() -> None:
    assert judged([file(100)], log_start=100) == ([], -1, False)
    assert judged([file(100), file(150)], log_start=100) == ([], 150, False)


def seen(
    *offsets: int, log_end: int = 250, log_start: int = 0, damaged: tuple[int, ...] = (), **fields: object
) -> SnapshotFacts:
    """Of a log of segments 0, 100 and 200, with bytes ready for the log end."""
    files = tuple(file(offset, damage=DAMAGED if offset in damaged else None) for offset in offsets)
    found = judge_snapshots(files, [0, 100, 200], log_start, log_end)
    values: dict[str, object] = {"data": b"new"}
    return SnapshotFacts(files, (0, 100, 200), log_start, log_end, found, **(values | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "makes"),
    [
        (seen(100, 200), False),
        (seen(100, 200, forgets=True), True),
        (seen(100, 250, forgets=True), False),
        (seen(), True),
        (seen(0), True),
        (seen(1), True),
        (seen(100), False),
        (seen(100, log_start=99), False),
        (seen(100, log_start=100), True),
        (seen(100, 200, damaged=(200,)), True),
        (seen(50, 100), False),
        (seen(50), True),
        (seen(100, 251), True),
        (seen(100, 200, damaged=(200,), data=None), False),
        (seen(100, 200, damaged=(200,), left="x"), False),
        (seen(log_end=0), False),
        (seen(log_end=1), True),
        (seen(log_end=-1), False),
    ],
)
def test_snapshot_is_made_where_a_start_would_lose_the_state_and_nothing_else_gives_it(
    what: SnapshotFacts, makes: bool
) -> None:
    assert what.makes is makes


def test_snapshot_at_the_log_end_has_twenty_digits() -> None:
    assert seen(log_end=250).name_at_end == "00000000000000000250.snapshot"


def test_offsets_between_the_last_two_bases_are_usual_and_below_only_bases_are() -> None:
    assert judged([file(99), file(100), file(101), file(199)]) == ([(99, "OF_NO_SEGMENT")], 199, False)
    one = judge_snapshots([file(5), file(9)], [0], 6, 20)
    assert (one.wrong, one.base) == ((), file(9))
    assert judge_snapshots([file(20)], [0], 0, 20).at_end
    assert judge_snapshots([file(21)], [0], 0, 20).wrong == ((file(21), SnapshotReason.PAST_END),)
    two = judge_snapshots([file(7)], [0, 10], 0, 20)
    assert two.wrong == ()


def test_version_before_counts_only_where_it_is_known() -> None:
    assert StateRules((2, 3, 9), 0, 0).before((2, 4, 0))
    assert not StateRules((2, 4, 0), 0, 0).before((2, 4, 0))
    assert not StateRules(None, 0, 0).before((2, 4, 0))


def test_open_transaction_at_offset_0_keeps_its_producer() -> None:
    loaded = table_of((3, 0, 5, 9, 0, 0, -1, 0), (4, 0, 5, 9, 0, 0, -1, -1), (5, 0, 5, 9, 0, 0, -1, -7))
    table = ProducerTable(loaded, [], 0, StateRules(None, NOW_MS, 1000)).entries()
    assert table.tolist() == [[3, 0, 5, 9, 0, 0, -1, 0]]


def test_a_transaction_that_was_opened_at_offset_0_goes_on_as_one() -> None:
    loaded = table_of((3, 0, 5, 9, 0, 0, -1, 0))
    more = row(3, epoch=0, last_data_offset=19, last_sequence=6, timestamp=0, open_first=15)
    table = ProducerTable(loaded, [rows(more)], 0, StateRules(None, NOW_MS, 1000)).entries()
    assert table[:, [0, 3, 7]].tolist() == [[3, 19, 0]]


def test_nothing_is_known_of_producers_until_their_state_was_worked_out() -> None:
    assert (seen().producers, seen().open_transactions, seen().forgets) == (0, 0, False)


def test_versions_from_which_brokers_treat_producers_otherwise() -> None:
    assert (KEEPS_BELOW_LOG_START, MARKERS_HAVE_TIMES) == ((2, 4, 0), (2, 4, 1))
    assert (REMOVES_STRAYS, PRODUCER_ID_EXPIRATION) == ((2, 8, 0), (3, 4, 0))
