"""Values of ``__transaction_state``, in both versions: read whole, or refused in words."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.formats.batch_v2 import batches
from krepair.formats.damage import Damage
from krepair.formats.record import batch_records
from krepair.formats.transaction_state import RECORDS, TransactionStatus, state_name
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
KEY = struct.pack(">hh", 0, 2) + b"id"


def decoded(data: bytes) -> dict[str, Any]:
    found = RECORDS.decode(KEY, data)
    assert found.problem == ""
    assert found.value is not None
    return found.value


@pytest.mark.parametrize("data", [OLD, NEW])
def test_both_versions_say_the_same(data: bytes) -> None:
    found = decoded(data)
    assert {name: found[name] for name in ("producer_id", "producer_epoch", "transaction_timeout_ms")} == {
        "producer_id": 10,
        "producer_epoch": 3,
        "transaction_timeout_ms": 850_000,
    }
    assert state_name(found["transaction_status"]) == "Ongoing"
    (row,) = found["transaction_partitions"]
    assert (row["topic"], sorted(row["partition_ids"])) == ("back", [0, 1])
    assert found["transaction_last_update_timestamp_ms"] == 1_795_298_355_150
    assert found["transaction_start_timestamp_ms"] == 1_795_298_355_140


@pytest.mark.parametrize(
    "none", [b"\0\0" + HEAD + b"\xff" * 4 + TIMES, b"\0\1" + HEAD + b"\0" + TIMES + b"\0"]
)
def test_transaction_without_partitions_has_none(none: bytes) -> None:
    assert not decoded(none)["transaction_partitions"]


@pytest.mark.parametrize("data", [OLD, NEW[: -len(b"\2\0\x08" + bytes(8) + b"\2\2\0\2")]])
def test_every_shorter_piece_is_refused(data: bytes) -> None:
    assert all(RECORDS.decode(KEY, data[:size]).problem for size in range(len(data)))


@given(st.binary(max_size=300), st.sampled_from([b"", OLD[:17], NEW[:17]]))
def test_no_bytes_whatever_raise(data: bytes, head: bytes) -> None:
    found = RECORDS.decode(KEY, head + data)
    assert (found.value is None) is bool(found.problem)


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
                value = decoded(record.value)
                updated = value["transaction_last_update_timestamp_ms"]
                assert abs(updated - batch.header.base_timestamp - record.timestamp_delta) < 1000
                start = value["transaction_start_timestamp_ms"]
                assert 0 <= start <= updated or start == -1
                complete = {
                    TransactionStatus.COMPLETE_COMMIT,
                    TransactionStatus.COMPLETE_ABORT,
                    TransactionStatus.EMPTY,
                }
                assert bool(value["transaction_partitions"]) is (value["transaction_status"] not in complete)
                producers.add(value["producer_id"])
    assert len(producers) >= ids
