"""The only module that calls numba's compiler, so that its settings are in one place.

There is no fast-math, and there are no parallel loops: a kernel works on one window, and an engine runs many
kernels. Machine code is made for a level of processors, not for the processor of this host, so that kernels compiled
at installation run on every host of that level.
"""

from __future__ import annotations

import pickle
import platform
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

import llvmlite
import llvmlite.binding as llvm
import numba
from numba.core import config
from numba.core.serialize import dumps

from krepair.kernels import waiting
from krepair.kernels.cache import CodeCache, digest_of, file_name
from krepair.kernels.made_of import made_of

# Microarchitecture levels of the x86-64 psABI, and the features that a processor of each level has.
_X86_LEVELS: Final = (
    ("x86-64-v3", ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2")),
    ("x86-64-v2", ("popcnt", "sse4.2", "ssse3")),
)


def processor_level() -> str:
    """Return LLVM's name of the processor level to compile for; empty: for exactly this processor."""
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return ""
    features = llvm.get_host_cpu_features()
    return next((level for level, needed in _X86_LEVELS if all(map(features.get, needed))), "")


LEVEL: Final = processor_level()
if LEVEL and config.CPU_NAME is None and config.CPU_FEATURES is None:
    # numba reads these when it compiles the first function. With no features given, it would use all of this host's.
    config.CPU_NAME, config.CPU_FEATURES = LEVEL, ""

PROCESSORS: Final = config.CPU_NAME or llvm.get_host_cpu_name()
_FEATURES: Final = (
    llvm.get_host_cpu_features().flatten() if config.CPU_FEATURES is None else config.CPU_FEATURES
)

_OPTIONS: Final = {"nogil": True, "error_model": "numpy", "_nrt": False}
_BY_LLVM: Final = {"forceinline": True}
_BY_NUMBA: Final = {"inline": "always"}

CACHE: Final = CodeCache(
    digest_of(
        sys.version,
        numba.__version__,
        llvmlite.__version__,
        f"{platform.system()} {platform.machine()} {PROCESSORS} {_FEATURES}",
        f"{config.OPT} {config.BOUNDSCHECK} {config.DISABLE_JIT} {_OPTIONS} {_BY_LLVM} {_BY_NUMBA}",
    )
)


class _FunctionCache:
    """The cache of one function, with the methods that numba calls."""

    cache_path = None

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self._made_of = ""

    def file_name(self, signature: Any) -> str:
        """Return the name of the file for a signature."""
        # Computed late: until the first call, deferred names in the function are not those that numba compiles.
        self._made_of = self._made_of or made_of(self._function)
        module = self._function.__module__.rpartition(".")[2]
        return file_name(f"{module}.{self._function.__qualname__}", str(signature), self._made_of)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the compiled function for a signature, or None."""
        payload = CACHE.load(self.file_name(signature))
        if payload is None:
            waiting.compiling()
            return None
        # numba's own cache would first load all of numba's type definitions, which machine code does not need.
        # Unpickling is safe here, because only files of this user or of root are loaded; see ``cache``.
        return numba.core.compiler.CompileResult._rebuild(target, *pickle.loads(payload))  # noqa: S301, SLF001

    def save_overload(self, signature: Any, result: Any) -> None:
        """Save the compiled function."""
        CACHE.save(self.file_name(signature), dumps(result._reduce()))  # noqa: SLF001

    def enable(self) -> None:
        """Do nothing: the cache is always on."""

    def disable(self) -> None:
        """Do nothing: the cache is always on."""

    def flush(self) -> None:
        """Do nothing: the cache saves everything at once."""


def kernel(function: FunctionType) -> Any:
    """Build the dispatcher of a kernel: compiled on first use, cached on disk, run without the interpreter lock."""
    made = numba.njit(**_OPTIONS)(function)
    if not config.DISABLE_JIT:
        made._cache = _FunctionCache(function)  # noqa: SLF001
    return made


def inlined(function: Callable[..., Any]) -> Any:
    """Build the dispatcher of a function that LLVM inlines into the kernels that call it."""
    return numba.njit(**_OPTIONS, **_BY_LLVM)(function)


def inlined_by_numba(function: Callable[..., Any]) -> Any:
    """Build the dispatcher of a function that numba inlines into its callers, before it infers the types."""
    return numba.njit(**_OPTIONS, **_BY_NUMBA)(function)


def saved_as(kernel: Any, signature: Any) -> str:
    """Return the name of the file in ``CACHE`` for a dispatcher of ``kernel`` and a signature."""
    return str(kernel._cache.file_name(signature))  # noqa: SLF001
