"""What tests of a broker's start share: small disks, logs that a start empties, gathered forecasts."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from krepair.findings.reports import CheckReport, LogDirReport
from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests import builders
from tests.builders import abort, data
from tests.fixture_dirs import readable_by_4, unpack
from tests.lab import beside
from tests.lab.broker import Topic
from tests.lab.judge import Judge, JudgeError
from tests.ops.scene import BLOAT

AS_NOBODY_SPECIAL = (
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
)
"""Root, to whom the modes of files matter as to anybody else."""
POINT = 20
RETAINING = {
    "log.retention.check.interval.ms": 1000,
    "log.segment.delete.delay.ms": 100,
    "log.cleaner.enable": "false",
}
"""Retention looks first 30 s after the start; from 3.x on a setting for tests makes that sooner."""


def logs_of(log_dir: Path, topic: str) -> list[str]:
    """Names of the logs of its partition 0."""
    return beside.listed(log_dir / f"{topic}-0")


def deleted_by_retention(report: CheckReport, topic: str) -> list[str]:
    """Logs that the forecast says retention deletes."""
    found = next(line for line in report.log_dirs[0].forecast if line.partition == f"{topic}-0")
    words = (word.strip(",;") for word in found.text.split())
    return [f"{word}.log" for word in words if len(word) == 20]


def made(root: Path) -> Path:
    """Five segments with transactions; those from offset 20 on are recovered."""
    directory = builders.LogDir(root)
    partition = directory.partition("t", index_interval_bytes=100)
    for base in range(0, 50, 10):
        partition.segment(
            data(base, 2, pid=7, txn=True, sequence=base),
            abort(base + 2, pid=7),
            data(base + 3, 2),
            data(base + 5, 5),
        )
    log_dir = directory.write(clean_stop=False)
    (log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {POINT}\n")
    return log_dir


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if ".log" in path.name}


@pytest.fixture(scope="module")
def restricted() -> Iterator[Callable[[str], Judge]]:
    """``restricted("4.3.1")``: a judge that may not pass over the modes of files."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("needs setpriv to give up root's rights")
    judges: dict[str, Judge] = {}

    def of(version: str) -> Judge:
        before = AS_NOBODY_SPECIAL if os.geteuid() == 0 else ()
        return judges.setdefault(version, Judge(version, before=before))

    yield of
    for judge in judges.values():
        judge.close()


def load(judge: Judge, folder: Path) -> None:
    with contextlib.suppress(JudgeError):
        judge.load(folder, clean=False, recovery_point=POINT, settings={"index.interval.bytes": "100"})


def bloated_topics(root: Path, partitions: Mapping[str, int]) -> Path:
    """A log directory in which each partition of these topics is the same real bloated one."""
    log_dir = unpack(BLOAT, root)
    made = [(topic, number) for topic, count in partitions.items() for number in range(count)]
    for topic, number in made:
        shutil.copytree(log_dir / "__consumer_offsets-0", log_dir / f"{topic}-{number}")
    for folder in [*log_dir.glob("__*"), *log_dir.glob("t-*")]:
        shutil.rmtree(folder)
    for checkpoint in log_dir.glob("*-checkpoint"):
        own = [
            line for line in checkpoint.read_text().splitlines() if line.startswith("__consumer_offsets 0 ")
        ]
        lines = [f"{topic} {number} {line.split()[2]}\n" for line in own for topic, number in made]
        checkpoint.write_text(f"0\n{len(lines)}\n{''.join(lines)}")
    return log_dir


POINTS = {"all": 0, "half": 150, "last": 280}
TOPICS = {name: Topic(1, {"retention.ms": "-1"}, {0: 12}) for name in POINTS}


def gathered(root: Path) -> Path:
    """Three partitions of ten segments and 280 records, each with a recovery point of its own; not cleanly stopped."""
    log_dir = readable_by_4(unpack("leader-epochs-2.2.1", root))
    for name in POINTS:
        shutil.copytree(log_dir / "e-all-0", log_dir / f"{name}-0")
    for folder in ("e-all-0", "e-some-0", "e-none-0"):
        shutil.rmtree(log_dir / folder)
    lines = "".join(f"{name} 0 {point}\n" for name, point in POINTS.items())
    (log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n{len(POINTS)}\n{lines}")
    lines = "".join(f"{name} 0 280\n" for name in POINTS)
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n{len(POINTS)}\n{lines}")
    (log_dir / ".kafka_cleanshutdown").unlink()
    return log_dir


def checked(log_dir: Path, version: str) -> LogDirReport:
    given = Options(engine=EngineName.INLINE, now_ms=1_790_000_000_000, broker_version=version)
    return check([str(log_dir)], given).log_dirs[0]


@pytest.fixture
def small_disk() -> Iterator[Callable[[int], Path]]:
    """``small_disk(bytes)``: a file system of that size; skipped where nothing may be mounted."""
    mounted: list[Path] = []

    def of(size: int) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="krepair-disk-"))
        argv = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
        if subprocess.run(argv, capture_output=True, check=False).returncode:
            folder.rmdir()
            pytest.skip("needs to mount a file system")
        mounted.append(folder)
        return folder

    yield of
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()
