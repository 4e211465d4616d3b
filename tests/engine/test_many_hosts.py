"""All verbs on Spark workers that are hosts of their own: bytes and plans are those of inline, whoever does not see the
directory takes no item, and whoever goes costs time alone.

One cluster and one session serve all tests of this file, since their start is what takes long.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from krepair.durable.real_disk import RealDisk
from krepair.engine import spark
from krepair.engine.items import ScanItem, ScanResult
from krepair.engine.spark import SparkEngine
from krepair.errors import ExitCode, LockedError, RefusedError
from krepair.findings.reports import CheckReport
from krepair.logdir.lock import hold_lock
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import EngineName, Options
from krepair.plan import planfile
from krepair.plan.model import Plan
from krepair.rewrite.compaction import partitions as compaction
from krepair.rewrite.compaction import proof as compaction_proof
from krepair.scan.scan import scan
from tests.compaction.directories import dead_cleaner, options
from tests.conftest import in_ci
from tests.engine.cluster import SUBMIT_ARGS, Cluster, why_no_hosts
from tests.ops.scene import BLOAT, TV2, Scene, scene, tree
from tests.recovery.scene import Verbs, write_unclean
from tests.rewrite.scanned import HUGE, inline, scan_items
from tools.torture.faults import VARIABLE, Control, Fault, Kind, Mode, environment, mask

pytestmark = [pytest.mark.spark, pytest.mark.slow]
EVERY = os.environ.get("KREPAIR_EVERY_STATE") == "1"


@pytest.fixture(scope="module", autouse=True)
def hosts() -> None:
    """A machine without namespaces cannot try this; CI has to."""
    if reason := why_no_hosts():
        if in_ci():
            pytest.fail(f"no host names of their own under CI: {reason}", pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What most workers see and one does not."""
    return tmp_path_factory.mktemp("volume")


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Control]:
    """Of each host that sees the volume what makes its reads fail, once it is armed."""
    folder = tmp_path_factory.mktemp("disks")
    return {name: Control(folder / name) for name in ("host-1", "host-2")}


def under_faults(disk: Control) -> str:
    words = environment(disk.path)
    return " ".join(["export", *(f"{name}={words[name]}" for name in ("LD_PRELOAD", VARIABLE))])


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, volume: Path, disks: dict[str, Control]
) -> Iterator[Cluster]:
    """Three hosts. All tests have one session, which ends with the cluster."""
    workers = {name: under_faults(disk) for name, disk in disks.items()}
    workers["host-without"] = f"mount -t tmpfs none {volume}"
    with (
        pytest.MonkeyPatch.context() as patch,
        Cluster(tmp_path_factory.mktemp("cluster"), hosts=workers) as running,
    ):
        patch.setenv("PYSPARK_SUBMIT_ARGS", SUBMIT_ARGS)
        close = SparkEngine.close
        patch.setattr(SparkEngine, "close", lambda engine: None)
        engine = SparkEngine(running.url, "test")
        yield running
        close(engine)


class Job(NamedTuple):
    """A log directory, and the options with which a fix finds work there, for ``--engine inline``."""

    log_dir: Path
    given: Options


def markers(root: Path) -> Job:
    one = scene(root, TV2)
    return Job(one.path, one.options())


def index(root: Path) -> Job:
    root.mkdir()
    log_dir = dead_cleaner(root / "logs")
    for number in (0, 1):
        padded = sorted((log_dir / "changelog-0").glob("*.timeindex"))[number]
        padded.write_bytes(padded.read_bytes() + bytes(1200))
    return Job(log_dir, options(root, "changelog", fixes=("index",)))


def recovery(root: Path) -> Job:
    root.mkdir()
    log_dir = write_unclean(root / "logs")
    return Job(log_dir, Verbs(log_dir).options())


def compact(root: Path) -> Job:
    """Its join goes through files in a scratch folder beside the log directory."""
    root.mkdir()
    return Job(dead_cleaner(root / "logs"), options(root, "changelog", scratch=str(root)))


def without_engine(report: CheckReport) -> CheckReport:
    """What ``check`` found, without where it ran and what was free meanwhile."""
    log_dirs = tuple(msgspec.structs.replace(one, free_bytes=0, free_files=0) for one in report.log_dirs)
    return msgspec.structs.replace(report, engine="", log_dirs=log_dirs)


# On one host tests/engine/test_spark.py recovers on Spark in each gate.
@pytest.mark.parametrize("make", [markers, compact, *([index, recovery] if EVERY else [])])
def test_each_fix_gives_the_findings_plan_and_bytes_of_inline_through_all_verbs(
    make: Callable[[Path], Job], volume: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (compaction, compaction_proof):
        monkeypatch.setattr(module, "_INLINE_BYTES", 0)
        monkeypatch.setattr(module, "_MIN_ROWS_INLINE", 0)
    monkeypatch.setattr(compaction, "_OFFSETS_INLINE", 0)
    log_dir, here = make(volume / make.__name__)
    path, there = str(log_dir), replace(here, engine=EngineName.SPARK, master=cluster.url)
    before = tree(log_dir, private=False)
    assert without_engine(check([path], there)) == without_engine(check([path], here))
    plan = make_plan(path, there)
    assert plan.partitions
    assert planfile.dumps(plan) == planfile.dumps(make_plan(path, here))
    applied = apply(plan, there)
    assert (applied.exit_code, f"master {cluster.url}" in applied.engine) == (ExitCode.DONE, True)
    made = tree(log_dir, private=False)
    assert made != before
    verified = verify_plan(plan, there)
    assert (verified.exit_code, "master" in verified.engine) == (ExitCode.DONE, True)
    assert undo(plan, there).exit_code == ExitCode.DONE
    assert tree(log_dir, private=False) == before
    assert apply(plan, here).exit_code == ExitCode.DONE
    assert tree(log_dir, private=False) == made


@pytest.fixture
def seen_by_nobody_else(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system that was mounted after the workers had begun: below it they see another folder."""
    subprocess.run(["mount", "-t", "tmpfs", "none", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_where_nobody_sees_the_directory_this_host_does_all_and_names_the_hosts(
    seen_by_nobody_else: Path, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    items = scan_items(scene(seen_by_nobody_else, BLOAT), HUGE)
    with caplog.at_level(logging.WARNING):
        assert dict(SparkEngine(cluster.url, "test").map(scan, items)) == inline(items)
    lines = [record.getMessage() for record in caplog.records]
    assert any("host host-without: " in line and "has other files" in line for line in lines)


def in_mounts_of(worker: int, *argv: str) -> None:
    """Run a program with what a worker sees."""
    subprocess.run(["nsenter", "-t", str(worker), "-m", *argv], check=True)


@contextmanager
def copied(place: Path, beside: Path, workers: Sequence[int]) -> Iterator[Callable[[], Path]]:
    """Workers see a copy: the same names, times and bytes, other inodes."""
    yield lambda: _copy_for(place, beside / "copy", workers)
    for worker in workers:
        in_mounts_of(worker, "umount", "-l", str(place))


def _copy_for(place: Path, copy: Path, workers: Sequence[int]) -> Path:
    subprocess.run(["cp", "-a", str(place), str(copy)], check=True)
    for worker in workers:
        in_mounts_of(worker, "mount", "--bind", str(copy), str(place))
    return copy


@contextmanager
def cloned(place: Path, beside: Path, workers: Sequence[int]) -> Iterator[Callable[[], Path]]:
    """Workers see a clone of the block device: the same inodes as well."""
    image, clone, shown = beside / "image", beside / "clone", beside / "shown"
    image.write_bytes(b"")
    os.truncate(image, 64 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    devices: list[str] = []

    def clone_for_workers() -> Path:
        subprocess.run(["fsfreeze", "-f", str(place)], check=True)
        try:
            subprocess.run(["cp", str(image), str(clone)], check=True)
        finally:
            subprocess.run(["fsfreeze", "-u", str(place)], check=True)
        found = subprocess.run(
            ["losetup", "-f", "--show", str(clone)], check=True, capture_output=True, text=True
        )
        devices.append(found.stdout.strip())
        for worker in workers:
            in_mounts_of(worker, "mount", devices[0], str(place))
        shown.mkdir()
        subprocess.run(["mount", devices[0], str(shown)], check=True)
        return shown

    try:
        yield clone_for_workers
    finally:
        for worker in workers if devices else ():
            in_mounts_of(worker, "umount", "-l", str(place))
        for device in devices:
            subprocess.run(["umount", "-l", str(shown)], check=False)
            subprocess.run(["losetup", "-d", device], check=False)
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("how", [cloned, *([copied] if EVERY else [])])
def test_workers_on_a_copy_or_a_block_clone_write_nothing_that_counts(
    how: Callable[[Path, Path, Sequence[int]], AbstractContextManager[Callable[[], Path]]],
    volume: Path,
    cluster: Cluster,
    tmp_path: Path,
) -> None:
    place = volume / how.__name__
    place.mkdir()
    workers = cluster.worker_pids()[:2]
    with how(place, tmp_path, workers) as begin:
        job = markers(place / "x")
        plan = make_plan(str(job.log_dir), job.given)
        assert apply(plan, job.given).exit_code == ExitCode.DONE
        made = tree(job.log_dir, private=False)
        assert undo(plan, job.given).exit_code == ExitCode.DONE
        other = begin() / "x" / job.log_dir.relative_to(place / "x")
        before = tree(other)
        there = replace(job.given, engine=EngineName.SPARK, master=cluster.url)
        assert apply(plan, there).exit_code == ExitCode.DONE
        assert tree(job.log_dir, private=False) == made
        assert tree(other) == before


@contextmanager
def hidden(volume: Path, worker: int) -> Iterator[None]:
    """Another file system over the volume, as one worker sees it, while the body runs."""
    subprocess.run(
        ["nsenter", "-t", str(worker), "-m", "mount", "-t", "tmpfs", "none", str(volume)], check=True
    )
    yield
    subprocess.run(["nsenter", "-t", str(worker), "-m", "umount", "-l", str(volume)], check=True)


@pytest.fixture
def small_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results come while there is still work to do."""
    monkeypatch.setattr(spark, "_WAVE", 4)


def test_a_worker_that_loses_the_volume_in_the_middle_costs_nothing_but_time(
    volume: Path, cluster: Cluster, small_waves: None
) -> None:
    items = scan_items(scene(volume / "lost", BLOAT), HUGE) * 10
    expected = inline(items[:24])
    results = SparkEngine(cluster.url, "test").map(scan, items)
    found = dict([next(results)])
    with hidden(volume, cluster.worker_pids()[0]):
        found |= dict(results)
    assert len(found) == len(items)
    assert all(found[index] == expected[index % 24] for index in found)


BROKER = """
import fcntl, sys
with open(sys.argv[1], "r+") as lock:
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("refused", flush=True)
    else:
        print("held", flush=True)
        sys.stdin.read()
"""


@contextmanager
def broker_on_host(lock: Path, worker: int) -> Iterator[str]:
    """A process on the worker's host that takes the lock of a log directory as a broker does; gives what came of it."""
    argv = ["nsenter", "-t", str(worker), "-m", "-u", sys.executable, "-c", BROKER, str(lock)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


@pytest.fixture(scope="module")
def locked(volume: Path) -> tuple[Job, Plan, Path]:
    """A directory with a plan, and its lock."""
    job = index(volume / "locked")
    (job.log_dir / ".lock").touch()
    return job, make_plan(str(job.log_dir), job.given), job.log_dir / ".lock"


def test_a_broker_on_another_host_keeps_krepair_out_and_krepair_it(
    locked: tuple[Job, Plan, Path], cluster: Cluster
) -> None:
    job, plan, lock = locked
    host = cluster.worker_pids()[0]
    there = replace(job.given, engine=EngineName.SPARK, master=cluster.url)
    with broker_on_host(lock, host) as said:
        assert said == "held"
        with pytest.raises(LockedError) as error:
            apply(plan, there)
        assert error.value.exit_code == ExitCode.LOCKED
    with hold_lock(str(job.log_dir), RealDisk()), broker_on_host(lock, host) as said:
        assert said == "refused"


@contextmanager
def another_lock(lock: Path, other: Path, workers: Sequence[int]) -> Iterator[None]:
    """On some hosts the lock is another file, as where a mount does not carry locks, while the body runs."""
    other.touch()
    for worker in workers:
        nsenter = ["nsenter", "-t", str(worker), "-m"]
        subprocess.run([*nsenter, "mount", "--bind", str(other), str(lock)], check=True)
    yield
    for worker in workers:
        subprocess.run(["nsenter", "-t", str(worker), "-m", "umount", "-l", str(lock)], check=True)


def test_where_a_lock_does_not_reach_the_workers_nothing_is_written(
    locked: tuple[Job, Plan, Path], volume: Path, cluster: Cluster
) -> None:
    job, plan, lock = locked
    before = tree(job.log_dir, private=False)
    there = replace(job.given, engine=EngineName.SPARK, master=cluster.url)
    with another_lock(lock, volume / "other-lock", cluster.worker_pids()[:2]):
        with broker_on_host(lock, cluster.worker_pids()[0]) as said:
            assert said == "held"  # and nobody here could see it
        with pytest.raises(RefusedError, match=r"host host-\d: .* a broker would not be kept away") as error:
            apply(plan, there)
    assert error.value.exit_code == ExitCode.REFUSED
    assert tree(job.log_dir, private=False) == before
    assert not list(job.log_dir.glob("*/krepair~*/stage/*"))
    assert apply(plan, there).exit_code == ExitCode.DONE


@contextmanager
def cannot_read(folder: Path, *disks: Control) -> Iterator[None]:
    """Reads of files below a folder end with an I/O error on some hosts while the body runs; nothing else differs."""
    for disk in disks:
        disk.set(folder, Fault(Mode.FAIL_FOREVER, 1, errno.EIO, mask(Kind.READ), mask(Kind.READ)))
        disk.arm()
    yield
    for disk in disks:
        assert disk.happened
        disk.disarm()


def test_what_one_worker_cannot_read_is_read_by_another(
    volume: Path, cluster: Cluster, disks: dict[str, Control]
) -> None:
    one = scene(volume / "one-bad-disk", BLOAT)
    items = scan_items(one, HUGE)
    with cannot_read(one.path / HUGE, disks["host-1"]):
        assert dict(SparkEngine(cluster.url, "test").map(scan, items)) == inline(items)


def test_what_no_worker_can_read_this_host_reads(
    volume: Path, cluster: Cluster, disks: dict[str, Control]
) -> None:
    (volume / "bad-disk").mkdir()
    log_dir = dead_cleaner(volume / "bad-disk" / "logs")
    given = options(volume / "bad-disk", "changelog", engine=EngineName.INLINE)
    there = replace(given, engine=EngineName.SPARK, master=cluster.url)
    with cannot_read(log_dir / "changelog-0", *disks.values()):
        report = check([str(log_dir)], there)
    assert without_engine(report) == without_engine(check([str(log_dir)], given))


def long_work(one: Scene) -> list[ScanItem]:
    """Seconds of work: the clock of an item makes it another one."""
    segments = scan_items(one, HUGE)
    return [
        msgspec.structs.replace(item, now_ms=item.now_ms + turn) for turn in range(60) for item in segments
    ]


def children_of(parent: int) -> list[int]:
    """Process ids of the direct children."""
    tasks = Path(f"/proc/{parent}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def test_one_huge_partition_is_parallel_over_its_segments_and_a_killed_executor_loses_nothing(
    volume: Path, cluster: Cluster
) -> None:
    items = scan_items(scene(volume / "executor"), HUGE)
    expected = inline(items)
    engine = SparkEngine(cluster.url, "test")
    tracker = engine.session.sparkContext.statusTracker()
    earlier = set(tracker.getJobIdsForGroup(None))
    assert dict(engine.map(scan, items)) == expected
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(None) if job not in earlier]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    assert max(stage.numTasks for stage in stages if stage is not None) == len(items) == 24
    executors = children_of(cluster.worker_pids()[0])
    assert executors
    for executor in executors:
        os.kill(executor, signal.SIGKILL)
    assert dict(engine.map(scan, items)) == expected


def test_a_worker_that_is_killed_for_good_costs_nothing_but_time(
    volume: Path, cluster: Cluster, small_waves: None
) -> None:
    """The last test: there is one worker less from now on."""
    items = long_work(scene(volume / "killed", BLOAT))
    expected = inline(items[:24])
    found: dict[int, ScanResult] = {}
    for index, result in SparkEngine(cluster.url, "test").map(scan, items):
        if not found:
            os.killpg(cluster.worker_pids()[0], signal.SIGKILL)
        found[index] = result
    assert sorted(found) == list(range(len(items)))
    assert all(found[index] == expected[index % 24] for index in range(0, len(items), 7))
