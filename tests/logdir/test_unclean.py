"""Whether unclean election is off, and what moves: said by files of brokers, by tools, and by ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.errors import UsageError
from krepair.logdir.cluster import ClusterView, read_cluster_file
from krepair.logdir.reassignments import is_of_reassignments, moving_partitions
from krepair.logdir.unclean import ClusterConfig, unclean_of

LOGS = Path(__file__).parent / "metadata_logs"
TEXTS = Path(__file__).parent.parent / "formats" / "described"
KEY = "unclean.leader.election.enable"
LINE = f"  {KEY}={{}} sensitive=false synonyms={{{{STATIC_BROKER_CONFIG:{KEY}={{}}}}}}\n"


@pytest.fixture
def log() -> ClusterView:
    return read_cluster_file(str(LOGS / "4.3.1-b2-b3-down"))


@pytest.fixture
def text() -> ClusterView:
    return read_cluster_file(str(TEXTS / "4.3.1" / "b2-b3-down.txt"))


def written(path: Path, content: str) -> str:
    path.write_text(content)
    return str(path)


def test_the_topics_own_setting_in_the_metadata_log_is_enough(log: ClusterView) -> None:
    assert unclean_of("elr", log, ()).unclean == "off"
    assert unclean_of("t", log, ()).unclean == "unknown"


def test_what_describe_shows_may_be_the_setting_of_the_broker_that_answered(text: ClusterView) -> None:
    assert unclean_of("elr", text, ()).unclean == "unknown"


@pytest.mark.parametrize(
    ("content", "unclean"),
    [
        ("broker.id=1\n", "off"),
        ("node.id=1\nunclean.leader.election.enable=false\n", "off"),
        ("node.id=1\nunclean.leader.election.enable=true\n", "on"),
        ("All configs for broker 1 are:\n" + LINE.format("false", "false"), "off"),
        ("All configs for broker 1 are:\n" + LINE.format("true", "true"), "on"),
        ("All configs for topic t are:\n" + LINE.format("false", "true"), "off"),
        ("All configs for broker 1 are:\n" + LINE.format("false", "false") * 1
         + "All configs for broker 2 are:\n" + LINE.format("true", "false"), "on"),
    ],
)  # fmt: skip
def test_files_of_brokers_and_of_tools(text: ClusterView, tmp_path: Path, content: str, unclean: str) -> None:
    assert unclean_of("t", text, map(ClusterConfig, [written(tmp_path / "f", content)])).unclean == unclean


def test_one_file_that_says_on_is_enough(text: ClusterView, tmp_path: Path) -> None:
    off = written(tmp_path / "off", "broker.id=1\n")
    on = written(tmp_path / "on", "broker.id=2\nunclean.leader.election.enable=true\n")
    assert (
        unclean_of("t", text, map(ClusterConfig, [off, on])).unclean
        == unclean_of("t", text, map(ClusterConfig, [on, off])).unclean
        == "on"
    )


def test_what_the_tool_prints_of_other_topics_says_nothing_of_one(text: ClusterView, tmp_path: Path) -> None:
    parts = {"t": "false", "'u'": "true"}
    said = "".join(f"All configs for topic {name} are:\n" + LINE.format(on, on) for name, on in parts.items())
    file = ClusterConfig(
        written(tmp_path / "f", said + "Dynamic configs for topic v are:\n" + LINE.format("false", ""))
    )
    assert [unclean_of(topic, text, [file]).unclean for topic in ("t", "u")] == ["off", "on"]
    with pytest.raises(UsageError, match=r"nothing of .* of topic v"):
        unclean_of("v", text, [file])


@pytest.mark.parametrize(
    "content",
    [
        "",
        "a=b\n",
        "Dynamic configs for broker 1 are:\n" + LINE.format("false", "false"),
        "All configs for topic other are:\n" + LINE.format("false", "false"),
    ],
)
def test_a_file_that_says_nothing_of_it_is_an_error(text: ClusterView, tmp_path: Path, content: str) -> None:
    with pytest.raises(UsageError, match="--cluster-config"):
        unclean_of("t", text, map(ClusterConfig, [written(tmp_path / "f", content)]))


def test_reassignments_of_zookeeper() -> None:
    some = '{"version":1,"partitions":[{"topic":"t","partition":3,"replicas":[1,2]}]}'
    assert is_of_reassignments(some)
    assert moving_partitions("f", some) == {("t", 3)}
    none = "WATCHER::\nNode does not exist: /admin/reassign_partitions\n"
    assert is_of_reassignments(none)
    assert moving_partitions("f", none) == frozenset()
    with pytest.raises(UsageError, match="expected the content"):
        moving_partitions("f", '{"version":1}')
