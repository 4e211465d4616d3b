"""Workers of a real Spark cluster that go for good, or never come. Not part of the quick gate: marked ``spark``."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.errors import RefusedError
from krepair.pipeline.engines import worker_watch
from krepair.pipeline.engines.spark import SparkEngine
from krepair.pipeline.jobs import SCAN
from tests.ops.scene import scene
from tests.pipeline.cluster import Cluster
from tests.pipeline.test_spark import HUGE, inline, scan_items

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(autouse=True)
def small_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores are shared with whatever else runs."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 768m pyspark-shell")


def test_of_two_workers_one_is_killed_for_good_and_the_other_ends_the_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    segments = scan_items(scene(tmp_path), HUGE)
    # Seconds of work, in several waves: the clock of an item makes it another one.
    items = [replace(item, now_ms=item.now_ms + turn) for turn in range(500) for item in segments]
    expected = inline(items[: len(segments)])
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster", workers=2) as cluster, caplog.at_level(logging.WARNING):
        engine = SparkEngine(cluster.url, "test")
        try:
            found = {}
            for index, result in engine.run(SCAN, items):
                if not found:
                    os.killpg(cluster.worker_pids()[0], signal.SIGKILL)
                found[index] = result
        finally:
            engine.close()
    assert sorted(found) == list(range(len(items)))
    assert all(found[index] == expected[index % len(segments)] for index in range(0, len(items), 7))
    assert "1 of 2 Spark workers are gone; the others do their work again" in caplog.text


def test_workers_that_never_come_are_said_and_given_up_without_a_traceback_of_java(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(worker_watch, "SAID_AFTER_S", 2.0)
    monkeypatch.setattr(worker_watch, "GIVEN_UP_AFTER_S", 5.0)
    items = scan_items(scene(tmp_path), HUGE)
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster", workers=0) as cluster, caplog.at_level(logging.WARNING):
        engine = SparkEngine(cluster.url, "test")
        try:
            with pytest.raises(RefusedError, match="no worker of spark://"):
                list(engine.run(SCAN, items))
        finally:
            engine.close()
    assert "no worker of spark://" in caplog.text
    assert "Traceback" not in capfd.readouterr().err
