"""Counts calls of the operating system that this process makes on files, by name."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from krepair.durable import tree

_NAMES = {
    "stat": "stat",
    "lstat": "stat",
    "fstat": "stat",
    "open": "open",
    "close": "close",
    "fsync": "fsync",
}
Counts = Counter[str]


@contextmanager
def counted() -> Iterator[Counts]:
    """Counts ``open`` (``openat2`` as well), ``stat`` of any kind, ``close`` and ``fsync`` while the body runs.

    The ``lstat`` of each entry of a listed folder is not counted: it is made inside of ``os.scandir``.
    """
    counts: Counts = Counter()

    def counting(real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            counts[name] += 1
            return real(*given, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for call, name in _NAMES.items():
            patch.setattr(os, call, counting(getattr(os, call), name))
        patch.setattr(tree, "_openat2", counting(tree._openat2, "open"))
        yield counts


def before_open(patch: pytest.MonkeyPatch, act: Callable[[str, int], object]) -> None:
    """From here on, name and flags are handed over before each ``os.open``, which fails as that does."""
    real = os.open

    def opening(name: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        act(os.fspath(name), flags)
        return real(name, flags, mode, dir_fd=dir_fd)

    patch.setattr(os, "open", opening)


def fail_to_open(patch: pytest.MonkeyPatch, failing: str, code: int, *, spared: int = 0) -> Counts:
    """From here on, the system does not give files of this name, but for the first times; counts all times by name."""
    counts: Counts = Counter()

    def act(name: str, _: int) -> None:
        base = os.path.basename(name)
        counts[base] += 1
        if base == failing and counts[base] > spared:
            raise OSError(code, os.strerror(code), name)

    before_open(patch, act)
    return counts


def for_each(work: Callable[[int], object], few: int = 2, many: int = 6) -> dict[str, float]:
    """Calls for each partition: the work on many of them less that on a few, by name.

    Args:
        work: gets a number of partitions.
        few: of the smaller run.
        many: of the larger run.
    """
    seen = []
    for number in (few, few, many):  # what is loaded or compiled once is left out
        with counted() as counts:
            work(number)
        seen.append(counts)
    return {name: (seen[2][name] - seen[1][name]) / (many - few) for name in sorted(seen[2])}
