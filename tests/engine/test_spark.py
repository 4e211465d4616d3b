"""The same functions on Spark as inline, in a session of this process; ``test_many_hosts`` has a real cluster."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from krepair.engine.items import Failed
from krepair.engine.spark import ITEM_ARROW, SparkEngine
from krepair.engine.spark_worker import Bundle
from krepair.errors import ExitCode
from krepair.options import EngineName
from krepair.plan import planfile
from krepair.scan.scan import scan
from tests.ops.scene import BLOAT, scene, tree
from tests.rewrite.scanned import HUGE, inline, scan_items

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MASTER = "local[2]"


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    """One for all tests of this file: its start is what takes long."""
    with pytest.MonkeyPatch.context() as patch:
        # Two cores are shared with whatever else runs.
        patch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 768m pyspark-shell")
        close = SparkEngine.close
        patch.setattr(SparkEngine, "close", lambda engine: None)
        engine = SparkEngine(MASTER, "test")
        yield
        close(engine)


def test_local_session_gives_the_plan_and_the_result_of_inline_byte_for_byte(tmp_path: Path) -> None:
    there, here = scene(tmp_path / "spark", BLOAT), scene(tmp_path / "inline", BLOAT)
    plan = there.plan(engine=EngineName.SPARK, master=MASTER)
    assert planfile.dumps(plan) == planfile.dumps(there.plan())
    there.engine, there.master = EngineName.SPARK, MASTER
    report = there.apply(plan)
    assert (report.exit_code, f"master {MASTER}" in report.engine) == (ExitCode.DONE, True)
    assert here.apply(here.plan()).exit_code == ExitCode.DONE
    assert tree(there.path, private=False) == tree(here.path, private=False)


def test_a_wave_of_bundles_is_one_task_each_and_nothing_is_exchanged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{"bundle": pickle.dumps(Bundle(scan, [], None))}]
    frame = SparkEngine(MASTER, "test").frame(pa.Table.from_pylist(rows * 100, schema=ITEM_ARROW))
    frame.explain()
    assert frame.rdd.getNumPartitions() == 100
    assert frame.collect() == []
    plan = capsys.readouterr().out
    assert "LocalTableScan" in plan
    assert "Exchange" not in plan


def test_task_that_fails_is_a_value_and_the_others_give_their_results(tmp_path: Path) -> None:
    one = scene(tmp_path)
    items = scan_items(one, HUGE)
    (one.path / HUGE / f"{items[3].base_offset:020d}.log").unlink()
    items[5] = replace(items[5], place=replace(items[5].place, log_dir_inode=1))
    found = dict(SparkEngine(MASTER, "test").map(scan, items))
    assert {number: result.kind for number, result in found.items() if isinstance(result, Failed)} == {
        3: "unreadable",
        5: "elsewhere",
    }
    assert f"{items[3].base_offset:020d}.log" in str(found[3])
    assert found == inline(items)
