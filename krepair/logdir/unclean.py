"""Whether unclean leader election is off: ``server.properties`` says it, or ``kafka-configs.sh --describe --all``.

With it a replica that was emptied could become leader, and all others would cut themselves to nothing.

Source: ``ReplicationControlManager.java``, ``ConfigurationControlManager.uncleanLeaderElectionEnabledForTopic``
(3.9.0), ``KafkaController.scala`` (2.2.1): the topic's setting, else the dynamic one of all brokers, else the file of
the controller, else false (since 0.11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from krepair.errors import UsageError
from krepair.logdir.cluster import ClusterView
from krepair.logdir.config_files import read_server_properties
from krepair.logdir.reassignments import is_of_reassignments, read_text
from krepair.logdir.values import Unclean

KEY: Final = "unclean.leader.election.enable"
_ALL: Final = re.compile(r"All configs for (broker|topic) (\S+) are:")
_ANY: Final = re.compile(r"(?:All |Dynamic |Default )?[Cc]onfigs for ")
_LINE: Final = re.compile(rf"\s+{re.escape(KEY)}=(\S+)(?:\s.*)?")


class Said(NamedTuple):
    """What is said, and where."""

    unclean: Unclean
    where: str


def unclean_of(topic: str, view: ClusterView, files: Sequence[str]) -> Said:
    """Whether unclean election is off for a topic. One place that says it is on is enough.

    Args:
        topic: the topic.
        view: what the cluster says; only the metadata log tells apart what a topic has of its own.
        files: paths given with ``--cluster-config``.

    Raises:
        UsageError: a file could not be read, or says nothing of brokers or of this topic.
    """
    said = [_of_cluster(topic, view), *(_of_file(path, topic) for path in files)]
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


def _of_file(path: str, topic: str) -> Said:
    text = read_text(path)
    if is_of_reassignments(text):
        return Said("unknown", "")
    if _ANY.match(text.lstrip()):
        return _of_describe(path, text, topic)
    return _of_properties(path, {key: line.value for key, line in read_server_properties(path).items()})


def _of_properties(path: str, values: Mapping[str, str]) -> Said:
    if not values.keys() & {"broker.id", "node.id", "log.dirs", "log.dir", "process.roles"}:
        raise UsageError(f"--cluster-config {path}: expected a server.properties of a broker or controller")
    value = values.get(KEY, "false").strip().lower()
    return Said("off" if value == "false" else "on", f"{KEY}={value} in {path}")


def _of_describe(path: str, text: str, topic: str) -> Said:
    """Only ``--all`` shows what is in a broker's file; the first value of a line is the one that counts."""
    found: list[str] = []
    counts = False
    for line in text.splitlines():
        head = _ALL.fullmatch(line.strip())
        if head is not None:
            counts = head[1] == "broker" or head[2].strip("'") == topic
        elif _ANY.match(line.strip()):
            counts = False
        elif counts and (value := _LINE.fullmatch(line)) is not None:
            found.append(value[1])
    if not found:
        raise UsageError(
            f"--cluster-config {path}: says nothing of {KEY} of a broker or of topic {topic}",
            next_command="kafka-configs.sh --bootstrap-server HOST:PORT --describe --all --entity-type brokers "
            "--entity-name ID > FILE",
        )
    value_of_all = "false" if set(found) == {"false"} else "true"
    return Said("off" if value_of_all == "false" else "on", f"{KEY}={value_of_all} in {path}")
