"""The same functions on Spark as inline: in this process's session, and on a real standalone cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace

from krepair.errors import ExitCode
from krepair.options import Engine
from krepair.pipeline.engines.spark import ITEM_ARROW, SparkEngine
from krepair.pipeline.engines.spark_worker import Proof
from krepair.pipeline.jobs import SCAN
from krepair.plan import planfile
from tests.ops.scene import BLOAT, TV2, scene, tree
from tests.pipeline.cluster import Cluster
from tests.pipeline.scanned import HUGE, inline, scan_items

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(autouse=True)
def small_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores are shared with whatever else runs."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 768m pyspark-shell")


def tasks_of_last_job(engine: SparkEngine) -> int:
    """The most tasks that any stage of the session's last job had."""
    tracker = engine.session.sparkContext.statusTracker()
    job = tracker.getJobInfo(max(tracker.getJobIdsForGroup(None)))
    assert job is not None
    stages = [tracker.getStageInfo(stage) for stage in job.stageIds]
    return max(stage.numTasks for stage in stages if stage is not None)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def assert_same_as_inline(tmp_path: Path, master: str, fixture: str) -> None:
    there, here = scene(tmp_path / "spark", fixture), scene(tmp_path / "inline", fixture)
    on_spark = {"engine": Engine.SPARK, "master": master}
    plan = there.plan(**on_spark)
    assert planfile.dumps(plan) == planfile.dumps(there.plan())
    there.engine, there.master = Engine.SPARK, master
    report = there.apply(plan)
    assert (report.exit_code, f"master {master}" in report.engine) == (ExitCode.DONE, True)
    assert here.apply(here.plan()).exit_code == ExitCode.DONE
    assert tree(there.path, private=False) == tree(here.path, private=False)


def test_local_session_gives_the_plan_and_the_result_of_inline_byte_for_byte(tmp_path: Path) -> None:
    assert_same_as_inline(tmp_path, "local[2]", BLOAT)


def test_standalone_cluster_gives_the_plan_and_the_result_of_inline_byte_for_byte(
    tmp_path: Path, cluster: Cluster
) -> None:
    assert_same_as_inline(tmp_path, cluster.url, TV2)
    assert cluster.executors() >= 2


def test_a_wave_of_bundles_is_one_task_each_and_nothing_is_exchanged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine = SparkEngine("local[2]", "test")
    try:
        rows = [
            {"task": "scan", "items": msgspec.msgpack.encode([]), "proof": msgspec.msgpack.encode(Proof())}
        ]
        frame = engine.frame(pa.Table.from_pylist(rows * 100, schema=ITEM_ARROW))
        frame.explain()
        assert frame.rdd.getNumPartitions() == 100
        assert frame.collect() == []
    finally:
        engine.close()
    plan = capsys.readouterr().out
    assert "LocalTableScan" in plan
    assert "Exchange" not in plan


def test_task_that_fails_is_a_value_and_the_others_give_their_results(tmp_path: Path) -> None:
    one = scene(tmp_path)
    items = scan_items(one, HUGE)
    (one.path / HUGE / f"{items[3].base_offset:020d}.log").unlink()
    items[5] = replace(items[5], place=replace(items[5].place, log_dir_inode=1))
    engine = SparkEngine("local[2]", "test")
    try:
        found = dict(engine.run(SCAN, items))
    finally:
        engine.close()
    assert {number: result.failure for number, result in found.items() if result.failure} == {
        3: "unreadable",
        5: "elsewhere",
    }
    assert f"{items[3].base_offset:020d}.log" in found[3].why
    assert found == inline(items)


def children_of(parent: int) -> list[int]:
    """Process ids of the direct children."""
    out = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == parent:
                out.append(int(entry.name))
    return out


def executors(cluster: Cluster) -> set[int]:
    """Pids of the executors that run now."""
    return {pid for worker in cluster.worker_pids() for pid in children_of(worker)}


def test_one_huge_partition_is_parallel_over_its_segments_and_a_killed_executor_loses_nothing(
    tmp_path: Path, cluster: Cluster
) -> None:
    items = scan_items(scene(tmp_path), HUGE)
    expected = inline(items)
    before = executors(cluster)  # of a session that just ended, they may take a while to go
    engine = SparkEngine(cluster.url, "test")
    try:
        assert dict(engine.run(SCAN, items)) == expected
        assert tasks_of_last_job(engine) == len(items) == 24
        ours = executors(cluster) - before
        assert len(ours) == 2
        os.kill(min(ours), signal.SIGKILL)
        assert dict(engine.run(SCAN, items)) == expected
    finally:
        engine.close()
