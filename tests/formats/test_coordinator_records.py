"""Records of the coordinators' topics: written and read back, read by Kafka's own classes, and broken."""

from __future__ import annotations

import base64
import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.formats import group_metadata, share_group_state, transaction_state
from krepair.formats.batch_v2 import batches
from krepair.formats.coordinator_record import RecordTable
from krepair.formats.damage import Damage
from krepair.formats.filenames import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from krepair.formats.message_schema import Field, Schema, decode, decode_versioned, id_text
from krepair.formats.record import batch_records
from krepair.formats.transaction_state import RECORDS, TransactionStatus, state_name
from tests.encoders import encode_fields as encode
from tests.encoders import encode_versioned
from tests.fixture_dirs import unpack
from tests.formats import packed_members
from tests.lab import jars
from tests.lab.jvm import java

JUDGE = Path(__file__).parent / "java" / "RecordJudge.java"
TABLES = (group_metadata.RECORDS, transaction_state.RECORDS, share_group_state.RECORDS)
PACKAGES = {
    OFFSETS_TOPIC: "org.apache.kafka.coordinator.group.generated",
    TRANSACTIONS_TOPIC: "org.apache.kafka.coordinator.transaction.generated",
    share_group_state.TOPIC: "org.apache.kafka.coordinator.share.generated",
}
ZERO_ID = id_text(bytes(16))
NUMBERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# the record's name in Kafka, where it is not the same
CLASSES = {"transaction_state": "TransactionLog"}


def schemas() -> list[tuple[str, Schema]]:
    """(name of Kafka's class, schema) of every message of the three topics and of the consumer protocol."""
    found = [
        (f"{PACKAGES[table.topic]}.{CLASSES.get(each.name, camel(each.name, first=True))}{part}", schema)
        for table in TABLES
        for each in table.types.values()
        if each.key_version or table.topic != OFFSETS_TOPIC
        for part, schema in (("Key", each.key), ("Value", each.value))
    ]
    return [
        *found,
        ("org.apache.kafka.common.message.ConsumerProtocolSubscription", group_metadata.SUBSCRIPTION),
        ("org.apache.kafka.common.message.ConsumerProtocolAssignment", group_metadata.ASSIGNMENT),
    ]


def camel(name: str, *, first: bool = False) -> str:
    head, *rest = name.split("_")
    return "".join([head.capitalize() if first else head, *(word.capitalize() for word in rest)])


def values_of(fields: tuple[Field, ...], version: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {field.name: value_of(field, version) for field in fields if field.since <= version <= field.until}
    )


def value_of(field: Field, version: int) -> st.SearchStrategy[Any]:
    kind = field.type.removeprefix("[]")
    one: st.SearchStrategy[Any]
    if kind == "uint16":
        one = st.integers(0, 2**16 - 1)
    elif kind in NUMBERS:
        one = st.integers(-(2 ** (NUMBERS[kind] - 1)), 2 ** (NUMBERS[kind] - 1) - 1)
    elif kind == "uuid":
        one = st.binary(min_size=16, max_size=16).map(id_text)
    elif kind == "string":
        one = st.text(st.characters(codec="utf-8"), max_size=20)
    elif kind == "bytes":
        one = st.binary(max_size=20)
    else:
        one = values_of(field.fields, version)
    if field.type.startswith("[]"):
        one = st.lists(one, max_size=3)
    return st.none() | one if version >= field.nullable else one


@st.composite
def messages(draw: st.DrawFn) -> tuple[str, Schema, int, dict[str, Any]]:
    name, schema = draw(st.sampled_from(schemas()))
    version = draw(st.integers(0, schema.latest))
    return name, schema, version, draw(values_of(schema.fields, version))


@given(messages())
def test_what_is_written_is_read_back(message: tuple[str, Schema, int, dict[str, Any]]) -> None:
    _, schema, version, values = message
    assert decode(schema, version, encode(schema, version, values)) == values
    assert decode_versioned(schema, encode_versioned(schema, version, values)) == (version, values)


@given(messages(), st.data())
def test_a_message_that_ends_too_early_is_a_value(
    message: tuple[str, Schema, int, dict[str, Any]], data: st.DataObject
) -> None:
    _, schema, version, values = message
    whole = encode(schema, version, values)
    cut = data.draw(st.integers(0, len(whole)))
    found = decode(schema, version, whole[:cut])
    assert isinstance(found, Damage) == (cut < len(whole))


@given(st.sampled_from(TABLES), st.none() | st.binary(max_size=80), st.none() | st.binary(max_size=200))
def test_any_bytes_have_a_result(table: RecordTable, key: bytes | None, value: bytes | None) -> None:
    found = table.decode(key, value)
    assert found.tombstone == (value is None)
    assert found.problem or (found.key and (found.value is not None or found.tombstone))


@settings(max_examples=300)
@given(st.sampled_from(TABLES), st.data())
def test_any_bytes_behind_a_known_key_have_a_result(table: RecordTable, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(table.types)))
    key = kind.to_bytes(2, "big") + encode(table.types[kind].key, 0, {})
    value = data.draw(st.integers(0, 5)).to_bytes(2, "big") + data.draw(st.binary(max_size=100))
    found = table.decode(key, value)
    assert found.type == table.types[kind].name
    assert bool(found.problem) == (found.value is None)


@pytest.mark.parametrize("table", TABLES, ids=[table.topic for table in TABLES])
def test_an_unknown_version_is_named_and_nothing_is_guessed(table: RecordTable) -> None:
    unknown = table.decode((99).to_bytes(2, "big") + b"x", b"\0\0")
    assert (unknown.type, unknown.key_version, unknown.key, unknown.value) == ("unknown", 99, {}, None)
    assert "99" in unknown.problem
    for kind, each in table.types.items():
        key = kind.to_bytes(2, "big") + encode(each.key, 0, {})
        found = table.decode(key, (30_000).to_bytes(2, "big") + bytes(100))
        assert (found.type, found.value_version, found.value) == (each.name, 30_000, None)
        assert "30000" in found.problem


@given(st.binary(max_size=60) | values_of(group_metadata.OFFSET_COMMIT_KEY.fields, 0).map(
    lambda values: encode(group_metadata.OFFSET_COMMIT_KEY, 0, values)
))  # fmt: skip
def test_the_short_way_to_a_commits_key_gives_the_same(key: bytes) -> None:
    assert group_metadata.read_commit_key(key) == decode(group_metadata.OFFSET_COMMIT_KEY, 0, key)


@given(st.data(), st.integers(0, 4), st.binary(max_size=30))
def test_the_short_way_to_a_commits_value_gives_the_same(
    data: st.DataObject, version: int, tail: bytes
) -> None:
    schema = group_metadata.OFFSET_COMMIT_VALUE
    whole = encode_versioned(schema, version, data.draw(values_of(schema.fields, version))) + tail
    value = whole[: data.draw(st.integers(2, len(whole)))]
    found = decode_versioned(schema, value)
    assert group_metadata.read_commit_value(value) == (found if isinstance(found, Damage) else found[1])


def test_a_tagged_field_that_is_not_known_is_kept() -> None:
    written = encode(group_metadata.OFFSET_COMMIT_VALUE, 4, {"offset": 5, "metadata": "m"})
    with_tag = written[:-1] + bytes([1, 9, 2]) + b"ab"
    found = decode(group_metadata.OFFSET_COMMIT_VALUE, 4, with_tag)
    assert not isinstance(found, Damage)
    assert (found["offset"], found["unknown_tags"]) == (5, {"9": b"ab"})


def test_a_member_as_a_broker_of_4_3_1_wrote_it() -> None:
    value = base64.b64decode("AAAAAA1jb25zdW1lci1vbmULLzEyNy4wLjAuMQIEdC1hAQAEk+AAAQABAA==")
    key = b"\0\5\0\1g\0\1m"
    found = group_metadata.RECORDS.decode(key, value)
    assert (found.type, found.problem) == ("consumer_group_member_metadata", "")
    assert found.value is not None
    assert (found.value["subscribed_topic_names"], found.value["classic_member_metadata"]) == (["t-a"], None)


def test_a_newer_consumer_protocol_is_read_as_the_latest_that_is_known() -> None:
    written = encode(group_metadata.SUBSCRIPTION, 3, {"topics": ["b", "a", "b"]})
    assert group_metadata.subscribed_topics(b"\0\x09" + written + b"more") == ("a", "b")
    assert group_metadata.subscribed_topics(b"\0\0\0") is None
    assert group_metadata.assigned_partitions(b"") == {}


@pytest.mark.parametrize("version", packed_members.VERSIONS)
def test_a_member_of_each_version_has_the_fields_of_that_version(version: int) -> None:
    member = packed_members.member(packed_members.subscription(version), packed_members.assignment(version))
    shown = group_metadata.unpacked_member(member)
    names = ("topics", "user_data", "owned_partitions", "generation_id", "rack_id")[: 2 + version]
    assert shown == member | {
        "subscribed_topics": ("a", "b"),
        "subscription_version": version,
        "subscription_fields": {name: packed_members.SUBSCRIBED[name] for name in names},
        "assigned_partitions": {"a": [0, 2], "b": []},
        "assignment_version": version,
        "assignment_fields": packed_members.ASSIGNED,
    }


def test_a_subscription_byte_by_byte() -> None:
    data = bytes.fromhex(
        "0003" "00000001" "0001" "61" "ffffffff"  # version, topics, no user data
        "00000001" "0001" "62" "00000002" "00000000" "00000005"  # owned: b-0, b-5
        "00000009" "0002" "7231"  # generation, rack
    )  # fmt: skip
    assert group_metadata.unpacked_member(packed_members.member(data, b""))["subscription_fields"] == {
        "topics": ["a"],
        "user_data": None,
        "owned_partitions": [{"topic": "b", "partitions": [0, 5]}],
        "generation_id": 9,
        "rack_id": "r1",
    }


def test_a_newer_subscription_is_shown_as_the_latest_known_with_what_is_left_over() -> None:
    newer = packed_members.as_version(9, packed_members.subscription(3)) + b"more!"
    shown = group_metadata.unpacked_member(packed_members.member(newer, b""))
    assert (shown["subscription_version"], shown["subscription_left_over"]) == (9, 5)
    assert shown["subscription_fields"] == packed_members.SUBSCRIBED
    assert shown["subscription"] == newer


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "subscription, byte 0: expected the version of consumer protocol subscription, found 0 bytes"),
        (
            b"\0\0\0",
            "subscription, byte 2: expected consumer protocol subscription, found 1 bytes where 4 are",
        ),
        (
            b"\xff\xff" + bytes(8),
            "expected version 0 to 3 of consumer protocol subscription, found version -1",
        ),
        (packed_members.subscription(3)[:-1], "found 5 bytes where 6 are announced"),
    ],
)
def test_a_subscription_that_cannot_be_read_is_hex_with_a_reason(data: bytes, problem: str) -> None:
    shown = group_metadata.unpacked_member(packed_members.member(data, packed_members.assignment(0)))
    assert problem in shown["subscription_problem"]
    assert shown["subscription_hex"] == data.hex()
    assert not {"subscription_fields", "subscribed_topics"} & shown.keys()
    assert shown["assignment_fields"] == packed_members.ASSIGNED


def test_an_assignment_that_cannot_be_read_is_hex_and_an_empty_one_is_no_damage() -> None:
    torn = packed_members.assignment(1)[:-5]
    shown = group_metadata.unpacked_member(packed_members.member(packed_members.subscription(0), torn))
    assert (shown["assignment_hex"], "assigned_partitions" in shown) == (torn.hex(), False)
    assert shown["assignment_problem"].startswith("assignment, byte ")
    nothing = group_metadata.unpacked_member(packed_members.member(packed_members.subscription(0), b""))
    assert (nothing["assigned_partitions"], "assignment_problem" in nothing) == ({}, False)


def in_kafkas_words(fields: tuple[Field, ...], values: dict[str, Any], version: int) -> dict[str, Any]:
    """The JSON that Kafka's converters write: tagged fields with their default are left out."""
    out: dict[str, Any] = {}
    for field in fields:
        if not field.since <= version <= field.until:
            continue
        value = values[field.name]
        if (
            field.tag >= 0
            and field.type != "struct"
            and (value == field.default or (field.type == "uuid" and value in {None, ZERO_ID}) or value == [])
        ):
            continue
        out[camel(field.name)] = _in_kafkas_words(field, value, version)
    return out


def _in_kafkas_words(field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_in_kafkas_words(field, item, version) for item in value]
    if isinstance(value, dict):
        return in_kafkas_words(field.fields, value, version)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def examples(schema: Schema, version: int) -> list[dict[str, Any]]:
    """The same few messages each time."""
    found: list[dict[str, Any]] = []

    @settings(max_examples=6, database=None, derandomize=True)
    @given(values_of(schema.fields, version))
    def collect(values: dict[str, Any]) -> None:
        found.append(values)

    collect()
    return found


@pytest.mark.broker
def test_kafkas_own_classes_read_the_same() -> None:
    cases: list[tuple[str, Schema, int, dict[str, Any]]] = []

    for name, schema in schemas():
        for version in range(schema.latest + 1):
            cases += [(name, schema, version, values) for values in examples(schema, version)]
    lines = [
        f"{name} {version} {encode(schema, version, values).hex()}" for name, schema, version, values in cases
    ]
    argv = java(jars.LATEST, str(JUDGE))
    done = subprocess.run(
        argv, input="\n".join(lines) + "\n", capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = done.stdout.split("\n")[:-1]  # not at every character that is a line end for Python
    assert len(answers) == len(cases) >= 200
    for (name, schema, version, values), answer in zip(cases, answers, strict=True):
        left, _, text = answer.partition(" ")
        assert left == "0", (name, version)
        assert json.loads(text) == in_kafkas_words(schema.fields, values, version), (name, version)


# -- transactions, in both versions of their record


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
