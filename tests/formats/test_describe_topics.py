"""Output of ``kafka-topics.sh --describe``: that of real tools is parsed, anything else is a clear error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.formats.describe_topics import Description, WrongLine, decode

SAMPLES = Path(__file__).parent / "described"
"""What the tools of four versions printed of real clusters of three brokers; ``-zk``: asked with ``--zookeeper``."""
ALL = sorted(SAMPLES.glob("*/*.txt"))
HEAD = "Topic: t\tPartitionCount: 1\tReplicationFactor: 3\tConfigs: a=1\n"
LINE = "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2\n"


def read(sample: str) -> Description:
    found = decode((SAMPLES / sample).read_bytes())
    assert isinstance(found, Description), found
    return found


def wrong(text: str) -> WrongLine:
    found = decode(text.encode())
    assert isinstance(found, WrongLine), found
    return found


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", ALL, ids=name)
def test_every_real_text_is_read_and_every_partition_has_its_line(path: Path) -> None:
    found = read(str(path.relative_to(SAMPLES)))
    assert sum(topic.partition_count for topic in found.topics.values()) == len(found.partitions)
    assert all(set(row.isr) <= set(row.replicas) for row in found.partitions.values())


@pytest.mark.parametrize("path", ALL, ids=name)
def test_line_ends_of_windows_change_nothing(path: Path) -> None:
    data = path.read_bytes()
    assert decode(data.replace(b"\n", b"\r\n")) == decode(data)


@pytest.mark.parametrize("path", ALL, ids=name)
def test_a_text_that_is_cut_anywhere_is_an_error_or_ends_after_a_whole_topic(path: Path) -> None:
    data = path.read_bytes()
    whole = read(str(path.relative_to(SAMPLES)))
    for end in range(len(data)):
        found = decode(data[:end])
        if isinstance(found, Description):
            assert set(found.partitions.items()) < set(whole.partitions.items())
            assert data[end:].startswith(b"Topic:")


def test_the_columns_of_each_version_are_told_apart() -> None:
    assert read("2.2.1/b3-down.txt").topics["t"].topic_id == ""
    assert len(read("2.8.2/b3-down.txt").topics["t"].topic_id) == 22
    assert read("2.8.2/b3-down.txt").partitions["t", 0].elr is None
    elr = read("4.3.1/b2-b3-down.txt").partitions
    assert (elr["elr", 0].isr, elr["elr", 0].elr, elr["elr", 0].last_known_elr) == ((1,), (2,), ())
    assert (elr["alone", 0].leader, elr["alone", 0].isr, elr["alone", 0].elr) == (-1, (), (3,))


@pytest.mark.parametrize("version", ["2.8.2", "3.9.2", "4.3.1"])
def test_a_reassignment_is_seen_where_a_broker_answered(version: str) -> None:
    rows = read(f"{version}/reassigning.txt").partitions
    assert (rows["two", 0].adding, rows["two", 0].removing, rows["two", 0].moving) == ((3,), (2,), True)
    assert (rows["three", 0].adding, rows["three", 0].removing) == ((3,), (1, 2))
    assert not rows["elr", 0].moving


def test_of_zookeeper_the_tool_prints_no_reassignment() -> None:
    found = read("2.8.2/reassigning-zk.txt")
    assert (found.asked, found.partitions["two", 0].moving) == ("unknown", False)


def test_who_answered_is_said_where_the_text_tells() -> None:
    asked = {name(path): read(str(path.relative_to(SAMPLES))).asked for path in ALL}
    for sample, said in asked.items():
        assert said != ("broker" if sample.endswith("-zk") else "zookeeper"), sample
    assert {asked[f"{version}/healthy"] for version in ("3.9.2", "4.3.1")} == {"broker"}
    assert asked["2.2.1/deleting-zk"] == asked["2.8.2/deleting-zk"] == "zookeeper"
    assert asked["2.8.2/healthy-zk"] == asked["2.8.2/healthy"] == "unknown"


def test_2_2_prints_no_isr_of_a_partition_without_a_leader() -> None:
    assert read("2.2.1/b3-down.txt").partitions["alone", 0].isr == ()
    assert read("2.2.1/b3-down-zk.txt").partitions["alone", 0].isr == (3,)


def test_odd_names_and_values_with_commas_are_read() -> None:
    text = "Topic: a.b_c-7\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: cleanup.policy=compact,delete,x.y=0:1,0:2"
    text += "\n\tTopic: a.b_c-7\tPartition: 0\tLeader: none\tReplicas: 10\tIsr: \n"
    found = decode(text.encode())
    assert isinstance(found, Description)
    assert found.topics["a.b_c-7"].configs == {"cleanup.policy": "compact,delete", "x.y": "0:1,0:2"}
    assert found.partitions["a.b_c-7", 0].leader == -1


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "kafka-topics.sh --describe"),
        ("hello\n", 1, "a line of kafka-topics.sh"),
        (HEAD + LINE + "[2026-01-01] WARN something\n", 3, "a line of kafka-topics.sh"),
        (LINE, 1, "run --describe without a filter"),
        (HEAD, 2, "1 partition of topic t"),
        (HEAD + LINE + LINE, 3, "every partition once"),
        (HEAD + LINE + HEAD + LINE, 3, "every topic once"),
        (HEAD + LINE[:-3], 2, "cut in the middle of a line"),
        (HEAD + LINE.replace("Isr: 1,2", "Isr: 1,x"), 2, "a line of kafka-topics.sh"),
        (HEAD + LINE.replace("Isr: 1,2", "Isr: 1,1"), 2, "every broker id of the ISR once"),
        (HEAD + LINE.replace("Leader: 1", "Leader: 99999999999"), 2, "the id of a leader"),
        (HEAD + LINE.replace("Partition: 0", "Partition: -3"), 2, "a partition number"),
        (HEAD.replace("Topic: t", "Topic: t/../x") + LINE, 1, "the name of a topic"),
        (HEAD.replace("a=1", "\x1b[2J") + LINE, 1, "settings as name=value"),
    ],
)
def test_what_the_tool_does_not_print_is_an_error_with_its_line(text: str, line: int, says: str) -> None:
    found = wrong(text)
    assert found.line == line
    assert says in found.expected
    assert found.found.isprintable()


@given(st.binary(max_size=400))
def test_any_bytes_give_a_description_or_a_wrong_line(data: bytes) -> None:
    for text in (data, HEAD.encode() + data):
        assert isinstance(decode(text), Description | WrongLine)
