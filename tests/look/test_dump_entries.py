"""Dump of indexes, snapshots and text files: every entry is there, damage is named, any bytes have a result."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from krepair.errors import ExitCode
from krepair.formats import producer_snapshot
from krepair.ops.dump import Dump
from krepair.options import Options
from tests import encoders
from tests.fixture_dirs import unpack
from tests.flips import flip

NAMES = ("00000000000000000000.index", "00000000000000000000.timeindex", "00000000000000000000.txnindex",
         "leader-epoch-checkpoint", "recovery-point-offset-checkpoint", "meta.properties", "partition.metadata",
         "00000000000000000007.snapshot")  # fmt: skip


def dumped(path: Path, **options: Any) -> tuple[list[dict[str, Any]], ExitCode]:
    run = Dump([str(path)], Options(json_lines=True, **options))
    lines = [json.loads(line) for line in b"".join(bytes(piece) for piece in run.lines()).split(b"\n")[:-1]]
    return [line for line in lines if line["type"] not in {"dump", "file", "end"}], run.exit_code


def kinds(lines: list[dict[str, Any]]) -> list[str]:
    return [line["type"] for line in lines]


def index(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def test_entries_of_an_index_have_the_offsets_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000100.index"
    path.write_bytes(index((3, 50), (9, 90), (12, 130)) + bytes(80))
    lines, code = dumped(path)
    assert [(line.get("offset"), line["position"]) for line in lines] == [
        (103, 50),
        (109, 90),
        (112, 130),
        (None, 24),
    ]
    assert (lines[-1]["type"], lines[-1]["entries"], code) == ("padding", 10, ExitCode.DONE)
    lines, _ = dumped(path, offsets=(105, 110))
    assert [line["offset"] for line in lines if line["type"] == "index_entry"] == [109]


@pytest.mark.parametrize(
    ("data", "place", "length"),
    [
        (index((3, 50), (2, 90), (12, 130)), 8, 8),
        (index((3, 50), (9, 40), (12, 130)), 8, 8),
        (index((3, 50), (0, 0), (12, 130)), 8, 8),
        (index((-1, 50)), 0, 8),
        (index((3, 50)) + b"torn", 8, 4),
    ],
)
def test_a_wrong_entry_is_damage_where_it_is_and_the_others_are_shown(
    tmp_path: Path, data: bytes, place: int, length: int
) -> None:
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(data)
    lines, code = dumped(path)
    [damage] = [line for line in lines if line["type"] == "damage"]
    assert (damage["position"], damage["length"], code) == (place, length, ExitCode.FOUND)


def test_a_lone_entry_of_zeros_in_a_time_index_is_one(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000005.timeindex"
    path.write_bytes(bytes(12))
    assert dumped(path) == ([{"type": "time_index_entry", "timestamp": 0, "offset": 5}], ExitCode.DONE)


def test_holes_in_a_file_are_passed_over_and_what_is_behind_them_is_read(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.index"
    with path.open("wb") as file:
        file.write(index((3, 50)))
        file.seek(512 << 20)
        file.write(index((9, 90)))
    lines, code = dumped(path)
    assert kinds(lines) == ["index_entry", "damage", "index_entry"]
    assert (lines[1]["position"], lines[1]["found"], code) == (8, "zeros", ExitCode.FOUND)


def test_producers_of_a_snapshot_with_a_wrong_checksum_are_shown_all_the_same(tmp_path: Path) -> None:
    entry = producer_snapshot.ProducerEntry(7, 3, 41, 1000, 2, 1_700_000_000_000, 5, 998)
    path = tmp_path / "00000000000000001001.snapshot"
    path.write_bytes(encoders.encode_snapshot([entry, entry._replace(producer_id=8)]))
    lines, code = dumped(path)
    assert (kinds(lines), code) == (["snapshot", "producer", "producer"], ExitCode.DONE)
    assert lines[1] == {"type": "producer", **entry._asdict()}
    flip(path, -1)
    lines, code = dumped(path)
    assert (kinds(lines), code) == (["damage", "snapshot", "producer", "producer"], ExitCode.FOUND)


@pytest.fixture(scope="module")
def real_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Name -> bytes of one file of each kind from a real log directory."""
    root = unpack("offsets-tv2-4.3.1", tmp_path_factory.mktemp("real"))
    found: dict[str, bytes] = {}
    for name in NAMES:
        suffix = name.partition(".")[2] if name[0] == "0" else name
        paths = [path for path in root.rglob("*") if path.is_file() and path.name.endswith(suffix)]
        found[name] = max((path.read_bytes() for path in paths), key=len)
        assert found[name], name
    return found


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_real_files_damaged_at_random_have_a_result(
    tmp_path: Path, real_files: dict[str, bytes], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(NAMES))
    content = bytearray(real_files[name])
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(content)))
        piece = data.draw(st.binary(min_size=1, max_size=20))
        content[place : place + len(piece)] = piece
    del content[data.draw(st.integers(0, len(content))) :]
    path = tmp_path / name
    path.write_bytes(content)
    lines, code = dumped(path)
    assert (code == ExitCode.FOUND) == ("damage" in kinds(lines))
    if bytes(content) == real_files[name]:
        assert code == ExitCode.DONE
