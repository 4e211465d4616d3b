"""All verbs through a Spark Connect server: bytes and plans are those of inline. Runs where ``krepair[connect]`` is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest

from krepair.errors import ExitCode, RefusedError
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import Engine
from krepair.pipeline.engines import worker_watch
from krepair.pipeline.engines.connect import why_not_installed
from krepair.pipeline.engines.master import why_not_reached
from krepair.pipeline.engines.spark import SparkEngine
from krepair.pipeline.items import ScanItem
from krepair.pipeline.jobs import SCAN
from krepair.plan import planfile
from tests.lab.ports import free_port
from tests.ops.scene import BLOAT, scene, tree
from tests.pipeline.cluster import Cluster
from tests.pipeline.scanned import HUGE, inline, scan_items

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not_installed()), reason="needs pip install 'krepair[connect]'"),
]

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def server(folder: Path, master: str) -> Iterator[str]:
    """A Spark Connect server on loopback; gives its address."""
    port, home = free_port(), os.path.dirname(pyspark.__file__)
    settings = {
        "connect.grpc.binding.port": port,
        "connect.grpc.binding.address": "127.0.0.1",
        "ui.enabled": "false",
    }
    words = [word for name, value in settings.items() for word in ("--conf", f"spark.{name}={value}")]
    env = os.environ | {"SPARK_HOME": home, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    argv = [f"{home}/bin/spark-submit", "--master", master, "--driver-memory", "1g", *words]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*argv, "--class", SERVER, "spark-internal"],
            env=env, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    url = f"sc://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 240
        while why_not_reached(url):
            assert time.monotonic() < until, (folder / "server.log").read_text()
            assert process.poll() is None, (folder / "server.log").read_text()
            time.sleep(0.2)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def test_plans_and_bytes_of_all_verbs_are_those_of_inline(tmp_path: Path) -> None:
    one = scene(tmp_path / "log", BLOAT)
    here, path = one.options(), str(one.path)
    before = tree(one.path, private=False)
    with server(tmp_path, "local[2]") as url:
        there = replace(here, engine=Engine.SPARK, master=url)
        plan = make_plan(path, there)
        assert planfile.dumps(plan) == planfile.dumps(make_plan(path, here))
        applied = apply(plan, there)
        assert (applied.exit_code, f"master {url}" in applied.engine) == (ExitCode.DONE, True)
        made = tree(one.path, private=False)
        assert verify_plan(plan, there).exit_code == ExitCode.DONE
        assert undo(plan, there).exit_code == ExitCode.DONE
        assert tree(one.path, private=False) == before
        engine = SparkEngine(url, "test")
        items = scan_items(one, HUGE)
        assert dict(engine.run(SCAN, items)) == inline(items)
        bytes_sent = [plan_bytes(engine, items * times) for times in (4, 8, 16)]
        engine.close()
    assert apply(plan, here).exit_code == ExitCode.DONE
    assert tree(one.path, private=False) == made
    assert made != before
    print("bytes of the plans of a wave", bytes_sent)
    assert bytes_sent[2] < 4.5 * bytes_sent[0]


def plan_bytes(engine: SparkEngine, items: Sequence[ScanItem]) -> int:
    """What is sent to the server for a wave of these items, one a bundle."""
    from krepair.pipeline.engines.doubts import Doubts
    from krepair.pipeline.engines.spark import _Work

    work = _Work(SCAN, items, Doubts(), 0.0)
    frame = engine.frame(engine._table(work, [[place] for place in range(len(items))]))
    plan = frame._plan.to_proto(engine.session._client)
    return int(plan.ByteSize())


def test_a_server_without_workers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_watch, "SAID_AFTER_S", 2.0)
    monkeypatch.setattr(worker_watch, "GIVEN_UP_AFTER_S", 5.0)
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster", workers=0) as cluster, server(tmp_path, cluster.url) as url:
        began = time.monotonic()
        with pytest.raises(RefusedError, match=f"no worker of {url}"):
            SparkEngine(url, "test")
        assert time.monotonic() - began < 60
