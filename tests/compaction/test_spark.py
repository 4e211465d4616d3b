"""The same compaction on Spark: every wave, with and without a scratch folder, and its verification."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from krepair.durable.scratch import make_scratch, remove_scratch
from krepair.errors import ExitCode
from krepair.options import Engine
from krepair.pipeline.compaction import partitions as compaction
from krepair.pipeline.compaction import proof as compaction_proof
from krepair.pipeline.engines.spark import SparkEngine
from tests.compaction import histories
from tests.compaction.directories import Verbs, dead_cleaner, logs, options
from tests.compaction.trying import twin_rules, with_twin
from tools.torture.scenes import look, visible

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_history_is_compacted_on_spark_as_by_the_slow_twin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 768m pyspark-shell")
    scratch = make_scratch(str(tmp_path), [], asked=True)
    engine = SparkEngine("local[2]", "test")
    try:
        with_twin(tmp_path / "a", histories.of_seed(6, codecs=True), twin_rules(6), engine=engine)
        for module in (compaction, compaction_proof):
            monkeypatch.setattr(module, "_INLINE_BYTES", 0)
            monkeypatch.setattr(module, "_ROWS_INLINE_AT_LEAST", 0)
        made = histories.of_seed(7, codecs=True)
        with_twin(tmp_path / "b", made, twin_rules(7), engine=engine, scratch=scratch)
        assert any(Path(scratch).iterdir())
    finally:
        engine.close()
        remove_scratch(scratch)


def test_plan_apply_verify_and_undo_of_compact_on_spark_are_those_of_inline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 768m pyspark-shell")
    log_dir = dead_cleaner(tmp_path / "logs")
    here = options(tmp_path, "changelog")
    inline, spark = (
        Verbs(log_dir, here),
        Verbs(log_dir, replace(here, engine=Engine.SPARK, master="local[2]")),
    )
    before = visible(look(log_dir))
    plan = spark.plan()
    assert plan == inline.plan()
    assert [part.topic for part in plan.partitions if part.changes] == ["__consumer_offsets", "changelog"]
    applied = spark.apply(plan)
    assert (applied.exit_code, "master local[2]" in applied.engine) == (ExitCode.DONE, True)
    made = [logs(log_dir / folder) for folder in ("__consumer_offsets-0", "changelog-0")]
    verified = spark.verify(plan)
    assert (verified.problems, "master" in verified.engine) == ((), True)
    assert inline.verify(plan).problems == ()
    assert spark.undo(plan).exit_code is ExitCode.DONE
    assert visible(look(log_dir)) == before
    assert inline.apply(plan).exit_code is ExitCode.DONE
    assert [logs(log_dir / folder) for folder in ("__consumer_offsets-0", "changelog-0")] == made
