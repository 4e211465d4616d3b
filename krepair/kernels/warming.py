"""Compiles every kernel ahead of its first call, into a folder that all users may read: ``krepair warm``."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from numba.core.sigutils import normalize_signature

from krepair.kernels.jit import KERNELS
from krepair.kernels.machine import CACHE, PROCESSORS, saved_as
from krepair.kernels.signatures import SIGNATURES

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
    kind = spelled.removeprefix(_READ_ONLY)
    (found,), _ = normalize_signature(f"({kind},)")
    return found if kind == spelled else found.copy(readonly=True)


def warm(path: str, told: Callable[[], None]) -> Warmed:
    """Put machine code of every kernel into a folder that all users may read.

    Args:
        path: path of the folder.
        told: called after each kernel.

    Raises:
        OSError: the folder cannot be made, or somebody else may write there too.
    """
    folder = CACHE.keep_for_everybody(path)
    compiled = payload_bytes = 0
    for name, spelled in SIGNATURES:
        importlib.import_module(f"krepair.kernels.{name.partition('.')[0]}")
        signature = types_of(spelled)
        machine = KERNELS[name].machine()
        file = saved_as(machine, signature)
        payload = CACHE.load(file)
        if payload is None:
            machine.compile(signature)
            compiled += 1
        else:
            CACHE.save(file, payload)
        payload_bytes += os.stat(os.path.join(folder, file)).st_size
        told()
    return Warmed(folder, len(SIGNATURES), compiled, payload_bytes, PROCESSORS)
