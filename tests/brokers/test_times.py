"""Times that cannot be, on real brokers: what retention and the cleaner do is what ``check`` says (KR704)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from krepair.checks.catalogue import Severity, severity_of
from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.brokers.starts import RETAINING, deleted_by_retention, logs_of
from tests.builders import LogDir, data
from tests.lab.broker import Broker, Topic
from tests.lab.jars import LATEST
from tests.lab.waiting import wait_for

pytestmark = [pytest.mark.broker, pytest.mark.every_broker]

DAY = 86_400_000
DELETE = {"cleanup.policy": "delete", "retention.ms": str(2 * DAY)}
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
LAG = {"min.compaction.lag.ms": str(DAY)}


@pytest.mark.parametrize("version", ["2.2.1", "3.9.2", LATEST])
def test_retention_and_cleaner_stop_and_delete_where_check_says(version: str, tmp_path: Path) -> None:
    now = int(time.time() * 1000)
    old = now - 40 * DAY
    topics = {
        "micro": (DELETE, [old, old * 1000, old, old, now]),
        "future": (DELETE, [old, old, now + 400 * DAY, old, now]),
        "seconds": (DELETE, [now // 1000, now // 1000, now]),
        "sound": (DELETE, [old, now, now]),
        "lagging": (COMPACT | LAG, [old, old * 1000, old, old]),
        "cleaned": (COMPACT | LAG, [old, old, old, old]),
    }
    log_dir = LogDir(tmp_path / "logs")
    for topic, (_, times) in topics.items():
        for number, moment in enumerate(times):
            log_dir.partition(topic).segment(data(10 * number, 10, timestamp=moment), mtime_ms=now)
    path = log_dir.write()
    (tmp_path / "topics.json").write_text(
        json.dumps({topic: config for topic, (config, _) in topics.items()})
    )
    options = Options(
        engine=EngineName.INLINE,
        broker_version=version,
        topic_config=str(tmp_path / "topics.json"),
        now_ms=now,
    )
    report = check([str(path)], options)
    told = {one.partition: one for one in report.log_dirs[0].findings if one.rule == "KR704"}
    assert {folder: (one.file[18:20], severity_of(one)) for folder, one in told.items()} == {
        "micro-0": ("10", Severity.CONFUSING),
        "future-0": ("20", Severity.CONFUSING),
        "seconds-0": ("00", Severity.DATA_LOSS),
        "lagging-0": ("10", Severity.CONFUSING),
    }
    before = {topic: logs_of(path, topic) for topic in topics}
    said = {topic: deleted_by_retention(report, topic) for topic in topics}
    early = version.startswith("2.")
    props = RETAINING | {"log.cleaner.enable": "true", "log.cleaner.backoff.ms": 200}
    props |= {} if early else {"log.initial.task.delay.ms": 1000}
    registered = {
        topic: Topic(1, config | {"segment.bytes": "100000"}) for topic, (config, _) in topics.items()
    }
    with Broker(version, path, props, registered):
        wait_for(
            lambda: all(logs_of(path, topic) != before[topic] for topic in ("seconds", "sound", "cleaned"))
        )
        time.sleep(3)  # some more rounds of retention and of the cleaner
        after = {topic: logs_of(path, topic) for topic in topics}
    gone = {topic: sorted(set(before[topic]) - set(after[topic])) for topic in topics}
    assert {topic: gone[topic] for topic in said if topics[topic][0] is DELETE} == {
        topic: said[topic] for topic in said if topics[topic][0] is DELETE
    }
    assert [len(gone[topic]) for topic in ("micro", "future", "seconds", "sound")] == [1, 2, 2, 1]
    assert (gone["lagging"], len(gone["cleaned"]) > 0) == ([], True)
