"""Decorators that mark functions as kernels, which become machine code when they are first called.

Loading the compiler takes longer than most runs of krepair, and many runs need no kernel. So the decorators here only
register a function. ``machine`` compiles it, or loads it from the cache.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any, Final, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

KERNELS: Final[dict[str, Kernel]] = {}
"""``module.function`` -> kernel, for all imported modules; without functions that are only inlined."""


class Deferred:
    """A name in a kernel that must be replaced by something numba knows, before the kernel can be compiled."""

    def machine(self) -> Any:
        """Return the replacement that numba knows."""
        raise NotImplementedError


class Word(Deferred):
    """A name from ``krepair.kernels.instructions``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def machine(self) -> Any:
        """Return the instruction, or the function of a few instructions."""
        return getattr(importlib.import_module("krepair.kernels.instructions"), self._name)


class Kernel(Deferred):
    """A function that is compiled when it is first called.

    Attributes:
        py_func: the Python function as it was written.
        takes: types of its arguments, in the words of ``warming``; one text for each combination that is used.

    Args:
        function: Python function to compile.
        how: name of the function in ``machine`` that builds the dispatcher.
    """

    def __init__(self, function: Callable[..., Any], how: str, takes: tuple[str, ...] = ()) -> None:
        self.py_func = cast("FunctionType", function)
        self.takes = takes
        self._how = how
        self._machine: Any = None
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Run the machine code."""
        return (self._machine or self.machine())(*arguments)

    def signatures(self) -> list[Any]:
        """Return the argument types of all calls in this process, one tuple for each combination."""
        return [] if self._machine is None else list(self._machine.signatures)

    def machine(self) -> Any:
        """Return numba's dispatcher. The first call replaces deferred names in the function's module."""
        if self._machine is None:
            machine = importlib.import_module("krepair.kernels.machine")
            names = self.py_func.__globals__
            for name in _names_in(self.py_func.__code__):
                if isinstance(names.get(name), Deferred):
                    names[name] = names[name].machine()
            self._machine = getattr(machine, self._how)(self.py_func)
        return self._machine


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def kernel(takes: str, *others: str) -> Callable[[Function], Function]:
    """Mark a function as a kernel: compiled on first use, cached on disk, run without the interpreter lock.

    Args:
        takes: the types of its arguments, as ``"bytes, long"``, for ``krepair warm``. A call with other types compiles
            the kernel again; a test finds such calls.
        others: further combinations of types.
    """

    def mark(function: Function) -> Function:
        made = Kernel(function, "kernel", (takes, *others))
        KERNELS[f"{function.__module__.rpartition('.')[2]}.{function.__name__}"] = made
        return cast("Function", made)

    return mark


def inlined(function: Function) -> Function:
    """Mark a function as a part of kernels: LLVM inlines its code into the kernels that call it."""
    return cast("Function", Kernel(function, "inlined"))


def inlined_by_numba(function: Function) -> Function:
    """Mark a function that numba inlines, because it runs for each batch of a log.

    It runs a few per cent faster than with ``inlined``, and compiles twice as long; ``python -m tools.bench.kernels``
    shows both.
    """
    return cast("Function", Kernel(function, "inlined_by_numba"))
