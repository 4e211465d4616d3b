"""Spark workers with host names and mounts of their own: who does not see the directory takes no item."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from krepair.errors import ExitCode, RefusedError
from krepair.ops.verify import verify_plan
from krepair.options import Engine
from krepair.pipeline.engines.spark import SparkEngine
from krepair.pipeline.jobs import SCAN
from krepair.plan import planfile
from tests.conftest import in_ci
from tests.ops.scene import BLOAT, Scene, scene, tree
from tests.pipeline.cluster import Cluster, why_no_hosts
from tests.pipeline.test_spark import HUGE, inline, scan_items

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(autouse=True)
def small_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores are shared with whatever else runs."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 768m pyspark-shell")


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
def cluster(tmp_path_factory: pytest.TempPathFactory, volume: Path) -> Iterator[Cluster]:
    workers = {"host-1": "", "host-2": "", "host-without": f"mount -t tmpfs none {volume}"}
    with Cluster(tmp_path_factory.mktemp("cluster"), hosts=workers) as running:
        yield running


def on_cluster(one: Scene, cluster: Cluster) -> Scene:
    one.engine, one.master = Engine.SPARK, cluster.url
    return one


def test_workers_of_two_hosts_plan_apply_verify_and_undo_as_inline_does_beside_one_without_the_volume(
    volume: Path, tmp_path: Path, cluster: Cluster
) -> None:
    there, here = scene(volume / "log", BLOAT), scene(tmp_path, BLOAT)
    before, inline_plan = tree(there.path), there.plan()
    plan = on_cluster(there, cluster).plan()
    assert planfile.dumps(plan) == planfile.dumps(inline_plan)
    assert there.apply(plan).exit_code == ExitCode.DONE
    assert here.apply(here.plan()).exit_code == ExitCode.DONE
    assert tree(there.path, private=False) == tree(here.path, private=False)
    assert verify_plan(plan, there.options()).exit_code == ExitCode.DONE
    assert there.undo(plan).exit_code == ExitCode.DONE
    assert tree(there.path, private=False) == before


@pytest.fixture
def seen_by_nobody_else(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system that was mounted after the workers had begun: below it they see another folder."""
    subprocess.run(["mount", "-t", "tmpfs", "none", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_nobody_sees_the_directory_and_the_refusal_names_the_hosts_and_what_differs(
    seen_by_nobody_else: Path, cluster: Cluster
) -> None:
    items = scan_items(scene(seen_by_nobody_else, BLOAT), HUGE)
    engine = SparkEngine(cluster.url, "test")
    try:
        with pytest.raises(
            RefusedError, match=r"no worker of .* sees what this host sees: host host-1: "
        ) as error:
            list(engine.run(SCAN, items))
    finally:
        engine.close()
    assert error.value.exit_code == ExitCode.REFUSED
    assert "host host-without: " in error.value.message


def test_a_worker_that_loses_the_volume_in_the_middle_costs_nothing_but_time(
    volume: Path, cluster: Cluster
) -> None:
    items = scan_items(scene(volume / "lost", BLOAT), HUGE) * 10
    expected = inline(items[:24])
    loser = cluster.worker_pids()[0]
    engine = SparkEngine(cluster.url, "test")
    try:
        found = {}
        for index, result in engine.run(SCAN, items):
            if not found:
                hide = ["nsenter", "-t", str(loser), "-m", "mount", "-t", "tmpfs", "none", str(volume)]
                subprocess.run(hide, check=True)
            found[index] = result
    finally:
        engine.close()
    assert len(found) == len(items)
    assert all(found[index] == expected[index % 24] for index in found)
