"""The sides of a comparison: ``ID=DIR,DIR`` or ``ID=FACTS``, each one broker."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from msgspec import Struct

from krepair.errors import UsageError
from krepair.formats.words import count_text
from krepair.options import Options

_FORM: Final = "expected ID=LOGDIR, ID=LOGDIR,LOGDIR or ID=FACTS, as 1=/mnt/b1/kafka or 3=b3.facts"
_LARGEST_ID: Final = 2**31 - 1


class Side(Struct, frozen=True, kw_only=True):
    """One broker's side.

    Attributes:
        broker_id: as typed, a number.
        log_dirs: absolute paths of its log directories; empty if there is a facts file.
        facts: absolute path of a facts file, or empty.
    """

    broker_id: int
    log_dirs: tuple[str, ...] = ()
    facts: str = ""

    @property
    def text(self) -> str:
        """As it can be typed again."""
        return f"{self.broker_id}={self.facts or ','.join(self.log_dirs)}"


def parse_side(text: str) -> Side:
    """Read one side.

    Args:
        text: ``2=/mnt/b2/kafka,/mnt/b2/kafka2`` or ``3=b3.facts``. A single path that is a file is a facts file.

    Raises:
        UsageError: it has another form, or a path is given twice.
    """
    number, equals, rest = text.partition("=")
    paths = [os.path.abspath(path) for path in rest.split(",") if path]
    if not equals or not number.isascii() or not number.isdigit() or int(number) > _LARGEST_ID or not paths:
        raise UsageError(f"{text!r}: {_FORM}")
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise UsageError(f"{text!r}: a directory is given twice")
    if len(paths) == 1 and os.path.isfile(paths[0]):
        return Side(broker_id=int(number), facts=paths[0])
    return Side(broker_id=int(number), log_dirs=tuple(paths))


def parse_sides(texts: Iterable[str], *, at_least: int = 1) -> tuple[Side, ...]:
    """Read all sides of a command, in the order of their brokers.

    Raises:
        UsageError: a side cannot be read, a broker or a path is given twice, or there are too few.
    """
    sides = [parse_side(text) for text in texts]
    _unique(
        [side.broker_id for side in sides], "broker {} is given twice; name all its directories in one side"
    )
    paths = [os.path.realpath(path) for side in sides for path in (*side.log_dirs, side.facts) if path]
    _unique(paths, "{} is given for two brokers")
    if len(sides) < at_least:
        raise UsageError(
            f"expected at least {count_text(at_least, 'side')}, {count_text(len(sides), 'side')} given: {_FORM}"
        )
    return tuple(sorted(sides, key=lambda side: side.broker_id))


def sides_of_plan(texts: Iterable[str]) -> tuple[Side, ...]:
    """The sides of ``plan --replicas``: log directories alone.

    Raises:
        UsageError: one is a facts file; or see ``parse_sides``.
    """
    sides = parse_sides(texts, at_least=0)
    for side in sides:
        if side.facts:
            raise UsageError(
                f"--replicas {side.text}: a plan needs the log directories of the other broker; facts are for krepair "
                "compare"
            )
    return sides


def with_whole_paths(options: Options) -> Options:
    """The options with absolute paths: what a plan says of them may be typed in another folder.

    Raises:
        UsageError: see ``sides_of_plan``.
    """
    return replace(
        options,
        replicas=tuple(side.text for side in sides_of_plan(options.replicas)),
        cluster=options.cluster and os.path.abspath(options.cluster),
        config=options.config and os.path.abspath(options.config),
        topic_config=options.topic_config and os.path.abspath(options.topic_config),
    )


def _unique(values: Sequence[object], text: str) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise UsageError(text.format(value))
        seen.add(value)
