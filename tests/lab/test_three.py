"""The cluster of the lab does what its tests rely on: brokers go, come back, lead, die, and the cluster is put back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.broker import Topic
from tests.lab.jars import LATEST
from tests.lab.three import Three
from tests.lab.waiting import LIMIT_S, wait_for

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.every_broker]
"""In the gate the tests on such clusters show as much."""

COMPACTED = Topic(
    1,
    {
        "cleanup.policy": "compact",
        "segment.bytes": "3000",
        "min.cleanable.dirty.ratio": "0.001",
        "delete.retention.ms": "86400000",
    },
)


@pytest.mark.parametrize("version", ["2.2.1", "2.8.2", "3.9.2", LATEST])
def test_broker_that_was_away_leads_with_what_the_others_wrote(version: str, tmp_path: Path) -> None:
    with Three(version, tmp_path) as cluster:
        cluster.create({"t": COMPACTED})
        sender = cluster.producer("one")
        cluster.write("t", [(b"a", b"1"), (b"gone", b"1")])
        sender.begin_transaction()
        cluster.write("t", [(b"a", b"aborted")], sender)
        cluster.stop(3)
        sender.abort_transaction(LIMIT_S)
        sender.begin_transaction()
        cluster.write("t", [(b"b", b"2"), (b"gone", None)], sender)
        sender.commit_transaction(LIMIT_S)
        _, _, end = cluster.offsets("t")
        cluster.fill("t", 16)
        cluster.wait_cleaned("t", end, of=(1, 2))
        assert len(cluster.markers(1, "t")) == 2
        assert "Leader: 1" in cluster.describe("t")
        before = cluster.serves("t")
        assert (before.table[b"a"], before.table[b"b"]) == (b"1", b"2")
        assert b"aborted" not in {value for _, _, value in before.uncommitted}
        assert before.stable == before.end
        assert b"gone" not in before.table
        cluster.start(3)
        cluster.wait_in_sync("t", of=(1, 2, 3))
        cluster.lead(3, ["t"])
        after = cluster.serves("t")
        assert (after.table, after.stable, after.end) == (before.table, before.stable, before.end)
        cluster.stop_all()
        cluster.kept("before")
        (cluster.log_dir(3) / "t-0" / "leader-epoch-checkpoint").unlink()
        cluster.put_back("before")
        cluster.begin()
        cluster.wait_in_sync("t", of=(1, 2, 3))
        assert cluster.serves("t").table == before.table


def test_broker_that_lives_apart_is_killed_and_comes_back(tmp_path: Path) -> None:
    with Three("3.9.2", tmp_path, apart=[3]) as cluster:
        cluster.create({"t": Topic()})
        cluster.write("t", [(b"a", b"1")])
        cluster.kill(3)
        assert not (cluster.log_dir(3) / ".kafka_cleanshutdown").exists()
        cluster.write("t", [(b"a", b"2")])
        cluster.wait_out_of_sync("t", 3)
        cluster.start(3)
        wait_for(lambda: cluster.state("t")[0].isr == {1, 2, 3})
        assert cluster.serves("t").table == {b"a": b"2"}
