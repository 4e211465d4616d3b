"""Which files this process changes while somebody wants to know: a worker tells them to the process that sent it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_NOTED: list[set[str]] = []


@contextmanager
def noted() -> Iterator[set[str]]:
    """Gives the absolute paths of the files that are made or changed while the body runs."""
    paths = set[str]()
    _NOTED.append(paths)
    try:
        yield paths
    finally:
        _NOTED.remove(paths)


def note(path: str) -> None:
    """A file was made, or is being changed."""
    for paths in _NOTED:
        paths.add(path)
