"""The end of a run: one page or one document, and an exit code; an error never shows a traceback."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TextIO

import typer

from krepair.durable.writing_error import WritingError
from krepair.errors import ExitCode, KrepairError, UnwritableError, UsageError
from krepair.kernels import waiting
from krepair.next_command import NOTHING, Next, of_error
from krepair.options import Options
from krepair.plan.view import View, typable, visible

INTERRUPTED_BY_SIGNAL: Final = 130
BROKEN_PIPE: Final = 141
VERBS: Final = (
    "check",
    "plan",
    "show",
    "apply",
    "verify",
    "undo",
    "purge",
    "diff",
    "dump",
    "groups",
    "transactions",
    "compare",
    "facts",
    "explain",
    "warm",
)
CHANGING_VERBS: Final = ("apply", "undo", "purge")
_AGAIN: Final = Next.by_hand("run the same command again: it resumes where it stopped")
OUTPUT: Final = "standard output"
NO_FILE: Final = "a call that names no file"
_OF_AN_OUTPUT: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EFBIG})
ONE_OBJECT_A_LINE: Final = ("dump",)
DEBUG_VARIABLE: Final = "KREPAIR_DEBUG"


def finish(
    verb: str,
    report: Any,
    page: Callable[[], View],
    options: Options,
    exit_code: ExitCode | None = None,
) -> NoReturn:
    """Print what a verb returned, and leave with its exit code.

    Args:
        verb: verb as the operator typed it.
        report: any msgspec value, which the JSON document contains.
        page: function that builds the page, called only if it is printed.
        options: options as typed, which choose between page, JSON document, Markdown ticket and nothing.
        exit_code: exit code if it is not the report's; a report without one ends with DONE.

    Raises:
        typer.Exit: always.
    """
    if exit_code is None:
        exit_code = getattr(report, "exit_code", ExitCode.DONE)
    try:
        if options.json:
            from krepair.cli.views import writers

            writers.write(writers.report_document(verb, report, exit_code))
        elif not options.quiet:
            from krepair.cli.views.writers import print_markdown, print_view

            (print_markdown if options.ticket_format == "md" else print_view)(page())
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise UnwritableError(
            f"{OUTPUT}: could not be written: {error.strerror}; krepair {verb} itself ended with code {int(exit_code)}"
        ) from error
    raise typer.Exit(int(exit_code))


def guarded(run: Callable[[], Any], arguments: Sequence[str]) -> int:
    """Run the command line and turn every end into an exit code.

    Args:
        run: function that calls typer without its error handling, and returns the exit code or None.
        arguments: arguments as typed, which give the verb and whether JSON is wanted before anything is parsed.

    Returns:
        The exit code.
    """
    _open_closed_outputs()
    try:
        try:
            code = run()
        except typer.Exit as end:
            code = end.exit_code
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # the last line of defence
        return _failed(arguments, error)
    return code if isinstance(code, int) else int(ExitCode.DONE)


def exit_code_of(error: BaseException, verb: str) -> int:
    """Return the exit code of a run that ends with an error.

    A refusal by the operating system is not a bug in krepair, wherever it occurs; a verb that changes something may
    then be half done.
    """
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, KrepairError):
        return int(error.exit_code)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED_BY_SIGNAL
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    if isinstance(error, OSError | MemoryError):
        if _is_of_an_output(error):
            return int(ExitCode.UNWRITABLE)
        if verb in CHANGING_VERBS:
            return int(ExitCode.PARTLY)
        return int(ExitCode.UNWRITABLE if isinstance(error, WritingError) else ExitCode.UNREADABLE)
    return int(ExitCode.USAGE if _is_of_usage(error) else ExitCode.BUG)


def _is_of_an_output(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.filename is None and error.errno in _OF_AN_OUTPUT


def _is_of_usage(error: BaseException) -> bool:
    """Return whether an error is one of typer's own usage errors: no other error has this method."""
    return hasattr(error, "format_message")


def _open_closed_outputs() -> None:
    """Open a replacement for a closed output: Python has none, and a new file would take its number."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            # Open for reading only, so that a write fails as it would on the closed output.
            taken = os.open(os.devnull, os.O_RDONLY)
            if taken != number:
                os.dup2(taken, number)
                os.close(taken)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))


def _give_up(output: TextIO) -> None:
    """Discard all further output, even that of the interpreter at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, output.fileno())
    os.close(null)


def _failed(arguments: Sequence[str], error: BaseException) -> int:
    if isinstance(error, BrokenPipeError):
        # The reader has left (as `| head` does).
        _give_up(sys.stdout)
        return BROKEN_PIPE
    known = isinstance(error, KrepairError | KeyboardInterrupt) or _is_of_usage(error)
    if not known and os.environ.get(DEBUG_VARIABLE) == "1":
        traceback.print_exc()
    verb = _verb(arguments)
    return _tell(arguments, *_words(error, verb), exit_code_of(error, verb))


def _words(error: BaseException, verb: str) -> tuple[str, Next]:
    """Return what went wrong, and the next command."""
    if isinstance(error, KrepairError):
        return error.message, of_error(error) or (
            _help_of(verb) if isinstance(error, UsageError) else NOTHING
        )
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", Next.by_hand("run the same command again")
    half_done = "; it may be half done" if verb in CHANGING_VERBS else ""
    if isinstance(error, MemoryError):
        # A limit of the process or of the machine (ulimit -v, no overcommit).
        more = "free memory, or raise the limit of this process (ulimit -v), and run the same command again"
        return (
            f"not enough memory: {str(error) or 'the operating system refused to allocate any'}{half_done}",
            Next.by_hand(more),
        )
    if isinstance(error, OSError):
        words = error.strerror or str(error) or type(error).__name__
        code = errno.errorcode.get(error.errno or 0, "")
        named = f"{words} ({code})" if code else words
        if _is_of_an_output(error):
            return f"{OUTPUT}: could not be written: {named}", NOTHING
        where = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else NO_FILE
        if isinstance(error, WritingError) and not half_done:
            return f"{where}: {named}", NOTHING
        return f"{where}: the operating system says: {named}{half_done}", _AGAIN if half_done else NOTHING
    if _is_of_usage(error):
        text: str = error.format_message()  # type: ignore[attr-defined]
        return text, _help_of(verb)
    cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return (
        f"an error of krepair itself, please report it: {' '.join(cause.split())}",
        Next.by_hand(f"{DEBUG_VARIABLE}=1 with the same command shows where"),
    )


def _help_of(verb: str) -> Next:
    return Next.of(verb, "--help") if verb in VERBS else Next.of("--help")


def _tell(arguments: Sequence[str], message: str, next_command: Next, exit_code: int) -> int:
    try:
        if "--json" in arguments:
            from krepair.cli.views import writers

            verb = _verb(arguments)
            writers.write(
                writers.error_document(
                    verb, message, next_command, exit_code, one_line=verb in ONE_OBJECT_A_LINE
                )
            )
        sys.stdout.flush()
    except OSError:
        _give_up(sys.stdout)
    lines = [f"krepair: {visible(message)}"]
    if next_command:
        lines.append(f"next: {typable(next_command)}")
    text = "\n".join(lines) + "\n"
    encoding = sys.stderr.encoding or "utf-8"
    try:
        sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()
    except OSError:
        _give_up(sys.stderr)  # the exit code still reports the result
    return exit_code


def _verb(arguments: Sequence[str]) -> str:
    return next((argument for argument in arguments if not argument.startswith("-")), "")


# -- one line on standard error while a run waits for the compiler

_SILENT: Final = frozenset({"--json", "--quiet", "-q"})


def announce(arguments: Sequence[str]) -> None:
    """Tell a person who waits for the compiler, unless the command line asks for silence."""
    waiting.tell(None if _SILENT.intersection(arguments) else say_of_a_run)


def say_of_a_run() -> None:
    """Print the line for a verb that compiles the kernels that it calls."""
    _say_line("compiling what this run needs to machine code, once; `krepair warm` does it in advance")


def say_of_warm(kernels: int) -> None:
    """Print the line for ``krepair warm``, which compiles ``kernels`` kernels."""
    _say_line(f"compiling {kernels} kernels to machine code; all of them take about a minute of CPU time")


def _say_line(line: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
