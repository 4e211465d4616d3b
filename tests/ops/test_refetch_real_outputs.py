"""What real clusters say is held against the rules of a refetch: metadata logs and texts of 2.2.1 to 4.3.1."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from krepair.errors import RefusedError
from krepair.logdir.cluster import read_cluster_file
from krepair.ops import proof as proof_module
from krepair.ops.judged import Judgement
from krepair.ops.plan import make_plan
from krepair.options import Engine, Options
from tests import builders
from tests.ops.scene import tree

TESTS = Path(__file__).parent.parent
LOGS = TESTS / "logdir" / "metadata_logs"
TEXTS = TESTS / "formats" / "described"
CONFIGS = TESTS / "logdir" / "described"
"""``kafka-configs.sh --describe --all`` of real clusters."""
HOUR_MS = 3_600_000
NOW_MS = 4_000_000_000_000
NO_MOVES = "Node does not exist: /admin/reassign_partitions\n"


class Scene:
    """The stopped broker of a real cluster, of which only the state is real."""

    def __init__(self, root: Path, cluster: Path, name: str, broker: int) -> None:
        self.root = root
        self.cluster = cluster
        self.topic, _, number = name.rpartition("-")
        self.number = int(number)
        view = read_cluster_file(str(cluster))
        self.as_of_ms = view.as_of_ms or NOW_MS - HOUR_MS
        self.kraft = (
            "metadata_logs" in str(cluster) or view.partitions[self.topic, self.number].elr is not None
        )
        one = view.partitions[self.topic, self.number]
        for node in (1, 2, 3):
            self._directory(node, one.topic_id, at_ms=self.as_of_ms + (-HOUR_MS if node == broker else 0))
        self.broker = broker
        self.others = tuple(f"{node}={root / f'b{node}'}" for node in (1, 2, 3) if node != broker)
        own = root / "own.properties"
        own.write_text(f"broker.id={broker}\nlog.dirs=/var/lib/kafka\n")
        self.configs: tuple[str, ...] = (str(own),)

    def _directory(self, node: int, topic_id: str, at_ms: int) -> None:
        made = builders.LogDir(self.root / f"b{node}")
        partition = made.partition(self.topic, self.number)
        partition.segment(builders.data(0, [builders.Record(b"k", b"v")]))
        made.write()
        if topic_id:
            (partition.folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
        text = f"version={int(self.kraft)}\n{'node' if self.kraft else 'broker'}.id={node}\ncluster.id=c\n"
        (made.root / "meta.properties").write_text(text)
        for path in made.root.rglob("*"):
            os.utime(path, ns=(at_ms * 1_000_000,) * 2)

    def plan(self, *, version: str = "", **changed: object) -> object:
        given: dict[str, object] = {
            "fixes": ("refetch",),
            "partitions": ((self.topic, self.number),),
            "engine": Engine.INLINE,
            "replicas": self.others,
            "cluster": str(self.cluster),
            "cluster_as_of": self.as_of_ms,
            "cluster_configs": self.configs,
            "now_ms": NOW_MS,
            "broker_version": version,
        }
        return make_plan(str(self.root / f"b{self.broker}"), Options(**(given | changed)))  # type: ignore[arg-type]

    def refused(self, **changed: object) -> str:
        there = tree(self.root)
        with pytest.raises(RefusedError) as caught:
            self.plan(**changed)  # type: ignore[arg-type]
        assert tree(self.root) == there
        return caught.value.message


@pytest.fixture(autouse=True)
def compare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls this replica wrong, and all others right."""

    class Everything(dict[tuple[str, int], Judgement]):
        def get(self, key: object, default: object = None) -> Judgement:
            return Judgement(right=(1, 2, 3), wrong=True, verdict="tombstone-missed")

    def judge(*_: object) -> Mapping[tuple[str, int], Judgement]:
        return Everything()

    monkeypatch.setattr(proof_module, "judge", judge)


@pytest.mark.parametrize(
    ("log", "name", "broker"),
    [("4.3.1-b2-b3-down", "t-0", 3), ("4.3.1-b2-b3-down", "elr-0", 3), ("3.9.2-b2-b3-down", "t-1", 2)],
)
def test_a_replica_out_of_isr_and_elr_with_another_leader_may_be_fetched_anew(
    log: str, name: str, broker: int, tmp_path: Path
) -> None:
    assert Scene(tmp_path, LOGS / log, name, broker).plan()


@pytest.mark.parametrize(
    ("cluster", "name", "broker", "says"),
    [
        (LOGS / "4.3.1-b2-b3-down", "elr-0", 2, "is in the ELR (2)"),
        (TEXTS / "4.3.1" / "b2-b3-down.txt", "elr-0", 2, "is in the ELR (2)"),
        (LOGS / "4.3.1-b2-b3-down", "alone-0", 3, "is in the ELR (3)"),
        (LOGS / "3.9.2-b2-b3-down", "alone-0", 3, "is in the ISR (3)"),
        (TEXTS / "2.8.2" / "b2-b3-down.txt", "alone-0", 3, "is in the ISR (3)"),
        (LOGS / "4.3.1-b2-b3-down", "t-0", 1, "broker 1 is its leader"),
        (LOGS / "3.9.2-all-down", "t-0", 3, "has no leader"),
        (LOGS / "4.3.1-all-down", "t-0", 3, "has no leader"),
        (LOGS / "3.9.2-reassigning", "two-0", 3, "a reassignment is under way"),
        (LOGS / "4.3.1-reassigning", "two-0", 3, "a reassignment is under way"),
        (TEXTS / "2.8.2" / "reassigning.txt", "two-0", 3, "a reassignment is under way"),
        (TEXTS / "4.3.1" / "reassigning.txt", "three-0", 3, "a reassignment is under way"),
        (TEXTS / "2.2.1" / "b3-down.txt", "t-0", 3, "does not say whether a reassignment"),
        (TEXTS / "2.2.1" / "b2-b3-down-zk.txt", "t-0", 3, "kafka-topics.sh --zookeeper"),
        (TEXTS / "2.2.1" / "all-down-zk.txt", "t-0", 3, "kafka-topics.sh --zookeeper"),
        (TEXTS / "4.3.1" / "healthy.txt", "t-0", 3, "is in the ISR"),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else None,
)
def test_what_speaks_against_it_is_found_in_what_real_clusters_say(
    cluster: Path, name: str, broker: int, says: str, tmp_path: Path
) -> None:
    version = cluster.parent.name if cluster.suffix else cluster.name.partition("-")[0]
    assert says in Scene(tmp_path, cluster, name, broker).refused(version=version)


def test_zookeeper_is_no_proof_even_where_its_reassignments_are_given(tmp_path: Path) -> None:
    scene = Scene(tmp_path, TEXTS / "2.2.1" / "b2-b3-down-zk.txt", "t-0", 3)
    (tmp_path / "moves").write_text(NO_MOVES)
    told = scene.refused(version="2.2.1", cluster_configs=(*scene.configs, str(tmp_path / "moves")))
    assert "kafka-topics.sh --zookeeper" in told
    assert "does not say whether" not in told


def test_on_2_2_1_the_running_cluster_and_zookeepers_reassignments_are_enough(tmp_path: Path) -> None:
    scene = Scene(tmp_path, TEXTS / "2.2.1" / "b3-down.txt", "t-0", 3)
    (tmp_path / "moves").write_text(NO_MOVES)
    assert scene.plan(version="2.2.1", cluster_configs=(*scene.configs, str(tmp_path / "moves")))


def test_a_cut_or_changed_metadata_log_is_no_proof(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "brokers", LOGS / "4.3.1-b2-b3-down", "t-0", 3)
    copy = tmp_path / "copy"
    shutil.copytree(scene.cluster, copy)
    (log,) = copy.glob("*.log")
    data = log.read_bytes()
    for changed in (data[:-7], data[:100] + bytes([data[100] ^ 1]) + data[101:]):
        log.write_bytes(changed)
        assert "no proof" in scene.refused(cluster=str(copy))


def test_unclean_election_that_is_on_for_the_topic_or_not_known_refuses(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "brokers", TEXTS / "4.3.1" / "b3-down.txt", "t-0", 3)
    on = tmp_path / "on.txt"
    key = "unclean.leader.election.enable"
    on.write_text(scene.cluster.read_text().replace(f"{key}=false", f"{key}=true"))
    assert "unclean leader election is on" in scene.refused(version="4.3.1", cluster=str(on))
    side = f"3={scene.root / 'b3'}"
    told = scene.refused(version="4.3.1", cluster_configs=(), replicas=(*scene.others, side))
    assert "it is not known whether unclean leader election is off" in told


@pytest.mark.parametrize("version", ["2.8.2", "3.9.2", "4.3.1"])
def test_what_kafka_configs_prints_says_whether_it_is_off(version: str, tmp_path: Path) -> None:
    """The topic is that of the real answer; a value in it is changed to say that it is on."""
    text = (CONFIGS / f"{version}.txt").read_text()
    first = text.split("for topic ", 1)[1].split(" ", 1)[0].strip("'")
    scene = Scene(tmp_path / "brokers", TEXTS / version / "b3-down.txt", "t-0", 3)
    side = f"3={scene.root / 'b3'}"
    for value, allowed in (("false", True), ("true", False)):
        answer = tmp_path / f"{value}.txt"
        key = "unclean.leader.election.enable"
        answer.write_text(text.replace(first, "t").replace(f"{key}=false", f"{key}={value}"))
        given = {"cluster_configs": (str(answer),), "replicas": (*scene.others, side), "version": version}
        if allowed:
            assert scene.plan(**given)  # type: ignore[arg-type]
        else:
            assert "unclean leader election is on" in scene.refused(**given)
