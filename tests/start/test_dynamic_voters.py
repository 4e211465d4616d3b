"""A controller whose voters its metadata log names (KIP-853): the one that votes alone has nobody to fetch from."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from krepair.formats.cluster_metadata import SNAPSHOT_HEADER, VOTERS
from krepair.formats.control import ControlType
from tests import builders
from tests.builders import CONTROL, NOW_MS, Record
from tests.encoders import encode_fields
from tests.fixture_dirs import unpack
from tests.lab.jars import SINCE_4
from tests.start.nodes import quorum, settings, started, written
from tests.start.states import ALL, LOG, METADATA, checked, flipped, foretold


def control(kind: ControlType, value: bytes) -> Record:
    return Record(struct.pack(">hh", 0, kind), value)


def snapshot(directory_id: str, port: int, voters: Sequence[int]) -> bytes:
    """What ``kafka-storage.sh format --standalone`` writes, or ``--initial-controllers``."""
    listener = {"name": "CONTROLLER", "host": "127.0.0.1", "port": port}
    levels = {"min_supported_version": 0, "max_supported_version": 1}
    named = [
        {
            "voter_id": voter,
            "voter_directory_id": directory_id,
            "endpoints": [listener],
            "kraft_version_feature": levels,
        }
        for voter in voters
    ]
    header = {"version": 0, "last_contained_log_timestamp": NOW_MS}
    begin = (
        control(ControlType.SNAPSHOT_HEADER, encode_fields(SNAPSHOT_HEADER, 0, header)),
        control(ControlType.KRAFT_VERSION, struct.pack(">hhb", 0, 1, 0)),
        control(ControlType.KRAFT_VOTERS, encode_fields(VOTERS, 0, {"version": 0, "voters": named})),
    )
    end = control(ControlType.SNAPSHOT_FOOTER, struct.pack(">hb", 0, 0))
    return builders.encode(0, begin, attributes=CONTROL) + builders.encode(3, [end], attributes=CONTROL)


def made(root: Path, version: str, voters: Sequence[int]) -> tuple[Path, Path]:
    """The directory of a node with a snapshot that names its voters, and its configuration, which names none."""
    log_dir, of = unpack(f"kraft-{version}", root), quorum("alone")
    for old in (log_dir / METADATA).glob("*.checkpoint"):
        old.unlink()
    (log_dir / METADATA / "quorum-state").unlink()
    (found,) = re.findall(r"(?m)^directory.id=(.*)$", (log_dir / "meta.properties").read_text())
    (log_dir / METADATA / f"{0:020d}-{0:010d}.checkpoint").write_bytes(snapshot(found, of.ports[0], voters))
    more = {"controller.quorum.bootstrap.servers": f"127.0.0.1:{of.ports[0]}"}
    lines = settings(of, 0, log_dir, more)
    del lines["controller.quorum.voters"]
    return log_dir, written(root / "server.properties", lines)


@pytest.mark.parametrize(("voters", "aside"), [((0,), ALL), ((0, 1, 2), frozenset()), ((7,), frozenset())])
def test_only_one_that_votes_alone_puts_aside_what_its_log_has_lost(
    voters: tuple[int, ...], aside: frozenset[str], tmp_path: Path
) -> None:
    log_dir, config = made(tmp_path, SINCE_4[0], voters)
    (log_dir / LOG).write_bytes(b"")
    said = foretold(checked([log_dir], config, SINCE_4[0]))
    assert {name for name, expected in said.items() if expected == "stray"} == aside


@pytest.mark.parametrize(("voters", "says"), [((0,), "asks nobody"), ((0, 1, 2), "fetches the rest")])
def test_who_votes_alone_does_not_fetch_what_is_cut(
    voters: tuple[int, ...], says: str, tmp_path: Path
) -> None:
    log_dir, config = made(tmp_path, SINCE_4[0], voters)
    flipped(log_dir, 3, -3)
    (report,) = checked([log_dir], config, SINCE_4[0]).log_dirs
    assert [says in one.evidence for one in report.findings if one.rule == "KR610"] == [True]


@pytest.mark.broker
@pytest.mark.parametrize("version", SINCE_4)
def test_a_node_that_votes_alone_does_so(version: str, tmp_path: Path) -> None:
    log_dir, config = made(tmp_path, version, (0,))
    (log_dir / LOG).write_bytes(b"")
    seen = started(version, config, [log_dir], lambda seen: seen.aside == ALL)
    assert (seen.up, seen.aside) == (True, ALL), seen.log[-3000:]
