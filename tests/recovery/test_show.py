"""A start of 4.3.1 that empties healthy segments (KR804) loses nothing after krepair's pre-recovery."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.starts import POINT, load, made, restricted, sizes, small_disk
from tests.lab.jars import LOADER_VERSIONS, SINCE_4
from tests.lab.judge import Judge, JudgeError
from tests.recovery.scene import Verbs, points_of

__all__ = ["restricted", "small_disk"]

pytestmark = pytest.mark.broker


def recover(log_dir: Path, version: str) -> None:
    """Plan and apply."""
    verbs = Verbs(log_dir, broker_version=version, settings=(("index.interval.bytes", "100"),))
    plan = verbs.plan()
    verbs.apply(plan)
    assert points_of(log_dir) == {"t": 50}
    assert verbs.wrong(plan) == []


def start(judge: Judge, folder: Path) -> None:
    """An unclean start with the raised point; it may fail, but not lose."""
    with contextlib.suppress(JudgeError):
        judge.load(folder, clean=False, recovery_point=50, settings={"index.interval.bytes": "100"})


@pytest.mark.parametrize("version", LOADER_VERSIONS)
def test_folder_that_cannot_be_written_costs_nothing_after_krepair(
    tmp_path: Path, restricted: Callable[[str], Judge], version: str
) -> None:
    plain, log_dir = made(tmp_path / "plain"), made(tmp_path / "logs")
    recover(log_dir, version)
    for root in (plain, log_dir):
        (root / "t-0").chmod(0o555)
    before, ready = sizes(plain / "t-0"), sizes(log_dir / "t-0")
    load(restricted(version), plain / "t-0")
    start(restricted(version), log_dir / "t-0")
    lost = before | {f"{POINT:020d}.log": 0} if version in SINCE_4 else before
    assert sizes(plain / "t-0") == lost
    assert sizes(log_dir / "t-0") == ready == before | {f"{50:020d}.log": 0}


@pytest.mark.parametrize("version", LOADER_VERSIONS)
def test_full_disk_costs_nothing_after_krepair(small_disk: Callable[[int], Path], version: str) -> None:
    disk = small_disk(2 << 20)
    log_dir = made(disk / "logs")
    recover(log_dir, version)
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    before = sizes(log_dir / "t-0")
    with Judge(version) as judge:  # its own: after a failure it keeps files open, and the disk busy
        start(judge, log_dir / "t-0")
    assert sizes(log_dir / "t-0") == before
