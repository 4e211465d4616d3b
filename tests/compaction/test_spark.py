"""The same compaction on Spark, with and without a scratch folder; ``test_many_hosts`` has all verbs of a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.durable.scratch import make_scratch, remove_scratch
from krepair.engine.spark import SparkEngine
from krepair.rewrite.compaction import partitions as compaction
from krepair.rewrite.compaction import proof as compaction_proof
from tests.compaction import histories
from tests.compaction.trying import twin_rules, with_twin

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
