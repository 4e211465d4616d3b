"""Where a start may empty healthy segments (KR804): since 4.0, after an unclean stop, on a full disk or in a folder of
somebody else.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.logdir.space import VolumeSpace
from krepair.logdir.view import read_log_dir
from krepair.ops.findings import emptied_findings
from krepair.start import needs
from krepair.start.line import ForecastLine
from krepair.start.needs import StartSpace
from krepair.start.ownership import Node, nodes_of
from tests import builders
from tests.builders import NOW_MS, data
from tests.ops.inline import Inline

ROOMY = StartSpace(4096, 0, 1 << 30, "")
FULL = StartSpace(4096, 0, 4095, "")
KAFKA = 64_001


def made(root: Path, *, clean_stop: bool = False) -> Path:
    directory = builders.LogDir(root)
    for number in (0, 1):
        directory.partition("t", number).segment(data(0, 3)).segment(data(3, 2)).segment(data(5, 2))
    return directory.write(clean_stop=clean_stop)


def checked(log_dir: Path, version: str = "") -> list[str]:
    report = Inline(now_ms=NOW_MS + 60_000).checked(log_dir, broker_version=version)
    return [finding.rule for finding in report.findings if finding.rule == "KR804"]


def owned(log_dir: Path, foreign: str = "") -> list[Node]:
    """Everything belongs to one user, but for one folder or file, which is root's."""
    return [
        node._replace(uid=0, gid=0, mode=0o755 if node.is_folder else 0o644)
        if "/".join(filter(None, (node.partition, node.name))) == foreign
        else node._replace(uid=KAFKA, gid=KAFKA)
        for node in nodes_of(read_log_dir(str(log_dir)))
    ]


def line(partition: str, *segments: int) -> ForecastLine:
    return ForecastLine(
        partition=partition, expected="recover", text="", bytes_read=100 * len(segments), segments=segments
    )


@pytest.mark.parametrize(
    ("version", "clean_stop", "expected"),
    [
        ("4.3.1", False, 1),
        ("4.0.0", False, 1),
        ("3.9.2", False, 0),
        ("", False, 1),
        ("4.3.1", True, 0),
        ("", True, 0),
    ],
)
def test_full_disk_is_told_after_an_unclean_stop_unless_the_broker_is_known_to_be_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, clean_stop: bool, expected: int
) -> None:
    log_dir = made(tmp_path / "logs", clean_stop=clean_stop)
    assert checked(log_dir, version) == []
    monkeypatch.setattr(needs, "read_space", lambda path: VolumeSpace(0, 9, 4096, False))
    assert checked(log_dir, version) == ["KR804"] * expected


def test_version_that_only_the_directory_tells_of_may_be_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = made(tmp_path / "logs")
    with (log_dir / "meta.properties").open("a") as file:
        file.write("directory.id=sUcJkJTsQQSTxBpDG9_GAA\n")
    monkeypatch.setattr(needs, "read_space", lambda path: VolumeSpace(0, 9, 4096, False))
    assert checked(log_dir) == ["KR804"]


def test_full_disk_is_one_finding_with_the_bytes_that_are_at_stake(tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs")
    lines = [line("t-0", 3, 5), line("t-1", 5)]
    (finding,) = emptied_findings(read_log_dir(str(log_dir)), lines, FULL, owned(log_dir), (4, 0, 0))
    assert (finding.partition, finding.bytes) == ("", 300)
    assert finding.evidence == (
        "the next start recovers 300 bytes of 2 partitions and may write 4096 bytes, 4095 are free; if the disk "
        "becomes full, a broker since 4.0 may empty the healthy segment that it is recovering and delete all later "
        "ones (a broker before 4.0 only stops); free the space before any start"
    )


def test_folder_that_the_brokers_user_cannot_write_is_told_with_what_to_type(tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs")
    view, lines = read_log_dir(str(log_dir)), [line("t-0", 3, 5), line("t-1", 5)]
    (finding,) = emptied_findings(view, lines, ROOMY, owned(log_dir, "t-0"), None)
    assert (finding.partition, finding.bytes) == ("t-0", 200)
    assert finding.evidence == (
        f"the next start recovers 200 bytes here, from {3:020d}.log on, in a folder that its user cannot write: t-0: "
        f"root:root 0755; most files are of {KAFKA}:{KAFKA}, who has no write; chown {KAFKA}:{KAFKA} {view.path}/t-0; "
        "a broker since 4.0 then may empty the first of these segments and delete all later ones (a broker before "
        "4.0 only stops)"
    )


def test_files_that_stop_a_start_before_anything_is_lost_and_folders_not_recovered_are_left_to_kr605(
    tmp_path: Path,
) -> None:
    log_dir = made(tmp_path / "logs")
    view, lines = read_log_dir(str(log_dir)), [line("t-0", 3, 5)]
    for foreign in (f"t-0/{3:020d}.index", f"t-0/{3:020d}.snapshot", f"t-0/{3:020d}.log", "t-1"):
        nodes = owned(log_dir, foreign)
        assert any(node.uid == 0 for node in nodes), foreign
        assert list(emptied_findings(view, lines, ROOMY, nodes, None)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_folder_of_root_among_those_of_the_broker_is_found_by_check(tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs")
    for path in (log_dir, *log_dir.rglob("*")):
        os.chown(path, KAFKA, KAFKA)
    assert checked(log_dir, "4.3.1") == []
    os.chown(log_dir / "t-1", 0, 0)
    assert checked(log_dir, "4.3.1") == ["KR804"]
    assert checked(log_dir, "3.9.2") == []
