"""What a version of Kafka can read: the table of versions, and what check says of a directory by it (KR805, KR610)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.checks.catalogue import StartEffect, start_of
from krepair.errors import ExitCode
from krepair.formats import cluster_metadata as metadata
from krepair.formats.kafka_versions import (
    LINES,
    METADATA_VERSION,
    RELEASES,
    UsedFormat,
    knows_format,
    lines_of,
    not_read,
)
from tests.fixture_dirs import unpack
from tests.logdir.metadata_records import batch, value
from tests.start.metadata_log import appended
from tests.start.states import METADATA, OTHER_ID, checked, foretold, second

WRITTEN = {"3.9.2": ("3.9", "4.4"), "4.3.1": ("4.3", "4.4"), "4.4.0": ("4.4", "4.4")}
"""Version that wrote a fixture -> the oldest and the newest that can read it."""
TRIED = ("2.2.1", "3.3.2", "3.6.2", "3.7.2", "3.9.2", "4.0.0", "4.2.1", "4.3.1", "4.4.0")


def level(name: str, number: int) -> bytes:
    return value(metadata.FEATURE_LEVEL, {"name": name, "feature_level": number})


def test_a_line_of_the_table_names_its_source_and_is_there_once() -> None:
    assert all(line.source and line.since >= RELEASES[0] for line in LINES)
    assert len({(line.since, line.what) for line in LINES}) == len(LINES)
    newest = lines_of(RELEASES[-1])
    for number, schema in metadata.TYPES.items():
        assert newest[f"record {number}"].most == schema.latest, schema.name
    assert {number for number in metadata.PASSED_OVER if f"record {number}" not in newest} == {16}


@pytest.mark.parametrize(
    ("what", "number", "readers"),
    [
        (METADATA_VERSION, 1, "3.3 3.9"),
        (METADATA_VERSION, 7, "3.3 3.9 4.0 4.4"),
        (METADATA_VERSION, 14, "3.9 4.0 4.4"),
        (METADATA_VERSION, 22, "4.0 4.4"),
        (METADATA_VERSION, 34, ""),
        ("streams.version", 0, "2.2 3.3 3.9 4.0 4.4"),
        ("streams.version", 1, "4.4"),
        ("one.of.later.version", 1, ""),
        ("record 6", 0, "3.3"),
        ("record 29", 0, "4.4"),
        ("group_metadata", 3, "3.3 3.9 4.0 4.4"),
        ("segment.bytes", 20_000, "2.2 3.3 3.9 4.0"),
    ],
)
def test_which_versions_read_what(what: str, number: int, readers: str) -> None:
    tried = {"2.2": (2, 2, 1), "3.3": (3, 3, 2), "3.9": (3, 9, 2), "4.0": (4, 0, 0), "4.4": (4, 4, 0)}
    used = [UsedFormat(what, number, "here")]
    assert " ".join(name for name, version in tried.items() if not any(not_read(version, used))) == readers


def test_a_message_format_is_known_from_its_version_on() -> None:
    assert [knows_format((3, 6, 2), one) for one in ("2.1", "3.0-IV1", "0.10.2", "3.6", "3.7-IV0")] == [
        *[True] * 4,
        False,
    ]
    assert knows_format((4, 0, 0), "5.0")


@pytest.mark.parametrize("written", WRITTEN)
def test_each_version_is_told_of_each_directory(tmp_path: Path, written: str) -> None:
    log_dir = unpack(f"kraft-{written}", tmp_path)
    oldest, newest = WRITTEN[written]
    for version in TRIED:
        report = checked([log_dir], None, version)
        assert (report.oldest_version, report.newest_version) == WRITTEN[written]
        reads = tuple(map(int, version.split(".")[:2])) >= tuple(map(int, oldest.split(".")))
        assert set(foretold(report).values()) == {"start" if reads else "refuse"}, version
        found = [one.rule for one in report.log_dirs[0].findings if one.rule == "KR805"]
        assert found == ([] if reads else ["KR805"])
        assert reads or str(report.next_command) == "krepair explain KR805"
    unnamed = checked([log_dir], None)
    assert set(foretold(unnamed).values()) == {"start"}
    assert newest == "4.4"


Made = Callable[[Path], None]


def _bootstrap(number: int) -> Made:
    return lambda log_dir: (
        (log_dir / "bootstrap.checkpoint").write_bytes(batch(0, [level(METADATA_VERSION, number)])) and None
    )


def _without_log(log_dir: Path) -> None:
    for file in (log_dir / METADATA).glob("0*.checkpoint"):
        file.unlink()


SITUATIONS: list[tuple[str, Made, str, str, str]] = [
    (
        "a level of a later Kafka",
        lambda one: appended(one, level(METADATA_VERSION, 99)),
        "4.4.0",
        "refuse",
        "",
    ),
    ("the same, no version typed", lambda one: appended(one, level(METADATA_VERSION, 99)), "", "unknown", ""),
    (
        "an early level on record",
        lambda one: appended(one, level(METADATA_VERSION, 4)),
        "4.4.0",
        "refuse",
        "3.9",
    ),
    ("the same on 3.9", lambda one: appended(one, level(METADATA_VERSION, 4)), "3.9.2", "start", "3.9"),
    ("a feature of a later Kafka", lambda one: appended(one, level("x.version", 1)), "4.4.0", "refuse", ""),
    ("the same, not in use", lambda one: appended(one, level("x.version", 0)), "3.9.2", "start", "3.9 4.4"),
    (
        "a type of record of 4.4",
        lambda one: appended(one, bytes([1, 29, 0, 0, 0, 0, 0, 0])),
        "4.3.1",
        "refuse",
        "4.4",
    ),
    ("a type that nobody knows", lambda one: appended(one, bytes([1, 99, 0])), "4.4.0", "refuse", ""),
    (
        "a version that nobody knows",
        lambda one: appended(one, bytes([1, 3, 9])),
        "4.4.0",
        "unknown",
        "3.9 4.4",
    ),
    ("bootstrap.checkpoint alone is later", _bootstrap(33), "3.9.2", "refuse", "4.1 4.4"),
    ("the same on a version that reads it of an empty log only", _bootstrap(33), "4.3.1", "start", "4.1 4.4"),
    ("bootstrap.checkpoint alone is early", _bootstrap(4), "4.0.1", "refuse", "3.9 4.4"),
    ("the same on 3.9", _bootstrap(4), "3.9.2", "start", "3.9 4.4"),
    ("bootstrap.checkpoint of a preview", _bootstrap(2), "3.9.2", "refuse", "4.1 4.4"),
    (
        "a controller is taken away that is not registered",
        lambda one: appended(one, value(metadata.UNREGISTER_CONTROLLER, {"controller_id": 3})),
        "4.4.0",
        "unknown",
        "4.4",
    ),
    ("a preview", lambda one: None, "3.1.0", "unknown", "3.9 4.4"),
]


@pytest.mark.parametrize(
    ("situation", "make", "version", "expected", "readers"), SITUATIONS, ids=[one[0] for one in SITUATIONS]
)
def test_what_a_directory_needs_is_asked_of_the_version(
    tmp_path: Path, situation: str, make: Made, version: str, expected: str, readers: str
) -> None:
    log_dir = unpack("kraft-3.9.2", tmp_path)
    make(log_dir)
    report = checked([log_dir], None, version)
    assert set(foretold(report).values()) == {expected}, situation
    ends = (report.oldest_version, report.newest_version)
    assert " ".join(dict.fromkeys(one for one in ends if one)) == readers
    assert (report.exit_code is ExitCode.DONE) is (expected == "start")
    if expected == "refuse":
        (found,) = (one for one in report.log_dirs[0].findings if one.rule == "KR805")
        assert "does not start" in found.evidence


@pytest.mark.parametrize(
    ("version", "expected"), [("3.3.2", "refuse"), ("3.6.2", "start"), ("3.7.2", "start")]
)
def test_kraft_before_3_4_wants_all_lines_of_two_directories_alike(
    tmp_path: Path, version: str, expected: str
) -> None:
    log_dir = unpack("kraft-3.9.2", tmp_path)
    shutil.rmtree(log_dir / METADATA)
    (log_dir / "bootstrap.checkpoint").unlink()
    second(log_dir, directory_id=OTHER_ID)
    report = checked([log_dir, log_dir.with_name("logs2")], None, version)
    assert set(foretold(report).values()) == {expected}


@pytest.mark.parametrize(
    ("name", "record"),
    [
        (
            "broker epoch",
            value(metadata.BROKER_CHANGE, {"broker_id": 0, "broker_epoch": 999_999, "fenced": -1}, 1),
        ),
        ("broker", value(metadata.BROKER_CHANGE, {"broker_id": 77, "broker_epoch": 7, "fenced": -1}, 1)),
        ("broker that is fenced", value(metadata.FENCE_BROKER, {"id": 0, "epoch": 999_999})),
        ("topic id", value(metadata.REMOVE_TOPIC, {"topic_id": OTHER_ID})),
        (
            "partition",
            value(
                metadata.PARTITION_CHANGE,
                {"partition_id": 9, "topic_id": OTHER_ID, "isr": [0], "leader": 0},
            ),
        ),
    ],
)
def test_a_record_that_cannot_be_replayed_makes_the_start_unknown(
    tmp_path: Path, name: str, record: bytes
) -> None:
    log_dir = unpack("kraft-3.9.2", tmp_path)
    appended(log_dir, record)
    report = checked([log_dir], None, "3.9.2")
    assert set(foretold(report).values()) == {"unknown"}, name
    (found,) = (one for one in report.log_dirs[0].findings if start_of(one) is StartEffect.UNKNOWN)
    assert found.rule == "KR610"
    assert report.exit_code is ExitCode.FOUND


def test_the_page_has_the_levels_of_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "next-start.md").read_text()
    for line in LINES:
        if line.what == METADATA_VERSION:
            assert f"| {line.since[0]}.{line.since[1]} | {line.least} to {line.most}" in page
