"""Compile every kernel ahead of its first call, into a folder that all users may read: ``krepair warm``."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pkgutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numba
from numba import from_dtype

from krepair import kernels
from krepair.kernels import waiting
from krepair.kernels.columns import BATCH
from krepair.kernels.jit import KERNELS
from krepair.kernels.machine import CACHE, PROCESSORS, saved_as

_TYPES: Final = {
    "flag": numba.boolean,
    "long": numba.int64,
    "word": numba.uint64,
    "flags": numba.boolean[::1],
    "bytes": numba.uint8[::1],
    "ints": numba.int32[::1],
    "longs": numba.int64[::1],
    "words": numba.uint64[::1],
    "rows": numba.int64[:, ::1],
    "word rows": numba.uint64[:, ::1],
    "batches": from_dtype(BATCH)[::1],
}
"""Word of ``jit.kernel`` -> type; ``fixed`` in front of it means an array that is only read."""
_FIXED: Final = "fixed "


@dataclass(frozen=True)
class Warmed:
    """Result of ``warm``.

    Attributes:
        folder: path of the folder with the machine code.
        kernels: number of all kernels.
        compiled: number of kernels that were compiled now; the others came from a cache.
        payload_bytes: bytes of all files.
        processors: level of the processors on which the code runs, or the name of this processor.
    """

    folder: str
    kernels: int
    compiled: int
    payload_bytes: int
    processors: str


def types_of(takes: str) -> tuple[Any, ...]:
    """Return numba's types for the arguments of a kernel."""
    return tuple(map(_type_of, takes.split(", ")))


def _type_of(word: str) -> Any:
    plain = _TYPES[word.removeprefix(_FIXED)]
    return plain.copy(readonly=True) if word.startswith(_FIXED) else plain


def all_kernels() -> list[tuple[str, str]]:
    """Return the name of each kernel with its argument types; a kernel with two sets of types appears twice."""
    for module in pkgutil.iter_modules(kernels.__path__):
        importlib.import_module(f"{kernels.__name__}.{module.name}")
    return [(name, takes) for name, kernel in KERNELS.items() for takes in kernel.takes]


def warm(path: str, on_compile: Callable[[int], None]) -> Warmed:
    """Put the machine code of every kernel into a folder that all users may read, with one process for each core.

    Args:
        path: path of the folder.
        on_compile: called with the number of kernels that have to be compiled, if there are any.

    Raises:
        OSError: the folder cannot be made, or another user may write there too.
    """
    folder = CACHE.keep_for_everybody(path)
    wanted = all_kernels()
    missing = [row for row in wanted if not _kept(*row)]
    _compile_all(missing, on_compile)
    payload_bytes = sum(os.stat(os.path.join(folder, _file(*row))).st_size for row in wanted)
    return Warmed(folder, len(wanted), len(missing), payload_bytes, PROCESSORS)


def _file(name: str, takes: str) -> str:
    return saved_as(KERNELS[name].machine(), types_of(takes))


def _kept(name: str, takes: str) -> bool:
    """Save a kernel from another cache to the folder; return whether a cache has it."""
    file = _file(name, takes)
    payload = CACHE.load(file)
    if payload is not None:
        CACHE.save(file, payload)
    return payload is not None


def _compile_all(missing: list[tuple[str, str]], on_compile: Callable[[int], None]) -> None:
    """Compile kernels, all of a module in one process, because they share the functions that they call."""
    by_module: dict[str, list[tuple[str, str]]] = {}
    for name, takes in missing:
        by_module.setdefault(name.partition(".")[0], []).append((name, takes))
    jobs = sorted(by_module.values(), key=_size, reverse=True)
    if not jobs:
        return
    on_compile(len(missing))
    # Children are forked, because they need everything that is loaded by now. No thread runs yet.
    with ProcessPoolExecutor(
        min(len(jobs), len(os.sched_getaffinity(0))), multiprocessing.get_context("fork")
    ) as processes:
        list(processes.map(_compile, jobs))


def _size(rows: list[tuple[str, str]]) -> int:
    """Estimate the time of compiling some kernels, so that the longest job can begin first."""
    return sum(len(KERNELS[name].py_func.__code__.co_code) for name, _ in rows)


def _compile(rows: list[tuple[str, str]]) -> None:
    waiting.tell(None)  # the parent tells
    for name, takes in rows:
        KERNELS[name].machine().compile(types_of(takes))
