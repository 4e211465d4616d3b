"""Leader epochs on disk, merged with those that the log shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.formats.checkpoint import EpochEntry, decode_epochs, encode_epochs
from krepair.rules.epochs import (
    EpochReason,
    LogEpochs,
    MergedEpochs,
    Recorded,
    Rise,
    merge_epochs,
    read_recorded,
)

V2_2, V2_7 = (2, 2, 1), (2, 7, 0)
LOG = LogEpochs((Rise(0, 0, -1), Rise(2, 40, 39), Rise(4, 80, 79), Rise(6, 120, 119)), 199, 0, 200, False)
FROM_LOG = [(0, 0), (2, 40), (4, 80), (6, 120)]
COMPACTED = LogEpochs((Rise(2, 50, 30), Rise(4, 95, 70), Rise(6, 120, 119)), 199, 0, 200, True)


def merged(
    data: bytes | None, log: LogEpochs = LOG, version: tuple[int, int, int] | None = None
) -> MergedEpochs:
    return merge_epochs(read_recorded(data), log, version)


def pairs(found: MergedEpochs) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in found.entries]


def reasons(found: MergedEpochs) -> dict[int, EpochReason]:
    return {one.epoch: one.reason for one in found.decisions if one.start is None}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(None, id="missing"),
        pytest.param(b"", id="empty"),
        pytest.param(b"0\n4\n0 \0\0\0\0\0\0\0\0", id="NULs"),
        pytest.param(b"\0" * 40, id="only NULs"),
        pytest.param(b"0\n97\n0 0\n2 40\n4 80\n6 120\n", id="wrong count"),
        pytest.param(b"0\n-1\n0 0\n2 40\n", id="count -1"),
        pytest.param(b"0\n2147483647\n0 0\n", id="count 2^31-1"),
        pytest.param(b"0\n4\n0 0\n2 40\n4 80\n6", id="truncated in an epoch"),
        pytest.param(b"0\n4\n0 0\n2 40\n4 80\n6 12", id="truncated in an offset"),
        pytest.param(b"1\n4\n0 0\n2 40\n4 80\n6 120\n", id="wrong version"),
        pytest.param(b"0\n4\n6 120\n4 80\n2 40\n0 0\n", id="disorder"),
        pytest.param(b"0\n5\n0 0\n2 40\n4 80\n6 120\n8 201\n", id="past the log end"),
        pytest.param(b"0\n4\n0 0\n2 60\n4 80\n6 120\n", id="later than its first batch"),
        pytest.param(b"0\n4\n0 0\n2 20\n4 80\n6 120\n", id="earlier than a batch of a lower epoch"),
        pytest.param(b"0\n5\n0 0\n2 40\n3 60\n4 80\n6 120\n", id="epoch among batches of another"),
        pytest.param(b"0\n5\n-3 0\n0 0\n2 40\n4 -80\n6 120\n", id="negative"),
        pytest.param(b"0\n4\n0 0\n2 40\n\xff\xfe\n6 120\n", id="no UTF-8"),
    ],
)
def test_damaged_file_gets_the_history_that_the_whole_log_shows(data: bytes | None) -> None:
    found = merged(data)
    assert (pairs(found), found.needed) == (FROM_LOG, True)


def test_intact_file_is_left_as_it_is() -> None:
    found = merged(encode_epochs(EpochEntry(*pair) for pair in FROM_LOG))
    assert (pairs(found), found.needed) == (FROM_LOG, False)


def test_entry_at_the_log_end_of_a_leader_without_data_stays() -> None:
    found = merged(b"0\n9\n0 0\n2 40\n4 80\n6 120\n8 200\n")
    assert (pairs(found), found.needed) == ([*FROM_LOG, (8, 200)], True)


def test_epoch_without_data_at_the_start_of_the_next_is_dropped_as_trivial() -> None:
    found = merged(b"0\n9\n0 0\n2 40\n3 80\n4 80\n6 120\n")
    dropped = next(one for one in found.decisions if one.epoch == 3)
    assert (pairs(found), dropped.reason, dropped.trivial, dropped.conflict) == (
        FROM_LOG,
        EpochReason.NO_DATA,
        True,
        False,
    )


def test_contradiction_is_shown_both_ways_and_is_not_trivial() -> None:
    found = merged(b"0\n4\n0 0\n2 60\n4 80\n6 120\n")
    dropped = next(one for one in found.decisions if one.reason is EpochReason.CONTRADICTED)
    assert (dropped.recorded, dropped.shown, dropped.trivial, dropped.conflict) == (60, 40, False, True)


def test_history_that_a_start_without_the_file_cut_to_one_entry_comes_back_before_it() -> None:
    assert pairs(merged(b"0\n1\n14 200\n")) == [*FROM_LOG, (14, 200)]


def test_entries_before_the_log_start_become_one_at_it() -> None:
    log = LOG._replace(start=90)
    found = merged(b"0\n4\n0 0\n2 40\n4 80\n6 120\n", log)
    assert (pairs(found), found.needed) == ([(4, 90), (6, 120)], True)
    assert merged(found.data, log).needed is False


def test_missing_file_of_a_log_that_starts_late_starts_there() -> None:
    assert pairs(merged(None, LOG._replace(start=90))) == [(4, 90), (6, 120)]


def test_compacted_log_keeps_earlier_starts_and_epochs_without_batches() -> None:
    found = merged(b"0\n9\n0 0\n1 20\n2 40\n3 60\n4 80\n6 120\n", COMPACTED)
    assert pairs(found) == [(0, 0), (1, 20), (2, 40), (3, 60), (4, 80), (6, 120)]


def test_compacted_log_never_overrules_a_recorded_entry_but_both_sides_are_told() -> None:
    found = merged(b"0\n3\n2 60\n4 80\n6 120\n", COMPACTED)
    unproven = next(one for one in found.decisions if one.epoch == 2)
    assert (pairs(found), found.needed) == ([(2, 60), (4, 80), (6, 120)], False)
    assert (unproven.reason, unproven.conflict, unproven.shown) == (EpochReason.UNPROVEN, True, 50)


def test_rebuild_from_a_compacted_log_alone_tells_which_starts_may_be_late() -> None:
    found = merged(None, COMPACTED)
    assert (pairs(found), found.may_be_late) == ([(2, 50), (4, 95), (6, 120)], (2, 4))


def test_cut_number_counts_for_nothing_beside_a_compacted_log() -> None:
    found = merged(b"0\n3\n2 40\n4 80\n6 12", COMPACTED)
    assert (pairs(found), reasons(found)) == ([(2, 40), (4, 80), (6, 120)], {6: EpochReason.CUT})


@pytest.mark.parametrize(("version", "first"), [(V2_2, (2, 40)), (V2_7, (0, 0)), (None, (0, 0))])
def test_epoch_zero_is_written_as_the_target_version_takes_it_from_a_log(
    version: tuple[int, int, int] | None, first: tuple[int, int]
) -> None:
    assert pairs(merged(None, LOG, version))[0] == first


def test_recorded_epoch_zero_stays_for_every_version() -> None:
    assert pairs(merged(b"0\n9\n0 0\n", LOG, V2_2)) == FROM_LOG


def test_intact_file_without_epoch_zero_is_left_as_it_is() -> None:
    found = merged(b"0\n3\n2 40\n4 80\n6 120\n")
    assert (pairs(found), found.needed) == (FROM_LOG[1:], False)


def test_end_hidden_by_damage_drops_no_entry_for_being_past_it() -> None:
    found = merged(b"0\n9\n0 0\n2 40\n4 80\n6 120\n8 5000\n", LOG._replace(end=None))
    assert pairs(found) == [*FROM_LOG, (8, 5000)]


def test_damaged_file_of_a_log_without_epochs_becomes_an_empty_history() -> None:
    found = merged(b"0\n3\nx", LogEpochs((), -1, 0, 0, False))
    assert (found.data, found.needed) == (b"0\n0\n", True)


def test_a_hundred_megabytes_on_one_line_are_no_entries() -> None:
    assert read_recorded(b"0\n1\n" + b"7" * (20 << 20)).entries == ()


def test_two_hundred_thousand_lines_in_falling_order_are_merged_in_time() -> None:
    lines = "".join(f"{n} {n}\n" for n in range(200_000, 0, -1))
    found = merged(f"0\n200000\n{lines}".encode(), LogEpochs((), -1, 0, 200_000, False))
    assert len(found.entries) == 200_000


@st.composite
def logs(draw: st.DrawFn) -> LogEpochs:
    """A log whose epochs rise, with or without gaps before them."""
    rises, offset, epoch, last = [], draw(st.integers(0, 5)), -1, -1
    for _ in range(draw(st.integers(0, 6))):
        epoch += draw(st.integers(1, 3))
        gap = draw(st.integers(0, 3))
        offset += gap
        rises.append(Rise(epoch, offset, last))
        last = offset + draw(st.integers(0, 9))
        offset = last + 1
    compacted = draw(st.booleans())
    start = draw(st.integers(0, max(last + 1, 0)))
    return LogEpochs(tuple(rises), last, start, max(offset, start), compacted)


FILES = st.one_of(
    st.none(),
    st.binary(max_size=30),
    st.builds(
        lambda lines, count, end: (f"0\n{count}\n" + "\n".join(f"{e} {s}" for e, s in lines) + end).encode(),
        st.lists(st.tuples(st.integers(-1, 20), st.integers(-1, 60)), max_size=8),
        st.integers(-1, 9),
        st.sampled_from(["", "\n", "\n\0\0\0"]),
    ),
)
VERSIONS = st.sampled_from([None, V2_2, V2_7])


@given(FILES, logs(), VERSIONS)
def test_whatever_is_merged_loads_and_merged_again_is_the_same(
    data: bytes | None, log: LogEpochs, version: tuple[int, int, int] | None
) -> None:
    found = merged(data, log, version)
    loaded = decode_epochs(found.data)
    assert (loaded.entries, loaded.damage, loaded.broker_reads) == (found.entries, (), True)
    again = merged(found.data, log, version)
    assert (again.entries, again.needed) == (found.entries, False)


@given(logs(), VERSIONS, st.data())
def test_recorded_entry_that_no_batch_contradicts_is_never_dropped(
    log: LogEpochs, version: tuple[int, int, int] | None, data: st.DataObject
) -> None:
    """A true history (with epochs that have no batches left), some of its lines lost, the rest in any order."""
    true: list[EpochEntry] = []
    below = log.start
    for rise in log.rises:
        start = max(rise.first_offset, log.start)
        if rise.first_offset < log.start or start < below:
            continue
        earliest = max(rise.before + 1, below)
        true.append(EpochEntry(rise.epoch, data.draw(st.integers(min(earliest, start), start))))
        below = start + 1
    assert log.end is not None
    if (
        data.draw(st.booleans())
        and (not true or true[-1].start_offset < log.end)
        and log.last_offset < log.end
    ):
        true.append(EpochEntry((log.rises[-1].epoch if log.rises else 0) + 1, log.end))
    lines = data.draw(st.permutations(true))[: data.draw(st.integers(0, len(true)))]
    found = merge_epochs(Recorded(True, tuple(lines)), log, version)
    assert set(lines) <= set(found.entries)
