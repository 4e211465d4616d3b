"""Simulation of a running broker that renames, swaps and removes files while they are read.

Whoever lists a folder and then opens what was listed finds some of it gone: a cleaner puts a segment in the place of
others by renames, retention renames and deletes, checkpoints are written as ``.tmp``. Here a folder is looked at again
until it has the same files before and after. What is asked of a stopped broker is answered at once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeVar

_LIMIT_S = 240
_SWAPPED_IN_S = 3.0
"""So long names that say that a swap goes on may stay as they are; after that nobody is at work: a stop left them."""
T = TypeVar("T")


def read(folder: Path, pattern: str = "*.log") -> dict[str, bytes]:
    """The content of the files of a folder whose names fit, by name, in order; empty where there is no such folder.

    Raises:
        TimeoutError: the folder never had the same files twice.
    """
    return _settled(
        folder, lambda names: {name: (folder / name).read_bytes() for name in _fitting(names, pattern)}
    )


def listed(folder: Path, pattern: str = "*.log") -> list[str]:
    """The names of a folder that fit, in order, at a moment at which no segments are being swapped.

    Raises:
        TimeoutError: the folder never had the same files twice.
    """
    return _settled(folder, lambda names: _fitting(names, pattern))


def copied(log_dir: Path, target: Path) -> Path:
    """A copy of a log directory; gives ``target``.

    Each folder is as at a moment at which no segments are being swapped, but not all at one moment. Files of the root
    that go meanwhile are left out.

    Raises:
        TimeoutError: a folder never had the same files twice.
    """
    target.mkdir(parents=True)
    for name in _names(log_dir):
        source = log_dir / name
        if source.is_dir():
            _settled(source, lambda _, source=source: _copied_folder(source, target / source.name))
        else:
            _copied_file(source, target / name)
    return target


def _copied_folder(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    if not source.is_dir():  # the topic was deleted
        return
    target.mkdir()
    for name in _names(source):
        path = source / name
        if path.is_dir():
            shutil.copytree(path, target / name, symlinks=True)
        else:
            shutil.copy2(path, target / name)
    shutil.copystat(source, target)


def _copied_file(source: Path, target: Path) -> None:
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:
        target.unlink(missing_ok=True)


def _settled(folder: Path, look: Callable[[list[str]], T]) -> T:
    began = same_since = time.monotonic()
    last: dict[str, int] = {}
    while True:
        files, now = _files(folder), time.monotonic()
        if files != last:
            last, same_since = files, now
        swaps = any(name.endswith(".swap") for name in files)
        if not swaps or now - same_since > _SWAPPED_IN_S:
            with contextlib.suppress(FileNotFoundError):
                found = look(sorted(files))
                if files == _files(folder):
                    return found
        if now - began > _LIMIT_S:
            raise TimeoutError(
                f"{folder} never had the same files twice within {_LIMIT_S} s: {sorted(files)}"
            )
        time.sleep(0.01)


def _files(folder: Path) -> dict[str, int]:
    """Names and inodes: a cleaner gives a new file the name of an old one."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry.inode() for entry in entries}
    except FileNotFoundError:
        return {}


def _names(folder: Path) -> list[str]:
    return sorted(_files(folder))


def _fitting(names: list[str], pattern: str) -> list[str]:
    return [name for name in names if fnmatch(name, pattern)]
