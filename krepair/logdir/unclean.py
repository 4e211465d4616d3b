"""Whether unclean leader election is off: ``server.properties`` says it, or ``kafka-configs.sh --describe --all``.

With it a replica that was emptied could become leader, and all others would cut themselves to nothing.

Source: ``ReplicationControlManager.java``, ``ConfigurationControlManager.uncleanLeaderElectionEnabledForTopic``
(3.9.0), ``KafkaController.scala`` (2.2.1): the topic's setting, else the dynamic one of all brokers, else the file of
the controller, else false (since 0.11).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from krepair.errors import UsageError
from krepair.logdir.cluster import ClusterView
from krepair.logdir.config_files import read_server_properties
from krepair.logdir.reassignments import is_of_reassignments, moving_partitions, read_text
from krepair.logdir.values import Unclean

KEY: Final = "unclean.leader.election.enable"
_ALL: Final = re.compile(r"All configs for (broker|topic) (\S+) are:")
_ANY: Final = re.compile(r"(?:All |Dynamic |Default )?[Cc]onfigs for ")
_LINE: Final = re.compile(rf"\s+{re.escape(KEY)}=(\S+)(?:\s.*)?")


class Said(NamedTuple):
    """What is said, and where."""

    unclean: Unclean
    where: str


@dataclass(frozen=True, eq=False)
class ClusterConfig:
    """A file given with ``--cluster-config``. It is read when it is first asked for, once for all partitions.

    Attributes:
        path: as typed.
    """

    path: str

    @cached_property
    def moving(self) -> frozenset[tuple[str, int]] | None:
        """Topics and numbers of the partitions that are being reassigned; None if it is not about that.

        Raises:
            UsageError: it could not be read, or is not what ZooKeeper says.
        """
        return moving_partitions(self.path, self._text) if is_of_reassignments(self._text) else None

    def unclean(self, topic: str) -> Said:
        """What it says of unclean election for a topic.

        Raises:
            UsageError: it could not be read, or says nothing of brokers or of this topic.
        """
        if is_of_reassignments(self._text):
            return Said("unknown", "")
        return (
            _of_describe(self.path, self._described, topic)
            if self._described is not None
            else self._of_broker
        )

    @cached_property
    def _text(self) -> str:
        return read_text(self.path)

    @cached_property
    def _described(self) -> Mapping[str, frozenset[str]] | None:
        return _values(self._text) if _ANY.match(self._text.lstrip()) else None

    @cached_property
    def _of_broker(self) -> Said:
        lines = read_server_properties(self.path)
        return _of_properties(self.path, {key: line.value for key, line in lines.items()})


def unclean_of(topic: str, view: ClusterView, files: Iterable[ClusterConfig]) -> Said:
    """Whether unclean election is off for a topic. One place that says it is on is enough.

    Args:
        topic: the topic.
        view: what the cluster says; only the metadata log tells apart what a topic has of its own.
        files: given with ``--cluster-config``.

    Raises:
        UsageError: a file could not be read, or says nothing of brokers or of this topic.
    """
    said = [_of_cluster(topic, view), *(file.unclean(topic) for file in files)]
    for unclean in ("on", "off"):
        found = next((one for one in said if one.unclean == unclean), None)
        if found is not None:
            return found
    return Said("unknown", "")


def _of_cluster(topic: str, view: ClusterView) -> Said:
    own = view.topic_configs.get(topic, {}).get(KEY, "")
    if own == "true":
        return Said("on", f"{KEY}=true of topic {topic} in {view.path}")
    everywhere = {name: values[KEY] for name, values in view.broker_configs.items() if KEY in values}
    if own == "false" and view.source == "metadata-log":
        return Said("off", f"{KEY}=false of topic {topic} in {view.path}")
    for name, value in everywhere.items():
        if value == "true":
            return Said("on", f"{KEY}=true of {'broker ' + name if name else 'all brokers'} in {view.path}")
    if everywhere.get("") == "false":
        return Said("off", f"{KEY}=false of all brokers in {view.path}")
    return Said("unknown", "")


def _of_properties(path: str, values: Mapping[str, str]) -> Said:
    if not values.keys() & {"broker.id", "node.id", "log.dirs", "log.dir", "process.roles"}:
        raise UsageError(f"--cluster-config {path}: expected a server.properties of a broker or controller")
    value = values.get(KEY, "false").strip().lower()
    return Said("off" if value == "false" else "on", f"{KEY}={value} in {path}")


def _values(text: str) -> dict[str, frozenset[str]]:
    """Topic -> the values that count of it, with those of brokers; of any other topic those of ``""`` alone.

    Only ``--all`` shows what is in a broker's file; the first value of a line is the one that counts.
    """
    found: dict[str, set[str]] = {}
    owner: str | None = None
    for line in text.splitlines():
        head = _ALL.fullmatch(line.strip())
        if head is not None:
            owner = "" if head[1] == "broker" else head[2].strip("'")
        elif _ANY.match(line.strip()):
            owner = None
        elif owner is not None and (value := _LINE.fullmatch(line)) is not None:
            found.setdefault(owner, set()).add(value[1])
    brokers = found.setdefault("", set())
    return {topic: frozenset(values | brokers) for topic, values in found.items()}


def _of_describe(path: str, values: Mapping[str, frozenset[str]], topic: str) -> Said:
    found = values.get(topic, values[""])
    if not found:
        raise UsageError(
            f"--cluster-config {path}: says nothing of {KEY} of a broker or of topic {topic}",
            next_command="kafka-configs.sh --bootstrap-server HOST:PORT --describe --all --entity-type brokers "
            "--entity-name ID > FILE",
        )
    value_of_all = "false" if found == {"false"} else "true"
    return Said("off" if value_of_all == "false" else "on", f"{KEY}={value_of_all} in {path}")
