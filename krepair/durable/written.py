"""Record of the files that this process changes: a Spark worker reports them to the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_NOTED: list[set[str]] = []


@contextmanager
def noted() -> Iterator[set[str]]:
    """Collect the absolute paths of all files that are created or changed while the body runs."""
    paths = set[str]()
    _NOTED.append(paths)
    try:
        yield paths
    finally:
        _NOTED.remove(paths)


def note(path: str) -> None:
    """Record that a file was created or is being changed."""
    for paths in _NOTED:
        paths.add(path)
