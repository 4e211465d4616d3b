"""Results for a partition of ``__transaction_state`` against a slow twin, also on broken partitions."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from krepair.engine.items import LogsItem
from krepair.look.coordinators.transactions import TransactionsResult, read_transactions
from tests import builders
from tests.codecs import packed
from tests.engine.travelled import travelled
from tests.look.transaction_records import STATES, key_of, value_of
from tests.places import place_of

FOLDER = "__transaction_state-0"


def read(
    folder: Path,
    *logs: tuple[int, bytes],
    log_start: int = 0,
    high_watermark: int = 1 << 40,
    now_ms: int = 1 << 60,
) -> TransactionsResult:
    """The task as an engine runs it: item and result as bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for base, data in logs:
        (folder / f"{base:020d}.log").write_bytes(data)
    place = place_of(folder)
    item = LogsItem(place=place, segments=tuple((base, len(data)) for base, data in logs))
    result = travelled(read_transactions, item, log_start, high_watermark, now_ms)
    assert isinstance(result, TransactionsResult)
    return result


STEPS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 4),
        st.none() | st.sampled_from(STATES),
        st.sampled_from([0, 1]),
        st.lists(st.tuples(st.sampled_from("tu"), st.integers(0, 3)), max_size=3, unique=True),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.integers(0, 25), st.integers(0, 6), st.sampled_from([0, 1, 3, 4]))
def test_newest_record_of_each_id_counts_whatever_came_before(
    tmp_path: Path, steps: list[Any], split: int, log_start: int, codec: int
) -> None:
    newest: dict[str, tuple[int, Any]] = {}
    ids: dict[str, set[int]] = {}
    logs = [(0, b"")]
    for offset, (name, producer_id, status, version, partitions) in enumerate(steps):
        if offset == split and offset:
            logs.append((offset, b""))
        value = None if status is None else value_of(producer_id, status, *partitions, version=version)
        raw = packed(builders.data(offset, [builders.Record(key_of(name), value)]).raw, codec)
        logs[-1] = (logs[-1][0], logs[-1][1] + raw)
        if offset >= log_start:
            newest[name] = (
                offset,
                None if status is None else (producer_id, status, tuple(sorted(partitions))),
            )
            ids.setdefault(name, set()).update([] if status is None else [producer_id])
    result = read(tmp_path / "logs" / FOLDER, *logs, log_start=log_start)
    assert (result.damages, result.unknown) == (0, 0)
    found = {state.transactional_id: state for state in result.states}
    assert {name: state.record_offset for name, state in found.items()} == {
        name: offset for name, (offset, _) in newest.items()
    }
    for name, (_, said) in newest.items():
        state = found[name]
        assert {state.producer_id, *state.earlier_producer_ids} - {-1} == ids[name]
        if said is None:
            assert state.state == "Dead"
        else:
            assert (state.producer_id, state.state, state.partitions) == said


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=60)), max_size=8),
    st.sampled_from([b"", b"\0\0", b"\0\0\0\1a"]),
    st.sampled_from([b"", b"\0\0", b"\0\1", b"\0\7"]),
)
def test_any_records_have_a_result(
    tmp_path: Path, pairs: list[tuple[bytes | None, bytes | None]], front: bytes, version: bytes
) -> None:
    records = [
        builders.Record(
            None if key is None else front + key,
            None if value is None else version + value,
        )
        for key, value in pairs
    ]
    log = builders.data(0, records or 1).raw + builders.commit(90, pid=1).raw
    result = read(tmp_path / "any" / FOLDER, (0, log))
    assert sum(state.records for state in result.states) + result.unknown == (len(records) or 1)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 400), st.integers(1, 255), st.integers(0, 400))
def test_log_damaged_anywhere_has_a_result_and_says_that_something_is_missing(
    tmp_path: Path, place: int, flip: int, cut: int
) -> None:
    log = bytearray(
        b"".join(
            builders.data(n, [builders.Record(key_of(f"id-{n}"), value_of(n, "Ongoing", ("t", n)))]).raw
            for n in range(5)
        )
    )
    whole = len(log)
    log[place % whole] ^= flip
    del log[whole - cut % whole :]
    result = read(tmp_path / "damaged" / FOLDER, (0, bytes(log)))
    names = {f"id-{n}" for n in range(5)}
    assert {state.transactional_id for state in result.states} <= names
    if len(result.states) < len(names) and len(log) % (whole // 5):
        assert result.damages > 0


def test_values_that_cannot_be_read_are_unknown_and_keep_the_producer_ids_of_those_before(
    tmp_path: Path,
) -> None:
    records = [
        builders.Record(key_of("a"), value_of(7, "CompleteCommit")),
        builders.Record(key_of("a"), struct.pack(">hq", 9, 8) + b"of a later version"),
        builders.Record(struct.pack(">h", 5) + b"later key", b"x"),
        builders.Record(None, b"x"),
    ]
    result = read(tmp_path / FOLDER, (0, builders.data(0, records).raw))
    [state] = result.states
    assert (state.state, state.producer_id, state.earlier_producer_ids) == ("unknown", -1, (7, 8))
    assert "version 9" in state.problem
    assert result.unknown == 2


def test_producer_id_before_the_last_one_is_known_by_the_newest_record_alone(tmp_path: Path) -> None:
    value = value_of(9, "CompleteCommit", version=1, previous=7)
    [state] = read(tmp_path / FOLDER, (0, builders.data(0, [builders.Record(key_of("a"), value)]).raw)).states
    assert (state.producer_id, state.earlier_producer_ids) == (9, (7,))


def test_of_thousands_of_producer_ids_of_one_id_the_newest_are_kept(tmp_path: Path) -> None:
    records = [builders.Record(key_of("a"), value_of(n, "CompleteCommit")) for n in range(3000)]
    [state] = read(tmp_path / FOLDER, (0, builders.data(0, records).raw)).states
    assert (state.producer_id, state.records) == (2999, 3000)
    assert state.earlier_producer_ids == tuple(range(2983, 2999))


@pytest.mark.parametrize(
    ("high_watermark", "now_ms", "newest"), [(3, 99, 30), (2, 99, 20), (3, 25, 20), (-1, 99, -1)]
)
def test_only_what_is_replicated_and_past_tells_how_far_the_log_reaches(
    tmp_path: Path, high_watermark: int, now_ms: int, newest: int
) -> None:
    log = b"".join(
        builders.data(n, [builders.Record(key_of("a"), value_of(7, "Empty"))], timestamp=10 * (n + 1)).raw
        for n in range(3)
    )
    assert read(tmp_path / FOLDER, (0, log), high_watermark=high_watermark, now_ms=now_ms).newest_ms == newest
