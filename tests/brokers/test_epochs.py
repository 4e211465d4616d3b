"""Real brokers of two log directories, one with leader epochs that it refuses: whether the other one ends with it.

What one directory does, and what it is once mended: ``tests/corpus``, by Kafka's own classes and real brokers.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.corpus.jbod import broker_on
from tests.fixture_dirs import unpack
from tests.lab.broker import BrokerError, Topic
from tests.lab.jars import LATEST, VERSIONS

pytestmark = [pytest.mark.broker, pytest.mark.slow]

EVERY = os.environ.get("KREPAIR_EVERY_BROKER") == "1"
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")
END = 280


def written(root: Path, topic: str) -> Path:
    """A log directory with partition e-all-0 of a real one, under another name."""
    log_dir = unpack("leader-epochs-2.2.1", root)
    (log_dir / "e-all-0").rename(log_dir / f"{topic}-0")
    for folder in ("e-some-0", "e-none-0"):
        shutil.rmtree(log_dir / folder)
    for name in CHECKPOINTS:
        (log_dir / name).write_text(f"0\n1\n{topic} 0 {END}\n")
    return log_dir


NO_NUMBER, NO_PAIR = b"0\n2\n0 0\n2 99999999999999999999\n", b"0\n2\n0 0\n2\n"
SEVERAL = (
    [
        *((version, NO_NUMBER, "refuse") for version in VERSIONS),
        ("2.2.1", NO_PAIR, "refuse"),
        ("3.9.2", NO_PAIR, "start"),
        (LATEST, NO_PAIR, "start"),
    ]
    if EVERY
    else [(LATEST, NO_NUMBER, "refuse")]
)


@pytest.mark.parametrize(("version", "epochs", "other"), SEVERAL)
def test_broker_with_several_directories_ends_where_check_says_so(
    tmp_path: Path, version: str, epochs: bytes, other: str
) -> None:
    dirs = [written(tmp_path / topic, topic) for topic in ("bad", "good")]
    (dirs[0] / "bad-0" / "leader-epoch-checkpoint").write_bytes(epochs)
    given = Options(engine=EngineName.INLINE, now_ms=1_790_000_000_000, broker_version=version)
    said = [report.forecast[0].expected for report in check([str(one) for one in dirs], given).log_dirs]
    assert said == ["refuse", other]
    work = tmp_path / "work"
    work.mkdir()
    # On ZooKeeper each leads at the epoch it had, on KRaft at 0.
    topics = dict.fromkeys(("bad", "good"), Topic(1, {"retention.ms": "-1"}, {0: 12}))
    broker = broker_on(version, dirs, topics, work)
    if other == "refuse":
        with pytest.raises(BrokerError), broker:
            pass
        assert re.search("There was an error in one of the threads during logs loading", broker.log())
    else:
        with broker:
            assert "Stopping serving" in broker.log() or "Error while loading log dir" in broker.log()
