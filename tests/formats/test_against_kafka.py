"""Kafka's own classes agree with the formats: emptied batches, snapshots, names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from krepair.formats import batch_v2
from krepair.formats.filenames import FolderKind, base_offset_of, parse_folder_name
from krepair.formats.producer_snapshot import ProducerEntry
from tests import encoders
from tests.lab.jars import LATEST
from tests.lab.jvm import java

JUDGE = Path(__file__).parent / "java" / "FormatJudge.java"
UUID = "0123456789abcdef0123456789abcdef"
NAMES = (
    "00000000000000000042.log",
    "42.log",
    "+42.log",
    "-42.log",
    "42.copy.log",
    "copy.log",
    ".log",
    "4_2.index",
    " 42.log",
    "٣.log",
    "9223372036854775807.log",
    "9223372036854775808.log",
    "nodot",
    "a-b--7",
    "t-00",
    "t-+1",
    "t-2147483648",
    "t-٣",
    "t-",
    "-0",
    f"a-b.c-3.{UUID}-delete",
    f"t-0.{UUID}-future",
    f"t-0.{UUID}-stray",
    "t-0-delete",
    "a b-0.x-delete",
    "a b-0",
    "a-0.x.y-delete",
    "lost+found",
    "e-all-0.bak",
)
ENTRIES = (
    ProducerEntry(7, 3, 41, 1000, 2, 1_700_000_000_000, 5, 998),
    ProducerEntry(9, 0, -1, -1, 0, 1_700_000_000_001, 2, -1),
)


def folder_answer(name: str) -> str:
    found = parse_folder_name(name)
    return "none" if found.kind is FolderKind.FOREIGN else f"{found.topic}-{found.partition}"


@pytest.mark.broker
@pytest.mark.parametrize("version", ["3.9.2", LATEST])
def test_kafka_reads_names_and_snapshots_and_empties_batches_as_we_do(version: str, tmp_path: Path) -> None:
    names, snapshot = tmp_path / "names", tmp_path / "00000000000000001001.snapshot"
    names.write_text("\n".join(NAMES), encoding="utf-8")
    snapshot.write_bytes(encoders.encode_snapshot(ENTRIES))
    argv = java(version, str(JUDGE), names, snapshot)
    ran = subprocess.run(argv, capture_output=True, text=True, encoding="utf-8", check=True)

    header = batch_v2.BatchHeader(100, 0, 5, 2, 0, 0x7C, 9, 1000, 2000, 7, 3, 40, 10)
    expected = [f"empty {batch_v2.empty_batch(header).hex()}"]
    for name in NAMES:
        offset = base_offset_of(name)
        expected += [f"file {'none' if offset is None else offset}", f"folder {folder_answer(name)}"]
    assert ran.stdout.splitlines() == expected
    assert Path(f"{snapshot}.again").read_bytes() == snapshot.read_bytes()
