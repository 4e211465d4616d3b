"""The verbs, each loaded when it is called: a run needs one of them, and only help needs all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import typer
from typer import BadParameter, core
from typer.core import TyperCommand

from krepair.cli.outcome import VERBS
from krepair.errors import UsageError


class VerbCommand(TyperCommand):
    """A verb that refuses what cannot be meant: of a value that is typed twice typer would take the last one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What typer does, after a look at what was typed.

        Raises:
            UsageError: an option that takes one value is typed twice.
        """
        _, _, typed = self.make_parser(ctx).parse_args(list(args))
        counts = Counter(one.name for one in typed if _takes_one_value(one))
        for one in typed:
            count = counts[one.name]
            if count > 1:
                times = "twice" if count == 2 else f"{count} times"
                raise UsageError(
                    f"{one.opts[0]} is given {times}: it takes one value, so only the last one would count; give it "
                    "once",
                    next_command=f"krepair {self.name} --help",
                )
        return super().parse_args(ctx, args)


def _takes_one_value(parameter: Any) -> bool:
    return parameter.param_type_name == "option" and not (parameter.multiple or parameter.is_flag)


class Verbs(Mapping[str, Any]):
    """Name of a verb -> its command, as typer makes it of the function of that name in the module of that name."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, verb: str) -> Any:
        """The command.

        Raises:
            KeyError: there is no such verb.
        """
        if verb not in VERBS:
            raise KeyError(verb)
        if verb not in self._loaded:
            function = getattr(import_module(f"krepair.cli.{verb}"), verb)
            # Of a single function typer makes its command, without a group around it.
            alone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
            alone.command(verb, cls=VerbCommand)(function)
            self._loaded[verb] = typer.main.get_command(alone)
        return self._loaded[verb]

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


# -- typed words stay words: typer reads every value through pydantic, whose loading costs a third of a short run

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
