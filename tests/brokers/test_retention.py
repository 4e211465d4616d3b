"""The incident: time indexes that were never trimmed, and retention at the next start (JDK-8202261, KAFKA-10207)."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.options import EngineName, Options
from tests.brokers.starts import RETAINING, deleted_by_retention, logs_of
from tests.fixture_dirs import readable_by_4, unpack
from tests.lab import jars
from tests.lab.broker import Broker, Topic
from tests.lab.waiting import LIMIT_S

pytestmark = pytest.mark.broker

PADDED, MENDED = "f-t", "g-t"
VERSIONS = ("2.3.1", "3.9.2", *jars.SINCE_4)
DAY_MS = 86_400_000
FIRST_RECORD_MS = 1_795_257_900_000


@dataclass
class Run:
    """What one version did to a padded partition and to a mended copy of it."""

    before: dict[str, list[str]]
    said: dict[str, list[str]]
    after: dict[str, list[str]]


def started(tmp_path: Path, version: str) -> Run:
    log_dir = readable_by_4(unpack("timeindex-padded-2.2.1", tmp_path / version))
    shutil.copytree(log_dir / f"{PADDED}-0", log_dir / f"{MENDED}-0")
    retention_ms = int(time.time() * 1000) - FIRST_RECORD_MS + DAY_MS
    common = {
        "settings": (("cleanup.policy", "delete"), ("retention.ms", str(retention_ms))),
        "broker_version": version,
        "engine": EngineName.INLINE,
    }
    plan = make_plan(str(log_dir), Options(**common, fixes=("index",), topics=(MENDED,)))  # type: ignore[arg-type]
    assert apply(plan, Options(**common)).exit_code == ExitCode.DONE  # type: ignore[arg-type]
    report = check([str(log_dir)], Options(**common))  # type: ignore[arg-type]
    before = {topic: logs_of(log_dir, topic) for topic in (PADDED, MENDED)}
    topic = Topic(
        1, {"cleanup.policy": "delete", "retention.ms": str(retention_ms), "segment.bytes": "200000"}
    )
    early = version.startswith("2.")
    props = RETAINING | ({} if early else {"log.initial.task.delay.ms": 1000})
    with Broker(version, log_dir, props, {PADDED: topic, MENDED: topic}) as broker:
        deadline = time.monotonic() + LIMIT_S
        while logs_of(log_dir, PADDED) == before[PADDED] and time.monotonic() < deadline:
            time.sleep(0.5)
        time.sleep(4)  # some more rounds of retention
        after = {topic: logs_of(log_dir, topic) for topic in before}
        broker.stop()
    return Run(before, {topic: deleted_by_retention(report, topic) for topic in before}, after)


def test_padded_time_index_costs_a_segment_and_a_mended_one_none_on_each_version(tmp_path: Path) -> None:
    """``check`` named exactly the segments that went."""
    with ThreadPoolExecutor(len(VERSIONS)) as pool:
        runs = dict(
            zip(VERSIONS, pool.map(lambda version: started(tmp_path, version), VERSIONS), strict=True)
        )
    for version, run in runs.items():
        gone = {topic: sorted(set(run.before[topic]) - set(run.after[topic])) for topic in run.before}
        assert gone == run.said, version
        assert gone == {PADDED: ["00000000000000000000.log"], MENDED: []}, version
