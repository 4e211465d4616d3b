"""Records that Spark reads give the verdicts that the inline engine gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from krepair.durable.scratch import Scratch
from krepair.engine.engine import Engine, InlineEngine
from krepair.engine.spark import SparkEngine
from krepair.fixes.replicas import parse_sides
from krepair.logdir.config import load_settings
from krepair.ops.compare import Comparison, open_sides
from krepair.ops.facts import facts
from krepair.options import EngineName as Wanted
from krepair.options import Options
from krepair.rules.replicas.model import BYTE_EQUAL, LOST, MISSING, PartitionVerdict
from tests.hostile.broken_streams import broken_stream, directory
from tests.replicas.directories import SETTINGS
from tests.replicas.real_clusters import sides_of, unpack_cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkEngine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 768m pyspark-shell")
        engine = SparkEngine("local[2]", "test")
    yield engine
    engine.close()


def verdicts(sides: list[str], engine: Engine, policy: str = "compact") -> list[PartitionVerdict]:
    options = Options(now_ms=0)
    opened = open_sides(parse_sides(sides), options)
    settings = load_settings(None, None, SETTINGS | {"cleanup.policy": policy})
    try:
        with closing(Scratch("", ())) as scratch:
            return list(Comparison(opened, settings, options, engine, scratch).verdicts())
    finally:
        for side in opened:
            side.close()


def test_directories_and_facts_get_the_same_verdicts_on_spark_as_inline(
    tmp_path: Path, spark: SparkEngine
) -> None:
    unpack_cluster("open-3.9.2-abrt", tmp_path)
    path = f"{tmp_path}/b2.facts"
    facts([f"{tmp_path}/b2"], path, Options(engine=Wanted.INLINE))
    sides = [f"2={path}" if side.startswith("2=") else side for side in sides_of(tmp_path)]
    inline = verdicts(sides, InlineEngine("test"))
    assert inline[0].disagreements
    assert verdicts(sides, spark) == inline


def test_a_topic_that_is_said_not_to_be_compacted(tmp_path: Path, spark: SparkEngine) -> None:
    """Then every record that is missing is lost: offsets are joined, not keys."""
    unpack_cluster("open-3.9.2-tomb", tmp_path)
    inline = verdicts(sides_of(tmp_path), InlineEngine("test"), "delete")
    assert {one.kind for one in inline[0].disagreements} == {LOST}
    assert verdicts(sides_of(tmp_path), spark, "delete") == inline


def test_records_that_a_worker_cannot_read_leave_the_other_partition_its_verdict(
    tmp_path: Path, spark: SparkEngine
) -> None:
    sides = [f"{number}={directory(tmp_path, number, broken_stream(number))}" for number in (0, 1)]
    found = {one.topic: one for one in verdicts(sides, spark)}
    assert {topic: one.verdict for topic, one in found.items()} == {"t": MISSING, "u": BYTE_EQUAL}
