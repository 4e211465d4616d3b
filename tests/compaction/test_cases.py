"""The cases of key compaction: each situation by name, and the records that are left."""

from __future__ import annotations

import gzip
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.rules.model import Skipped
from tests import builders, codecs, naive
from tests.builders import NOW_MS, Batch, LogDir, Record, abort, commit, data
from tests.codecs import PACK
from tests.compaction import twin
from tests.compaction.cases import BASE, OLD, YOUNG, batch, left, made, rec, recs
from tests.compaction.compacting import Compacted, compacted


def shapes(found: Compacted) -> list[tuple[int, str]]:
    """(base offset, kind) of the batches below the bound."""
    end = found.done.decision.cleanable.end_offset
    return [
        (one.base_offset, one.kind)
        for base, log in found.logs.items()
        if base < end
        for one in naive.parse(log)
    ]


def test_case_1_the_last_record_of_a_key_wins_across_segments_groups_and_inside_a_batch(
    tmp_path: Path,
) -> None:
    big = replace(BASE, segment_bytes=200)
    found = made(tmp_path, [batch(0, "a", "b", "a")], [batch(3, "b", "c")], [batch(5, "c", "d")], policy=big)
    assert left(found) == [2, 3, 5, 6]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize(("later", "stays"), [("a", [1, 2]), ("b", [0, 2]), ("c", [0, 1]), ("abc", [])])
def test_case_2_a_batch_loses_its_first_middle_last_or_all_records(
    codec: int, later: str, stays: list[int], tmp_path: Path
) -> None:
    found = made(tmp_path, [batch(0, *"abc", codec=codec), batch(3, *later)])
    assert left(found) == [*stays, *range(3, 3 + len(later))]
    assert found.done.total.emptied == (not stays)


def test_case_3_an_empty_key_is_a_key_and_a_record_without_one_stays(tmp_path: Path) -> None:
    segment = data(0, [rec(""), rec(None), rec(""), rec(None, None)], timestamp=OLD)
    found = made(tmp_path, [segment])
    assert left(found) == [1, 2, 3]
    assert found.done.total.keyless == 2


@pytest.mark.parametrize(
    ("mtime", "stays"), [(NOW_MS - 5_001, [0, 4]), (NOW_MS - 5_000, [0, 4]), (NOW_MS - 4_999, [0, 3, 4])]
)
def test_case_4_a_tombstone_goes_once_its_segment_is_not_younger_than_the_horizon(
    mtime: int, stays: list[int], tmp_path: Path
) -> None:
    found = made(tmp_path, ([batch(0, "a", "b", "c-", "b-", "c")], mtime))
    assert left(found) == stays
    chosen = next(each for each in found.done.horizons if each.chosen)
    assert (chosen.dropped, chosen.kept) == (5 - len(stays) - 2, len(stays) - 2)
    unlimited = next(each for each in found.done.horizons if each.name == "unlimited")
    assert (unlimited.dropped, unlimited.kept) == (1, 0)


def stamped(offset: int, stamp: int, *keys: str) -> Batch:
    raw = builders.encode(offset, recs(*keys), attributes=0x40, base_timestamp=stamp, max_timestamp=OLD)
    return Batch(raw, offset, offset + len(keys) - 1, 0x40, -1, -1, -1, OLD, len(keys))


@pytest.mark.parametrize(("stamp", "stays"), [(NOW_MS - 1, [1]), (NOW_MS, [1]), (NOW_MS + 1, [0, 1])])
def test_case_5_a_stamp_decides_whatever_the_age_of_the_segment(
    stamp: int, stays: list[int], tmp_path: Path
) -> None:
    assert left(made(tmp_path, ([stamped(0, stamp, "a-", "b")], OLD), policy=BASE)) == stays


def test_case_5_a_tombstone_without_a_stamp_stays_on_a_broker_that_writes_them(tmp_path: Path) -> None:
    policy = replace(BASE, horizon="next-pass", writes_horizons=True, first_dirty_offset=10**6)
    assert left(made(tmp_path, [stamped(0, NOW_MS - 1, "a-"), batch(1, "b-")], policy=policy)) == [1]


def test_case_6_an_aborted_value_or_tombstone_never_hides_a_committed_one(tmp_path: Path) -> None:
    found = made(
        tmp_path,
        [batch(0, "a", "b"), batch(2, "a", "b-", pid=1, txn=True), abort(4, pid=1, timestamp=OLD)],
        [batch(5, "c-", "d", pid=1, txn=True, sequence=2), commit(7, pid=1, timestamp=OLD)],
    )
    assert left(found) == [0, 1, 6]
    assert (found.done.total.aborted, found.done.total.tombstones_dropped) == (2, 1)


def test_case_7_a_transaction_over_segments_and_one_that_is_open_at_the_bound(tmp_path: Path) -> None:
    found = made(
        tmp_path,
        [batch(0, "a"), batch(1, "a", pid=1, txn=True)],
        [batch(2, "b", pid=1, txn=True, sequence=1)],
        [abort(3, pid=1, timestamp=OLD), batch(4, "c")],
        [batch(5, "c", pid=2, txn=True)],
        [commit(6, pid=2, timestamp=OLD)],
        policy=replace(BASE, producer_expiry_ms=10**9),
    )
    assert found.done.decision.cleanable.limit == "active segment"
    assert left(found) == [0, 5]
    other = made(
        tmp_path / "open", [batch(0, "a"), batch(1, "a")], [batch(2, "a", pid=1, txn=True)], [batch(3, "a")]
    )
    assert (other.done.decision.cleanable.limit, left(other)) == ("open transaction", [1])


def test_case_8_keys_of_users_that_look_like_those_of_markers_take_no_marker_away(tmp_path: Path) -> None:
    records = [Record(struct.pack(">hh", 0, kind), b"v") for kind in (0, 1, 0, 1)]
    found = made(
        tmp_path,
        [batch(0, "a", pid=1, txn=True), commit(1, pid=1, timestamp=OLD), data(2, records, timestamp=OLD)],
    )
    assert shapes(found)[:2] == [(0, "data"), (1, "commit")]
    assert left(found) == [0, 4, 5]


def test_case_9_the_last_batch_of_an_active_producer_and_of_the_span_stay_emptied(tmp_path: Path) -> None:
    active = replace(BASE, producer_expiry_ms=10**9)
    found = made(tmp_path, [batch(0, "a", pid=1), batch(1, "a"), batch(2, "b-")], policy=active)
    assert shapes(found) == [(0, "emptied"), (1, "data"), (2, "emptied")]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("size", [100, 70_000, 200_000, 3_000_000])
def test_case_10_every_codec_with_contents_of_any_size(codec: int, size: int, tmp_path: Path) -> None:
    import random

    value = random.Random(size).randbytes(size // 2) + b"x" * (size // 2)
    first = data(0, [Record(b"a", value), Record(b"b", value), Record(b"a", b"new")], timestamp=OLD)
    raw = codecs.packed(first.raw, codec)
    found = made(tmp_path, [replace(first, raw=raw), batch(3, "c", codec=codec)])
    assert left(found) == [1, 2, 3]
    assert twin.records(found.logs[0][: naive.parse(found.logs[0])[0].size])[0].value == value


def test_case_10_what_was_packed_at_another_level_is_packed_at_the_default_one(tmp_path: Path) -> None:
    first = batch(0, *(f"key {number}" for number in range(3000)))
    raw = codecs.sealed(first.raw, gzip.compress(first.raw[61:], 9, mtime=0), attributes=1)
    found = made(tmp_path, [replace(first, raw=raw), batch(3000, "key 0")])
    new = found.logs[0][: naive.parse(found.logs[0])[0].size]
    assert new == codecs.sealed(
        first.raw,
        PACK[1](b"".join(r.raw for r in twin.records(first.raw)[1:])),
        attributes=1,
        count=2999,
    )


def test_case_11_log_append_time_keeps_its_time_and_the_clients_times(tmp_path: Path) -> None:
    records = [rec("a", timestamp=5), rec("b", timestamp=7)]
    raw = builders.encode(0, records, attributes=8, base_timestamp=5, max_timestamp=OLD)
    found = made(tmp_path, [Batch(raw, 0, 1, 8, -1, -1, -1, OLD, 2), batch(2, "a")])
    new = found.logs[0]
    assert naive.parse(new)[0].max_timestamp == OLD
    assert twin.records(new[: naive.parse(new)[0].size])[0].raw == twin.records(raw)[1].raw


@pytest.mark.parametrize(
    ("times", "greatest"), [((9, 5, 7), 7), ((9, -1, -1), -1), ((9, -5, -7), -1), ((5, 9, 8), 9)]
)
def test_case_12_the_greatest_time_is_that_of_the_records_that_stay(
    times: tuple[int, ...], greatest: int, tmp_path: Path
) -> None:
    records = [rec(key, timestamp=time) for key, time in zip("abc", times, strict=True)]
    first = Batch(builders.encode(0, records, base_timestamp=times[0]), 0, 2, 0, -1, -1, -1, 9, 3)
    assert naive.parse(made(tmp_path, [first, batch(3, "a")]).logs[0])[0].max_timestamp == greatest


def test_cases_13_and_14_headers_and_attributes_of_records_stay_verbatim(tmp_path: Path) -> None:
    headers = (("h", b"1"), ("h", None), ("", b""))
    first = data(0, [rec("a"), rec("b", headers=headers)], timestamp=OLD)
    odd = first.raw.replace(b"\x02h\x021", b"\x02\xff\x021")
    body = bytearray(odd[61:])
    body[1] = body[1 + 1 + body[0] // 2] = 0x55  # attributes of both records
    raw = codecs.sealed(odd, bytes(body), attributes=0x4000)
    found = made(tmp_path, [replace(first, raw=raw), batch(2, "a")])
    new = found.logs[0]
    record = twin.records(new[: naive.parse(new)[0].size])[0]
    assert (record.headers[0], record.attributes) == ((b"\xff", b"1"), 0x55)
    assert naive.parse(new)[0].attributes == 0x4000


def test_case_16_two_keys_with_one_md5_both_stay(tmp_path: Path) -> None:
    first = bytes.fromhex(
        "d131dd02c5e6eec4693d9a0698aff95c2fcab58712467eab4004583eb8fb7f8955ad340609f4b30283e488832571415a"
        "085125e8f7cdc99fd91dbdf280373c5bd8823e3156348f5bae6dacd436c919c6dd53e2b487da03fd02396306d248cda0"
        "e99f33420f577ee8ce54b67080a80d1ec69821bcb6a8839396f9652b6ff72a70"
    )
    second = bytearray(first)
    for place, bit in ((19, 0x80), (45, 0x80), (59, 0x80), (83, 0x80), (109, 0x80), (123, 0x80)):
        second[place] ^= bit
    import hashlib

    assert hashlib.md5(first).digest() == hashlib.md5(bytes(second)).digest()
    keys = [Record(first, b"1"), Record(bytes(second), b"2")]
    assert left(made(tmp_path, [data(0, keys, timestamp=OLD)])) == [0, 1]


def test_cases_17_and_18_holes_and_offsets_that_do_not_fit_one_segment(tmp_path: Path) -> None:
    far = 2**31
    found = made(
        tmp_path,
        [batch(5, "a", last_offset=9)],
        [batch(40, "b")],
        [batch(far + 5, "c")],
        bases=[0, 40, far + 4],
    )
    assert sorted(found.logs)[:2] == [0, far + 4]
    assert left(found) == [5, 40, far + 5]


def test_case_19_segments_of_no_bytes_and_a_group_of_which_nothing_is_left(tmp_path: Path) -> None:
    alone = replace(BASE, merge=False)
    segments: tuple[list[Batch], ...] = (
        [batch(0, "a")],
        [],
        [batch(2, "a-"), batch(3, "b")],
        [batch(4, "b")],
    )
    found = made(tmp_path, *segments, policy=alone, bases=[0, 1, 2, 4])
    assert shapes(found) == [(0, "emptied"), (3, "emptied"), (4, "data")]
    assert found.logs[1] == b""


def test_case_20_a_batch_larger_than_every_window(tmp_path: Path) -> None:
    records = [Record(b"%d" % number, b"x" * 400_000) for number in range(6)]
    found = made(tmp_path, [data(0, records, timestamp=OLD)], [batch(6, "0", "3")])
    assert left(found) == [1, 2, 4, 5, 6, 7]


def test_case_21_a_wrong_checksum_leaves_the_partition_alone_with_the_position(tmp_path: Path) -> None:
    first, second = batch(0, "a"), batch(1, "a")
    raw = second.raw[:-1] + b"?"
    found = made(tmp_path, [first, replace(second, raw=raw)])
    assert isinstance(found.compaction, Skipped)
    assert (found.compaction.code, f"position {len(first.raw)}" in found.compaction.why) == ("damage", True)


def test_case_22_one_key_very_often(tmp_path: Path) -> None:
    found = made(tmp_path, *[[batch(base, *["k"] * 2000)] for base in range(0, 20_000, 2000)])
    assert left(found) == [19_999]
    assert (found.done.keys, found.done.total.superseded) == (1, 19_999)


@pytest.mark.parametrize("index", ["missing", "lying"])
def test_case_23_what_is_aborted_is_decided_by_markers_whatever_the_index_says(
    index: str, tmp_path: Path
) -> None:
    partition = LogDir(tmp_path).partition("t")
    partition.segment(
        batch(0, "a"), batch(1, "a", pid=1, txn=True), abort(2, pid=1, timestamp=OLD), mtime_ms=OLD
    )
    partition.segment(
        batch(3, "b", pid=1, txn=True), commit(4, pid=1, timestamp=OLD), batch(5, "c"), mtime_ms=OLD
    )
    partition.segment(batch(6, "active"))
    folder = partition.write(snapshots=False)
    (folder / "00000000000000000000.txnindex").unlink()
    if index == "lying":
        entry = struct.pack(">hqqqq", 0, 1, 3, 4, 5)
        (folder / "00000000000000000003.txnindex").write_bytes(entry)
    found = compacted(folder, replace(BASE, high_watermark=7))
    assert left(found) == [0, 3, 5]


def test_case_24_a_segment_with_records_younger_than_the_lag_ends_the_span(tmp_path: Path) -> None:
    policy = replace(BASE, min_compaction_lag_ms=60_000)
    ancient = NOW_MS - 10**6
    found = made(
        tmp_path,
        [batch(0, "a", timestamp=ancient)],
        # the young record is superseded: the bound stays where it is all the same
        [batch(1, "a", timestamp=OLD), batch(2, "a", timestamp=ancient)],
        [batch(3, "a", timestamp=ancient)],
        policy=policy,
    )
    assert (found.done.decision.cleanable.limit, left(found)) == ("min.compaction.lag.ms", [0])


@pytest.mark.parametrize("checkpoint", [-1, 1, 10**9])
def test_case_25_the_checkpoint_of_the_cleaner_does_not_matter_to_keys(
    checkpoint: int, tmp_path: Path
) -> None:
    policy = replace(BASE, first_dirty_offset=checkpoint)
    assert left(made(tmp_path, [batch(0, "a", "b")], [batch(2, "a")], policy=policy)) == [1, 2]


def test_case_26_a_group_grows_by_the_bytes_that_are_written_not_by_those_that_were_read(
    tmp_path: Path,
) -> None:
    first, second = batch(0, *"abcdefgh"), batch(8, *"abcdefgh")
    policy = replace(BASE, segment_bytes=len(second.raw) + 61)
    found = made(tmp_path, [first], [second], [batch(16, *"abcdefgh")], policy=policy)
    assert [len(group.sources) for group in found.done.decision.groups] == [3]


def test_case_27_records_below_the_log_start_are_compacted_like_all_others(tmp_path: Path) -> None:
    # a broker deletes whole segments below the log start itself; inside a segment nobody reads them
    assert left(made(tmp_path, [batch(0, "a", "b", "a")], [batch(3, "b")])) == [2, 3]


def test_case_28_a_tombstone_above_a_damaged_segment_stays_with_all_else(tmp_path: Path) -> None:
    damaged = batch(0, "a")
    found = made(tmp_path, [replace(damaged, raw=damaged.raw[:-1] + b"?")], [batch(1, "a-"), batch(2, "b")])
    assert isinstance(found.compaction, Skipped)


def test_case_29_a_commit_in_a_transaction_competes_by_the_offset_of_its_record(tmp_path: Path) -> None:
    # commit in a transaction, plain tombstone, then the marker: the tombstone is the later record
    segment = [
        batch(0, "group", pid=1, txn=True),
        batch(1, "group-"),
        commit(2, pid=1, timestamp=OLD),
        batch(3, "z"),
    ]
    assert left(made(tmp_path, (segment, YOUNG))) == [1, 3]
