"""What ``krepair dump`` says of a file is what the broker's own dump tool says, field by field."""

from __future__ import annotations

import json
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from krepair.formats import message_set
from krepair.formats.codec import Codec
from krepair.formats.group_metadata import GROUP_METADATA_VALUE
from krepair.ops.dump import Dump
from krepair.options import Options
from tests import encoders
from tests.fixture_dirs import unpack
from tests.lab.jars import LATEST
from tests.lab.jvm import java

pytestmark = pytest.mark.broker

MAIN = {
    "2.2.1": "kafka.tools.DumpLogSegments",
    "3.9.2": "kafka.tools.DumpLogSegments",
    LATEST: "org.apache.kafka.tools.DumpLogSegments",
}
SUFFIXES = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
MEMBERS = next(field for field in GROUP_METADATA_VALUE.fields if field.name == "members")
NEWEST_PACKED = 3
PAIR = re.compile(r"(\w+): (\S+)")
PAYLOAD = re.compile(r"(?: key: (?P<key>.*?))?(?: payload: (?P<payload>.*))?$")
TYPES = ("CreateTime", "LogAppendTime", "NoTimestampType")
BATCH = {
    "baseOffset": "base_offset", "lastOffset": "last_offset", "count": "records", "baseSequence": "base_sequence",
    "lastSequence": "last_sequence", "producerId": "producer_id", "producerEpoch": "producer_epoch",
    "partitionLeaderEpoch": "leader_epoch", "isTransactional": "transactional", "isControl": "control",
    "position": "position", "size": "size", "magic": "magic", "crc": "crc", "isvalid": "valid",
}  # fmt: skip
FIXTURES = {
    "compact-2.2.1-before": (
        "c-zstd-0",
        "c-lz4-0",
        "c-snappy-0",
        "c-gzip-0",
        "c-none-0",
        "c-lat-0",
        "c-nullkey-0",
    ),
    "oldformat-2.2.1-before": (
        "m0-none-0",
        "m0-lz4-0",
        "m0-snappy-0",
        "m1-gzip-0",
        "m1-lat-0",
        "m1-lz4-0",
        "mixed-0",
    ),
}
OFFSETS = {"offsets-bloat-2.2.0-clean": ("2.2.1", "3.9.2", LATEST), "offsets-tv2-4.3.1": ("3.9.2", LATEST)}


def theirs(version: str, folders: list[Path], *options: str) -> dict[Path, list[str]]:
    """File -> the tool's lines about it."""
    files = sorted(path for folder in folders for path in folder.iterdir() if path.suffix in SUFFIXES)
    argv = java(version, MAIN[version], "--files", ",".join(map(str, files)), *options)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[Path, list[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("Dumping "):
            lines = found.setdefault(Path(line.removeprefix("Dumping ")), [])
        elif not line.startswith(("Starting offset", "Log starting offset")):
            lines.append(line)
    assert sorted(found) == files
    return found


def ours(folders: list[Path]) -> dict[Path, list[dict[str, Any]]]:
    """File -> our lines about it."""
    run = Dump([str(folder) for folder in folders], Options(json_lines=True))
    found: dict[Path, list[dict[str, Any]]] = {}
    for line in b"".join(bytes(piece) for piece in run.lines()).splitlines():
        fields = json.loads(line)
        if fields["type"] == "file":
            lines = found.setdefault(Path(fields["file"]), [])
        elif fields["type"] not in {"dump", "end"}:
            lines.append(fields)
    return found


def same_batch(line: str, our: dict[str, Any]) -> None:
    pairs = dict(PAIR.findall(line))
    if pairs["magic"] == "2":
        assert {BATCH[name]: value for name, value in pairs.items() if name in BATCH} == {
            name: str(our[name]).lower() for name in BATCH.values()
        }
    else:
        assert (pairs["offset"], pairs["position"], pairs["size"]) == (
            str(our["base_offset"]), str(our["position"]), str(our["size"]),
        )  # fmt: skip
        assert (pairs["crc"], pairs["isvalid"]) == (str(our["crc"]), str(our["valid"]).lower())
    kind = next(name for name in TYPES if name in pairs)
    assert (kind, pairs[kind]) == (our["timestamp_type"], str(our["max_timestamp"]))
    assert pairs["compresscodec"].lower() == our["codec"]
    if "deleteHorizonMs" in pairs:
        digits = re.sub(r"\D", "", pairs["deleteHorizonMs"])
        assert digits == ("" if our.get("delete_horizon_ms") is None else str(our["delete_horizon_ms"]))


def same_record(line: str, our: dict[str, Any], magic: int) -> None:
    front, _, keys = line.removeprefix("| ").partition(" headerKeys: ")
    pairs = {name.lower(): value for name, value in PAIR.findall(front)}
    kind = next(name for name in TYPES if name.lower() in pairs)
    assert (pairs["offset"], kind, pairs[kind.lower()]) == (
        str(our["offset"]), our["timestamp_type"], str(our["timestamp"]),
    )  # fmt: skip
    assert (int(pairs["keysize"]), int(pairs["valuesize"])) == (our["key_size"], our["value_size"])
    if magic < 2:
        return
    assert pairs["sequence"] == str(our["sequence"])
    names, _, rest = keys.partition("]")
    assert names[1:] == ",".join(header["key"] for header in our.get("headers", ()))
    if our["control"]:
        marker = dict(PAIR.findall(rest))
        assert (marker["endTxnMarker"], marker["coordinatorEpoch"]) == (
            our["marker"],
            str(our["coordinator_epoch"]),
        )
    else:
        match = PAYLOAD.match(rest)
        assert match
        for theirs_, name in ((match["key"], "key"), (match["payload"], "value")):
            if theirs_ is not None and name in our:
                assert theirs_ == our[name]


def same_log(lines: list[str], our: list[dict[str, Any]]) -> int:
    assert len(lines) == len(our)
    magic = 2
    for line, fields in zip(lines, our, strict=True):
        if line.startswith("|"):
            assert fields["type"] == "record"
            same_record(line, fields, magic)
        else:
            assert fields["type"] == "batch"
            magic = fields["magic"]
            same_batch(line, fields)
    return len(lines)


def numbers(lines: list[str]) -> list[list[int]]:
    return [[int(number) for _, number in PAIR.findall(line)] for line in lines]


def same_entries(suffix: str, lines: list[str], our: list[dict[str, Any]]) -> int:
    our = [fields for fields in our if fields["type"] != "padding"]
    if suffix == ".snapshot":
        assert our[0]["type"] == "snapshot"
        names = {"producerId": "producer_id", "producerEpoch": "producer_epoch",
                 "coordinatorEpoch": "coordinator_epoch",
                 "lastSequence": "last_sequence", "lastOffset": "last_offset", "offsetDelta": "offset_delta",
                 "timestamp": "timestamp", "lastTimestamp": "timestamp"}  # fmt: skip
        for line, fields in zip(lines, our[1:], strict=True):
            for name, value in PAIR.findall(line):
                if name in names:
                    assert int(value) == fields[names[name]], (line, fields)
        return len(lines)
    lines = [line for line in lines if not line.endswith(" is empty.")]
    values = [[value for value in fields.values() if isinstance(value, int)] for fields in our]
    if suffix in {".index", ".timeindex"} and not our:
        # the tool of 2.2.1 shows an entry of an empty index
        assert len(lines) <= 1
        return 0
    assert numbers(lines) == values
    return len(lines)


def expected_fields(version: str, key: str, value: str, fields: dict[str, Any]) -> None:
    """The decoded fields of one record against the tool's own spelling of them."""
    if version == "2.2.1" and key.startswith("offset::"):
        of, values = fields["key_fields"], fields["value_fields"]
        assert key == f"offset::{of['group']}:{of['topic']}:{of['partition']}"
        assert value == (
            f"{values['offset']}:{values['metadata']}" if values["metadata"] else f"{values['offset']}"
        )
    elif version == "2.2.1":
        their = json.loads(value)
        assert json.loads(key) == {"metadata": fields["key_fields"]["group"]}
        assert their["generationId"] == fields["value_fields"]["generation"]
        assert their["protocol"] == fields["value_fields"]["protocol"]
    else:
        assert snaked(json.loads(key)) == {"type": str(fields["key_version"]), "data": fields["key_fields"]}
        their = snaked(json.loads(value))
        assert their["version"] == str(fields["value_version"])
        values = fields["value_fields"]
        if "members" in values:
            values = values | {"members": [as_their_tool_shows(member) for member in values["members"]]}
        for name, expected in their["data"].items():
            assert values[name] == expected


def as_their_tool_shows(member: dict[str, Any]) -> dict[str, Any]:
    """Our member without what we say beside Kafka's fields: the tool shows what is packed in place of the bytes.

    Versions that it does not know stay bytes there. We read them, as Kafka's clients do.
    """
    names = [field.name for field in MEMBERS.fields if field.name in member]
    packed = {name for name in names if member.get(f"{name}_version", NEWEST_PACKED + 1) <= NEWEST_PACKED}
    return {name: member[f"{name}_fields"] if name in packed else member[name] for name in names}


def of_other_formats(folder: Path) -> Path:
    """Wrappers with messages of another format than their own, as a cleaner before 0.10.2 wrote them (KAFKA-4298)."""
    base, wrapped = 0, []
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        for wrapper, inner, time in (
            (1, (0, 0, 0), None),
            (1, (0, 1), None),
            (1, (0, 1), 77),
            (0, (1, 1), None),
        ):
            messages = [
                message_set.Message(
                    base + place,
                    magic,
                    0,
                    50 + place if magic else message_set.NO_TIMESTAMP,
                    b"k",
                    b"v%d" % place,
                )
                for place, magic in enumerate(inner)
            ]
            wrapped.append(encoders.wrapped(messages, codec, magic=wrapper, log_append_time=time))
            base += len(inner)
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(encoders.encode_messages(wrapped))
    return folder


@pytest.mark.parametrize("version", MAIN)
def test_every_file_of_every_format_and_codec_is_as_the_brokers_tool_says(
    tmp_path: Path, version: str
) -> None:
    roots = {fixture: unpack(fixture, tmp_path) for fixture in FIXTURES}
    folders = [roots[fixture] / name for fixture, names in FIXTURES.items() for name in names]
    folders.append(of_other_formats(tmp_path / "wrapped-0"))
    said, our = theirs(version, folders, "--deep-iteration", "--print-data-log"), ours(folders)
    compared = 0
    for path, lines in said.items():
        same = same_log if path.suffix == ".log" else partial(same_entries, path.suffix)
        try:
            compared += same(lines, our[path])
        except AssertionError as error:
            raise AssertionError(f"{path}: {error}") from error
    assert compared > 10_000


@pytest.mark.parametrize(
    ("fixture", "version"), [(name, each) for name, versions in OFFSETS.items() for each in versions]
)
def test_offsets_records_are_decoded_as_the_brokers_tool_does(
    tmp_path: Path, fixture: str, version: str
) -> None:
    folder = unpack(fixture, tmp_path) / "__consumer_offsets-0"
    said, our = theirs(version, [folder], "--deep-iteration", "--offsets-decoder"), ours([folder])
    compared = 0
    for path in (path for path in said if path.suffix == ".log"):
        same_log(said[path], our[path])
        for line, fields in zip(said[path], our[path], strict=True):
            key, payload, value = line.partition(" key: ")[2].partition(" payload: ")
            if payload and fields["type"] == "record":
                compared += 1
                expected_fields(version, key, value, fields)
    assert compared > 50


def snaked(value: Any) -> Any:
    if isinstance(value, dict):
        return {re.sub(r"(?<!^)(?=[A-Z])", "_", key).lower(): snaked(item) for key, item in value.items()}
    return [snaked(item) for item in value] if isinstance(value, list) else value
