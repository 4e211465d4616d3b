"""What a tired operator may give as evidence: a wrong or an old file, a directory of nobody, half a broker."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from krepair.errors import ExitCode, RefusedError, UsageError
from krepair.fixes.table import asked
from krepair.logdir.cluster import ClusterView, read_cluster_file
from krepair.logdir.values import LogDir as LogDirView
from krepair.logdir.view import read_log_dir
from krepair.ops import log_dirs_given
from krepair.ops.plan import read_sides
from tests.compaction.directories import Verbs
from tests.ops.replica_scenes import left_in
from tests.ops.replicas_read import LINE, broker, cleaned, evidence, verbs, whole

pytestmark = pytest.mark.replicas
MINE, OTHERS = "AAAAAAAAAAAAAAAAAAAAAw", "BBBBBBBBBBBBBBBBBBBBBQ"


def described(root: Path, line: str, topic_id: str = "") -> Path:
    """A file as ``kafka-topics.sh --describe`` prints it."""
    named = f"\tTopicId: {topic_id}" if topic_id else ""
    file = root / "described.txt"
    file.write_text(f"Topic: t{named}\tPartitionCount: 1\tReplicationFactor: 3\tConfigs: a=1\n{line}")
    return file


def in_sync(root: Path, **more: Any) -> Verbs:
    """``--cluster`` with a line in which brokers 2 and 3 are in sync without broker 1."""
    if "cluster" not in more:
        more["cluster"] = str(described(root, LINE.format(replicas="1,2,3", isr="2,3")))
    run = verbs(root, "compact", **more)
    run.given = dataclasses.replace(run.given, delete_horizon="newest")
    return run


# -- directories of nobody


def test_a_log_directory_that_does_not_say_whose_it_is_speaks_for_nobody(tmp_path: Path) -> None:
    """It may be a copy of this broker's own directory: then all would go."""
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, cleaned())
    (tmp_path / "b2" / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 10\n")
    (tmp_path / "b2" / "meta.properties").unlink()
    plan = verbs(tmp_path, "compact", f"2={tmp_path}/b2", replicas="1,2").plan()
    assert evidence(plan).kind == "none"
    assert "does not say whose it is" in evidence(plan).why


def test_one_directory_is_not_given_for_two_brokers(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, cleaned())
    (tmp_path / "link").symlink_to(tmp_path / "b2")
    for second in ("b2", "link"):
        with pytest.raises(UsageError, match="is given for two brokers"):
            verbs(tmp_path, "compact", f"2={tmp_path}/b2", f"3={tmp_path}/{second}").plan()


# -- half a broker


def moving(root: Path, number: int) -> Path:
    """A second log directory of a broker, with a folder in it that is about to become the replica."""
    more = broker(root / "more", number, whole())
    (more / "t-0").rename(more / f"t-0.{uuid.UUID(int=1).hex}-future")
    return more


def test_a_second_log_directory_counts_though_its_inode_is_that_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The roots of two file systems of one kind have the same inode number."""
    mine, more = broker(tmp_path, 1, cleaned()), moving(tmp_path, 1)
    same = mine.stat().st_ino

    def as_a_mount(path: str) -> LogDirView:
        view = read_log_dir(path)
        return view._replace(inode=same, device=77) if path == str(more) else view

    monkeypatch.setattr(log_dirs_given, "read_log_dir", as_a_mount)
    run = verbs(tmp_path, "compact", f"1={mine},{more}", replicas="1,2")
    _, own = read_sides(asked(("compact",)), run.given, read_log_dir(str(mine)))
    assert [view.path for view in own.views] == [str(more)]


def test_a_configuration_that_does_not_name_this_directory_keeps_everything(tmp_path: Path) -> None:
    """It names several: one of them may hold a folder that is about to become the replica."""
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, cleaned())
    config = tmp_path / "server.properties"
    config.write_text("broker.id=1\nlog.dirs=/var/lib/kafka1,/var/lib/kafka2\n")
    given = f"2={tmp_path}/b2"
    plan = verbs(tmp_path, "compact", given, replicas="1,2", config=str(config)).plan()
    assert evidence(plan).kind == "none"
    assert "/var/lib/kafka1, /var/lib/kafka2" in evidence(plan).why
    own = f"1={tmp_path}/b1,{moving(tmp_path, 1)}"
    plan = verbs(tmp_path, "compact", given, own, replicas="1,2", config=str(config)).plan()
    assert evidence(plan).kind == "replicas"
    config.write_text("broker.id=1\nlog.dirs=/var/lib/kafka1\n")
    plan = verbs(tmp_path, "compact", given, replicas="1,2", config=str(config)).plan()
    assert evidence(plan).kind == "replicas"


@pytest.mark.parametrize("given", ["directory", "own"])
def test_a_broker_that_has_registered_more_log_directories_than_were_read_keeps_everything(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 3.7 on the metadata log says how many a broker has."""
    broker(tmp_path, 1, cleaned())
    side = f"2={broker(tmp_path, 2, cleaned())}"
    found = []
    for count in (1, 2):
        dirs = tuple(str(uuid.UUID(int=number)) for number in range(count))

        def with_brokers(path: str, dirs: tuple[str, ...] = dirs) -> ClusterView:
            of = 1 if given == "own" else 2
            known = {of: dirs}
            return dataclasses.replace(read_cluster_file(path), brokers=known)

        monkeypatch.setattr("krepair.fixes.evidence.read_cluster_file", with_brokers)
        found.append(evidence(verbs(tmp_path, "compact", side, replicas="1,2").plan()))
    assert [one.kind for one in found] == ["replicas", "none"]
    assert "registered 2 log directories" in found[1].why


# -- between plan and apply


@pytest.mark.parametrize("owner", [1, 2])
def test_a_folder_that_came_since_the_plan_was_made_stops_apply(owner: int, tmp_path: Path) -> None:
    """Weeks later a broker was started, and was told to move the replica to another log directory."""
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, cleaned())
    run = verbs(tmp_path, "compact", f"2={tmp_path}/b2", replicas="1,2")
    plan = run.plan()
    future = broker(tmp_path / "elsewhere", 5, whole())
    shutil.copytree(future / "t-0", tmp_path / f"b{owner}" / f"t-0.{'a' * 32}-future")
    report = run.apply(plan)
    assert {result.exit_code for result in report.results} == {ExitCode.STALE_PLAN}
    assert "-future" in report.results[0].why
    assert left_in(tmp_path / "b1" / "t-0").markers == (2, 5)


# -- the state of the cluster


@pytest.mark.parametrize("kind", ["replicas", "alone in it"])
def test_a_state_of_another_topic_of_the_same_name_says_nothing(kind: str, tmp_path: Path) -> None:
    """The file of another cluster, where this topic has one replica: no other one would be asked."""
    broker(tmp_path, 1, cleaned(), topic_id=MINE)
    broker(tmp_path, 2, cleaned())
    line = LINE.format(replicas="1,2" if kind == "replicas" else "1", isr="1")
    for topic_id, expected in ((OTHERS, "none"), (MINE, "replicas")):
        cluster = str(described(tmp_path, line, topic_id))
        plan = verbs(tmp_path, "compact", f"2={tmp_path}/b2", cluster=cluster).plan()
        assert evidence(plan).kind == expected, evidence(plan).why
        assert ("topic id" in evidence(plan).why) == (expected == "none")


def test_an_answer_of_the_running_cluster_from_before_the_stop_says_nothing(tmp_path: Path) -> None:
    """Broker 1 was out of the ISR then too, as it was stopped then too. A copy may make a file newer, never older."""
    log_dir = broker(tmp_path, 1, cleaned())
    run = in_sync(tmp_path)
    assert evidence(run.plan()).kind == "in-sync"
    stopped_ms = (log_dir / "replication-offset-checkpoint").stat().st_mtime_ns // 1_000_000
    file = tmp_path / "described.txt"
    for before_ms, kind in ((61_000, "none"), (50_000, "in-sync")):
        os.utime(file, ns=((stopped_ms - before_ms) * 1_000_000,) * 2)
        found = evidence(run.plan())
        assert found.kind == kind, found.why
        assert ("before this broker's last write" in found.why) == (kind == "none")
        assert ("if it was copied, this is the time of the copy" in found.why) == (kind == "in-sync")


def test_a_segment_dated_in_the_future_takes_no_evidence_away(tmp_path: Path) -> None:
    log_dir = broker(tmp_path, 1, cleaned())
    for path in (log_dir / "t-0").glob("*.log"):
        os.utime(path, (2_000_000_000, 2_000_000_000))
    assert evidence(in_sync(tmp_path).plan()).kind == "in-sync"


def test_no_word_of_a_person_outweighs_the_metadata_log_beside_the_data(tmp_path: Path) -> None:
    log_dir = broker(tmp_path, 1, cleaned())
    (log_dir / "t-0").rename(log_dir / "two-0")
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (log_dir / name).write_text("0\n1\ntwo 0 10\n")
    log = Path(__file__).resolve().parents[1] / "logdir" / "metadata_logs" / "3.9.2-b2-b3-down"
    shutil.copytree(next(log.rglob("__cluster_metadata-0"), log), log_dir / "__cluster_metadata-0")
    from tests.compaction.directories import topic_config

    run = verbs(tmp_path, "compact", only_replica=("two",), cluster="")
    run.given = dataclasses.replace(run.given, topic_config=str(topic_config(tmp_path, None, "two")))
    part = next(one for one in run.plan().partitions if one.folder == "two-0")
    assert part.evidence.kind == "none"  # type: ignore[union-attr]
    assert "has replicas 1, 2" in part.evidence.why  # type: ignore[union-attr]


def test_a_topic_with_one_replica_is_told_the_option_that_fits(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    line = "\tTopic: t\tPartition: 0\tLeader: none\tReplicas: 1\tIsr: 1\n"
    found = evidence(in_sync(tmp_path, cluster=str(described(tmp_path, line))).plan())
    assert found.kind == "none"
    assert "--only-replica t" in found.why


HEAD = "Topic: t\tPartitionCount: 1\tReplicationFactor: 3\tConfigs: a=1\n"
GOOD = LINE.format(replicas="1,2,3", isr="2,3")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD + GOOD + HEAD + GOOD, "every topic once"),
        (HEAD + GOOD + GOOD, "every partition once"),
        (HEAD + GOOD[:-4], "cut in the middle of a line"),
        (HEAD.replace("Count: 1", "Count: 2") + GOOD, "2 partitions of topic t"),
        (GOOD, "run --describe without a filter"),
        (HEAD + GOOD.replace("\tLeader: 2", ""), "a line of kafka-topics.sh --describe"),
        (HEAD + GOOD.replace("\tReplicas: 1,2,3", ""), "a line of kafka-topics.sh --describe"),
        (HEAD + GOOD.replace("\tIsr: 2,3", ""), "a line of kafka-topics.sh --describe"),
    ],
    ids=[
        "two answers",
        "a line twice",
        "cut in a line",
        "cut after a line",
        "no head",
        "leader",
        "replicas",
        "isr",
    ],
)
def test_a_text_that_is_not_one_whole_answer_is_refused_with_its_line(
    text: str, says: str, tmp_path: Path
) -> None:
    broker(tmp_path, 1, cleaned())
    file = tmp_path / "wrong.txt"
    file.write_text(text)
    with pytest.raises(RefusedError, match=says):
        in_sync(tmp_path, cluster=str(file)).plan()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (LINE.format(replicas="1,2,3", isr=""), "not in sync|no other replica"),
        (LINE.format(replicas="1,2,3", isr="2"), "replica 3 is not in sync"),
        (GOOD.replace("Leader: 2", "Leader: -1"), "was not written by a running broker"),
        (GOOD.rstrip("\n") + "\tMarkedForDeletion: true\n", "was not written by a running broker"),
    ],
    ids=["no isr", "one behind", "a leader of -1", "zookeeper"],
)
def test_a_line_that_does_not_show_all_others_in_sync_is_no_evidence(
    line: str, says: str, tmp_path: Path
) -> None:
    broker(tmp_path, 1, cleaned())
    found = evidence(in_sync(tmp_path, cluster=str(described(tmp_path, line))).plan())
    assert found.kind == "none"
    assert re.search(says, found.why), found.why


def test_of_versions_that_do_not_say_who_answered_the_plan_says_whose_word_it_is(tmp_path: Path) -> None:
    """Up to 2.8; from 3.7 on the columns of the ELR show that a broker answered."""
    broker(tmp_path, 1, cleaned())
    elr = GOOD.rstrip("\n") + "\tElr: \tLastKnownElr: \n"
    of_an_old_broker = elr.replace(
        "Elr: ", "Elr: N/A"
    )  # asked by a tool of 3.7 or later, which knows no ZooKeeper
    for line, said in ((GOOD, True), (elr, False), (of_an_old_broker, False)):
        found = evidence(in_sync(tmp_path, cluster=str(described(tmp_path, line))).plan())
        assert found.kind == "in-sync"
        assert ("that a broker answered, and not ZooKeeper, is your word too" in found.why) == said


@pytest.mark.parametrize("fix", ["compact", "tail", "epochs"])
def test_a_facts_file_is_for_compare_and_a_plan_refuses_it(fix: str, tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    (tmp_path / "b2.facts").write_bytes(b"krepair facts")
    with pytest.raises(UsageError, match=r"--replicas 2=\S+b2.facts: a plan needs the log directories"):
        verbs(tmp_path, fix, f"2={tmp_path}/b2.facts", replicas="1,2").plan()
