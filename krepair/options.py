"""Definition of every option of every verb: its spelling, its meaning, its parsing, and how a command repeats it.

A verb declares with ``krepair.cli.options.takes`` which options it has. Help, manual page, completions and
``docs/cli.md`` are generated from the fields of ``Options``, and so are the commands that krepair suggests or a plan
records. An option that means something else for another verb has two fields.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final, Literal

from krepair.errors import UsageError

LOSS_RULES: Final[dict[str, str]] = {
    **dict.fromkeys(("KR302", "KR303", "KR304", "KR305"), "tail"),
    "KR312": "checkpoints",
}
"""Rules whose repair loses data, so that each needs its own consent -> the fix that takes the consent."""

DEFAULT_FIXES: Final = ("markers",)
"""Fixes of a plan without ``--fix``: index files are read only on request, because that slows a reclaim."""

EVERY_TOPIC: Final = "*"
"""Value of ``--only-replica`` for all topics."""

HORIZON_NAMES: Final = ("next-pass", "newest")

Use = Literal["plan", "reading", "clock", "scratch", "place"]
"""What an option decides: what a plan is; what is read, and how; the time of all decisions; where the work is done, and
where what does not fit into memory goes."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_KAFKA_MS: Final = 1_293_840_000_000
"""2011-01-01: Kafka was published in that month."""
_MAX_INT64: Final = 2**63 - 1
_MAX_PARTITION: Final = 2**31 - 1
_MAX_TIME_LENGTH: Final = 64
_CHOICES: Final = re.compile(r"[a-z0-9-]+(\|[a-z0-9-]+)*")
_VERSION: Final = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4}){0,2}([-+][A-Za-z0-9.+-]{1,40})?")


class EngineName(StrEnum):
    """Engine that runs the work."""

    AUTO = "auto"
    SPARK = "spark"
    INLINE = "inline"


# -- how values are read


def parse_time_ms(text: str, option: str) -> int:
    """Read a TIME: ISO 8601 or epoch milliseconds.

    A time without a zone is UTC, so that the same command gives the same plan on every host.

    Args:
        option: name of the option, for the message.

    Returns:
        Epoch milliseconds.

    Raises:
        UsageError: the text is neither of the two, or the time is before 1970, or too late for Kafka's format.
    """
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit() and len(stripped) < _MAX_TIME_LENGTH:
        milliseconds = int(stripped)
    else:
        milliseconds = _parse_iso_ms(stripped, text, option)
    if not 0 <= milliseconds <= _MAX_INT64:
        raise UsageError(
            f"{option} {text!r}: a time from 1970 on that fits 63 bits of milliseconds is needed"
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


def parse_clock_ms(text: str) -> int:
    """Read ``--now``.

    Raises:
        UsageError: the text is no time, or one before Kafka existed, such as seconds taken for milliseconds.
    """
    milliseconds = parse_time_ms(text, "--now")
    if milliseconds < _FIRST_KAFKA_MS:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise UsageError(
            f"--now {text!r}: this is {moment}, and there was no Kafka then. Give milliseconds since 1970, or a "
            "time such as 2026-11-21T13:00:00Z; without --now the clock of this host counts"
        )
    return milliseconds


def parse_delete_horizon(text: str) -> str:
    """Read ``--delete-horizon``.

    Returns:
        ``next-pass``, ``newest``, or epoch milliseconds as decimal text.

    Raises:
        UsageError: the text is none of these.
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
        UsageError: the text does not have that form.
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


def parse_accepted_loss(text: str) -> str:
    """Read ``--accept-data-loss``: ``RULE:TOPIC-PARTITION:OFFSET``, the offset being the first that is lost.

    Returns:
        The consent in its canonical spelling.

    Raises:
        UsageError: the text does not have that form. Whether the damage exists is known only after reading the log.
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
    if not (offset.isascii() and offset.isdigit() and len(offset) <= len(str(_MAX_INT64))):
        raise UsageError(f"--accept-data-loss {text!r}: {offset!r} is no offset; {form}")
    try:
        topic, number = parse_partition(name)
    except UsageError:
        raise UsageError(f"--accept-data-loss {text!r}: {name!r} is no partition; {form}") from None
    return f"{rule}:{topic}-{number}:{int(offset)}"


def consents_of(fix: str, accepted: Iterable[str]) -> list[str]:
    """Return the values of ``--accept-data-loss`` that apply to a fix."""
    return [text for text in accepted if LOSS_RULES.get(text.partition(":")[0]) == fix]


def parse_offsets(text: str) -> tuple[int, int]:
    """Read ``--offsets``: ``A..B``, both included; either may be left out, and ``A`` alone is ``A..A``.

    Raises:
        UsageError: the text does not have that form.
    """
    first, dots, last = text.partition("..")
    numbers = [first, last if dots else first]
    good = all(
        not number or (number.isascii() and number.isdigit() and len(number) < 20) for number in numbers
    )
    if not good or not (first or last):
        raise UsageError(f"--offsets {text!r}: expected A..B, as 100..200, 100.. or ..200")
    lowest, highest = int(numbers[0] or 0), int(numbers[1] or _MAX_INT64)
    if lowest > highest:
        raise UsageError(f"--offsets {text!r}: {lowest} is above {highest}")
    return lowest, highest


def _parse_version(text: str) -> str:
    if text and not _VERSION.fullmatch(text):
        raise UsageError(f"--broker-version {text!r}: expected a version, as 2.2.1")
    return text


def _sorted_once(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(set(values)))


# -- the options


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """Option of the command line, described at its field.

    Attributes:
        names: spellings, the long one first.
        metavar: name of the value in the help; empty for a flag, which inverts its default.
        text: help text.
        default: value without the option; None for the clock, which is read then.
        read: converts a typed word into a value; may raise ``UsageError``.
        word: converts a value back into a word.
        gathered: combines the values of a repeatable option into one; None if the option is not repeatable.
        listed: True if one word may hold several values, separated by commas.
        use: decision that the option affects; empty if no command written by krepair repeats it.
    """

    names: tuple[str, ...]
    metavar: str
    text: str
    default: Any
    read: Callable[[str], Any] = str
    word: Callable[[Any], str] = str
    gathered: Callable[[Iterable[Any]], tuple[Any, ...]] | None = None
    listed: bool = False
    use: Use | Literal[""] = ""

    def value(self, typed: Sequence[str]) -> Any:
        """Convert the words typed for the option, at least one, into its value.

        Raises:
            UsageError: a word cannot be read.
        """
        if not self.metavar:
            return not self.default
        if self.gathered is None:
            return self._one(typed[-1])
        parts = [part for text in typed for part in (text.split(",") if self.listed else (text,))]
        return self.gathered(self._one(part) for part in parts)

    def _one(self, text: str) -> Any:
        if _CHOICES.fullmatch(self.metavar) and text != self.default:
            choices = self.metavar.split("|")
            if text not in choices:
                raise UsageError(f"{self.names[0]} {text!r}: expected one of {', '.join(choices)}")
        return self.read(text)

    def words(self, value: Any) -> Iterable[str]:
        """Yield the words to type for a value; none for the default."""
        if value in (self.default, ""):
            return
        name = self.names[0]
        if not self.metavar:
            yield name
            return
        each = [self.word(element) for element in (value if self.gathered else (value,))]
        for text in [",".join(each)] if self.listed else each:
            yield from (name, text)


def _option(typed: str, text: str, default: Any = "", **more: Any) -> Any:
    """Define a field of ``Options``.

    Args:
        typed: spellings, then the name of the value.
        text: help text.
        default: value without the option.
        more: fields of ``Option``.
    """
    words = typed.split()
    metavar = "" if words[-1].startswith("-") else words.pop()
    option = Option(names=tuple(words), metavar=metavar, text=text, default=default, **more)
    return field(default=default, metadata={"option": option})


def _clock(typed: str, text: str, **more: Any) -> Any:
    """Define the field of a time, which is read from the clock if it is not typed."""
    metadata = _option(typed, text, None, **more).metadata
    return field(default_factory=lambda: time.time_ns() // 1_000_000, metadata=metadata)


_plan: Final = partial(_option, use="plan")
_reading: Final = partial(_option, use="reading")
_place: Final = partial(_option, use="place")
_REPEATED: Final[dict[str, Any]] = {"default": (), "gathered": tuple}


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Typed options as values. An option that a verb does not take has its default.

    A written command has its options in the order of these fields.
    """

    # What a plan is made of.
    fixes: tuple[str, ...] = _plan(
        "--fix LIST",
        "Names of fixes, separated by commas; may be repeated. Without it: markers.",
        DEFAULT_FIXES,
        gathered=tuple,
        listed=True,
    )
    merge: bool = _plan("--no-merge", "Do not merge neighbouring segments.", default=True)
    as_broker: bool = _plan(
        "--as-broker",
        "Consent: markers and tombstones older than delete.retention.ms go, as a broker's cleaner would remove them, "
        "whatever other replicas still hold.",
        default=False,
    )
    accepted_losses: tuple[str, ...] = _plan(
        "--accept-data-loss RULE:TOPIC-PARTITION:OFFSET",
        "Consent, with --fix tail or checkpoints: repair this damage although records are lost. krepair "
        "check prints each one to type; may be repeated.",
        (),
        read=parse_accepted_loss,
        gathered=_sorted_once,
    )
    replicas: tuple[str, ...] = _plan(
        "--replicas ID=LOGDIR[,LOGDIR]",
        "Log directories of another, stopped broker; may be repeated. With this broker's own ID: its other "
        "log directories.",
        **_REPEATED,
    )
    delete_horizon: str = _plan(
        "--delete-horizon next-pass|newest|TIME",
        "Markers and tombstones up to this time may go. newest: the time of the newest segment that can be cleaned, "
        "minus delete.retention.ms. next-pass: what the next pass of the broker's cleaner would use. Or a time.",
        "newest",
        read=parse_delete_horizon,
    )
    keep: str = _plan(
        "--keep inplace|until-verified|auto",
        "Where originals stay until purge. inplace: in the partition folder. until-verified: nowhere; apply "
        "frees them, group by group, when the new files are verified. auto: in the folder while the disk has "
        "room, otherwise nowhere.",
        "inplace",
    )
    assume_high_watermark: str = _plan(
        "--assume-high-watermark log-end",
        "If no high watermark is recorded for a partition, take its log end as the high watermark.",
    )
    cluster: str = _plan(
        "--cluster FILE",
        "State of the cluster: the output of kafka-topics.sh --bootstrap-server ... --describe, or a copy of "
        "the active controller's __cluster_metadata-0. If all other replicas are in sync without this one, "
        "markers and tombstones older than delete.retention.ms may go.",
    )
    only_replica: tuple[str, ...] = _plan(
        "--only-replica TOPIC|*",
        "There is no other replica of this topic (* for all): markers and tombstones may go; may be "
        "repeated. It is refused if the metadata log names several replicas: give --config, which says where "
        "that log is.",
        (),
        gathered=_sorted_once,
    )
    # How the broker is configured, and which partitions are looked at: all of them where none is named.
    config: str | None = _reading("--config FILE", "The broker's server.properties.", None)
    topic_config: str | None = _reading(
        "--topic-config FILE",
        'Topic settings: JSON {"topic": {"key": "value"}}, or the output of kafka-configs.sh --describe.',
        None,
    )
    broker_version: str = _reading(
        "--broker-version VERSION",
        "Version of the broker that will start on the log directory.",
        read=_parse_version,
    )
    settings: tuple[tuple[str, str], ...] = _reading(
        "--set KEY=VALUE",
        "One setting, by Kafka's name for it; may be repeated.",
        **_REPEATED,
        read=parse_setting,
        word="=".join,
    )
    topics: tuple[str, ...] = _reading("--topic TOPIC", "Only this topic; may be repeated.", **_REPEATED)
    partitions: tuple[tuple[str, int], ...] = _reading(
        "--partition TOPIC-N",
        "Only this partition; may be repeated.",
        **_REPEATED,
        read=parse_partition,
        word=lambda partition: f"{partition[0]}-{partition[1]}",
    )
    now_ms: int = _clock(
        "--now TIME",
        "The time of all decisions: ISO 8601 or epoch milliseconds.",
        read=parse_clock_ms,
        use="clock",
    )
    # Where the work is done.
    scratch: str = _option(
        "--scratch DIR",
        "Folder for keys and hashes that do not fit into memory; on a log directory's file system only if "
        "you name it here.",
        use="scratch",
    )
    engine: EngineName = _place(  # noqa: RUF009 - a name of an enum
        "--engine auto|spark|inline",
        "Where the work is done; auto chooses by size.",
        "auto",
        read=EngineName,
    )
    master: str = _place("--master URL", "Spark master, such as local[*] or spark://host:7077.")
    # What comes out.
    json: bool = _option("--json", "One JSON document on standard output.", default=False)
    json_lines: bool = _option("--json", "One JSON object a line.", default=False)
    quiet: bool = _option("--quiet -q", "No progress and no page, only the exit code.", default=False)
    verbose: bool = _option(
        "--verbose -v",
        "Print each decision and step on stderr, with times and partitions.",
        default=False,
    )
    log: str = _option("--log FILE", "Append the same lines to this file.")
    metrics: str = _option(
        "--metrics FILE.prom",
        "At the end write metrics to this file, for the node exporter's text file collector.",
    )
    html: str = _option("--html FILE", "At the end also write a page for a browser to this file.")
    output_format: str = _option(
        "--format text|md|html|json", "For a terminal, a ticket, a browser, a program.", "text"
    )
    section: str = _option(
        "--section partitions|reasons|horizons|settings|replicas|commit|risks", "Only this section."
    )
    ticket_format: str = _option("--format text|md", "For a terminal, or for a ticket.", "text")
    # check and compare
    deep: bool = _option(
        "--deep", "Also decompress all compressed content (KR307); costs CPU time.", default=False
    )
    every: bool = _option(
        "--all", "Show each finding, each partition and each line of the forecast.", default=False
    )
    every_partition: bool = _option(
        "--all", "Also show one line for each partition without a difference.", default=False
    )
    rule: str = _option(
        "--rule KRnnn", "Show each finding of this rule, and the command for it.", read=str.upper
    )
    # verbs of a plan
    out: str | None = _option("--out PLAN", "Where to write the plan; never in LOGDIR.", None)
    preview: bool = _option(
        "--preview",
        "Make a plan beside a running broker, to read and to approve. apply refuses it.",
        default=False,
    )
    expect: str = _option(
        "--expect DIGEST",
        "Refuse a plan with another digest; give at least the first 32 of its 64 hex digits.",
    )
    plan_id: str = _option(
        "--plan-id ID", "With LOGDIR: id of the plan. Without it, all plans there are listed."
    )
    originals: bool = _option(
        "--originals",
        "With a plan: also compare the new files with the kept originals, byte for byte. Ends with 2 if no "
        "original is left.",
        default=False,
    )
    # one verb each
    facts_file: str = _option("--out FILE", "The facts file to write.")
    group: tuple[str, ...] = _option(
        "--group GROUP", "Only this group, with members and commits; may be repeated.", **_REPEATED
    )
    transactional_id: tuple[str, ...] = _option(
        "--transactional-id ID", "Only this id, in any state; may be repeated.", **_REPEATED
    )
    batches: bool = _option("--batches", "Only the headers of batches of a log.", default=False)
    records: bool = _option(
        "--records",
        "Only the records of a log. Without --batches and --records both are shown.",
        default=False,
    )
    offsets: tuple[int, int] = _option(
        "--offsets A..B",
        "Only these offsets, both included; one may be left out: 100.. or ..200.",
        (-(2**63), _MAX_INT64),
        read=parse_offsets,
    )
    grep: str = _option(
        "--grep PATTERN",
        "Only records with this regular expression in key, value, headers or decoded fields.",
    )
    limit: int | None = _option(
        "--limit N", "Stop after N lines; lines that name a file or damage do not count.", None, read=int
    )
    keys: str = _option(
        "--keys auto|text|json|hex|base64",
        "How keys are shown; auto is text, or base64 if the bytes are not UTF-8.",
        "auto",
    )
    values: str = _option("--values auto|text|json|hex|base64", "How values are shown.", "auto")
    cut: int = _option("--cut BYTES", "Show at most this many bytes of a key or a value.", 1 << 20, read=int)
    decode: str = _option(
        "--decode auto|offsets|transactions|share|none",
        "Decode records of the coordinators' topics; auto decides by the name of the folder.",
        "auto",
    )
    into: str = _option(
        "--into DIR", "Folder for the compiled code. Without it: the installation, for all its users."
    )

    _topics_named: frozenset[str] = field(init=False, repr=False, compare=False)
    _partitions_named: frozenset[tuple[str, int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Each partition of a log directory is looked up in what was named: thousands in thousands.
        object.__setattr__(self, "_topics_named", frozenset(self.topics))
        object.__setattr__(self, "_partitions_named", frozenset(self.partitions))

    def wants(self, topic: str, partition: int) -> bool:
        """Return whether ``--topic`` and ``--partition`` select this partition."""
        if not self.topics and not self.partitions:
            return True
        return topic in self._topics_named or (topic, partition) in self._partitions_named

    def words(self, *uses: Use) -> tuple[str, ...]:
        """Return the words to type for the options with these uses, without those at their default.

        Args:
            uses: uses to include.
        """
        return tuple(
            word
            for name, option in OPTIONS.items()
            if option.use in uses
            for word in option.words(getattr(self, name))
        )

    @classmethod
    def of_words(cls, words: Sequence[str], **more: Any) -> Options:
        """Convert the result of ``words`` back into options.

        Args:
            words: those of a command line.
            more: further fields.

        Raises:
            UsageError: a word that ``words`` does not give.
        """
        rest, typed = iter(words), dict[str, list[str]]()
        for word in rest:
            name = _TYPED_AGAIN.get(word)
            text = next(rest, None) if name and OPTIONS[name].metavar else ""
            if name is None or text is None:
                raise UsageError(f"{word!r}: expected an option of krepair plan, with its value")
            typed.setdefault(name, []).append(text)
        return cls(**more, **{name: OPTIONS[name].value(texts) for name, texts in typed.items()})


OPTIONS: Final[Mapping[str, Option]] = {
    field.name: field.metadata["option"] for field in fields(Options) if "option" in field.metadata
}
"""Name of a field -> how it is typed."""

_TYPED_AGAIN: Final = {option.names[0]: name for name, option in OPTIONS.items() if option.use}
