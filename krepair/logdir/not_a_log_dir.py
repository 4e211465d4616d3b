"""What to say of a path that is no log directory, and what to type instead."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from itertools import islice
from typing import Final

from krepair.errors import NotALogDirError
from krepair.formats.damage import shown
from krepair.formats.filenames import META_PROPERTIES, FileKind, parse_file_name
from krepair.logdir.reading import why
from krepair.next_command import Next

_BY_CONFIGURATION: Final = "krepair check --config server.properties"
_FOLDERS_LOOKED_INTO: Final = 100
"""A home folder or the root of a disk may be named by mistake; it may have any number of folders."""


def not_a_directory(path: str, known_files: Iterable[str], error: OSError) -> NotALogDirError:
    """The error for a path at which there is no folder.

    Args:
        path: the path as it was given.
        known_files: names of files in the root of a log directory.
        error: what the operating system says.
    """
    if error.errno != errno.ENOTDIR or not os.path.isfile(path):
        return NotALogDirError(
            f"{shown_path(path)}: expected a Kafka log directory, but: {why(error)}; "
            "log.dirs in server.properties names those of a broker",
            next_command=_BY_CONFIGURATION,
        )
    name = os.path.basename(path)
    of_a_broker = name in known_files or parse_file_name(name).kind is not FileKind.FOREIGN
    verb = "dump" if of_a_broker else "show"
    what = "a file" if of_a_broker else "a file; krepair show reads a plan file"
    return NotALogDirError(
        f"{shown_path(path)}: expected a Kafka log directory, found {what}",
        next_command=Next.of(verb, path),
    )


def not_a_log_dir(path: str, foreign: Iterable[str]) -> NotALogDirError:
    """The error for a folder in which nothing shows that it is a log directory.

    Args:
        path: the path of the folder.
        foreign: names in it that no broker writes there, in order.
    """
    names = list(foreign)
    expected = f"{META_PROPERTIES}, a checkpoint file, or partition folders (topic-0) with logs"
    found = ", ".join(shown(name) for name in names[:3]) or "nothing"
    if len(names) > 3:
        found += f" and {len(names) - 3} more"
    hint, command = _instead(path, names)
    return NotALogDirError(
        f"{shown_path(path)}: not a Kafka log directory: expected {expected}, found {found}; {hint}",
        next_command=command,
    )


def shown_path(path: str) -> str:
    """The path as text that is safe to print on one line."""
    return path if path.isprintable() else path.encode("unicode_escape", "surrogatepass").decode("ascii")


def _instead(path: str, names: list[str]) -> tuple[str, str]:
    if any(name.endswith(".log") for name in names):
        return (
            "it looks like a partition folder: give the directory that holds it",
            str(Next.of("check", os.path.dirname(path))),
        )
    below = (f"{path}/{name}" for name in islice(names, _FOLDERS_LOOKED_INTO))
    log_dirs = [one for one in below if os.path.isfile(f"{one}/{META_PROPERTIES}")]
    if log_dirs:
        return "there is a log directory below it", str(Next.of("check", *log_dirs))
    return "log.dirs in server.properties names the log directories of a broker", _BY_CONFIGURATION
