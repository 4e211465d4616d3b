"""Compiles every kernel ahead of its first call, into a folder that all users may read: ``krepair warm``."""

from __future__ import annotations

import importlib
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Final

from numba import from_dtype
from numba.core.sigutils import normalize_signature

from krepair.kernels import waiting
from krepair.kernels.columns import BATCH
from krepair.kernels.jit import KERNELS
from krepair.kernels.machine import CACHE, PROCESSORS, saved_as
from krepair.kernels.signatures import BATCHES, SIGNATURES
from krepair.kernels.waiting import Told

_READ_ONLY: Final = "read-only "


@dataclass(frozen=True)
class Warmed:
    """Result of ``warm``.

    Attributes:
        folder: path of the folder with the machine code.
        kernels: number of kernels.
        compiled: how many of them were compiled now; the others came from a cache.
        payload_bytes: bytes of all files.
        processors: level of the processors on which the code runs, or the name of this processor.
    """

    folder: str
    kernels: int
    compiled: int
    payload_bytes: int
    processors: str


def types_of(spelled: tuple[str, ...]) -> tuple[Any, ...]:
    """The argument types of a row of ``SIGNATURES`` as types of numba."""
    return tuple(map(_type_of, spelled))


def _type_of(spelled: str) -> Any:
    if spelled == BATCHES:
        return from_dtype(BATCH)[::1]
    kind = spelled.removeprefix(_READ_ONLY)
    (found,), _ = normalize_signature(f"({kind},)")
    return found if kind == spelled else found.copy(readonly=True)


def warm(path: str, told: Told) -> Warmed:
    """Put machine code of every kernel into a folder that all users may read, in as many processes as there are cores.

    Args:
        path: path of the folder.
        told: called after each module with kernels that were compiled.

    Raises:
        OSError: the folder cannot be made, or somebody else may write there too.
    """
    folder = CACHE.keep_for_everybody(path)
    missing = [(name, spelled) for name, spelled in SIGNATURES if not _kept(name, spelled)]
    _compile_all(missing, told)
    payload_bytes = sum(os.stat(os.path.join(folder, _file(*row))).st_size for row in SIGNATURES)
    return Warmed(folder, len(SIGNATURES), len(missing), payload_bytes, PROCESSORS)


def _machine(name: str) -> Any:
    importlib.import_module(f"krepair.kernels.{name.partition('.')[0]}")
    return KERNELS[name].machine()


def _file(name: str, spelled: tuple[str, ...]) -> str:
    return saved_as(_machine(name), types_of(spelled))


def _kept(name: str, spelled: tuple[str, ...]) -> bool:
    """Whether some cache has this kernel; then it is put into the folder too."""
    file = _file(name, spelled)
    payload = CACHE.load(file)
    if payload is not None:
        CACHE.save(file, payload)
    return payload is not None


def _compile_all(missing: list[tuple[str, tuple[str, ...]]], told: Told) -> None:
    """Compile kernels, those of one module in one process, since they call the same functions."""
    by_module: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for name, spelled in missing:
        by_module.setdefault(name.partition(".")[0], []).append((name, spelled))
    jobs = sorted(by_module.values(), key=_size, reverse=True)
    if not jobs:
        return
    told(0, len(missing))
    # Children are forked, since they need all that is loaded by now. No thread runs yet.
    with ProcessPoolExecutor(
        min(len(jobs), len(os.sched_getaffinity(0))), multiprocessing.get_context("fork")
    ) as processes:
        done = 0
        for future in as_completed([processes.submit(_compile, job) for job in jobs]):
            done += future.result()
            told(done, len(missing))


def _size(rows: list[tuple[str, tuple[str, ...]]]) -> int:
    """About what it costs to compile kernels: the longest job has to begin first."""
    return sum(len(KERNELS[name].py_func.__code__.co_code) for name, _ in rows)


def _compile(rows: list[tuple[str, tuple[str, ...]]]) -> int:
    waiting.tell(None)  # the parent tells
    for name, spelled in rows:
        _machine(name).compile(types_of(spelled))
    return len(rows)
