"""Index building against its slow twin; equality with real brokers is shown in the broker tests."""

from __future__ import annotations

from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.kernels import index
from krepair.kernels.index import build_indexes
from tests import builders
from tests.kernels import twins
from tests.kernels.scanning import joined
from tests.strategies import History, histories


def built(
    log: bytes, interval_bytes: int, at_most: int = 1 << 30
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    def read_into(buffer: memoryview, position: int) -> int:
        piece = log[position : position + min(len(buffer), at_most)]
        buffer[: len(piece)] = piece
        return len(piece)

    offsets, times = build_indexes(len(log), interval_bytes, read_into)
    return [tuple(pair) for pair in offsets.tolist()], [tuple(pair) for pair in times.tolist()]


@settings(max_examples=100, deadline=None)
@given(
    histories(segments=1, steps=30),
    st.sampled_from([0, 1, 77, 100, 500, 4096]),
    st.sampled_from([64, 100, 1000]),
    st.sampled_from([9, 1 << 20]),
)
def test_entries_are_those_of_the_twin_whatever_the_window(
    history: History, interval: int, window: int, at_most: int
) -> None:
    log = joined(history.batches)
    with mock.patch.object(index, "WINDOW_BYTES", window):
        assert built(log, interval, at_most) == twins.index_entries(log, interval)


def test_more_entries_than_the_first_buffers_hold() -> None:
    log = joined([builders.commit(n, pid=1, timestamp=n) for n in range(3000)])
    offsets, times = built(log, 0)
    assert (offsets, times) == twins.index_entries(log, 0)
    assert (len(offsets), len(times)) == (2999, 2999)


def test_a_log_without_batches_has_no_entries() -> None:
    assert built(b"", 4096) == ([], [])
