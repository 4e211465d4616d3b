"""Spark gives the results of the inline engine, in one session of this process; ``test_many_hosts`` has a cluster."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from krepair.durable.scratch import Scratch, make_scratch, remove_scratch
from krepair.engine.engine import Engine, InlineEngine
from krepair.engine.items import Failed
from krepair.engine.spark import ITEM_ARROW, SparkEngine
from krepair.engine.spark_worker import Bundle
from krepair.errors import ExitCode
from krepair.fixes.replicas import parse_brokers
from krepair.logdir.config import load_settings
from krepair.ops.compare import Comparison, open_brokers
from krepair.ops.facts import facts
from krepair.options import EngineName, Options
from krepair.plan import planfile
from krepair.rewrite.compaction import partitions as compaction
from krepair.rewrite.compaction import proof as compaction_proof
from krepair.rules.replicas.model import BYTE_EQUAL, LOST, MISSING, PartitionVerdict
from krepair.scan.scan import scan
from tests.compaction import histories
from tests.compaction.trying import twin_rules, with_twin
from tests.engine.cluster import SUBMIT_ARGS
from tests.hostile.broken_streams import broken_stream, directory
from tests.ops.scene import BLOAT, scene, tree
from tests.recovery.scene import POINTS, Verbs, write_unclean
from tests.replicas.directories import SETTINGS
from tests.replicas.real_clusters import sides_of, unpack_cluster
from tests.rewrite.scanned import HUGE, inline, scan_items

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MASTER = "local[2]"


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    """One for all tests of this file: its start is what takes long."""
    with pytest.MonkeyPatch.context() as patch:
        # Two cores are shared with whatever else runs.
        patch.setenv("PYSPARK_SUBMIT_ARGS", SUBMIT_ARGS)
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


def test_a_history_is_compacted_as_by_the_slow_twin_with_and_without_a_scratch_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = make_scratch(str(tmp_path), [], asked=True)
    engine = SparkEngine(MASTER, "test")
    try:
        with_twin(tmp_path / "a", histories.of_seed(6, codecs=True), twin_rules(6), engine=engine)
        for module in (compaction, compaction_proof):
            monkeypatch.setattr(module, "_INLINE_BYTES", 0)
            monkeypatch.setattr(module, "_MIN_ROWS_INLINE", 0)
        monkeypatch.setattr(compaction, "_OFFSETS_INLINE", 0)
        made = histories.of_seed(7, codecs=True)
        with_twin(tmp_path / "b", made, twin_rules(7), engine=engine, scratch=scratch)
        assert any(Path(scratch).iterdir())
    finally:
        remove_scratch(scratch)


def contents(path: Path) -> dict[str, bytes]:
    """What a broker sees of the partitions, and the points."""
    files = [one for one in path.glob("?-0/*") if one.is_file()]
    return {str(one.relative_to(path)): one.read_bytes() for one in [*files, path / POINTS]}


def test_recovery_makes_the_same_files(tmp_path: Path) -> None:
    here, there = write_unclean(tmp_path / "inline"), write_unclean(tmp_path / "spark")
    inline, on_spark = Verbs(here), Verbs(there, engine=EngineName.SPARK, master=MASTER)
    inline.apply(inline.plan())
    assert f"master {MASTER}" in on_spark.apply(Verbs(there).plan()).engine
    assert contents(there) == contents(here)


def verdicts(sides: list[str], engine: Engine, policy: str = "compact") -> list[PartitionVerdict]:
    options = Options(now_ms=0)
    opened = open_brokers(parse_brokers(sides), options)
    settings = load_settings(None, None, SETTINGS | {"cleanup.policy": policy})
    try:
        with closing(Scratch("", ())) as scratch:
            return list(Comparison(opened, settings, options, engine, scratch).verdicts())
    finally:
        for side in opened:
            side.close()


class TestCompare:
    """Records that Spark reads give the verdicts that the inline engine gives."""

    def test_directories_and_facts_get_the_same_verdicts(self, tmp_path: Path) -> None:
        unpack_cluster("open-3.9.2-abrt", tmp_path)
        path = f"{tmp_path}/b2.facts"
        facts([f"{tmp_path}/b2"], path, Options(engine=EngineName.INLINE))
        sides = [f"2={path}" if side.startswith("2=") else side for side in sides_of(tmp_path)]
        here = verdicts(sides, InlineEngine("test"))
        assert here[0].disagreements
        assert verdicts(sides, SparkEngine(MASTER, "test")) == here

    def test_a_topic_that_is_said_not_to_be_compacted(self, tmp_path: Path) -> None:
        """Then every record that is missing is lost: offsets are joined, not keys."""
        unpack_cluster("open-3.9.2-tomb", tmp_path)
        here = verdicts(sides_of(tmp_path), InlineEngine("test"), "delete")
        assert {one.kind for one in here[0].disagreements} == {LOST}
        assert verdicts(sides_of(tmp_path), SparkEngine(MASTER, "test"), "delete") == here

    def test_records_that_a_worker_cannot_read_leave_the_other_partition_its_verdict(
        self, tmp_path: Path
    ) -> None:
        sides = [f"{number}={directory(tmp_path, number, broken_stream(number))}" for number in (0, 1)]
        found = {one.topic: one for one in verdicts(sides, SparkEngine(MASTER, "test"))}
        assert {topic: one.verdict for topic, one in found.items()} == {"t": MISSING, "u": BYTE_EQUAL}
