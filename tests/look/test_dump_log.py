"""Dump of a log: every byte belongs to a batch or to damage, whatever the log contains, in little memory."""

from __future__ import annotations

import json
import random
import re
import resource
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from krepair.formats import batch_v2, group_metadata, message_set, record
from krepair.formats.compression import Codec
from krepair.formats.damage import Damage
from krepair.look.dump.log import KR307, LogDump, WantedLines
from krepair.look.dump.record import RecordLines, Style
from krepair.ops.dump import Dump
from krepair.options import Options
from krepair.scan.contents import unreadable_contents
from krepair.scan.log_records import DEFAULT_CUT, LogRecords
from tests import builders, encoders
from tests.fixture_dirs import unpack
from tests.formats import packed_members

LOGS = ("c-none-0", "c-lz4-0", "c-zstd-0", "c-snappy-0", "c-gzip-0")
OLD_LOGS = ("m0-lz4-0", "m1-gzip-0", "m1-snappy-0", "mixed-0")


def wanted(*, grep: re.Pattern[bytes] | None = None, cut: int = DEFAULT_CUT, **more: Any) -> WantedLines:
    style = Style(as_json=True)
    lines = RecordLines(style, grep=grep, cut=cut)
    return WantedLines(style, cut=cut, searched=grep is not None, lines=lines, **more)


def dumped(
    log: bytes, wanting: WantedLines | None = None, *, window_bytes: int = 1 << 16, base_offset: int = 0
) -> list[dict[str, Any]]:
    walk = LogDump(builders.reading(log), len(log), base_offset, wanting or wanted(), window_bytes)
    text = b"".join(bytes(piece) for piece in walk.lines())
    return [json.loads(line) for line in text.split(b"\n")[:-1]]


def of_type(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["type"] == kind]


def batch(
    base: int,
    records: list[record.Record],
    *,
    codec: int = 0,
    count: int | None = None,
    body: bytes | None = None,
) -> bytes:
    content = encoders.encode_records(records) if body is None else body
    if body is None:
        content = encoders.compress(codec, content)
    header = batch_v2.BatchHeader(base, 0, 0, 2, 0, codec, max(len(records) - 1, 0), 1000, 1000, -1, -1, -1,
                                  len(records) if count is None else count)  # fmt: skip
    return batch_v2.encode_batch(header, content)


def some(count: int, size: int = 10) -> list[record.Record]:
    return [record.Record(offset_delta=n, key=b"k%d" % n, value=b"v" * size) for n in range(count)]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int, bytes]]:
    """(name, base offset, first 40 kB or so) of real logs of every format and codec."""
    found = []
    for fixture, names in (("compact-2.2.1-before", LOGS), ("oldformat-2.2.1-before", OLD_LOGS)):
        root = unpack(fixture, tmp_path_factory.mktemp("logs"))
        for name in names:
            path = min((root / name).glob("*.log"))
            found.append((name, int(path.stem), path.read_bytes()[:40_000]))
    return found


def assert_covers(lines: list[dict[str, Any]], size: int) -> None:
    """Batches and damage between them cover the log from its first byte to its last, none twice."""
    spans = {(line["position"], line["position"] + line["size"]) for line in of_type(lines, "batch")}
    inside = {start for start, _ in spans}
    for line in of_type(lines, "damage"):
        start, end = line["position"], line["position"] + line["length"]
        if not any(a <= start and end <= b for a, b in spans):
            assert start not in inside
            spans.add((start, end))
    place = 0
    for start, end in sorted(spans):
        assert start == place, (start, place)
        place = end
    assert place == size


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_anywhere_is_shown_and_the_walk_goes_on(
    logs: list[tuple[str, int, bytes]], data: st.DataObject
) -> None:
    _, base, whole = data.draw(st.sampled_from(logs), label="log")
    log = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 4), label="changes")):
        place = data.draw(st.integers(0, len(log) - 1))
        piece = data.draw(st.binary(min_size=1, max_size=40))
        log[place : place + len(piece)] = piece
    del log[data.draw(st.integers(1, len(log)), label="cut") :]
    wanting = wanted()
    lines = dumped(
        bytes(log),
        wanting,
        window_bytes=data.draw(st.sampled_from([5000, 20_000, 1 << 16])),
        base_offset=base,
    )
    assert_covers(lines, len(log))
    assert wanting.damages == len(of_type(lines, "damage"))


def test_batch_with_a_negative_base_offset_is_shown() -> None:
    raw = bytearray(batch(0, some(2)) + batch(2, some(1)))
    raw[0] = 0x80
    lines = dumped(bytes(raw))
    assert_covers(lines, len(raw))
    assert [line["base_offset"] for line in of_type(lines, "batch")] == [-(2**63), 2]


def test_records_behind_damage_in_the_middle_are_shown() -> None:
    parts = [batch(n * 3, some(3)) for n in range(5)]
    broken = bytearray(b"".join(parts))
    at = len(parts[0]) + len(parts[1])
    broken[at : at + 30] = b"\xff" * 30
    lines = dumped(bytes(broken))
    assert [line["offset"] for line in of_type(lines, "record")] == [0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14]
    assert [(line["position"], line["length"]) for line in of_type(lines, "damage")] == [(at, len(parts[2]))]


def test_a_batch_with_a_wrong_checksum_is_shown_with_its_records_and_as_damage() -> None:
    parts = [batch(n * 3, some(3)) for n in range(3)]
    broken = bytearray(b"".join(parts))
    broken[len(parts[0]) + 17] ^= 1
    lines = dumped(bytes(broken))
    assert [line["valid"] for line in of_type(lines, "batch")] == [True, False, True]
    assert len(of_type(lines, "record")) == 9
    [damage] = of_type(lines, "damage")
    assert (damage["position"], damage["length"]) == (len(parts[0]), len(parts[1]))
    assert "CRC" in damage["expected"]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_content_that_cannot_be_decompressed_is_kr307_and_the_walk_goes_on(codec: Codec) -> None:
    good = batch(0, some(3), codec=codec)
    body = bytearray(encoders.compress(codec, encoders.encode_records(some(3, 500))))
    body[len(body) // 2 :] = b"\x77" * (len(body) - len(body) // 2)
    lines = dumped(good + batch(3, some(3), codec=codec, body=bytes(body)) + batch(6, some(3), codec=codec))
    [damage] = of_type(lines, "damage")
    assert (damage["rule"], damage["position"]) == (KR307, len(good) + batch_v2.HEADER_SIZE)
    assert [line["offset"] for line in of_type(lines, "record") if line["offset"] > 5] == [6, 7, 8]
    assert all(line["valid"] for line in of_type(lines, "batch"))


@pytest.mark.parametrize(("count", "records"), [(5, 3), (2, 3)])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_wrong_record_count_is_damage(codec: Codec, count: int, records: int) -> None:
    lines = dumped(batch(0, some(records), codec=codec, count=count) + batch(9, some(1)))
    assert len(of_type(lines, "damage")) == 1
    assert len(of_type(lines, "record")) == min(count, records) + 1


def peak_more(run: Any) -> int:
    """By how many bytes the highest memory of this process grew."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def bomb(front: bytes, frames: int) -> bytes:
    """A batch whose content begins with some bytes and goes on with so many times 16 MiB of zeros, in zstd frames."""
    zeros = encoders.compress(Codec.ZSTD, bytes(16 << 20))
    body = encoders.compress(Codec.ZSTD, front) + zeros * frames
    assert frames == 0 or (frames << 24) / len(body) > 20_000
    return batch(0, [], codec=Codec.ZSTD, count=2**31 - 1, body=body)


def test_bombs_end_soon_and_take_no_memory() -> None:
    one = encoders.encode_record(record.Record(key=b"k"))
    endless = b"\xfe\xff\xff\xff\x0f\x00\x00\x00\x01\xe0\xff\xff\xff\x0f"  # a value of 2 GB
    log = bomb(one * 2, 200) * 20 + bomb(endless, 70)
    lines: list[dict[str, Any]] = []
    assert peak_more(lambda: lines.extend(dumped(log))) < 100 << 20
    damages = [line for line in of_type(lines, "damage") if "offset above" not in line["expected"]]
    assert len(damages) == len(of_type(lines, "batch")) == 21
    assert {line["rule"] for line in damages} == {KR307}
    assert len(of_type(lines, "record")) == 40
    assert damages[-1]["expected"] == f"at most {1 << 30} bytes decompressed"


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_record_larger_than_any_buffer_is_cut_in_what_is_shown_and_the_next_is_whole(codec: Codec) -> None:
    size = 40 << 20
    records = [
        record.Record(key=b"first", value=b"v"),
        record.Record(
            offset_delta=1, key=b"giant", value=b"g" * size, headers=(record.RecordHeader(b"h", b"x"),)
        ),
        record.Record(offset_delta=2, key=b"last", value=b"v"),
    ]
    log = batch(0, records, codec=codec) + batch(3, some(1))
    lines = dumped(log, wanted(cut=1000))
    found = of_type(lines, "record")
    assert [line["offset"] for line in found] == [0, 1, 2, 3]
    assert (found[1]["value_size"], len(found[1]["value"]), found[1]["value_cut"]) == (size, 1000, True)
    assert (found[1]["key"], found[1]["headers"]) == ("giant", [{"key": "h", "value": "x"}])
    assert not of_type(lines, "damage")


def test_hundreds_of_records_larger_than_the_buffer_in_one_batch_are_all_shown() -> None:
    large = [record.Record(offset_delta=n, key=b"k", value=bytes(1 << 20)) for n in range(400)]
    lines = dumped(batch(0, large, codec=Codec.ZSTD), wanted(cut=10))
    assert [line["offset"] for line in of_type(lines, "record")] == list(range(400))
    assert not of_type(lines, "damage")


@pytest.mark.parametrize("magic", [0, 1])
def test_old_wrappers_show_their_messages_with_offsets_of_the_log(magic: int) -> None:
    inner = tuple(
        message_set.Message(7 + n, magic, 0, 5 if magic else -1, b"k", b"v%d" % n) for n in range(3)
    )
    log = encoders.encode_messages(
        [
            encoders.wrapped(inner, Codec.GZIP),
            message_set.Message(10, magic, 0, 5 if magic else -1, None, b""),
        ]
    )
    lines = dumped(log)
    assert [line["offset"] for line in of_type(lines, "record")] == [7, 8, 9, 10]
    assert of_type(lines, "record")[3]["key"] is None
    assert not of_type(lines, "damage")
    cut = bytearray(log)
    cut[60] ^= 0xFF
    assert_covers(dumped(bytes(cut)), len(cut))


@pytest.mark.parametrize(
    ("wrapper", "offset", "times"), [(1, 103, [-1, 77]), (0, 101, [-1, 5]), (1, 6, None)]
)
def test_messages_of_another_format_than_their_wrapper_are_read_each_by_its_own(
    wrapper: int, offset: int, times: list[int] | None
) -> None:
    """KAFKA-4298, as brokers read it: of v1 the offset counts from the wrapper's, which is not below the last one."""
    inner = [message_set.Message(7 + n, n, 0, 5 if n else -1, b"k", b"v") for n in range(2)]
    value = encoders.compress(Codec.GZIP, encoders.encode_messages(inner))
    attributes = Codec.GZIP | (message_set.LOG_APPEND_TIME if wrapper else 0)
    log = encoders.encode_messages(
        [message_set.Message(offset, wrapper, attributes, 77 if wrapper else -1, None, value)]
    )
    lines = dumped(log)
    if times is None:
        (damage,) = of_type(lines, "damage")
        assert "offset 8 or more" in str(damage)
        return
    first = offset - 1 if wrapper else 7
    assert [(line["offset"], line["timestamp"]) for line in of_type(lines, "record")] == [
        (first, times[0]), (first + 1, times[1]),
    ]  # fmt: skip
    assert not of_type(lines, "damage")


def test_offsets_limit_and_search_choose_lines() -> None:
    log = b"".join(batch(n * 10, some(10)) for n in range(10))
    lines = dumped(log, wanted(lowest=15, highest=32))
    assert [line["offset"] for line in of_type(lines, "record")] == list(range(15, 33))
    assert [line["base_offset"] for line in of_type(lines, "batch")] == [10, 20, 30]
    assert [line["offset"] for line in dumped(log, wanted(batches=False, highest=50, lowest=50))] == [50]
    limited = wanted(left=7)
    assert len(dumped(log, limited)) == 7
    assert limited.left == 0
    found = dumped(log, wanted(grep=re.compile(b"k7$")))
    assert [line["offset"] for line in of_type(found, "record")] == [n * 10 + 7 for n in range(10)]
    assert len(of_type(found, "batch")) == 10
    assert dumped(log, wanted(grep=re.compile(b"nothing"))) == []


def members_of(lines: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """(protocol type, member as it is shown)."""
    values = [line["value_fields"] for line in of_type(lines, "record") if line["record"] == "group_metadata"]
    return [(value["protocol_type"], member) for value in values for member in value["members"]]


def test_members_of_consumer_groups_are_decoded_and_those_of_other_protocols_stay_bytes() -> None:
    log = b"".join(builders.data(n, [one]).raw for n, one in enumerate(packed_members.groups()))
    style = Style(as_json=True)
    decoding = WantedLines(
        style, cut=DEFAULT_CUT, lines=RecordLines(style, table=group_metadata.RECORDS), searched=False
    )
    members = members_of(dumped(log, decoding))
    assert {kind for kind, _ in members} == {"consumer", "connect"}
    for kind, member in members:
        read = "subscription_fields" in member or "subscription_problem" in member
        assert read == (kind == "consumer")
        assert "subscription" in member
    richest = next(member for _, member in members if member.get("subscription_version") == 3)
    assert richest["subscription_fields"] == packed_members.SUBSCRIBED | {"user_data": "/wB1"}
    assert len({len(member) for _, member in members}) > 3


def test_a_real_member_is_decoded(tmp_path: Path) -> None:
    folder = unpack("offsets-bloat-2.2.0-clean", tmp_path) / "__consumer_offsets-0"
    run = Dump([str(folder)], Options(json_lines=True))
    lines = [json.loads(line) for line in b"".join(bytes(piece) for piece in run.lines()).splitlines()]
    [(kind, member)] = members_of([line for line in lines if "value_fields" in line])
    assert (kind, member["subscription_version"], member["assignment_version"]) == ("consumer", 3, 0)
    assert member["subscription_fields"] == {
        "topics": ["t-a", "t-b"], "user_data": "", "owned_partitions": [], "generation_id": -1, "rack_id": ""
    }  # fmt: skip
    assert member["assignment_fields"]["assigned_partitions"] == [
        {"topic": "t-a", "partitions": [0, 1]},
        {"topic": "t-b", "partitions": [0, 1]},
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.sampled_from([100, 300, 5000]), st.booleans())
def test_the_window_has_no_say_in_what_is_shown(codecs: list[int], window_bytes: int, only: bool) -> None:
    log = b"".join(batch(n * 3, some(3), codec=codec) for n, codec in enumerate(codecs))
    expected = dumped(log, wanted(batches=not only))
    assert dumped(log, wanted(batches=not only), window_bytes=window_bytes) == expected
    assert len(of_type(expected, "record")) == 3 * len(codecs)


def mixed_log(chance: random.Random) -> bytes:
    """Batches of all codecs, plain ones between them; some have content that is large, cut, or of another count."""
    found = []
    for number in range(150):
        codec = chance.choice(list(Codec))
        size = chance.choice((3, 3, 3000, 600_000)) if number % 40 == 7 else chance.choice((3, 40, 900))
        records, count, body = some(5, size), 5, None
        if chance.random() < 0.06:
            count = chance.choice((0, 4, 6))
        elif chance.random() < 0.06:
            content = encoders.compress(codec, encoders.encode_records(records))
            body = content[: chance.randrange(len(content))]
        found.append(batch(5 * number, records, codec=codec, count=count, body=body))
    return b"".join(found)


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"batches": False},
        {"lowest": 101, "highest": 533},
        {"left": 77},
        {"grep": re.compile(b"k3")},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_batches_that_are_unpacked_together_are_shown_as_each_alone(
    seed: int, limits: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = mixed_log(random.Random(seed))
    together = dumped(log, wanted(**limits), window_bytes=1 << 20)
    assert of_type(together, "record")
    monkeypatch.setattr(LogRecords, "_unpacked_together", LogRecords._each_alone)
    assert dumped(log, wanted(**limits), window_bytes=1 << 20) == together


@pytest.mark.parametrize("seed", range(3))
def test_contents_that_are_unpacked_together_are_judged_as_each_alone(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = mixed_log(random.Random(seed))

    def problems() -> list[tuple[int, Damage]]:
        return list(unreadable_contents(builders.reading(log), len(log), 0))

    together = problems()
    assert len({codec for codec, _ in together}) > 1
    monkeypatch.setattr(LogRecords, "_unpacked_together", LogRecords._each_alone)
    assert problems() == together


def test_zeros_behind_the_last_batch_are_damage_and_holes_cost_nothing() -> None:
    one = batch(0, some(1))
    lines = dumped(one + bytes(10_000))
    [damage] = of_type(lines, "damage")
    assert (damage["position"], damage["length"], damage["found"]) == (len(one), 10_000, "zeros")


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 4))
def test_any_bytes_behind_a_right_checksum(body: bytes, codec: int) -> None:
    log = batch(0, [], codec=codec, count=3, body=body) + batch(9, some(1))
    lines = dumped(log)
    assert len(of_type(lines, "batch")) == 2
    assert of_type(lines, "record")[-1]["offset"] == 9
    old = struct.pack(">qi", 5, 14 + len(body)) + struct.pack(">IbbII", 0, 0, codec, 0, len(body)) + body
    assert_covers(dumped(old), len(old))


def test_lines_are_given_before_they_are_many_megabytes() -> None:
    large = [record.Record(offset_delta=0, key=b"k", value=b"v" * 900_000)]
    log = b"".join(batch(number, large) for number in range(12))
    for grep in (None, re.compile(b"v")):
        walk = LogDump(builders.reading(log), len(log), 0, wanted(grep=grep))
        sizes = [len(piece) for piece in walk.lines()]
        assert sum(sizes) > 12 * 900_000
        assert max(sizes) < 2_000_000
