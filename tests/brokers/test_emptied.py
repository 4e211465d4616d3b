"""Kafka's own loader empties healthy segments where KR804 says so, from 4.0 on, and nowhere else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.brokers.starts import POINT, load, made, restricted, sizes, small_disk
from tests.builders import NOW_MS
from tests.lab import jars
from tests.lab.judge import Judge

__all__ = ["restricted", "small_disk"]

pytestmark = pytest.mark.broker


VERSIONS = ("3.9.2", *jars.SINCE_4)


def told(log_dir: Path, version: str) -> set[str]:
    given = Options(engine=EngineName.INLINE, now_ms=NOW_MS, broker_version=version)
    findings = check([str(log_dir)], given).log_dirs[0].findings
    return {each.rule for each in findings} & {"KR804", "KR605", "KR703"}


@pytest.mark.parametrize("version", VERSIONS)
def test_segment_in_a_folder_that_cannot_be_written_is_emptied_since_4_0_as_told(
    tmp_path: Path, restricted: Callable[[str], Judge], version: str
) -> None:
    log_dir = made(tmp_path / "logs")
    folder = log_dir / "t-0"
    folder.chmod(0o555)
    before, found = sizes(folder), told(log_dir, version) - {"KR703"}
    if os.geteuid() != 0:
        assert found == ({"KR804", "KR605"} if version in jars.SINCE_4 else {"KR605"})
    load(restricted(version), folder)
    folder.chmod(0o755)
    log = f"{POINT:020d}.log"
    assert sizes(folder) == (before | {log: 0} if version in jars.SINCE_4 else before)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "name", [".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"]
)
def test_file_that_cannot_be_written_costs_no_record_and_is_not_told_as_if_it_did(
    tmp_path: Path, restricted: Callable[[str], Judge], version: str, name: str
) -> None:
    log_dir = made(tmp_path / "logs")
    folder = log_dir / "t-0"
    for path in folder.glob(f"*{name}"):
        path.chmod(0o444)
    before = sizes(folder)
    assert "KR804" not in told(log_dir, version)
    load(restricted(version), folder)
    assert sizes(folder) == before


@pytest.mark.parametrize("version", VERSIONS)
def test_segment_on_a_full_disk_is_emptied_since_4_0_as_told(
    small_disk: Callable[[int], Path], version: str
) -> None:
    disk = small_disk(1 << 20)
    log_dir = made(disk / "logs")
    folder = log_dir / "t-0"
    for path in folder.glob("*.snapshot"):
        if int(path.stem) > POINT:
            path.unlink()  # so that removing them makes no room
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    before = sizes(folder)
    assert told(log_dir, version) == ({"KR804", "KR703"} if version in jars.SINCE_4 else {"KR703"})
    with Judge(version) as judge:  # its own: after a failure it keeps files open, and the disk busy
        load(judge, folder)
    after = sizes(folder)
    if version == "3.9.2":
        assert after == before
    else:
        assert sum(after.values()) < sum(before.values())
