"""A log is cut by krepair, and its broker is alone in the ISR: as leader it makes the others cut theirs."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from tests import naive
from tests.lab import jars
from tests.lab.broker import Topic
from tests.lab.jvm import java
from tests.lab.three import Three
from tests.lab.waiting import wait_for

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.replicas]

VERSIONS = jars.VERSIONS if os.environ.get("KREPAIR_EVERY_BROKER") == "1" else ("3.9.2",)
DAMAGED, TORN = "damaged", "torn"
"""A batch in the middle of one log is damaged; the last batches of the other were never written to the disk."""
TOPICS = (DAMAGED, TORN)
CONFIG = {"segment.bytes": "3000", "retention.ms": "-1"}
RECORDS = 60


def has_written_high_watermarks(log_dir: Path) -> bool:
    """Whether a broker knows, and has written, that all have everything; it writes every half second."""
    path = log_dir / "replication-offset-checkpoint"
    try:
        return {f"{name} 0 {RECORDS}" for name in TOPICS} <= set(path.read_text().splitlines())
    except FileNotFoundError:
        return False


def begin(cluster: Three) -> None:
    """All have everything; broker 1 stops last, and is alone in the ISR. Then its logs lose something."""
    cluster.create({name: Topic(1, CONFIG) for name in TOPICS})
    for name in TOPICS:
        cluster.write(name, [(b"%d" % number, b"x" * 200) for number in range(RECORDS)])
    cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))
    wait_for(lambda: all(has_written_high_watermarks(cluster.log_dir(number)) for number in (1, 2, 3)))
    cluster.stop(3, 2)
    cluster.stop_all()
    folder = cluster.log_dir(1)
    middle = sorted((folder / f"{DAMAGED}-0").glob("*.log"))[1]
    raw = bytearray(middle.read_bytes())
    batch = naive.parse(bytes(raw))[1]
    raw[batch.position + batch.size - 1] ^= 1
    middle.write_bytes(bytes(raw))
    last = [path for path in sorted((folder / f"{TORN}-0").glob("*.log")) if path.stat().st_size][-1]
    kept = naive.parse(last.read_bytes())[0]
    with last.open("r+b") as log:
        log.truncate(kept.position + kept.size + 30)
    (folder / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (folder / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    cluster.kept("cut")


def options(cluster: Three, *fixes: str, **more: object) -> Options:
    others = tuple(f"{node}={cluster.log_dir(node)}" for node in (2, 3))
    return Options(
        fixes=fixes,
        engine=EngineName.INLINE,
        replicas=others,
        broker_version=cluster.version,
        now_ms=time.time_ns() // 1_000_000,
        **more,  # type: ignore[arg-type]
    )


def cut(cluster: Three) -> list[Plan]:
    """Plan and apply on broker 1: the damage as a broker would cut it, the torn tail with the recovery."""
    root = str(cluster.log_dir(1))
    [waiting] = [
        one
        for one in make_plan(root, options(cluster, "tail=broker")).partitions
        if one.status == "left alone"
    ]
    consents = tuple(re.findall(r"KR302:\S+", str(waiting.next_command)))
    plans = []
    for given in (
        options(cluster, "tail=broker", accepted_losses=consents),
        options(cluster, "recovery", partitions=((TORN, 0),)),
    ):
        plan = make_plan(root, given)
        plans.append(plan)
        assert apply(plan, given).exit_code is ExitCode.DONE
    return plans


def told(plan: Plan, topic: str) -> str:
    """What the plan says of who has what is cut."""
    return "".join(
        f"{one.text} {one.more}"
        for one in plan.risks
        if one.code == "others-have" and one.text.startswith(topic)
    )


def elect(cluster: Three, topic: str) -> None:
    """A broker outside the ISR leads: an unclean election, as the version's tools do it."""
    if cluster.kraft:
        tool = "org.apache.kafka.tools.LeaderElectionCommand"
        where = ["--bootstrap-server", cluster.bootstrap, "--election-type", "unclean"]
        argv = java(cluster.version, tool, *where, "--topic", topic, "--partition", 0, heap="128m")
    else:
        tool = "kafka.admin.ConfigCommand"
        where = ["--zookeeper", cluster.zookeeper, "--entity-type", "topics", "--entity-name", topic]
        change = ["--alter", "--add-config", "unclean.leader.election.enable=true"]
        argv = java(cluster.version, tool, *where, *change, heap="128m")

    def led() -> bool:
        if {one.leader for one in cluster.state(topic).values()} in ({2}, {3}):
            return True
        subprocess.run(argv, check=False, capture_output=True)  # a controller may not take them as alive yet
        return False

    wait_for(led, step_s=0.2)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_leader_cuts_its_followers_and_the_plan_says_who_has_what_is_cut(
    version: str, tmp_path: Path
) -> None:
    with Three(version, tmp_path, {"log.cleaner.enable": "false"}) as cluster:
        begin(cluster)
        damaged, torn = cut(cluster)
        ends = {DAMAGED: cluster.batches(1, DAMAGED)[-1].last_offset + 1}
        ends[TORN] = cluster.batches(1, TORN)[-1].last_offset + 1
        assert all(0 < end < RECORDS for end in ends.values())
        for plan, topic in ((damaged, DAMAGED), (torn, TORN)):
            said = told(plan, f"{topic}-0")
            assert f"the log ends at offset {ends[topic]} after this plan" in said
            assert "Replicas 2 and 3 have them, and krepair compare calls them right." in said
            assert "Let broker 2 lead before this broker starts" in said
            assert "do not start it" in said

        # what was said not to do: broker 1 is alone in the ISR and leads, so the others cut their logs
        cluster.start_metadata()
        cluster.start(1)
        cluster.start(2, 3)
        cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))
        for topic in TOPICS:
            assert len(cluster.serves(topic).uncommitted) == ends[topic]
            assert {cluster.batches(node, topic)[-1].last_offset + 1 for node in (1, 2, 3)} == {ends[topic]}
        cluster.stop_all()

        # what was said to do: another one leads, and broker 1 fetches what it lacks
        cluster.put_back("cut")
        cut(cluster)
        cluster.start_metadata()
        cluster.start(2, 3)
        for topic in TOPICS:
            elect(cluster, topic)
        cluster.start(1)
        cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))
        cluster.lead(1, TOPICS)
        for topic in TOPICS:
            assert len(cluster.serves(topic).uncommitted) == RECORDS
