"""Reads the files that hold Kafka settings: ``server.properties``, and topic settings in three forms.

Source of the two forms of ``kafka-configs.sh --describe``: ``ConfigCommand.scala`` 2.2.1 (one line per topic) and
3.9.0 (one line per key). The tool of 2.8.2 writes a warning before the first form, to standard output, too.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from typing import Any, NamedTuple

from krepair.errors import UsageError
from krepair.formats.damage import shown
from krepair.logdir.reading import why

MAX_BYTES = 16 << 20

_LINE_END = re.compile(r"\r\n|\r|\n")
_NEW_LINE = re.compile(r"\n")
_END_OF_NAME = re.compile(r'"\s*:')
_OLD_TOPIC = re.compile(r"Configs for topic '(?P<topic>[^']*)' are ?(?P<configs>.*)")
_NEW_TOPIC = re.compile(r"(?:Dynamic |All )?[Cc]onfigs for topic '?(?P<topic>[^\s']+)'? are:?")
_NEW_KEY = re.compile(
    r"\s+(?P<key>[^=\s]+)=(?P<value>.*?)(?: sensitive=(?:true|false)(?: synonyms=\{.*\})?)?\s*"
)
_DEPRECATED = re.compile(r"Warning: --zookeeper is deprecated .*|Use --bootstrap-server instead .*")
# Values may hold commas (compact,delete). So a comma ends a setting only if a key and = follow.
_OLD_COMMA = re.compile(r",(?=[a-z][a-z.]*=)")


class ConfigLine(NamedTuple):
    """One value and its place.

    Attributes:
        value: text of the value.
        where: ``file:line``, for messages.
    """

    value: str
    where: str


class TopicConfigs(NamedTuple):
    """The content of a topic-config file.

    Attributes:
        file: path of the file as it was given.
        topics: topic -> key -> value.
    """

    file: str
    topics: dict[str, dict[str, ConfigLine]]


class _DuplicateError(ValueError):
    """A JSON object has the same name twice."""


def read_server_properties(path: str) -> dict[str, ConfigLine]:
    """Read a Java properties file. If a key is there twice, the last one counts, as in Java.

    Raises:
        UsageError: the file cannot be read or is not a properties file.
    """
    # Java reads properties files as Latin-1.
    text = _read(path).decode("latin-1")
    found: dict[str, ConfigLine] = {}
    line = 1
    # Imported late, because it loads Python's XML and HTTP modules.
    import javaproperties

    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                found[element.key] = ConfigLine(element.value, f"{path}:{line}")
            line += len(_LINE_END.findall(element.source))
    except (javaproperties.InvalidUEscapeError, ValueError) as error:
        raise UsageError(f"{path}:{line}: expected Java properties: {shown(str(error))}") from error
    return found


def read_topic_configs(path: str) -> TopicConfigs:
    """Read topic settings: JSON, or the output of ``kafka-configs.sh --describe``.

    Raises:
        UsageError: the file cannot be read or has neither form.
    """
    try:
        text = _read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: expected UTF-8 text, but byte {error.start} is not UTF-8") from error
    if text.lstrip().startswith("{"):
        return TopicConfigs(path, _from_json(path, text))
    return TopicConfigs(path, _from_describe(path, text))


def _read(path: str) -> bytes:
    try:
        # A pipe is allowed: the settings may be the output of another program.
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: could not be read: {why(error)}") from error
    except ValueError as error:
        raise UsageError(f"{shown(path)}: is not a file name: {error}") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path}: expected at most {MAX_BYTES} bytes")
    return data


def _from_json(path: str, text: str) -> dict[str, dict[str, ConfigLine]]:
    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}: expected JSON: {error.msg}") from error
    except _DuplicateError as error:
        raise UsageError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: expected JSON: {shown(str(error))}") from error
    places = _Places(text)
    return {topic: _json_topic(path, places, topic, configs) for topic, configs in document.items()}


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateError(f"expected each name once, but one object has {shown(key)!r} twice")
        found[key] = value
    return found


def _json_topic(path: str, places: _Places, topic: str, configs: object) -> dict[str, ConfigLine]:
    topic_place = places.of_name(topic, 0)
    if not isinstance(configs, dict):
        where = f"{path}:{places.line_at(topic_place)}"
        raise UsageError(f"{where}: topic {shown(topic)!r}: expected an object of keys and values")
    found: dict[str, ConfigLine] = {}
    for key, value in configs.items():
        where = f"{path}:{places.line_at(places.of_name(key, topic_place))}"
        if isinstance(value, bool):
            found[key] = ConfigLine("true" if value else "false", where)
        elif isinstance(value, (str, int)):
            found[key] = ConfigLine(str(value), where)
        else:
            raise UsageError(f"{where}: {shown(key)}: expected a text or a whole number")
    return found


class _Places:
    """The probable places of names in a JSON text: the JSON parser gives no places. The text is gone through once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line_ends = [end.start() for end in _NEW_LINE.finditer(text)]
        self._names: dict[str, list[int]] = {}
        for end in _END_OF_NAME.finditer(text):
            start = text.rfind('"', 0, end.start())
            if start >= 0:
                self._names.setdefault(text[start : end.start() + 1], []).append(start)

    def of_name(self, name: str, start: int) -> int:
        """Where a name is first written from ``start`` on, else ``start``."""
        written = json.dumps(name, ensure_ascii=False)
        if '"' in name:  # only such a name has a quotation mark between its own two
            match = re.compile(re.escape(written) + r"\s*:").search(self._text, start)
            return start if match is None else match.start()
        starts = self._names.get(written, [])
        at = bisect_left(starts, start)
        return starts[at] if at < len(starts) else start

    def line_at(self, place: int) -> int:
        return bisect_left(self._line_ends, place) + 1


def _from_describe(path: str, text: str) -> dict[str, dict[str, ConfigLine]]:
    topics: dict[str, dict[str, ConfigLine]] = {}
    current: dict[str, ConfigLine] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{path}:{number}"
        stripped = line.rstrip()
        if not stripped or _DEPRECATED.fullmatch(stripped):
            continue
        if old := _OLD_TOPIC.fullmatch(stripped):
            current = None
            configs = topics.setdefault(old["topic"], {})
            configs.update(_old_configs(old["configs"], where))
        elif new := _NEW_TOPIC.fullmatch(stripped):
            current = topics.setdefault(new["topic"], {})
        elif current is not None and (key := _NEW_KEY.fullmatch(stripped)):
            current[key["key"]] = ConfigLine(key["value"], where)
        else:
            raise UsageError(
                f"{where}: expected JSON or a line of kafka-configs.sh --describe, found {shown(stripped)!r}"
            )
    return topics


def _old_configs(text: str, where: str) -> dict[str, ConfigLine]:
    found: dict[str, ConfigLine] = {}
    for item in _OLD_COMMA.split(text) if text else []:
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"{where}: expected key=value, found {shown(item)!r}")
        found[key.strip()] = ConfigLine(value, where)
    return found
