"""Reader of Kafka's settings: their files, and the effective value of each setting of a topic with its source.

Source of names, types, bounds and defaults: ``LogConfig`` and ``KafkaConfig`` (2.2.1 in Scala), ``LogConfig.java``,
``ServerTopicConfigSynonyms.java``, ``GroupCoordinatorConfig.java``, ``TransactionLogConfigs.java`` and
``TransactionStateManagerConfigs.java`` (3.9.0).

Source of the two forms of ``kafka-configs.sh --describe``: ``ConfigCommand.scala`` 2.2.1 (one line per topic) and 3.9.0
(one line per key). The tool of 2.8.2 writes a warning before the first form, to standard output too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from krepair.errors import UsageError
from krepair.formats.cleanup_policy import policies_of
from krepair.formats.damage import shown
from krepair.formats.filenames import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from krepair.formats.java_numbers import INT32_MAX, parse_java_integer
from krepair.logdir.reading import why

MAX_BYTES = 16 << 20

_LINE_END = re.compile(r"\r\n|\r|\n")
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
        where: ``file:line``, or file and topic of a JSON text, for messages.
    """

    value: str
    where: str


class TopicConfigs(NamedTuple):
    """The content of a topic-config file.

    Attributes:
        file: path of the file as it was given.
        topics: settings by topic, then by key.
    """

    file: str
    topics: dict[str, dict[str, ConfigLine]]


class _DuplicateError(ValueError):
    """Error: a JSON object has the same name twice."""


def read_server_properties(path: str) -> dict[str, ConfigLine]:
    """Read a Java properties file. If the file has a key twice, the last value is used, as in Java.

    Raises:
        UsageError: the file cannot be read or is not a properties file.
    """
    # Java reads properties files as Latin-1.
    text = _read(path).decode("latin-1")
    lines: dict[str, ConfigLine] = {}
    line = 1
    # Imported late, because it loads Python's XML and HTTP modules.
    import javaproperties

    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                if "\0" in element.value:
                    raise UsageError(
                        f"{path}:{line}: expected Java properties: {element.key} has a zero byte"
                    )
                lines[element.key] = ConfigLine(element.value, f"{path}:{line}")
            line += len(_LINE_END.findall(element.source))
    except (javaproperties.InvalidUEscapeError, ValueError) as error:
        raise UsageError(f"{path}:{line}: expected Java properties: {shown(str(error))}") from error
    return lines


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
    return {
        topic: _json_topic(f"{path}: topic {shown(topic)!r}", configs) for topic, configs in document.items()
    }


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique: dict[str, Any] = {}
    for key, value in pairs:
        if key in unique:
            raise _DuplicateError(f"expected each name once, but one object has {shown(key)!r} twice")
        unique[key] = value
    return unique


def _json_topic(where: str, configs: object) -> dict[str, ConfigLine]:
    if not isinstance(configs, dict):
        raise UsageError(f"{where}: expected an object of keys and values")
    lines: dict[str, ConfigLine] = {}
    for key, value in configs.items():
        if isinstance(value, bool):
            lines[key] = ConfigLine("true" if value else "false", where)
        elif isinstance(value, (str, int)):
            lines[key] = ConfigLine(str(value), where)
        else:
            raise UsageError(f"{where}: {shown(key)}: expected a text or a whole number")
    return lines


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
    lines: dict[str, ConfigLine] = {}
    for item in _OLD_COMMA.split(text) if text else []:
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"{where}: expected key=value, found {shown(item)!r}")
        lines[key.strip()] = ConfigLine(value, where)
    return lines


DEFAULT_LOG_DIR: Final = "/tmp/kafka-logs"  # noqa: S108
"""Log directory of a broker without any setting. Source: ``ServerLogConfigs.LOG_DIR_DEFAULT`` (3.9.0)."""

_ID_KEYS: Final = ("node.id", "broker.id")


def configured_log_dirs(config: str | None) -> tuple[str, ...]:
    """Return the log directories in a ``server.properties``, in its order; empty if there are none.

    ``log.dirs`` takes precedence over ``log.dir``.

    Raises:
        UsageError: the file cannot be read or is not a properties file.

    Source: ``KafkaConfig.logDirs`` (2.2.1, 3.9.0).
    """
    lines = {} if config is None else read_server_properties(config)
    line = lines.get("log.dirs") or lines.get("log.dir")
    return () if line is None else tuple(path.strip() for path in line.value.split(",") if path.strip())


def configured_metadata_dirs(config: str | None) -> tuple[str, ...]:
    """Return where a broker may have its metadata log: ``metadata.log.dir``, or one of its log directories.

    Raises:
        UsageError: see ``configured_log_dirs``.

    Source: ``KafkaConfig.metadataLogDir`` (3.9.0): the directory in the setting, else the first log directory.
    """
    line = None if config is None else read_server_properties(config).get("metadata.log.dir")
    named = (line.value.strip(),) if line is not None and line.value.strip() else ()
    return (*named, *configured_log_dirs(config))


def log_dirs_left_out(named: Sequence[str], config: str | None) -> tuple[str, ...]:
    """Return the log directories in the configuration that were not given, in its order.

    The result is empty if none of them was given: then the given directory is a copy, or it is from another host.

    Raises:
        UsageError: see ``configured_log_dirs``.
    """
    known = {os.path.realpath(path) for path in named}
    configured = configured_log_dirs(config)
    missing = tuple(path for path in configured if os.path.realpath(path) not in known)
    return missing if len(missing) < len(configured) else ()


def configured_id(config: str | None) -> str:
    """Return ``node.id`` or ``broker.id`` of a ``server.properties``; empty if it has none or the cluster assigns it.

    Raises:
        UsageError: the file cannot be read.
    """
    lines = {} if config is None else read_server_properties(config)
    values = [lines[key].value.strip() for key in _ID_KEYS if key in lines]
    return "" if not values or values[0].startswith("-") else values[0]


def why_of_another_broker(config: str | None, log_dir: str, broker_id: str) -> str:
    """Return why a ``server.properties`` and a log directory belong to different brokers; empty if ids agree.

    Args:
        config: path of the file, None if there is none.
        log_dir: path of the log directory.
        broker_id: broker id of the log directory, empty if it has none.

    Raises:
        UsageError: the file cannot be read.
    """
    configured = configured_id(config)
    if not configured or not broker_id or configured == broker_id:
        return ""
    return f"{config} is of broker {configured}; {log_dir} is of broker {broker_id}"


_MINUTE_MS = 60 * 1000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_UNBOUNDED = -(2**63)
_OF_EVERY_BROKER = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.quorum.voters",
        "listeners",
        "log.dir",
        "log.dirs",
        "node.id",
        "process.roles",
        "zookeeper.connect",
    }
)
_POLICY: Final = "cleanup.policy"
_POLICIES = frozenset({"compact", "delete"})
LARGEST_RECORD_BYTES: Final = INT32_MAX - 8
"""The default of ``max.decompressed.message.bytes``."""


class Setting(Struct, frozen=True):
    """One configuration value and its source. A plan records settings in this form.

    Attributes:
        key: Kafka's topic-level name, such as ``delete.retention.ms``, or a broker-wide name.
        value: the value as text, in the unit of the key.
        source: ``--set``; ``topic-config FILE``; ``__cluster_metadata-0`` or ``--cluster FILE``, of a dynamic
            setting of the broker ``dynamic <key>`` and the same; ``server.properties: <key>``; ``default``;
            ``default of an internal topic``; or ``not known``: of ``cleanup.policy``, where nothing tells it, and the
            value is Kafka's default.
    """

    key: str
    value: str
    source: str


class ClusterConfigs(NamedTuple):
    """Settings that the cluster has on record, beside the logs or in ``--cluster``.

    Attributes:
        topics: settings of each topic that the cluster knows, by name; empty for a topic without any.
        broker: dynamic settings of the broker, under the names of ``server.properties``.
        source: name of the source, as in ``Setting.source``.
    """

    topics: Mapping[str, Mapping[str, str]]
    broker: Mapping[str, str]
    source: str


class _Synonym(NamedTuple):
    """A name in ``server.properties`` for a topic-level key.

    Attributes:
        key: name of the setting in the broker's file.
        factor: number by which the value is multiplied to get the topic-level value.
        bits: width of the number, 0 for a value that is checked like the topic-level value.
    """

    key: str
    factor: int = 1
    bits: int = 0


class _Key(NamedTuple):
    """One key that krepair uses.

    Attributes:
        key: name of the setting in Kafka.
        type: ``int``, ``long``, ``boolean``, ``list`` or ``string``.
        default: Kafka's default, as text.
        at_least: the smallest number that a broker accepts.
        synonyms: names in ``server.properties``; the first name that is set is used.
    """

    key: str
    type: str
    default: str
    at_least: int = _UNBOUNDED
    synonyms: tuple[_Synonym, ...] = ()


_TOPIC_KEYS = {
    key.key: key
    for key in (
        _Key("cleanup.policy", "list", "delete", synonyms=(_Synonym("log.cleanup.policy"),)),
        _Key("segment.bytes", "int", str(1 << 30), 14, (_Synonym("log.segment.bytes"),)),
        _Key("segment.index.bytes", "int", str(10 << 20), 0, (_Synonym("log.index.size.max.bytes"),)),
        _Key("index.interval.bytes", "int", "4096", 0, (_Synonym("log.index.interval.bytes"),)),
        _Key("delete.retention.ms", "long", str(_DAY_MS), 0, (_Synonym("log.cleaner.delete.retention.ms"),)),
        _Key("min.compaction.lag.ms", "long", "0", 0, (_Synonym("log.cleaner.min.compaction.lag.ms"),)),
        _Key(
            "retention.ms",
            "long",
            str(7 * _DAY_MS),
            -1,
            (
                _Synonym("log.retention.ms", 1, 64),
                _Synonym("log.retention.minutes", _MINUTE_MS, 32),
                _Synonym("log.retention.hours", _HOUR_MS, 32),
            ),
        ),
        _Key("retention.bytes", "long", "-1", synonyms=(_Synonym("log.retention.bytes"),)),
        # 1000012 up to 2.4, 1048588 from 2.5 (KAFKA-4203)
        _Key("max.message.bytes", "int", str((1 << 20) + 12), 0, (_Synonym("message.max.bytes"),)),
        # from 4.4 on; the default is the largest record that a broker could hold
        _Key("max.decompressed.message.bytes", "int", str(LARGEST_RECORD_BYTES), 1),
        _Key("preallocate", "boolean", "false", synonyms=(_Synonym("log.preallocate"),)),
        _Key("remote.storage.enable", "boolean", "false"),
        _Key(
            "message.format.version", "string", "3.0-IV1", synonyms=(_Synonym("log.message.format.version"),)
        ),
    )
}
_BROKER_KEYS = {
    key.key: key
    for key in (
        _Key("transactional.id.expiration.ms", "int", str(7 * _DAY_MS), 1),
        _Key("producer.id.expiration.ms", "int", str(_DAY_MS), 1),
        _Key("transaction.max.timeout.ms", "int", str(15 * _MINUTE_MS), 1),
        _Key("offsets.topic.segment.bytes", "int", str(100 << 20), 1),
        _Key("transaction.state.log.segment.bytes", "int", str(100 << 20), 1),
    )
}
DEFAULT: Final = "default"
DEFAULT_OF_INTERNAL: Final = "default of an internal topic"
NOT_KNOWN: Final = "not known"
_OF_SERVER: Final = "server.properties"
_DYNAMIC: Final = "dynamic "
# A broker creates its own topics with these (GroupCoordinator.offsetsTopicConfigs,
# TransactionStateManager.transactionTopicConfigs, ShareCoordinatorService.shareGroupStateTopicConfigs,
# TopicBasedRemoteLogMetadataManager.createMetadataTopicIfNotExist).
_INTERNAL: Final[Mapping[str, Mapping[str, str]]] = {
    OFFSETS_TOPIC: {"cleanup.policy": "compact"},
    TRANSACTIONS_TOPIC: {"cleanup.policy": "compact"},
    "__share_group_state": {"cleanup.policy": "delete", "retention.ms": "-1"},
    "__remote_log_metadata": {"cleanup.policy": "delete", "retention.ms": "-1"},
}
_SEGMENT_BYTES_OF = {
    OFFSETS_TOPIC: "offsets.topic.segment.bytes",
    TRANSACTIONS_TOPIC: "transaction.state.log.segment.bytes",
}
_BITS = {"int": 32, "long": 64}
_MAY_BE_TIERED: Final = (
    "its log start lies before its first segment, as that of a tiered topic does, and the topic's settings are not "
    "known: give --topic-config FILE with the output of kafka-configs.sh --describe"
)


class TopicSettings(NamedTuple):
    """Effective settings of one topic.

    Attributes:
        cleanup_policy: ``compact``, ``delete``, both or none.
        segment_bytes: largest size of a merged ``.log`` in bytes.
        segment_index_bytes: largest size of a merged ``.index`` or ``.timeindex`` in bytes.
        index_interval_bytes: bytes of log between two index entries.
        delete_retention_ms: time in ms for which markers and tombstones are kept.
        min_compaction_lag_ms: age in ms below which records are not compacted.
        retention_ms: age in ms above which segments are deleted; -1 for never.
        max_message_bytes: largest batch that a producer may send, in bytes.
        max_decompressed_message_bytes: largest record of a compressed batch, in bytes, at which a cleaner of 4.4 does
            not fail.
        preallocate: True if the active log has its full length from the first write on.
        tiered: reason why the topic has, or may have, tiered storage; empty if it has none.
        policy_is_known: True if ``cleanup.policy`` is known for this topic; the broker's value for all topics is not
            enough.
        settings: all settings as text with their sources, by key.
    """

    cleanup_policy: frozenset[str]
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    retention_ms: int
    max_message_bytes: int
    max_decompressed_message_bytes: int
    preallocate: bool
    tiered: str
    policy_is_known: bool
    settings: tuple[Setting, ...]

    @property
    def compacts(self) -> bool:
        """True if the broker's cleaner would compact the topic."""
        return "compact" in self.cleanup_policy


class Settings:
    """Settings from all sources; ``load_settings`` builds it.

    Args:
        server: checked values of ``server.properties``, by topic-level or broker-wide key.
        topics: checked values of the topic-config file, by topic, then key.
        overrides: checked values of ``--set``.
        cluster: checked values that the cluster has on record, of each topic that it knows, by topic, then key.
    """

    def __init__(
        self,
        server: dict[str, Setting],
        topics: dict[str, dict[str, Setting]],
        overrides: dict[str, Setting],
        cluster: dict[str, dict[str, Setting]],
    ) -> None:
        self._server = server
        self._topics = topics
        self._overrides = overrides
        self._cluster = cluster

    @property
    def broker(self) -> tuple[Setting, ...]:
        """Broker-wide settings, by key."""
        return tuple(self._broker_setting(key) for key in sorted(_BROKER_KEYS))

    @property
    def transactional_id_expiration_ms(self) -> int:
        """Time in ms without a transaction after which a transactional id expires."""
        return int(self._broker_setting("transactional.id.expiration.ms").value)

    @property
    def producer_id_expiration_ms(self) -> int:
        """Time in ms without a batch after which a producer id expires (from 3.4 on)."""
        return int(self._broker_setting("producer.id.expiration.ms").value)

    @property
    def transaction_max_timeout_ms(self) -> int:
        """Longest timeout in ms that a transactional producer may request."""
        return int(self._broker_setting("transaction.max.timeout.ms").value)

    @property
    def producer_expiry_ms(self) -> int:
        """Longer of the two expiry times, in ms, after which no version of the broker knows the producer."""
        return max(self.transactional_id_expiration_ms, self.producer_id_expiration_ms)

    def topic(self, topic: str, *, begins_elsewhere: bool = False) -> TopicSettings:
        """Return the effective settings of a topic.

        Args:
            begins_elsewhere: True if a recorded log start offset lies before the first segment.
        """
        settings = {key: self._topic_setting(topic, key) for key in sorted(_TOPIC_KEYS)}

        def number(key: str) -> int:
            return int(settings[key].value)

        return TopicSettings(
            cleanup_policy=policies_of(settings["cleanup.policy"].value),
            segment_bytes=number("segment.bytes"),
            segment_index_bytes=number("segment.index.bytes"),
            index_interval_bytes=number("index.interval.bytes"),
            delete_retention_ms=number("delete.retention.ms"),
            min_compaction_lag_ms=number("min.compaction.lag.ms"),
            retention_ms=number("retention.ms"),
            max_message_bytes=number("max.message.bytes"),
            max_decompressed_message_bytes=number("max.decompressed.message.bytes"),
            preallocate=settings["preallocate"].value == "true",
            tiered=self._tiered(topic, settings["remote.storage.enable"], begins_elsewhere=begins_elsewhere),
            policy_is_known=self._policy_is_known(topic),
            settings=tuple(settings.values()),
        )

    def _tiered(self, topic: str, remote: Setting, *, begins_elsewhere: bool) -> str:
        """Return why a topic is treated as tiered; empty if it is not."""
        if remote.value == "true":
            return "the topic is tiered (remote.storage.enable)"
        described = topic in self._topics or topic in self._cluster or topic in _INTERNAL
        known = described or remote.source != DEFAULT
        return "" if known or not begins_elsewhere else _MAY_BE_TIERED

    def _policy_is_known(self, topic: str) -> bool:
        """Return whether the cleanup policy of a topic is known.

        If the topic-config file has the topic without a policy, the broker's policy applies, so the broker's file must
        be given.
        """
        own = self._topics.get(topic)
        # A plan also records that the policy was not known, because apply must decide as the plan did.
        recorded = None if own is None else own.get(_POLICY)
        described = own is not None and (
            bool(self._server) if recorded is None else recorded.source != NOT_KNOWN
        )
        return described or _POLICY in self._overrides or topic in _INTERNAL or topic in self._cluster

    def _broker_setting(self, key: str) -> Setting:
        default = Setting(key, _BROKER_KEYS[key].default, DEFAULT)
        return self._overrides.get(key) or self._server.get(key) or default

    def _topic_setting(self, topic: str, key: str) -> Setting:
        override = self._overrides.get(key) or self._topics.get(topic, {}).get(key)
        override = override or self._cluster.get(topic, {}).get(key)
        if override is not None:
            return override
        if key in _INTERNAL.get(topic, {}):
            return Setting(key, _INTERNAL[topic][key], DEFAULT_OF_INTERNAL)
        if topic in _SEGMENT_BYTES_OF and key == "segment.bytes":
            return replace(self._broker_setting(_SEGMENT_BYTES_OF[topic]), key=key)
        setting = self._server.get(key) or Setting(key, _TOPIC_KEYS[key].default, DEFAULT)
        unknown = key == _POLICY and not self._policy_is_known(topic)
        return replace(setting, source=NOT_KNOWN) if unknown else setting


def load_settings(
    config_file: str | None,
    topic_config_file: str | None,
    overrides: Mapping[str, str],
    cluster: ClusterConfigs | None = None,
) -> Settings:
    """Load settings from all sources.

    The first source that has a key is used: ``overrides``, the topic-config file, the settings that the cluster has
    stored for the topic, the broker's settings (dynamic settings before the settings in its file), Kafka's default.

    Args:
        config_file: path of a broker's ``server.properties``.
        topic_config_file: JSON ``{"topic": {"key": "value"}}``, or the output of ``kafka-configs.sh --describe``.
        overrides: topic-level or broker-wide key -> value, for all topics.
        cluster: settings that the cluster has on record, None if unknown.

    Raises:
        UsageError: a file cannot be read or understood, or a broker would not accept a value. The message names file
            and line.
    """
    server = {} if config_file is None else _server_settings(_of_a_broker(config_file))
    topics = {} if topic_config_file is None else _topics_settings(read_topic_configs(topic_config_file))
    if cluster is not None:
        dynamic = {key: ConfigLine(value, cluster.source) for key, value in cluster.broker.items()}
        server |= _server_settings(dynamic, _DYNAMIC, f", {cluster.source}")
    recorded = (
        {}
        if cluster is None
        else {topic: _recorded(values, cluster.source) for topic, values in cluster.topics.items()}
    )
    return Settings(server, topics, _override_settings(overrides), recorded)


def recorded_settings(rows: Mapping[str, Sequence[Setting]]) -> Settings:
    """Return the settings that a plan has recorded.

    Args:
        rows: settings of each topic by name, and broker-wide settings under an empty name.

    Raises:
        ValueError: a setting that has to be a whole number is not one.
    """
    topics = {topic: {setting.key: setting for setting in settings} for topic, settings in rows.items()}
    settings = Settings(topics.pop("", {}), topics, {}, {})
    for topic in topics:
        settings.topic(topic)
    _ = settings.producer_expiry_ms
    return settings


def of_every_topic(source: str) -> bool:
    """Return whether a setting from this source applies to all topics, and was not set for a topic of its own."""
    of_all = (_OF_SERVER, _DYNAMIC, "--set")
    return source in {DEFAULT, DEFAULT_OF_INTERNAL, NOT_KNOWN} or source.startswith(of_all)


def _recorded(values: Mapping[str, str], source: str) -> dict[str, Setting]:
    return {
        key: Setting(key, _checked(_TOPIC_KEYS[key], value, f"{source}: {key}"), source)
        for key, value in values.items()
        if key in _TOPIC_KEYS
    }


def _of_a_broker(config_file: str) -> dict[str, ConfigLine]:
    """Return the lines of a ``server.properties``.

    Raises:
        UsageError: see ``read_server_properties``; or the file has lines, but none of a broker.
    """
    lines = read_server_properties(config_file)
    keys = (*_TOPIC_KEYS.values(), *_BROKER_KEYS.values())
    known = _OF_EVERY_BROKER | {name.key for key in keys for name in key.synonyms} | set(_BROKER_KEYS)
    if lines and not known & set(lines):
        raise UsageError(
            f"{config_file}: no key of a broker's configuration is in it, such as log.dirs or broker.id: expected "
            "server.properties"
        )
    return lines


def _server_settings(
    lines: Mapping[str, ConfigLine], before: str = f"{_OF_SERVER}: ", after: str = ""
) -> dict[str, Setting]:
    settings: dict[str, Setting] = {}
    for key in (*_TOPIC_KEYS.values(), *_BROKER_KEYS.values()):
        # Broker-wide keys have the same name in server.properties.
        synonyms = (_Synonym(key.key),) if key.key in _BROKER_KEYS else key.synonyms
        # A broker does not start with a wrong value, even if another name takes precedence. So all values are checked.
        values = [(name, _server_value(key, name, lines[name.key])) for name in synonyms if name.key in lines]
        if values:
            name, value = values[0]
            settings[key.key] = Setting(key.key, value, f"{before}{name.key}{after}")
    return settings


def _server_value(key: _Key, synonym: _Synonym, line: ConfigLine) -> str:
    if not synonym.bits:
        return _checked(key, line.value, f"{line.where}: {synonym.key}")
    number = parse_java_integer(line.value.strip(), synonym.bits)
    if number is None:
        raise _wrong(f"{line.where}: {synonym.key}", "a whole number", line.value)
    # Every negative value means that there is no limit (KafkaConfig.logRetentionTimeMillis).
    return str(-1 if number < 0 else number * synonym.factor)


def _topics_settings(topics: TopicConfigs) -> dict[str, dict[str, Setting]]:
    source = f"topic-config {topics.file}"
    return {
        topic: {
            key: Setting(key, _checked(_TOPIC_KEYS[key], line.value, f"{line.where}: {key}"), source)
            for key, line in lines.items()
            # A topic has many more keys, and later versions will add some.
            if key in _TOPIC_KEYS
        }
        for topic, lines in topics.topics.items()
    }


def _override_settings(overrides: Mapping[str, str]) -> dict[str, Setting]:
    known = _TOPIC_KEYS | _BROKER_KEYS
    settings: dict[str, Setting] = {}
    for key, value in overrides.items():
        if key not in known:
            raise UsageError(f"--set {shown(key)}: expected one of {', '.join(sorted(known))}")
        settings[key] = Setting(key, _checked(known[key], value, f"--set {key}"), "--set")
    return settings


def _checked(key: _Key, text: str, where: str) -> str:
    """Check a value as a broker does, and return it in normal form.

    Raises:
        UsageError: a broker would not accept it.
    """
    value = text.strip()
    if key.type == "boolean":
        if value.lower() not in {"true", "false"}:
            raise _wrong(where, "true or false", text)
        return value.lower()
    if key.type == "list":
        policies = [policy.strip() for policy in value.split(",") if policy.strip()]
        if not _POLICIES.issuperset(policies):
            raise _wrong(where, "compact, delete or both", text)
        return ",".join(sorted(set(policies)))
    if key.type == "string":
        return value
    number = parse_java_integer(value, _BITS[key.type])
    if number is None:
        raise _wrong(where, f"a whole number of {_BITS[key.type]} bits", text)
    if number < key.at_least:
        raise _wrong(where, f"at least {key.at_least}", text)
    return str(number)


def _wrong(where: str, expected: str, actual: str) -> UsageError:
    return UsageError(f"{where}: expected {expected}, found {shown(actual)!r}")
