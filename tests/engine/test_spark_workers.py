"""Workers of a real Spark cluster that never come up. Not part of the quick gate: marked ``spark``."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from krepair.engine import spark
from krepair.engine.spark import SparkEngine
from krepair.errors import RefusedError
from krepair.scan.scan import scan
from tests.engine.cluster import SUBMIT_ARGS, Cluster
from tests.ops.scene import scene
from tests.rewrite.scanned import HUGE, scan_items

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(autouse=True)
def small_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores are shared with whatever else runs."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", SUBMIT_ARGS)


def test_workers_that_never_come_are_said_and_given_up_without_a_traceback_of_java(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(spark, "SAID_AFTER_S", 2.0)
    monkeypatch.setattr(spark, "GIVEN_UP_AFTER_S", 5.0)
    items = scan_items(scene(tmp_path), HUGE)
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster", workers=0) as cluster, caplog.at_level(logging.WARNING):
        engine = SparkEngine(cluster.url, "test")
        try:
            with pytest.raises(RefusedError, match=r"spark://.* has had no worker for "):
                list(engine.map(scan, items))
        finally:
            engine.close()
    assert " has had no worker for " in caplog.text
    assert "Traceback" not in capfd.readouterr().err


JVM_KILLED = """
import sys
from pathlib import Path
from krepair.engine.spark import SparkEngine
from krepair.errors import RefusedError
from krepair.scan.scan import scan
from tests.ops.scene import scene
from tests.rewrite.scanned import HUGE, scan_items

items = scan_items(scene(Path(sys.argv[1])), HUGE)
engine = SparkEngine("local[1]", "test")
java = engine.session.sparkContext._gateway.proc
java.kill()
java.wait()
try:
    list(engine.map(scan, items))
except RefusedError as error:
    print("refused:", error.message)
engine.close()
"""


def test_a_session_whose_jvm_was_killed_is_said_to_have_failed_and_closes(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", JVM_KILLED, str(tmp_path / "logs")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("refused: Spark failed: "), ended.stdout
    assert "nothing was replaced" in ended.stdout
