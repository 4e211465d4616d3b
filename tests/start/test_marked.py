"""A marked folder is loaded as any other: what is wrong with its small files ends a start, too."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from krepair.findings.reports import LogDirReport
from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.builders import NOW_MS, LogDir, data
from tests.fixture_dirs import unpack
from tests.lab.broker import Broker, BrokerError, Topic
from tests.lab.jars import LATEST
from tests.start import states
from tests.start.agreement import disagreements

EVERY = os.environ.get("KREPAIR_EVERY_BROKER") == "1"
OLD, NEW = "2.2.1", LATEST
KINDS = ("delete", "future", "stray")
FILES = {
    "abc.log": (b"", "ends", "ends"),
    "partition.metadata": (b"", "start", "ends"),
    "partition.metadata ": (b"version 0\n", "start", "directory"),
    "leader-epoch-checkpoint": (b"x", "ends", "directory"),
    "leader-epoch-checkpoint ": (b"0\n1\nx 5\n", "ends", "ends"),
    "leader-epoch-checkpoint  ": (b"0\n1\n-3 5\n", "start", "ends"),
    "leader-epoch-checkpoint   ": (b"", "start", "start"),
}
"""Name, blanks behind it -> what is in it, and what a start of an old and of a new broker comes to."""
CASES = [
    (version, kind, name)
    for version in (OLD, NEW)
    for kind in KINDS
    for name in FILES
    if (version, kind) != (OLD, "stray")  # it knows no such folder
]
STARTED = [case for case in CASES if EVERY or (case[0], case[1]) == (NEW, "delete")]


def made(root: Path, kind: str, name: str) -> Path:
    """A partition, and a marked copy of it with one file that is wrong."""
    directory = LogDir(root)
    directory.partition("t").segment(data(0, 10))
    log_dir = directory.write()
    marked = log_dir / f"u-0.0123456789abcdef0123456789abcdef-{kind}"
    shutil.copytree(log_dir / "t-0", marked)
    (marked / name.strip()).write_bytes(FILES[name][0])
    return log_dir


def foretold(log_dirs: list[Path], version: str) -> tuple[LogDirReport, ...]:
    options = Options(engine=EngineName.INLINE, now_ms=NOW_MS, broker_version=version)
    return check([str(path) for path in log_dirs], options).log_dirs


@pytest.mark.parametrize(("version", "kind", "name"), CASES)
def test_a_file_of_a_marked_folder_that_no_broker_reads_ends_the_start(
    version: str, kind: str, name: str, tmp_path: Path
) -> None:
    log_dir = made(tmp_path / "logs", kind, name)
    expected = FILES[name][1 if version == OLD else 2]
    (report,) = foretold([log_dir], version)
    said = {line.expected for line in report.forecast if line.partition == "t-0"}
    assert said == {"start" if expected == "start" else "refuse"}
    assert disagreements(report) == []
    other = LogDir(tmp_path / "other")
    other.partition("other").segment(data(0, 10))
    _, beside = foretold([log_dir, other.write()], version)
    assert {line.expected for line in beside.forecast} == {"refuse" if expected == "ends" else "start"}


@pytest.mark.broker
@pytest.mark.parametrize(("version", "kind", "name"), STARTED)
def test_a_broker_does_so(version: str, kind: str, name: str, tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs", kind, name)
    expected = FILES[name][1 if version == OLD else 2]
    topics = {"t": Topic(1, {"retention.ms": "-1"})}
    alone, other = tmp_path / "alone", tmp_path / "other"
    seen = [started(version, shutil.copytree(log_dir, alone), topics)]
    other.mkdir()
    formatted = (alone / "meta.properties").read_text()
    (other / "meta.properties").write_text(re.sub(r"(?m)^directory.id=.*\n", "", formatted))
    seen.append(started(version, log_dir, topics, other))
    assert (
        seen == {"start": ["start"] * 2, "directory": ["refuse", "start"], "ends": ["refuse"] * 2}[expected]
    )


def started(version: str, log_dir: Path, topics: dict[str, Topic], *more: Path) -> str:
    try:
        with Broker(version, log_dir, topics=topics, more_dirs=more):
            return "start"
    except BrokerError:
        return "refuse"


@pytest.mark.parametrize(
    ("version", "expected"), [("3.6.2", "refuse"), ("3.9.2", "stray"), ("4.4.0", "stray")]
)
@pytest.mark.parametrize("alone", [False, True], ids=["beside its partition", "alone"])
def test_an_empty_future_folder_becomes_a_stray_under_kraft(
    tmp_path: Path, version: str, expected: str, alone: bool
) -> None:
    log_dir = unpack("kraft-3.9.2" if version != "4.4.0" else "kraft-4.4.0", tmp_path)
    future = f"one-0.{'a' * 32}-future"
    (log_dir / future).mkdir()
    if alone:
        shutil.rmtree(log_dir / "one-0")
    said = states.foretold(states.checked([log_dir], None, version))
    assert said.get(future, "refuse") == expected
    if expected == "stray" and not alone:
        assert said["one-0"] == "start"
