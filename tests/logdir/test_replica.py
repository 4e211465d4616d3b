"""The state of a broker contains what its directories show of each partition, and what was not read."""

from __future__ import annotations

from pathlib import Path

import msgspec

from krepair.formats.filenames import META_PROPERTIES, RECOVERY_POINT_CHECKPOINT
from krepair.logdir.view import BrokerState, read_broker, read_log_dir

TOPIC_ID = "zIRh4vueR7qi2NJYckaNDA"


def _log_dir(path: Path) -> str:
    folder = path / "orders-3"
    folder.mkdir(parents=True)
    (path / META_PROPERTIES).write_text("version=0\nbroker.id=1\ncluster.id=abc\n")
    (path / RECOVERY_POINT_CHECKPOINT).write_text("0\n1\norders 3 70\n")
    (path / "replication-offset-checkpoint").write_text("0\n1\norders 3 75\n")
    (path / "cleaner-offset-checkpoint").write_text("0\n1\norders 3 60\n")
    (path / ".kafka_cleanshutdown").write_bytes(b"")
    (folder / f"{50:020d}.log").write_bytes(b"x" * 10)
    (folder / f"{60:020d}.log").write_bytes(b"x" * 5)
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    (path / f"orders-4.{'a' * 32}-future").mkdir()
    (path / "__cluster_metadata-0").mkdir()
    return str(path)


def test_a_state_has_the_lines_of_the_checkpoints_and_the_topic_id(tmp_path: Path) -> None:
    view = read_log_dir(_log_dir(tmp_path / "kafka"))
    broker = read_broker([view], 5, ["/other/kafka", view.path])
    (replica, future) = broker.partitions
    assert (replica.name, replica.kind, replica.topic_id) == ("orders-3", "current", TOPIC_ID)
    assert (replica.log_start, replica.high_watermark, replica.recovery_point) == (50, 75, 70)
    assert (replica.cleaner_position, replica.log_end, replica.log_bytes) == (60, -1, 15)
    assert replica.clean_stop
    assert replica.segments == (50, 60)
    assert (future.kind, future.high_watermark) == ("future", -1)
    assert (broker.broker_id, broker.cluster_id) == ("1", "abc")
    assert [(one.path, one.was_read) for one in broker.directories] == [
        (view.path, True),
        ("/other/kafka", False),
    ]
    assert not broker.whole
    assert msgspec.json.decode(msgspec.json.encode(broker), type=BrokerState) == broker


def test_a_topic_id_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    path = _log_dir(tmp_path / "kafka")
    (tmp_path / "kafka/orders-3/partition.metadata").write_text("nothing")
    (replica, _) = read_broker([read_log_dir(path)], 5).partitions
    assert replica.topic_id == ""
    assert replica.damage.startswith("partition.metadata: ")
