"""Topic settings that a version refuses (KR806): a start reads the settings of every topic, and ends at a bad one.

Source: ``LogManager.fetchTopicConfigOverrides``, ``LogConfig`` (2.2.1 to 4.4.0); seen on 4.4.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from krepair.checks.catalogue import Finding
from krepair.formats.broker_version import VersionNumber
from krepair.formats.cluster_metadata import TOPIC_RESOURCE
from krepair.formats.java_numbers import parse_java_integer
from krepair.formats.kafka_versions import (
    FORMAT_VERSION,
    LINES,
    UnreadFormat,
    UsedFormat,
    knows_format,
    not_read,
)
from krepair.formats.words import few
from krepair.logdir.cluster import MetadataImage
from krepair.next_command import Next

SETTINGS: Final = frozenset({"segment.bytes", "segment.index.bytes", "flush.messages"})
"""Settings whose limits differ between versions."""
assert {line.what for line in LINES} >= SETTINGS

TopicConfigs = Mapping[str, Mapping[str, str]]
"""Topic -> setting -> value."""


def recorded_configs(image: MetadataImage | None) -> TopicConfigs:
    """Return the recorded settings of each topic of the cluster."""
    if image is None:
        return {}
    return {name: image.configs.get((TOPIC_RESOURCE, name), {}) for name in image.topics.values()}


def settings_used(configs: TopicConfigs) -> Iterator[UsedFormat]:
    """Yield the settings whose limits differ between versions; ``where`` is the topic."""
    for topic, values in configs.items():
        for key in sorted(SETTINGS & values.keys()):
            number = parse_java_integer(values[key].strip(), 64)
            if number is not None:
                yield UsedFormat(key, number, topic)


def takes_settings(version: VersionNumber, configs: TopicConfigs) -> bool:
    """Return True if a version accepts all settings."""
    formats = (values.get(FORMAT_VERSION, "") for values in configs.values())
    return not any(not_read(version, settings_used(configs))) and all(
        knows_format(version, text) for text in formats
    )


def settings_findings(configs: TopicConfigs, version: VersionNumber | None) -> Iterator[Finding]:
    """Yield one finding for each setting that a version refuses.

    Args:
        configs: settings of the cluster's topics.
        version: version that starts; None if none was typed: then there are no findings.
    """
    if version is None:
        return
    name = ".".join(map(str, version))
    refused: dict[tuple[str, int], list[UnreadFormat]] = {}
    for cause in not_read(version, settings_used(configs)):
        refused.setdefault((cause.used.what, cause.used.level), []).append(cause)
    for (key, value), causes in refused.items():
        line = causes[0].line
        least = 0 if line is None else line.least
        source = "" if line is None else f" ({line.source})"
        yield _finding(
            name,
            f"{key}={value}",
            (cause.used.where for cause in causes),
            f"at least {least}{source}",
            f"{key}={least}",
        )
    formats: dict[str, list[str]] = {}
    for topic, values in configs.items():
        if not knows_format(version, values.get(FORMAT_VERSION, "")):
            formats.setdefault(values[FORMAT_VERSION], []).append(topic)
    for text, topics in formats.items():
        yield _finding(
            name, f"{FORMAT_VERSION}={text}", topics, "a version that is not later than itself", ""
        )


def _finding(version: str, setting: str, topics: Iterable[str], expected: str, to_set: str) -> Finding:
    names: Sequence[str] = sorted(topics)
    change = f"--add-config {to_set}" if to_set else f"--delete-config {FORMAT_VERSION}"
    command = (
        "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics "
        f"--entity-name {names[0]} {change}"
    )
    return Finding(
        rule="KR806",
        evidence=f"broker {version} does not start: {setting} of topic {few(names)}: it takes {expected}. While a "
        f"broker that takes it runs, change it for each: {command}",
        command=Next.by_hand(command),
    )
