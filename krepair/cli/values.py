"""Typed words stay words: typer reads every value through pydantic, whose loading costs a third of a short run.

krepair's options are text and numbers, and the verbs read the text themselves. What is neither still goes typer's own
way, and a typer that makes its readers elsewhere than this one does as it always did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from typer import BadParameter, core

_MAKER: Final = "build_runtime_param"
"""Typer's name for what makes the reader of a parameter."""


class PlainText:
    """Reads the values of one parameter.

    Args:
        descriptor: what typer knows of its type.
        typers_own: makes the reader that typer would have taken.
    """

    def __init__(self, descriptor: Any, typers_own: Callable[[Any], Any]) -> None:
        self._descriptor, self._typers_own = descriptor, typers_own

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the verb gets it."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        kind = self._descriptor.annotation
        if kind is str and isinstance(value, str):
            return value
        if kind == list[str] and isinstance(value, list | tuple):
            return list(value)
        if kind is int and isinstance(value, int | str):
            try:
                return int(value)
            except ValueError:
                raise BadParameter(
                    f"a whole number was expected, not {value!r}", ctx=ctx, param=param
                ) from None
        return self._typers_own(self._descriptor).coerce(value, param=param, ctx=ctx)


def read_plainly() -> None:
    """From now on typer takes ``PlainText``."""
    typers_own = getattr(core, _MAKER, None)
    if typers_own is not None:
        setattr(core, _MAKER, lambda descriptor: PlainText(descriptor, typers_own))
