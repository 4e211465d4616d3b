"""Damage below the log start, on real brokers: what is cut, what is deleted and what is read is what krepair says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from tests.brokers.starts import logs_of
from tests.builders import LogDir, data
from tests.lab import client
from tests.lab.broker import Broker, Topic
from tests.lab.jars import LATEST
from tests.ops.inline import Inline

pytestmark = [pytest.mark.broker, pytest.mark.slow]

EVERY = os.environ.get("KREPAIR_EVERY_BROKER") == "1"
TOPICS = ("excised", "as-broker", "unmended")
START = 12


@pytest.mark.parametrize("version", ["2.2.1", "3.9.2", LATEST] if EVERY else [LATEST])
def test_a_cut_below_the_log_start_empties_the_log_and_one_taken_out_costs_nothing(
    tmp_path: Path, version: str
) -> None:
    made = LogDir(tmp_path / "logs")
    for topic in TOPICS:
        for base in (0, 10):
            made.partition(topic).segment(*(data(base + place, 1) for place in range(10)))
    log_dir = made.write(clean_stop=False, log_starts={f"{topic}-0": START for topic in TOPICS})
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    for topic in TOPICS:
        log = log_dir / f"{topic}-0" / f"{0:020d}.log"
        content = bytearray(log.read_bytes())
        content[6 * len(content) // 10 - 1] ^= 1  # of offset 5
        log.write_bytes(content)
    verbs = Inline(broker_version=version)
    report = verbs.checked(log_dir)
    found = {one.partition: one for one in report.findings if one.rule == "KR302"}
    assert {folder: (one.first_offset, one.records_lost) for folder, one in found.items()} == (
        {f"{topic}-0": (5, 0) for topic in TOPICS}
    )
    assert {line.partition: line.expected for line in report.forecast} == (
        {f"{topic}-0": "delete" for topic in TOPICS}
    )
    for topic, fix in (("excised", "tail"), ("as-broker", "tail=broker")):
        given = {"fixes": (fix,), "partitions": ((topic, 0),), "accepted_losses": (f"KR302:{topic}-0:5",)}
        plan = verbs.planned(log_dir, **given)
        told = " ".join(plan.partitions[0].notes)
        assert ("the next start deletes every segment here and begins at 12" in told) == (topic != "excised")
        assert apply(plan, verbs.options(**given)).exit_code == ExitCode.DONE
    foretold = {line.partition: line.expected for line in verbs.checked(log_dir).forecast}
    assert foretold == {"excised-0": "recover", "as-broker-0": "delete", "unmended-0": "delete"}
    topics = dict.fromkeys(TOPICS, Topic(1, {"retention.ms": "-1"}))
    with Broker(version, log_dir, {"log.cleaner.enable": "false"}, topics) as broker:
        read = {
            topic: [record.offset for record in client.read_all(broker.bootstrap, topic)] for topic in TOPICS
        }
        logs = {topic: logs_of(log_dir, topic) for topic in TOPICS}
    assert read == {"excised": list(range(START, 20)), "as-broker": [], "unmended": []}
    assert logs == {
        "excised": [f"{0:020d}.log", f"{10:020d}.log"],
        "as-broker": [f"{START:020d}.log"],
        "unmended": [f"{START:020d}.log"],
    }
