"""Everything a person may say on the command line, as typed values that every verb takes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from krepair.errors import UsageError

LOSS_RULES: Final = ("KR302", "KR303", "KR304", "KR305", "KR312")
"""Rules whose ways out lose data, so that each needs a consent of its own."""

DEFAULT_FIXES: Final = ("markers",)
"""What is planned without ``--fix``: index files are looked at only when asked for, not to slow a reclaim."""

EVERY_TOPIC: Final = "*"
"""Of ``--only-replica``: all topics."""

HORIZON_NAMES: Final = ("next-pass", "newest")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TIME_MS: Final = 2**63 - 1
_MAX_PARTITION: Final = 2**31 - 1
_MAX_TIME_LENGTH: Final = 64


class Engine(StrEnum):
    """Where the work is done."""

    AUTO = "auto"
    SPARK = "spark"
    INLINE = "inline"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The common options, parsed.

    Attributes:
        config: path of a ``server.properties``, or None.
        topic_config: path of a topic configuration file, or None.
        settings: ``(key, value)`` of every ``--set``, in the order given; Kafka's own names.
        now_ms: the clock of all decisions, epoch milliseconds.
        delete_horizon: ``next-pass``, ``newest``, or epoch milliseconds as decimal text.
        broker_version: version of the broker that will be started on the directory, or empty.
        topics: topics to look at; empty means all.
        partitions: ``(topic, number)`` to look at; empty means all. Together with ``topics`` it is a union.
        fixes: names of fixes, sorted, never empty.
        keep: ``inplace``, ``until-verified`` or ``auto``.
        merge: whether neighbours are merged up to ``segment.bytes``.
        assume_high_watermark: ``log-end`` or empty.
        engine: where the work is done.
        master: Spark master URL, or empty for krepair's own choice.
        deep: of ``check``: also decompress everything that is compressed.
        accepted_losses: of ``plan --fix tail,checkpoints``: each ``RULE:TOPIC-PARTITION:OFFSET`` that may be lost,
            sorted.
        scratch: directory for what does not fit into memory, or empty.
        replicas: other brokers, each ``ID=LOGDIR,LOGDIR`` or ``ID=FACTS``; see ``krepair.ops.sides``.
        cluster: path of what the cluster says of its partitions (see ``krepair.logdir.cluster``), or empty.
        only_replica: of ``plan``: topics of which there is no other replica; ``*`` means all.
        as_broker: of ``plan``: whether markers and tombstones go by time alone.
        originals: of ``verify PLAN``: also hold what apply made against the kept originals, byte for byte.
    """

    config: str | None = None
    topic_config: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    delete_horizon: str = "newest"
    broker_version: str = ""
    topics: tuple[str, ...] = ()
    partitions: tuple[tuple[str, int], ...] = ()
    fixes: tuple[str, ...] = DEFAULT_FIXES
    keep: str = "inplace"
    merge: bool = True
    assume_high_watermark: str = ""
    engine: Engine = Engine.AUTO
    master: str = ""
    scratch: str = ""
    originals: bool = False
    deep: bool = False
    accepted_losses: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()
    cluster: str = ""
    only_replica: tuple[str, ...] = ()
    as_broker: bool = False
    _topics_named: frozenset[str] = field(init=False, repr=False, compare=False)
    _partitions_named: frozenset[tuple[str, int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Each partition of a log directory is looked up in what was named: thousands in thousands.
        object.__setattr__(self, "_topics_named", frozenset(self.topics))
        object.__setattr__(self, "_partitions_named", frozenset(self.partitions))

    def as_words(self) -> tuple[str, ...]:
        """What was typed to choose partitions and say how the broker is configured, as words of a command line."""
        named = (
            ("--config", self.config),
            ("--topic-config", self.topic_config),
            ("--broker-version", self.broker_version),
        )
        words = [word for option, value in named if value for word in (option, value)]
        words += [word for key, value in self.settings for word in ("--set", f"{key}={value}")]
        words += [word for topic in self.topics for word in ("--topic", topic)]
        words += [word for topic, number in self.partitions for word in ("--partition", f"{topic}-{number}")]
        return tuple(words)

    def as_plan_words(self) -> tuple[str, ...]:
        """All that decides what a plan is but the clock, as words of a command line; defaults are left out."""
        words = [] if self.fixes == DEFAULT_FIXES else ["--fix", ",".join(self.fixes)]
        flags = (
            ("--no-merge", not self.merge),
            ("--as-broker", self.as_broker),
        )
        words += [flag for flag, is_given in flags if is_given]
        words += [word for loss in self.accepted_losses for word in ("--accept-data-loss", loss)]
        named = (
            ("--delete-horizon", self.delete_horizon, _DEFAULT.delete_horizon),
            ("--keep", self.keep, _DEFAULT.keep),
            ("--assume-high-watermark", self.assume_high_watermark, ""),
            ("--cluster", self.cluster, ""),
        )
        words += [word for side in self.replicas for word in ("--replicas", side)]
        words += [word for option, value, default in named if value != default for word in (option, value)]
        if self.only_replica != _DEFAULT.only_replica:
            words += [word for topic in self.only_replica for word in ("--only-replica", topic)]
        return (*words, *self.as_words())

    def as_place_words(self) -> tuple[str, ...]:
        """Where the work is done, as words of a command line; defaults are left out."""
        named = (
            ("--scratch", self.scratch),
            ("--engine", "" if self.engine is Engine.AUTO else self.engine.value),
            ("--master", self.master),
        )
        return tuple(word for option, value in named if value for word in (option, value))

    def wants(self, topic: str, partition: int) -> bool:
        """Whether ``--topic`` and ``--partition`` let this partition in."""
        if not self.topics and not self.partitions:
            return True
        return topic in self._topics_named or (topic, partition) in self._partitions_named


_DEFAULT: Final = Options(now_ms=0)
_FIRST_KAFKA_MS: Final = 1_293_840_000_000
"""2011-01-01: Kafka was published in that month."""


def parse_time_ms(text: str, option: str) -> int:
    """Read a TIME: ISO 8601 or epoch milliseconds.

    A time without a zone is UTC, so that the same command gives the same plan on every host.

    Args:
        text: as typed.
        option: name of the option, for the message.

    Returns:
        Epoch milliseconds.

    Raises:
        UsageError: neither of the two, or before 1970, or past what Kafka can hold.
    """
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit() and len(stripped) < _MAX_TIME_LENGTH:
        milliseconds = int(stripped)
    else:
        milliseconds = _parse_iso_ms(stripped, text, option)
    if not 0 <= milliseconds <= _MAX_TIME_MS:
        raise UsageError(
            f"{option} {text!r}: a time from 1970 on that fits 63 bits of milliseconds is needed"
        )
    return milliseconds


def parse_clock_ms(text: str) -> int:
    """Read ``--now``.

    Raises:
        UsageError: no time; or one before there was Kafka, as seconds that are taken for milliseconds are.
    """
    milliseconds = parse_time_ms(text, "--now")
    if milliseconds < _FIRST_KAFKA_MS:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise UsageError(
            f"--now {text!r}: this is {moment}, and there was no Kafka then. Give milliseconds since 1970, or a "
            "time such as 2026-11-21T13:00:00Z; without --now the clock of this host counts"
        )
    return milliseconds


def _parse_iso_ms(stripped: str, text: str, option: str) -> int:
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise UsageError(
            f"{option} {text!r}: expected ISO 8601, as 2026-11-21T13:00:00Z, or epoch milliseconds"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def parse_delete_horizon(text: str) -> str:
    """Read ``--delete-horizon``.

    Returns:
        ``next-pass``, ``newest``, or epoch milliseconds as decimal text.

    Raises:
        UsageError: none of these.
    """
    if text in HORIZON_NAMES:
        return text
    try:
        return str(parse_time_ms(text, "--delete-horizon"))
    except UsageError as error:
        raise UsageError(f"{error.message}, or one of {', '.join(HORIZON_NAMES)}") from None


def parse_partition(text: str) -> tuple[str, int]:
    """Read ``TOPIC-N``; a topic may have dashes itself, so the last dash counts.

    Raises:
        UsageError: not of that form.
    """
    topic, dash, number = text.rpartition("-")
    good = (
        dash and topic and number.isascii() and number.isdigit() and len(number) <= len(str(_MAX_PARTITION))
    )
    if not good or int(number) > _MAX_PARTITION:
        raise UsageError(f"--partition {text!r}: expected TOPIC-N, as __consumer_offsets-7")
    return topic, int(number)


def parse_setting(text: str) -> tuple[str, str]:
    """Read ``key=value``.

    Raises:
        UsageError: no ``=``, or no key before it.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {text!r}: expected key=value, as delete.retention.ms=86400000")
    return key.strip(), value.strip()


def parse_keep(text: str) -> str:
    """Read ``--keep``: ``inplace``, ``until-verified`` or ``auto``.

    Raises:
        UsageError: none of these.
    """
    if text in ("inplace", "until-verified", "auto"):
        return text
    raise UsageError(
        f"--keep {text!r}: expected inplace (the originals stay until krepair purge), until-verified (apply frees them "
        "as soon as what replaces them is verified; they cannot be put back) or auto (the first while there is room "
        "for them, else the second)"
    )


def parse_assume_high_watermark(text: str) -> str:
    """Read ``--assume-high-watermark``.

    Raises:
        UsageError: anything but ``log-end``.
    """
    if text not in ("", "log-end"):
        raise UsageError(f"--assume-high-watermark {text!r}: the only value is log-end")
    return text


def parse_accepted_loss(text: str) -> str:
    """Read ``--accept-data-loss``: ``RULE:TOPIC-PARTITION:OFFSET``, the offset being the first that is lost.

    Returns:
        The same in its one spelling.

    Raises:
        UsageError: not of that form. Whether there is such damage is seen when the log is read.
    """
    rule, _, rest = text.strip().partition(":")
    name, _, offset = rest.rpartition(":")
    form = (
        "expected RULE:TOPIC-PARTITION:OFFSET, as KR302:orders-0:1200; krepair check names each one to type"
    )
    if rule not in LOSS_RULES:
        raise UsageError(
            f"--accept-data-loss {text!r}: {rule!r} is no rule that data may be lost for "
            f"({', '.join(LOSS_RULES)}); {form}"
        )
    if not (offset.isascii() and offset.isdigit() and len(offset) <= len(str(_MAX_TIME_MS))):
        raise UsageError(f"--accept-data-loss {text!r}: {offset!r} is no offset; {form}")
    try:
        topic, number = parse_partition(name)
    except UsageError:
        raise UsageError(f"--accept-data-loss {text!r}: {name!r} is no partition; {form}") from None
    return f"{rule}:{topic}-{number}:{int(offset)}"
