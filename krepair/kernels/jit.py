"""The one way a function becomes machine code.

One decorator, so that the compiler's settings are stated once. No fast-math, no parallel loops: a kernel works on one
window and the pipeline runs many of them. Compiled code is cached beside the source (or in the user's cache folder
where that is not writable), so that only the first run on a machine compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile ``function`` on first use, cached on disk, without the interpreter lock."""
    return numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False)(function)  # type: ignore[no-any-return]


def inlined(function: Function) -> Function:
    """Compile ``function`` so that LLVM may inline it into the kernels that call it."""
    return numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False, inline="always")(function)  # type: ignore[no-any-return]
