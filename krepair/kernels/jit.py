"""The one way a function becomes machine code: when it is first called, and not before.

Loading the compiler takes longer than most runs of krepair, and many need no kernel. So a decorated function only
remembers what it is; ``machine`` compiles it, or takes it from the cache.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any, Final, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

KERNELS: Final[dict[str, Kernel]] = {}
"""Every kernel that was imported, by ``module.function``, without those that are only inlined into others."""


class Deferred:
    """Something that numba must know before a kernel that names it can be compiled."""

    def machine(self) -> Any:
        """What numba knows."""
        raise NotImplementedError


class Word(Deferred):
    """A name in ``krepair.kernels.instructions``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def machine(self) -> Any:
        """The instruction, or the function of a few of them."""
        return getattr(importlib.import_module("krepair.kernels.instructions"), self._name)


class Kernel(Deferred):
    """A function that is compiled when it is first called.

    Attributes:
        py_func: as it was written.
    """

    def __init__(self, function: Callable[..., Any], *, inline: bool) -> None:
        self.py_func = cast("FunctionType", function)
        self._inline = inline
        self._machine: Any = None
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Run the machine code."""
        return (self._machine or self.machine())(*arguments)

    def signatures(self) -> list[Any]:
        """Types of the arguments with which it was called in this process."""
        return [] if self._machine is None else list(self._machine.signatures)

    def machine(self) -> Any:
        """The dispatcher that numba makes; what the function names is put in its module's globals first."""
        if self._machine is None:
            machine = importlib.import_module("krepair.kernels.machine")
            names = self.py_func.__globals__
            for name in _names_in(self.py_func.__code__):
                if isinstance(names.get(name), Deferred):
                    names[name] = names[name].machine()
            self._machine = (machine.inlined if self._inline else machine.kernel)(self.py_func)
        return self._machine


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def kernel(function: Function) -> Function:
    """Compile ``function`` on first use, cached on disk, without the interpreter lock."""
    made = Kernel(function, inline=False)
    KERNELS[f"{function.__module__.rpartition('.')[2]}.{function.__name__}"] = made
    return cast("Function", made)


def inlined(function: Function) -> Function:
    """Compile ``function`` so that LLVM may inline it into the kernels that call it."""
    return cast("Function", Kernel(function, inline=True))
