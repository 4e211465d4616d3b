"""The log directory of a work item, opened once for everything that is read and written for the item."""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TypeVar

from krepair.durable.tree import Tree
from krepair.engine.items import Failed, Place, PlacedItem
from krepair.logdir.reading import why


class _Open:
    """Log directories that consecutive items have opened; the last one stays open."""

    def __init__(self) -> None:
        self.tree: Tree | None = None
        self.identity = (0, 0)
        self.wanted = 0
        self.others: weakref.WeakSet[Tree] = weakref.WeakSet()
        """Other trees that are open now. An exception that is kept alive keeps frames that refer to its tree."""


_LAST = _Open()


@contextmanager
def kept_open() -> Iterator[None]:
    """Keep a log directory open from one item to the next while the body runs: opening costs as much as a look."""
    _LAST.wanted += 1
    try:
        yield
    finally:
        _LAST.wanted -= 1
        if not _LAST.wanted:
            _LAST.tree = None
            while _LAST.others:
                _LAST.others.pop().close()


def reached(place: Place) -> tuple[Tree, str]:
    """Open the log directory of a place; return it, and why this worker cannot do an item there, or empty.

    Everything is read and written below the directory that was opened. Another directory that takes over its name
    is not touched, and the next item notices it.
    """
    last = _LAST.tree
    if last is not None and last.path == place.log_dir and _is_still(place):
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
        # An open directory keeps its identity, so one look suffices.
        _LAST.tree, _LAST.identity = tree, (opened.st_dev, opened.st_ino)
    return tree, ""


_Item = TypeVar("_Item", bound=PlacedItem)
_Result = TypeVar("_Result")


def in_its_place(function: Callable[[_Item, Tree], _Result]) -> Callable[[_Item], _Result | Failed]:
    """Turn a function of (item, log directory) into a function of the item alone.

    What this process cannot reach or read becomes a value, never an exception.
    """

    @wraps(function)
    def mapped(item: _Item) -> _Result | Failed:
        tree, wrong = reached(item.place)
        if wrong:
            return Failed("elsewhere", wrong)
        try:
            return function(item, tree)
        except OSError as error:
            return Failed("unreadable", what_failed(item.place, error))

    return mapped


def at_its_place(
    result: Callable[..., _Result],
) -> Callable[[Callable[[_Item, Tree], _Result]], Callable[[_Item], _Result]]:
    """Wrap functions like ``in_its_place`` whose results hold their own failure.

    Args:
        result: function that builds the result from ``failure`` and ``why``.
    """

    def mapped_of(function: Callable[[_Item, Tree], _Result]) -> Callable[[_Item], _Result]:
        guarded = in_its_place(function)

        @wraps(function)
        def mapped(item: _Item) -> _Result:
            outcome = guarded(item)
            return result(failure=outcome.kind, why=outcome.why) if isinstance(outcome, Failed) else outcome

        return mapped

    return mapped_of


def what_failed(place: Place, error: OSError, name: str = "") -> str:
    """Format an error as ``<partition folder>/<file>: <the system's message>``.

    Args:
        error: error of a call on one of the partition's files.
        name: name of the file if the error names none.
    """
    file = os.path.basename(os.fsdecode(error.filename)) if error.filename else name
    return f"{place.folder}/{file}: {why(error)}"


def _is_still(place: Place) -> bool:
    """Return whether the path of a place still names the open directory."""
    try:
        status = os.stat(place.log_dir)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == _LAST.identity and status.st_ino == place.log_dir_inode
