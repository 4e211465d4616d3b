"""Workers of a real cluster that cannot work, alone and beside a healthy one; drivers that are killed or doubled.

Each case starts a cluster of its own, so all of them run only where ``KREPAIR_EVERY_STATE=1`` asks for it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import krepair
from krepair.durable.real_disk import RealDisk
from krepair.engine.spark import SparkEngine
from krepair.errors import ExitCode, LockedError, RefusedError
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.options import EngineName
from krepair.plan.planfile import write_plan
from krepair.scan.scan import scan
from tests.engine.cluster import SUBMIT_ARGS, Cluster, why_no_hosts
from tests.ops.scene import BLOAT, scene, tree
from tests.rewrite.scanned import HUGE, inline, scan_items

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("KREPAIR_EVERY_STATE") != "1", reason="KREPAIR_EVERY_STATE=1 runs it"),
    pytest.mark.skipif(bool(why_no_hosts()), reason="no host names and mounts of their own here"),
]

ROOT = Path(__file__).parents[2]
PACKAGE = Path(krepair.__file__).parent


def another_python() -> str:
    """A Python of another minor version on this machine, or empty."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    beside = Path(sys.base_prefix).parent.glob("3.*/bin/python3")
    names = [str(path) for path in beside] + [
        shutil.which(f"python3.{minor}") or "" for minor in range(10, 16)
    ]
    for name in filter(None, names):
        asked = [name, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() not in {"", own}:
            return name
    return ""


def without_krepair() -> str:
    return f"mount -t tmpfs none {PACKAGE}"


def with_another_python() -> str:
    other = another_python()
    if not other:
        pytest.skip("no other Python here")
    return f"mount --bind {os.path.realpath(other)} {os.path.realpath(sys.executable)}"


@pytest.fixture(autouse=True)
def small_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores are shared with whatever else runs."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", SUBMIT_ARGS)


@contextmanager
def session(tmp_path: Path, hosts: dict[str, str]) -> Iterator[SparkEngine]:
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster", hosts=hosts) as cluster:
        engine = SparkEngine(cluster.url, "test")
        try:
            yield engine
        finally:
            engine.close()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (without_krepair, "No module named 'krepair"),
        (with_another_python, "Python in worker has different version"),
    ],
)
def test_a_broken_worker_alone_is_said_and_beside_a_good_one_costs_nothing_but_time(
    tmp_path: Path, broken: object, said: str
) -> None:
    command = broken()  # type: ignore[operator]
    items = scan_items(scene(tmp_path / "log", BLOAT), HUGE)
    (tmp_path / "alone").mkdir()
    with session(tmp_path / "alone", {"host-broken": command}) as engine:
        with pytest.raises(RefusedError) as error:
            list(engine.map(scan, items))
        print(error.value.message)
        assert said in error.value.message
        assert "\n" not in error.value.message
    (tmp_path / "two").mkdir()
    with session(tmp_path / "two", {"host-broken": command, "host-good": ""}) as engine:
        assert dict(engine.map(scan, items)) == inline(items)


ASKING = """
import sys
from pathlib import Path
from krepair.errors import RefusedError
from krepair.engine import spark
from krepair.engine.spark import SparkEngine
from krepair.scan.scan import scan
from tests.ops.scene import BLOAT, scene
from tests.rewrite.scanned import HUGE, scan_items
spark.SAID_AFTER_S, spark.GIVEN_UP_AFTER_S = 2.0, 10.0
try:
    list(SparkEngine(sys.argv[1], "test").map(scan, scan_items(scene(Path(sys.argv[2]), BLOAT), HUGE)))
except RefusedError as error:
    print(error.message)
"""


def test_an_executor_that_asks_for_more_memory_than_a_worker_has_is_said_with_the_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "--driver-memory 768m --conf spark.executor.memory=3g pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", asked)
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster", hosts={"host-small": ""}) as cluster:
        argv = [sys.executable, "-c", ASKING, cluster.url, str(tmp_path / "log")]
        said = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    print(said.stdout, said.stderr[-500:])
    assert " has had no worker for " in said.stdout
    assert "a free core and 3g of memory" in said.stdout


DRIVER = """
import sys
from krepair.ops.apply import apply
from krepair.plan.planfile import read_plan
from krepair.options import EngineName, Options
print(int(apply(read_plan(sys.argv[1]), Options(engine=EngineName.SPARK, master=sys.argv[2])).exit_code))
"""


STAGED, SET_ASIDE = "*/krepair~*/stage/*.log", "*/krepair~*/keep/*.log"
"""What is there once a worker has begun, and once the first original gets its second name."""


@contextmanager
def driver_in_the_middle(
    plan: Path, log_dir: Path, master: str, pattern: str
) -> Iterator[subprocess.Popen[bytes]]:
    """``apply`` on Spark in a process of its own, stopped once a file is there, and killed at the end."""
    process = subprocess.Popen([sys.executable, "-c", DRIVER, str(plan), master], cwd=ROOT)
    until = time.monotonic() + 240
    while not any(log_dir.glob(pattern)) and time.monotonic() < until and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGSTOP)
    assert process.poll() is None
    yield process
    process.kill()
    process.wait()


def test_a_driver_that_is_killed_is_run_again_and_a_second_one_is_refused_while_it_lives(
    tmp_path: Path,
) -> None:
    one = scene(tmp_path / "log", BLOAT)
    before = tree(one.path, private=False)
    given = one.options()
    plan = make_plan(str(one.path), given)
    write_plan(str(tmp_path / "a.krplan"), plan, RealDisk())
    assert apply(plan, given).exit_code == ExitCode.DONE
    made = tree(one.path, private=False)
    assert undo(plan, given).exit_code == ExitCode.DONE
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster", hosts={"host-1": "", "host-2": "", "host-3": ""}) as cluster:
        there = replace(given, engine=EngineName.SPARK, master=cluster.url)
        for pattern in (STAGED, SET_ASIDE):
            with driver_in_the_middle(tmp_path / "a.krplan", one.path, cluster.url, pattern):
                with pytest.raises(LockedError) as error:
                    apply(plan, there)
                print(error.value.message)
                print("replaced so far:", tree(one.path, private=False) != before)
            assert apply(plan, there).exit_code == ExitCode.DONE
            assert tree(one.path, private=False) == made
            assert undo(plan, given).exit_code == ExitCode.DONE
            assert tree(one.path, private=False) == before
