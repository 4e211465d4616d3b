"""The verbs, each loaded when it is called: a run needs one of them, and only help needs all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer

from krepair.cli.outcome import VERBS


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
            alone.command(verb)(function)
            self._loaded[verb] = typer.main.get_command(alone)
        return self._loaded[verb]

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)
