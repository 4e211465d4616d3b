r"""Parser of the text that ``kafka-topics.sh --describe`` prints: replicas, in-sync replicas and leader of partitions.

A topic has one line, followed by one line for each partition; ``\t`` separates the items of a line. Versions differ:

- 2.2 and 2.3 write ``Topic:name``, later versions ``Topic: name``. The lines of partitions are the same in all
versions.
- ``TopicId`` exists from 2.8 on. ``Adding Replicas`` and ``Removing Replicas`` exist from 2.4 on, and only while a
  partition is being reassigned. ``Elr`` and ``LastKnownElr`` exist from 3.7 on.
- Up to 2.8 the tool can ask ZooKeeper (``--zookeeper``) instead of a broker. Only two things show that ZooKeeper
  answered: a topic that is ``MarkedForDeletion``, and a leader of ``-1``, which 2.2 to 2.7 print. The columns of the
  ELR and of a reassignment show that a broker answered. Every other text may be from either.

Source: ``TopicCommand.scala`` (2.2.1, 2.4.0, 2.8.2), ``TopicCommand.java`` (3.9.0), and the tools of 2.2.1, 2.8.2,
3.9.2 and 4.3.1, run.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from krepair.formats.damage import Bytes, shown
from krepair.formats.java_numbers import parse_java_integer
from krepair.formats.words import count_text

MAX_BYTES: Final = 1 << 28
"""Largest text that is read; 100,000 partitions need about 15 MB."""
MAX_LINE_BYTES: Final = 1 << 20
NOBODY: Final = -1

Asked = Literal["broker", "zookeeper", "unknown"]

_TOPIC: Final = re.compile(
    r"Topic:[ ]?(?P<topic>\S++)(?:\s++TopicId: (?P<id>\S++))?+\s++PartitionCount:[ ]?(?P<count>\S++)"
    r"\s++ReplicationFactor:[ ]?(?P<factor>\S++)\s++Configs:(?P<configs>.*+)"
)
_PARTITION: Final = re.compile(
    r"\s*+Topic: (?P<topic>\S++)\s++Partition: (?P<number>\S++)\s++Leader: (?P<leader>\S++)"
    r"\s++Replicas: (?P<replicas>\S++)\s++Isr:(?P<isr> [0-9,]++)?+"
    r"(?:\s++Adding Replicas:(?P<adding> [0-9,]++)?+(?P<moving>\s++)Removing Replicas:(?P<removing> [0-9,]++)?+)?+"
    r"(?:\s++Elr:(?P<elr> [0-9,]++| N/A)?+\s++LastKnownElr:(?P<last_known>(?: [0-9,]++| N/A)?+))?+"
    r"(?P<marked>\s++MarkedForDeletion: true)?+\s*+"
)
_MARKED: Final = re.compile(r"\tMarkedForDeletion:[ ]?true\s*+$")
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_CONFIG_START: Final = re.compile(r"(?:^|,)([a-z][a-z0-9.]*)=")
_NOT_KNOWN: Final = "N/A"


class DescribedTopic(NamedTuple):
    """Line of one topic.

    Attributes:
        topic_id: topic id of 22 characters; empty before 2.8.
        partition_count: number of partitions by this line.
        configs: settings by name. A broker's answer lists all settings that differ from Kafka's defaults for that
            broker; ZooKeeper's answer lists only the topic's own settings.
    """

    name: str
    topic_id: str
    partition_count: int
    configs: dict[str, str]


class DescribedPartition(NamedTuple):
    """Line of one partition.

    Attributes:
        leader: broker id of the leader, ``NOBODY`` without one.
        replicas: broker ids of the replicas, the preferred leader first.
        isr: broker ids of in-sync replicas. Without a leader 2.2 may print none, although ZooKeeper still holds an ISR.
        elr: eligible leader replicas; None if the text does not list them.
        last_known_elr: last known ELR; None if the text does not list it.
        adding: broker ids that a reassignment adds.
        removing: broker ids that a reassignment removes.
        moving: True if the line shows a reassignment in progress.
    """

    topic: str
    number: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    moving: bool


class Description(NamedTuple):
    """Content of a whole text.

    Attributes:
        topics: topic lines by topic name.
        partitions: partition lines by topic and partition number.
        asked: whether a broker or ZooKeeper answered, as far as the text shows it.
    """

    topics: dict[str, DescribedTopic]
    partitions: dict[tuple[str, int], DescribedPartition]
    asked: Asked


class WrongLine(NamedTuple):
    """First line that the tool does not print.

    Attributes:
        line: line number, counted from 1.
        expected: what should be in the line.
        found: what is in the line, safe to print.
    """

    line: int
    expected: str
    found: str


class _WrongError(Exception):
    """Error: a value of a line is wrong."""

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(expected, actual)
        self.expected = expected
        self.found = actual


def decode(buf: Bytes) -> Description | WrongLine:
    r"""Read the text; a ``WrongLine`` names the first line that the tool would not print.

    Lines may end with ``\n`` or ``\r\n``. A truncated text is recognized by its last line, which has no line end, or by
    the number of partitions that a topic's line announces.
    """
    if len(buf) > MAX_BYTES:
        return WrongLine(1, f"at most {MAX_BYTES} bytes", f"{len(buf)} bytes")
    lines = bytes(buf).split(b"\n")
    reader = _LineReader()
    number = 0
    try:
        for number, raw in enumerate(lines, 1):
            if number == len(lines) and raw.strip():
                text = shown(raw[:MAX_LINE_BYTES].decode("latin-1"))
                raise _WrongError("a line end: the text is cut in the middle of a line", text)
            reader.line(_text(raw))
        reader.end_of_topic()
    except _WrongError as wrong:
        return WrongLine(number, wrong.expected, wrong.found)
    if not reader.topics:
        return WrongLine(1, "the output of kafka-topics.sh --describe", "no line of a topic")
    return reader.description()


def _text(raw: bytes) -> str:
    if len(raw) > MAX_LINE_BYTES:
        raise _WrongError(f"a line of at most {MAX_LINE_BYTES} bytes", f"{len(raw)} bytes")
    try:
        return raw.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError:
        raise _WrongError("UTF-8", shown(raw.decode("latin-1"))) from None


class _LineReader:
    """Line-by-line parser; the lines of a topic's partitions follow the topic's own line."""

    def __init__(self) -> None:
        self.topics: dict[str, DescribedTopic] = {}
        self.partitions: dict[tuple[str, int], DescribedPartition] = {}
        self.here: DescribedTopic | None = None
        self.partitions_here = 0
        self.marked = False
        self.leader_minus_one = False
        self.elr_columns = False

    def line(self, text: str) -> None:
        if not text.strip():
            return
        match = _PARTITION.fullmatch(text)
        if match is not None:
            self.partition(match)
            return
        match = _TOPIC.fullmatch(text)
        if match is None:
            raise _WrongError("a line of kafka-topics.sh --describe", shown(text))
        self.end_of_topic()
        self.topic(match)

    def topic(self, match: re.Match[str]) -> None:
        name, topic_id = match["topic"], match["id"] or ""
        _check_topic(name)
        if name in self.topics:
            raise _WrongError("every topic once", f"{name} again")
        if topic_id and _TOPIC_ID.fullmatch(topic_id) is None:
            raise _WrongError("a topic id of 22 characters", shown(topic_id))
        count = _number(match["count"], "a number of partitions")
        _number(match["factor"], "a replication factor")
        text = match["configs"]
        self.marked |= _MARKED.search(text) is not None
        self.here = DescribedTopic(name, topic_id, count, _configs(_MARKED.sub("", text).strip()))
        self.topics[name] = self.here
        self.partitions_here = 0

    def partition(self, match: re.Match[str]) -> None:
        topic = match["topic"]
        _check_topic(topic)
        if self.here is None or self.here.name != topic:
            raise _WrongError(
                f"the line of topic {shown(topic)} before those of its partitions (run --describe without a filter)",
                "none",
            )
        number = _number(match["number"], "a partition number")
        if (topic, number) in self.partitions:
            raise _WrongError("every partition once", f"{topic}-{number} again")
        self.partitions_here += 1
        self.marked |= match["marked"] is not None
        self.leader_minus_one |= match["leader"] == "-1"
        self.elr_columns |= match["last_known"] is not None
        self.partitions[topic, number] = DescribedPartition(
            topic=topic,
            number=number,
            leader=_leader(match["leader"]),
            replicas=_brokers(match["replicas"], "replicas"),
            isr=_brokers(match["isr"] or "", "the ISR"),
            elr=None if match["last_known"] is None else _known(match["elr"] or "", "the ELR"),
            last_known_elr=_known(match["last_known"], "the last known ELR"),
            adding=_brokers(match["adding"] or "", "adding replicas"),
            removing=_brokers(match["removing"] or "", "removing replicas"),
            moving=match["moving"] is not None,
        )

    def end_of_topic(self) -> None:
        if self.here is not None and self.partitions_here != self.here.partition_count:
            raise _WrongError(
                f"{count_text(self.here.partition_count, 'partition')} of topic {self.here.name}",
                f"{self.partitions_here}",
            )

    def description(self) -> Description:
        rows = self.partitions.values()
        answered_by: Asked = "unknown"
        if self.marked or self.leader_minus_one:
            answered_by = "zookeeper"
        elif self.elr_columns or any(row.moving for row in rows):
            answered_by = "broker"
        return Description(self.topics, self.partitions, answered_by)


def _check_topic(name: str) -> None:
    if _TOPIC_NAME.fullmatch(name) is None or name in {".", ".."}:
        raise _WrongError("the name of a topic", shown(name))


def _number(text: str, meaning: str) -> int:
    value = parse_java_integer(text, 32)
    if value is None or value < 0:
        raise _WrongError(meaning, shown(text))
    return value


def _leader(text: str) -> int:
    return NOBODY if text in {"none", "-1"} else _number(text, "the id of a leader, or none")


def _brokers(text: str, meaning: str) -> tuple[int, ...]:
    words = text.strip()
    if not words:
        return ()
    ids = tuple(_number(word, f"broker ids of {meaning}") for word in words.split(","))
    if len(set(ids)) != len(ids):
        raise _WrongError(f"every broker id of {meaning} once", shown(words))
    return ids


def _known(text: str | None, meaning: str) -> tuple[int, ...] | None:
    return None if text is None or text.strip() == _NOT_KNOWN else _brokers(text, meaning)


def _configs(text: str) -> dict[str, str]:
    """Split settings into names and values; a value such as ``compact,delete`` may contain a comma."""
    starts = list(_CONFIG_START.finditer(text))
    if text and (not starts or starts[0].start()):
        raise _WrongError("settings as name=value", shown(text))
    ends = [*(start.start() for start in starts[1:]), len(text)]
    return {start[1]: text[start.end() : end] for start, end in zip(starts, ends, strict=False)}
