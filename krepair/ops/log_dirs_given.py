"""What a person asked for, and whether it is there: partitions by name, and the log directories of a broker."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from krepair.errors import NotALogDirError, UsageError
from krepair.logdir.log_dirs import configured_log_dirs
from krepair.logdir.values import LogDir
from krepair.options import EVERY_TOPIC, Options

_NAMED_AT_MOST: Final = 5
_SHOWN: Final = 3
_OF_TOPICS: Final = frozenset({"topic", "--only-replica"})


def check_named(views: Sequence[LogDir], options: Options) -> None:
    """Check that every topic and partition that was named is in one of the log directories: a typo looks healthy.

    Raises:
        NotALogDirError: one is in none of them; a name like it is given where there is one.
    """
    _refuse(views, named_and_missing(options, _there(views)))


def check_consents(views: Sequence[LogDir], options: Options) -> None:
    """Check that every topic of ``--only-replica`` is there: of a typo nothing would go.

    Raises:
        NotALogDirError: one is in none of the log directories; a name like it is given where there is one.
    """
    topics = {topic for topic, _ in _there(views)} | {EVERY_TOPIC}
    _refuse(views, [("--only-replica", topic) for topic in options.only_replica if topic not in topics])


def _there(views: Sequence[LogDir]) -> set[tuple[str, int]]:
    return {one.key for view in views for one in view.partitions}


def _refuse(views: Sequence[LogDir], names: Sequence[tuple[str, str]]) -> None:
    """Name what is missing, with what was typed for it."""
    if not names:
        return
    partitions = _there(views)
    topics = sorted({topic for topic, _ in partitions})
    folders = sorted(f"{topic}-{number}" for topic, number in partitions)
    missing = [
        f"{kind} {name}{_like(name, topics if kind in _OF_TOPICS else folders)}" for kind, name in names
    ]
    more = f", and {len(missing) - _NAMED_AT_MOST} more" if len(missing) > _NAMED_AT_MOST else ""
    raise NotALogDirError(
        f"{', '.join(view.path for view in views)}: not there: {', '.join(missing[:_NAMED_AT_MOST])}{more}",
        next_command=f"krepair check {shlex.join(view.path for view in views)}",
    )


def named_and_missing(options: Options, partitions: Collection[tuple[str, int]]) -> list[tuple[str, str]]:
    """What was named and is not among some partitions.

    Args:
        options: as typed.
        partitions: (topic, number) of those that are there.

    Returns:
        ``topic`` or ``partition``, and its name.
    """
    topics = {topic for topic, _ in partitions}
    return [
        *(("topic", topic) for topic in options.topics if topic not in topics),
        *(
            ("partition", f"{topic}-{number}")
            for topic, number in options.partitions
            if (topic, number) not in partitions
        ),
    ]


def _like(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    if close:
        return f" (did you mean {close[0]}?)"
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f" (there are {', '.join(names[:_SHOWN])}{more})" if names else ""


def log_dirs_asked_for(given: Iterable[str], config: str | None) -> list[str]:
    """The log directories to look at: those given, else all of the configuration.

    Raises:
        UsageError: none is given, and no configuration names any.
    """
    paths = list(given)
    if paths:
        return paths
    paths = list(configured_log_dirs(config))
    if not paths:
        where = (
            "give LOGDIR, or --config server.properties"
            if config is None
            else f"{config} has neither log.dirs nor log.dir"
        )
        raise UsageError(f"no log directory is named: {where}")
    return paths
