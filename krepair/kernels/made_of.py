"""Compute a digest of a kernel's code: two kernels with the same digest become the same machine code.

The digest covers the kernel's own code, the code of every function that it calls or inlines, and the constants that all
of these read, because the compiler puts the constants into the code. Comments, docstrings and moved lines are ignored.
"""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np

_OWN: Final = __name__.partition(".")[0]
_CONSTANT: Final = (bool, int, float, str, bytes, type(None), np.generic)


def made_of(function: FunctionType) -> str:
    """Return the digest of a function and of all krepair code that it calls, inlines or reads.

    Args:
        function: the Python function; numba's dispatchers represent the functions that they compile.

    Returns:
        64 hex digits.

    Raises:
        TypeError: the function reads a value of a type whose machine code depends on unknown things.
    """
    digest = hashlib.sha256()
    for part in _parts(function, set()):
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def _parts(function: FunctionType, visited: set[int]) -> Iterator[str]:
    """Yield the texts that identify a function, each function once."""
    if id(function) in visited:
        yield function.__qualname__
        return
    visited.add(id(function))
    yield from _code(function.__code__, function.__doc__)
    for number, default in enumerate(function.__defaults__ or ()):
        yield from _value(f"default {number}", default, visited)
    for name, default in sorted((function.__kwdefaults__ or {}).items()):
        yield from _value(name, default, visited)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield from _value(name, cell.cell_contents, visited)
    names = sorted(set(_names(function.__code__)))
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            yield from _module(name, value, names, visited)
        elif name in function.__globals__:
            yield from _value(name, value, visited)


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and of attributes in the code."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _code(code: CodeType, doc: str | None) -> Iterator[str]:
    """Yield the instructions and the constants in them, without line numbers and without the docstring."""
    yield f"{code.co_code.hex()} {code.co_exceptiontable.hex()} {code.co_flags} {code.co_argcount}"
    yield f"{code.co_names} {code.co_varnames} {code.co_freevars} {code.co_cellvars}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant, None)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant)))
        elif doc is None or constant != doc:
            yield f"{type(constant).__name__} {constant!r}"


def _module(name: str, module: ModuleType, names: list[str], visited: set[int]) -> Iterator[str]:
    """Yield what a function with these names may read from a module; a foreign module's name is enough."""
    yield f"{name} is {module.__name__}"
    if module.__name__.partition(".")[0] == _OWN:
        for attribute in sorted(vars(module).keys() & set(names)):
            value = vars(module)[attribute]
            if isinstance(value, (*_CONSTANT, np.ndarray)) or hasattr(value, "py_func"):
                yield from _value(f"{name}.{attribute}", value, visited)


def _value(name: str, value: Any, visited: set[int]) -> Iterator[str]:
    yield name
    written = getattr(value, "py_func", None) or getattr(value, "_defn", None) or value
    if isinstance(written, FunctionType) and not _of_the_compiler(written.__module__):
        yield from _parts(written, visited)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype.str} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    elif isinstance(value, (tuple, list)):
        for number, item in enumerate(value):
            yield from _value(f"{name}[{number}]", item, visited)
    elif isinstance(value, _CONSTANT):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, (type, FunctionType, BuiltinFunctionType, np.ufunc)):
        yield f"{getattr(value, '__module__', builtins.__name__)}.{value.__name__}"
    elif _of_the_compiler(type(value).__module__):
        yield f"{type(value).__qualname__} {value!s}"
    else:
        raise TypeError(f"{name}: it is not known how a value of {type(value).__qualname__} is compiled")


def _of_the_compiler(module: str) -> bool:
    """Return whether a module is the compiler's. The name of the set contains its version, so its code need not."""
    return module.partition(".")[0] in {"numba", "llvmlite"}
