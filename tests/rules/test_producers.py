"""Producer state joined segment by segment: each column of a scan's row, and the needs of active producers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from krepair.formats.java_numbers import INT64_MAX
from krepair.rules.model import ProducerSnapshotState
from krepair.rules.producers import (
    ProducerStates,
    all_ids,
    disagreement,
    needs_of,
    states_by_broker,
    states_by_scan,
    table_of,
    undecidable,
)
from tests.rules.facts import POLICY, facts, row, rows

IDS = np.array([3, 5], np.int64)


def after(*segments: tuple[list[int], ...], high_watermark: int = 1000, **known: int) -> dict[str, int]:
    """State of producer 5 after these rows; it is known before by the given fields."""
    states = ProducerStates(IDS)
    if known:
        one = ProducerSnapshotState(5, known.get("epoch", 0), known.get("data", -1), 0, known.get("open", -1))
        states.load(table_of([one]))
    for number, of in enumerate(segments):
        states.replay(facts(100 * number, rows=rows(*of)), high_watermark)
    names = ("epoch", "last_data", "timestamp", "open_first", "known")
    return {name: int(getattr(states, name)[1]) for name in names} | {"unreplicated": states.min_unreplicated}


DATA = row(5, epoch=2, last_data_offset=7, timestamp=50)


def test_data_is_taken_over_and_the_other_producer_stays_unknown() -> None:
    found = after((DATA,))
    assert found == {
        "epoch": 2,
        "last_data": 7,
        "timestamp": 50,
        "open_first": -1,
        "known": 1,
        "unreplicated": INT64_MAX,
    }
    states = ProducerStates(IDS)
    states.replay(facts(0, rows=rows(DATA)), 1000)
    assert states.known.tolist() == [False, True]
    assert states.epoch.tolist() == [-1, 2]


def test_data_at_offset_0_counts() -> None:
    assert after((DATA,), (row(5, epoch=2, last_data_offset=0, timestamp=60),))["last_data"] == 0


def test_last_data_stays_while_the_epoch_is_the_same() -> None:
    found = after((DATA,), (row(5, epoch=2, markers=1, timestamp=60, lead_offset=12),))
    assert (found["last_data"], found["timestamp"]) == (7, 60)


@pytest.mark.parametrize(
    "new", [row(5, epoch=3, timestamp=60), row(5, epoch=2, timestamp=60, epochs_mixed=1)]
)
def test_last_data_of_an_earlier_epoch_is_forgotten(new: list[int]) -> None:
    found = after((DATA,), (new,))
    assert (found["epoch"], found["last_data"]) == (new[1], -1)


def test_row_of_an_emptied_control_batch_alone_says_nothing() -> None:
    found = after((DATA,), (row(5),))
    assert (found["epoch"], found["last_data"], found["timestamp"]) == (2, 7, 50)
    assert after((row(5),))["known"] == 0


def test_open_transaction_is_carried_until_a_marker_and_its_first_offset_stays() -> None:
    opened = row(5, epoch=2, last_data_offset=7, timestamp=50, open_first=0)
    again = row(5, epoch=2, last_data_offset=107, timestamp=60, open_first=103)
    ended = row(5, epoch=2, timestamp=70, markers=1, lead_offset=201)
    anew = row(5, epoch=2, timestamp=70, markers=1, lead_offset=201, open_first=205)
    assert after((opened,))["open_first"] == 0
    assert after((opened,), (again,))["open_first"] == 0
    assert after((again,))["open_first"] == 103
    assert after((opened,), (again,), (ended,))["open_first"] == -1
    assert after((opened,), (again,), (anew,))["open_first"] == 205


@pytest.mark.parametrize(("high_watermark", "expected"), [(13, INT64_MAX), (12, 4), (11, 4)])
def test_transaction_that_ends_at_the_high_watermark_is_not_replicated(
    high_watermark: int, expected: int
) -> None:
    ended = row(5, epoch=2, timestamp=60, markers=1, lead_offset=12, lead_first=4)
    assert after((ended,), high_watermark=high_watermark)["unreplicated"] == expected


def test_first_offset_of_an_unreplicated_transaction_is_where_it_was_opened() -> None:
    bare = row(5, epoch=2, timestamp=60, markers=1, lead_offset=12)
    first_0 = row(5, epoch=2, timestamp=60, markers=1, lead_offset=12, lead_first=0)
    assert after((bare,), high_watermark=5)["unreplicated"] == 12
    assert after((first_0,), high_watermark=5)["unreplicated"] == 0
    assert after((bare,), high_watermark=5, open=2)["unreplicated"] == 2
    assert after((bare,), high_watermark=5, open=0)["unreplicated"] == 0
    without = row(5, epoch=2, timestamp=60, lead_offset=12)
    assert after((without,), high_watermark=5)["unreplicated"] == INT64_MAX


def test_lowest_of_several_unreplicated_transactions_counts() -> None:
    late = row(5, epoch=2, timestamp=60, markers=1, lead_offset=12, lead_first=9)
    early = row(3, epoch=2, timestamp=60, markers=1, lead_offset=13, lead_first=6)
    assert after((early, late), high_watermark=5)["unreplicated"] == 6
    assert after((late,), (early,), high_watermark=5)["unreplicated"] == 6
    states = ProducerStates(IDS)
    states.replay(facts(0, rows=rows(late), min_unreplicated=3), 5)
    assert states.min_unreplicated == 3


def one(epoch: int = 1, data: int = -1, time: int = 0, opened: int = -1) -> ProducerStates:
    """Producer 5 is known, producer 3 is not."""
    states = ProducerStates(IDS)
    states.load(table_of([ProducerSnapshotState(5, epoch, data, time, opened)]))
    return states


@pytest.mark.parametrize(
    ("states", "active"),
    [
        (one(time=101), True),
        (one(time=100), False),
        (one(time=-1, opened=0), True),
        (ProducerStates(IDS), False),
    ],
)
def test_producer_is_active_within_its_expiry_or_with_an_open_transaction(
    states: ProducerStates, active: bool
) -> None:
    """A producer of which nothing is known is never active, whatever its empty fields would say."""
    assert states.active(1100, 1000).tolist() == [False, active]


def test_earliest_open_transaction_is_named_with_its_producer() -> None:
    assert ProducerStates(IDS).first_open() == (INT64_MAX, -1)
    assert one(opened=0).first_open() == (0, 5)
    two = ProducerStates(IDS)
    two.load(table_of([ProducerSnapshotState(3, 0, -1, 0, 40), ProducerSnapshotState(5, 0, -1, 0, 12)]))
    assert two.first_open() == (12, 5)
    two.known[:] = False
    assert two.first_open() == (INT64_MAX, -1)


def needs(scan: ProducerStates, broker: ProducerStates) -> tuple[list[list[int]], list[list[int]], int]:
    found = needs_of(scan, broker, 100, 1000)
    return found.data.tolist(), found.markers.tolist(), found.active


def test_active_producer_needs_its_last_data_or_else_the_markers_of_its_epoch() -> None:
    assert needs(one(data=0), one(data=0)) == ([[5, 0]], [], 1)
    assert needs(one(epoch=4), one(epoch=4)) == ([], [[5, 4]], 1)
    assert needs(one(time=-2000, data=9), one(time=-2000)) == ([], [], 0)


def test_what_the_scan_and_the_broker_need_is_united() -> None:
    assert needs(one(data=3), one(data=9)) == ([[5, 3], [5, 9]], [], 1)
    assert needs(one(data=3), one(epoch=2)) == ([[5, 3]], [[5, 2]], 1)
    assert needs(one(epoch=2), one(epoch=7)) == ([], [[5, 7]], 1)
    assert needs(one(epoch=7), one(epoch=2)) == ([], [[5, 7]], 1)


def test_broker_replays_from_its_snapshot_on_with_the_segment_that_holds_it() -> None:
    state = ProducerSnapshotState(5, 2, 7, 50, -1)
    new = facts(10, rows=rows(row(5, epoch=2, last_data_offset=15, timestamp=60)), last_offset=19)
    for offset, last in ((0, 15), (19, 15), (20, 7)):
        assert int(states_by_broker([new], IDS, offset, [state]).last_data[1]) == last
    hollow = facts(10, rows=new.summary.rows, last_offset=19, batches=0)
    assert int(states_by_broker([hollow], IDS, 0, [state]).last_data[1]) == 7
    assert states_by_broker([new], IDS, 0, [state]).min_unreplicated == INT64_MAX


def test_scan_replays_everything_and_all_producers_are_known_by_id() -> None:
    segments = [
        facts(0, rows=rows(DATA)),
        facts(10, rows=rows(row(3, epoch=1, last_data_offset=12, timestamp=9))),
    ]
    assert states_by_scan(segments, IDS, 1000).last_data.tolist() == [12, 7]
    assert all_ids(segments, [ProducerSnapshotState(4, 0, 0, 0, -1)]).tolist() == [3, 4, 5]


@pytest.mark.parametrize(
    ("scan", "broker", "told"),
    [
        (one(data=8), one(data=7), True),
        (one(data=1), one(data=0), True),
        (one(data=8), one(data=8), False),
        (one(data=7), one(data=8), False),
        (one(data=8), one(data=-1), False),
        (one(data=-1), one(data=8), False),
        (one(data=8), one(data=7, time=-2000), False),
    ],
)
def test_snapshot_that_knows_less_than_the_log_is_told_with_both_offsets(
    scan: ProducerStates, broker: ProducerStates, told: bool
) -> None:
    found = disagreement(scan, broker, 100, 1000)
    assert (found is not None) == told
    if found is not None:
        assert found.code == "snapshot-disagrees"
        assert f"producer 5 is at offset {int(broker.last_data[1])}," in found.why
        assert found.why.endswith(f"data of it at offset {int(scan.last_data[1])}")
        assert str(found.next_command) == "krepair check LOGDIR"


@pytest.mark.parametrize(
    ("mixed", "data", "consent", "code"),
    [
        (INT64_MAX, 8, False, ""),
        (9, 8, False, "mixed-epochs"),
        (0, 8, False, "mixed-epochs"),
        (9, 8, True, ""),
        (9, 9, False, "snapshot-disagrees"),
        (9, 9, True, "snapshot-disagrees"),
        (INT64_MAX, 9, False, "snapshot-disagrees"),
    ],
)
def test_a_wrong_snapshot_is_told_before_a_transaction_of_two_epochs(
    mixed: int, data: int, consent: bool, code: str
) -> None:
    scan = one(data=data)
    scan.mixed_epochs = mixed
    policy = replace(POLICY, now_ms=100, mixed_epochs=consent)
    left = undecidable(scan, one(data=8), policy)
    assert (left.code if left else "") == code
