"""Arguments that name partitions and log directories, checked against what exists."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from krepair.errors import KrepairError, NotALogDirError, UnreadableError, UsageError
from krepair.fixes.context import OtherDirs
from krepair.fixes.replicas import GivenBroker
from krepair.formats.words import names_text
from krepair.logdir.cluster import ClusterView
from krepair.logdir.config import configured_log_dirs, why_of_another_broker
from krepair.logdir.values import LogDir
from krepair.logdir.view import read_log_dir
from krepair.next_command import Next
from krepair.options import EVERY_TOPIC, Options
from krepair.start.unformatted import UnusableDir

_NAMED_AT_MOST: Final = 5
_OF_TOPICS: Final = frozenset({"topic", "--only-replica"})


def read_log_dirs(paths: Sequence[str], options: Options) -> tuple[list[LogDir], list[UnusableDir]]:
    """Read the log directories of a broker, returning readable and unusable ones.

    A directory that is not formatted does not hide the others.

    Args:
        paths: paths as typed, or from the configuration.
        options: options with the configuration, whose directories are included even if they do not exist.

    Raises:
        NotALogDirError: no directory can be read, or a typed one does not exist.
        UnreadableError: no directory can be read, because of permissions or the disk.
    """
    views: list[LogDir] = []
    failures: list[tuple[UnusableDir, KrepairError]] = []
    for path in paths:
        try:
            views.append(read_log_dir(path))
        except (NotALogDirError, UnreadableError) as error:
            names = _names_in(path)
            failures.append(
                (UnusableDir(os.path.realpath(path), names is not None, names or (), error.message), error)
            )
    configured = {os.path.realpath(path) for path in configured_log_dirs(options.config)}
    for directory, problem in failures:
        is_typed = directory.path not in configured and not (
            directory.is_folder and isinstance(problem, NotALogDirError)
        )
        if not views or is_typed:
            raise problem
    return views, [directory for directory, _ in failures]


def _names_in(path: str) -> tuple[str, ...] | None:
    """Return the names in a folder; None if it cannot be listed."""
    try:
        return tuple(sorted(os.listdir(path)))
    except OSError:
        return None


def check_named(views: Sequence[LogDir], options: Options) -> None:
    """Check that every named topic and partition is in a log directory; otherwise a typo looks healthy.

    Raises:
        NotALogDirError: a name is in no directory; the message suggests a similar one.
    """
    _refuse_missing(views, named_and_missing(options, _existing(views)))


def check_consents(views: Sequence[LogDir], options: Options) -> None:
    """Check that every topic of ``--only-replica`` exists; otherwise a typo would plan nothing.

    Raises:
        NotALogDirError: a topic is in no directory; the message suggests a similar one.
    """
    topics = {topic for topic, _ in _existing(views)} | {EVERY_TOPIC}
    _refuse_missing(
        views, [("--only-replica", topic) for topic in options.only_replica if topic not in topics]
    )


def _existing(views: Sequence[LogDir]) -> set[tuple[str, int]]:
    return {partition.key for view in views for partition in view.partitions}


def _refuse_missing(views: Sequence[LogDir], names: Sequence[tuple[str, str]]) -> None:
    """Raise an error that lists the missing names, with the options that were typed for them."""
    if not names:
        return
    partitions = _existing(views)
    topics = sorted({topic for topic, _ in partitions})
    folders = sorted(f"{topic}-{number}" for topic, number in partitions)
    missing = [
        f"{kind} {name}{_suggestion(name, topics if kind in _OF_TOPICS else folders)}" for kind, name in names
    ]
    more = f", and {len(missing) - _NAMED_AT_MOST} more" if len(missing) > _NAMED_AT_MOST else ""
    raise NotALogDirError(
        f"{', '.join(view.path for view in views)}: not there: {', '.join(missing[:_NAMED_AT_MOST])}{more}",
        next_command=Next.of("check", *(view.path for view in views)),
    )


def named_and_missing(options: Options, partitions: Collection[tuple[str, int]]) -> list[tuple[str, str]]:
    """Return the named topics and partitions that do not exist, each as (``topic`` or ``partition``, name).

    Args:
        partitions: (topic, number) of existing partitions.
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


def _suggestion(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    if close:
        return f" (did you mean {close[0]}?)"
    return f" (there are {names_text(names)})" if names else ""


def log_dirs_asked_for(named: Iterable[str], config: str | None) -> list[str]:
    """Return the given log directories, or all of the configuration if none is given.

    Raises:
        UsageError: no directory is given, and no configuration names one.
    """
    paths = list(named)
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


# -- other log directories of the broker: it may have written there later, or hold the same partition there


def other_dirs(
    view: LogDir, typed: GivenBroker | None, config: str | None, cluster: ClusterView | None
) -> OtherDirs:
    """Find and read the broker's other log directories.

    Args:
        view: log directory that is examined.
        typed: this broker's own directories in ``--replicas``, None if they were not given.
        config: path of this broker's ``server.properties``, from ``--config``.
        cluster: cluster metadata, which says how many directories the broker registered (3.7 and later).

    Raises:
        UsageError: a file cannot be read.
    """
    sources = tuple(_sources(view, typed, config))
    paths = _paths(view, sources)
    registered = _registered(view, cluster)
    if paths is not None or registered == 1:
        return _read(view, paths or [], registered)
    named = f"; the broker has registered {registered} log directories" if registered > 0 else ""
    of_another = why_of_another_broker(config, view.path, view.broker_id)
    if of_another:
        named += f"; {of_another}"
    elif sources:
        named = f"; {', '.join(sources[0])} are configured, and none of them is {view.path}"
    return OtherDirs(
        unknown="it is not known which other log directories this broker has, and it may have written there later"
        f"{named}: give its server.properties with --config, or all of them with "
        f"--replicas {view.broker_id}=LOGDIR,LOGDIR",
        unsaid=not sources and registered < 0 and not of_another,
    )


def _read(view: LogDir, paths: Sequence[str], registered: int) -> OtherDirs:
    views: list[LogDir] = []
    for path in paths:
        try:
            other = read_log_dir(path)
        except KrepairError as error:
            return _unread(f"{error.message}: it is one of this broker's log directories")
        if other.broker_id not in {"", view.broker_id}:
            return _unread(f"{path}: is of broker {other.broker_id}, not {view.broker_id}")
        if not is_same(view, other):
            views.append(other)
    if registered > len(views) + 1:
        text = f"the broker has registered {registered} log directories, and only {len(views) + 1} are named"
        return OtherDirs(tuple(views), unknown=text)
    return OtherDirs(tuple(views))


def is_same(view: LogDir, other: LogDir) -> bool:
    """Return whether two paths are one directory; inode numbers are unique only within a file system."""
    return other.path == view.path or (other.device, other.inode) == (view.device, view.inode)


def _unread(why: str) -> OtherDirs:
    return OtherDirs(unknown=why, unread=why)


def _paths(view: LogDir, sources: Iterable[tuple[str, ...]]) -> list[str] | None:
    """Return paths of the other directories, by the first source that knows this directory; None if none does.

    A configuration with a single log directory also matches a directory at another path, which may be a copy.
    """
    here = os.path.realpath(view.path)
    for paths in sources:
        others = [path for path in paths if os.path.realpath(path) != here]
        if len(others) < len(paths):
            return others
        if len(paths) == 1:
            return []
    return None


def _sources(view: LogDir, typed: GivenBroker | None, config: str | None) -> Iterator[tuple[str, ...]]:
    if typed is not None and typed.log_dirs:
        yield typed.log_dirs
    if not why_of_another_broker(config, view.path, view.broker_id) and (
        configured := configured_log_dirs(config)
    ):
        yield configured


def _registered(view: LogDir, cluster: ClusterView | None) -> int:
    """Return how many log directories this broker has registered, -1 if unknown."""
    if cluster is None or not view.broker_id.isdecimal():
        return -1
    return len(cluster.brokers.get(int(view.broker_id), ())) or -1
