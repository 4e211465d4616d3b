"""Values of ``__transaction_state``, in both versions: read whole, or refused in words."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.formats.batch_v2 import batches
from krepair.formats.damage import Damage
from krepair.formats.record import batch_records
from krepair.formats.transaction_state import TransactionStatus, TransactionValue, decode_value
from tests.fixture_dirs import unpack

TIMES = struct.pack(">qq", 1_795_298_355_150, 1_795_298_355_140)
HEAD = struct.pack(">qhib", 10, 3, 850_000, 1)
OLD = b"\0\0" + HEAD + struct.pack(">ih", 1, 4) + b"back" + struct.pack(">iii", 2, 1, 0) + TIMES
NEW = (
    b"\0\1"
    + HEAD
    + b"\2\5back\3"
    + struct.pack(">ii", 1, 0)
    + b"\0"
    + TIMES
    + b"\2\0\x08"
    + bytes(8)
    + b"\2\2\0\2"
)
EXPECTED = TransactionValue(
    producer_id=10,
    producer_epoch=3,
    timeout_ms=850_000,
    status=TransactionStatus.ONGOING,
    partitions=frozenset({("back", 0), ("back", 1)}),
    last_update_ms=1_795_298_355_150,
    start_ms=1_795_298_355_140,
)


@pytest.mark.parametrize("data", [OLD, NEW])
def test_both_versions_say_the_same(data: bytes) -> None:
    assert decode_value(data) == EXPECTED


@pytest.mark.parametrize(
    "none", [b"\0\0" + HEAD + b"\xff" * 4 + TIMES, b"\0\1" + HEAD + b"\0" + TIMES + b"\0"]
)
def test_transaction_without_partitions_has_none(none: bytes) -> None:
    assert decode_value(none) == EXPECTED._replace(partitions=frozenset())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "at least 17 bytes"),
        (b"\0\2" + OLD[2:], "version 0 or 1"),
        (OLD[:16] + b"\x08" + OLD[17:], "a status from 0 to 7"),
        (OLD[:16] + b"\xff" + OLD[17:], "a status from 0 to 7"),
        (b"\0\1" + HEAD + b"\xff" * 6, "the rest of a transaction's state"),
        (b"\0\0" + HEAD + b"\x7f" * 4 + OLD[21:], "the rest of a transaction's state"),
    ],
)
def test_what_is_none_is_refused_in_words(data: bytes, expected: str) -> None:
    found = decode_value(data)
    assert isinstance(found, Damage)
    assert found.expected == expected


@pytest.mark.parametrize("data", [OLD, NEW[: -len(b"\2\0\x08" + bytes(8) + b"\2\2\0\2")]])
def test_every_shorter_piece_is_refused(data: bytes) -> None:
    assert all(isinstance(decode_value(data[:size]), Damage) for size in range(len(data)))


@given(st.binary(max_size=300), st.sampled_from([b"", OLD[:17], NEW[:17]]))
def test_no_bytes_whatever_raise(data: bytes, head: bytes) -> None:
    assert isinstance(decode_value(head + data), TransactionValue | Damage)


@pytest.mark.parametrize(("fixture", "ids"), [("offsets-bloat-2.2.0-clean", 10), ("offsets-tv2-4.3.1", 2)])
def test_what_real_coordinators_wrote_is_read_and_their_times_are_those_of_the_records(
    tmp_path: Path, fixture: str, ids: int
) -> None:
    producers: set[int] = set()
    for path in unpack(fixture, tmp_path).glob("__transaction_state-*/*.log"):
        content = path.read_bytes()
        for batch in batches(content):
            assert not isinstance(batch, Damage)
            for record in batch_records(content, batch.position):
                assert not isinstance(record, Damage)
                if record.value is None:
                    continue
                value = decode_value(record.value)
                assert isinstance(value, TransactionValue)
                assert abs(value.last_update_ms - batch.header.base_timestamp - record.timestamp_delta) < 1000
                assert 0 <= value.start_ms <= value.last_update_ms or value.start_ms == -1
                complete = {
                    TransactionStatus.COMPLETE_COMMIT,
                    TransactionStatus.COMPLETE_ABORT,
                    TransactionStatus.EMPTY,
                }
                assert bool(value.partitions) is (value.status not in complete)
                producers.add(value.producer_id)
    assert len(producers) >= ids
