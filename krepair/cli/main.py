"""The command ``krepair``: its verbs, and the one place where an exit code leaves the process."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, NoReturn, cast

import typer
from typer.core import TyperGroup

from krepair import __version__
from krepair.cli.options import VerbCommand, read_plainly
from krepair.cli.outcome import VERBS, announce, guarded

# krepair never calls numpy's linear algebra. Without this setting it starts a thread, with a stack, for each processor.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
read_plainly()

_OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000


class Verbs(Mapping[str, Any]):
    """Commands by name of the verb, as typer builds them from the functions in ``krepair.cli.verbs``."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, verb: str) -> Any:
        """Return the command of a verb, building it on first use.

        Raises:
            KeyError: there is no such verb.
        """
        if verb not in VERBS:
            raise KeyError(verb)
        if verb not in self._loaded:
            from krepair.cli import verbs

            # Given a single function, typer builds its command alone, without a group around it.
            alone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
            alone.command(verb, cls=VerbCommand)(getattr(verbs, verb))
            self._loaded[verb] = typer.main.get_command(alone)
        return self._loaded[verb]

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


class KrepairGroup(TyperGroup):
    """Group of verbs whose errors become krepair's exit codes, wherever the command is called from."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast("dict[str, Any]", Verbs())

    def main(self, args: Sequence[str] | None = None, *_rest: Any, **_options: Any) -> NoReturn:
        """Run and exit the process; typer itself would treat Ctrl-C and a closed pipe in its own way.

        Raises:
            SystemExit: always, with a code of ``krepair.errors.ExitCode`` or 128 + a signal's number.
        """
        arguments = list(sys.argv[1:] if args is None else args)
        announce(arguments)

        def run() -> Any:
            with self.make_context("krepair", list(arguments)) as context:
                return self.invoke(context)

        sys.exit(guarded(run, arguments))


app = typer.Typer(
    cls=KrepairGroup,
    name="krepair",
    help="Repairs and rewrites Apache Kafka log directories offline: check, plan, review, apply, verify, "
    "undo.",
    # Plain help: importing rich would take longer than everything else.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(*, wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"krepair {__version__}\n")
        raise typer.Exit(0)


@app.callback()
def krepair(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=lambda value: _show_version(wanted=value), is_eager=True)
    ] = False,
) -> None:
    """Repairs and rewrites Apache Kafka log directories offline: check, plan, review, apply, verify, undo."""


def _run() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    app()


def main() -> NoReturn:
    """Run the command line; ``krepair.__main__`` calls this."""
    # Loaded objects stay alive: searching them for garbage repeatedly, and again at the end, took a sixth of a short
    # run.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    try:
        # Ctrl-C may arrive before the arguments are parsed, when nothing has begun.
        sys.exit(guarded(_run, sys.argv[1:]))
    finally:
        gc.freeze()
