"""In which order the files of the suite run: what waits for a JVM beside what computes, the quick ones last."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, groupby, zip_longest

import pytest

WAITS = ("broker", "spark")
"""Marks of tests that mostly wait: a broker takes a fifth of a core."""


def ordered(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The same tests, file by file: one file that waits and one that computes in turn, large ones first.

    A file stays together, since it shares what it starts. With as many test processes as cores the machine is idle
    while a broker shuts down; and a large file that comes last is waited for by all other processes.
    """
    files = [list(of_file) for _, of_file in groupby(items, key=lambda item: item.path)]
    files.sort(key=_weight, reverse=True)
    waiting = [file for file in files if _marked(file, WAITS)]
    computing = [file for file in files if not _marked(file, WAITS)]
    turns = zip_longest(waiting, computing, fillvalue=[])
    return [item for file in chain.from_iterable(turns) for item in file]


def _weight(file: list[pytest.Item]) -> tuple[int, int]:
    return _marked(file, (*WAITS, "slow")), len(file)


def _marked(file: list[pytest.Item], marks: tuple[str, ...]) -> int:
    return sum(any(item.get_closest_marker(mark) for mark in marks) for item in file)
