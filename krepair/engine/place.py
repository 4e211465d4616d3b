"""Opens the log directory of a work item, once, for everything that is read and written for it."""

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
    """The log directories that items have opened, while items follow each other; the last one stays open."""

    def __init__(self) -> None:
        self.tree: Tree | None = None
        self.identity = (0, 0)
        self.wanted = 0
        self.others: weakref.WeakSet[Tree] = weakref.WeakSet()
        """Every other one that was opened meanwhile. An error that is kept keeps the frames that know its tree."""


_LAST = _Open()


@contextmanager
def kept_open() -> Iterator[None]:
    """Keep a log directory open from one item to the next while the body runs: to open it takes as long as to look."""
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
    """The log directory of a place, and why this worker cannot do an item there, or empty.

    It is opened here, and everything is read and written below the directory that was opened: one that takes its name
    meanwhile is not touched, and is noticed by the next item.
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
        # what is open stays what it is, so it is looked at once
        _LAST.tree, _LAST.identity = tree, (opened.st_dev, opened.st_ino)
    return tree, ""


_Item = TypeVar("_Item", bound=PlacedItem)
_Result = TypeVar("_Result")


def in_its_place(function: Callable[[_Item, Tree], _Result]) -> Callable[[_Item], _Result | Failed]:
    """Of a function that takes an item and the log directory of its place, one that takes the item.

    What this process does not reach, or cannot read, is a value, never an exception.
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
    """As ``in_its_place``, for results that hold their failure.

    Args:
        result: makes what the function gives back of ``failure`` and ``why``.
    """

    def mapped_of(function: Callable[[_Item, Tree], _Result]) -> Callable[[_Item], _Result]:
        guarded = in_its_place(function)

        @wraps(function)
        def mapped(item: _Item) -> _Result:
            found = guarded(item)
            return result(failure=found.kind, why=found.why) if isinstance(found, Failed) else found

        return mapped

    return mapped_of


def what_failed(place: Place, error: OSError, name: str = "") -> str:
    """``<partition folder>/<file>: <what the system said>``.

    Args:
        place: the partition.
        error: of a call on one of its files.
        name: the file that is named where the error names none.
    """
    file = os.path.basename(os.fsdecode(error.filename)) if error.filename else name
    return f"{place.folder}/{file}: {why(error)}"


def _is_still(place: Place) -> bool:
    """Whether the open directory is the one that the place names, now."""
    try:
        found = os.stat(place.log_dir)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == _LAST.identity and found.st_ino == place.log_dir_inode
