"""Opening of the log directory that a work item names.

A task reads and writes only below the directory that was opened. If another directory takes over its path meanwhile,
nothing in it is touched. The decorators here open the directory for a task, and turn errors into values.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from krepair.durable.tree import Tree
from krepair.engine.items import Failed, Place, PlacedItem
from krepair.logdir.reading import why


class _OpenLogDirs:
    """Log directories that are open now. The last one stays open for the next item, see ``keep_log_dir_open``."""

    def __init__(self) -> None:
        self.tree: Tree | None = None
        self.identity = (0, 0)
        self.wanted = 0
        self.others: weakref.WeakSet[Tree] = weakref.WeakSet()
        """Other trees that may still be open, because an exception that somebody keeps refers to them."""


_LAST = _OpenLogDirs()


@contextmanager
def keep_log_dir_open() -> Iterator[None]:
    """Keep a log directory open from one item to the next while the body runs, since opening it takes time."""
    _LAST.wanted += 1
    try:
        yield
    finally:
        _LAST.wanted -= 1
        if not _LAST.wanted:
            _LAST.tree = None
            while _LAST.others:
                _LAST.others.pop().close()


def open_log_dir(place: Place) -> tuple[Tree, str]:
    """Open the log directory of a place; return it, and why it is not the driver's directory, or empty."""
    last = _LAST.tree
    if last is not None and last.path == place.log_dir and _names_same_directory(place):
        return last, ""
    tree = Tree(place.log_dir, place.log_dir_inode)
    if _LAST.wanted:
        _LAST.others.add(tree)
    try:
        opened = tree.status(place.log_dir)
    except OSError as error:
        if error.errno == errno.ESTALE:
            return tree, f"{place.log_dir} is not the same directory on this worker"
        return tree, f"{place.log_dir}: {why(error)}"
    if _LAST.wanted and opened is not None:
        # An open directory never becomes another one, so its identity is read only once.
        _LAST.tree, _LAST.identity = tree, (opened.st_dev, opened.st_ino)
    return tree, ""


_Item = TypeVar("_Item", bound=PlacedItem)
_Further = ParamSpec("_Further")
_Result = TypeVar("_Result")


def with_log_dir(
    function: Callable[Concatenate[_Item, Tree, _Further], _Result],
) -> Callable[Concatenate[_Item, _Further], _Result | Failed]:
    """Decorate a function of (item, log directory, further arguments): open the directory for the function.

    If the directory or a file in it cannot be read, the result is a ``Failed``, never an exception.
    """

    @wraps(function)
    def mapped(item: _Item, /, *args: _Further.args, **kwargs: _Further.kwargs) -> _Result | Failed:
        tree, wrong = open_log_dir(item.place)
        if wrong:
            return Failed("elsewhere", wrong)
        try:
            return function(item, tree, *args, **kwargs)
        except OSError as error:
            return Failed("unreadable", failure_text(item.place, error))

    return mapped


def with_log_dir_as(
    result: Callable[..., _Result],
) -> Callable[
    [Callable[Concatenate[_Item, Tree, _Further], _Result]], Callable[Concatenate[_Item, _Further], _Result]
]:
    """Decorate a function like ``with_log_dir``, for results that have fields for a failure.

    Args:
        result: class of the results, built with ``failure`` and ``why`` if the function fails.
    """

    def mapped_of(
        function: Callable[Concatenate[_Item, Tree, _Further], _Result],
    ) -> Callable[Concatenate[_Item, _Further], _Result]:
        guarded = with_log_dir(function)

        @wraps(function)
        def mapped(item: _Item, /, *args: _Further.args, **kwargs: _Further.kwargs) -> _Result:
            outcome = guarded(item, *args, **kwargs)
            return result(failure=outcome.kind, why=outcome.why) if isinstance(outcome, Failed) else outcome

        return mapped

    return mapped_of


def failure_text(place: Place, error: OSError, name: str = "") -> str:
    """Format an error as ``<partition folder>/<file>: <the system's message>``.

    Args:
        error: error of a call on one of the partition's files.
        name: name of the file if the error names none.
    """
    file = os.path.basename(os.fsdecode(error.filename)) if error.filename else name
    return f"{place.folder}/{file}: {why(error)}"


def _names_same_directory(place: Place) -> bool:
    """Return whether the path of a place still names the open directory."""
    try:
        status = os.stat(place.log_dir)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == _LAST.identity and status.st_ino == place.log_dir_inode
