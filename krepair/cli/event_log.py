"""The log of a run, for ``--verbose`` and ``--log FILE``: a line for each event, with its time in UTC.

Every package writes to the standard logger of its own module. Without these options nothing is printed, and no text is
formatted for it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from krepair.durable.output_file import OutputKind, place_of
from krepair.errors import UnwritableError
from krepair.formats.words import time_text
from krepair.next_command import Next
from krepair.options import Options
from krepair.plan.view import visible

LOGGER: Final = logging.getLogger("krepair")
_LOG: Final = OutputKind(option="--log", what="logs", first=b"")


class _Line(logging.Formatter):
    """Formatter of one event: time, package, what happened; never more than one line."""

    def format(self, record: logging.LogRecord) -> str:
        package = record.name.partition(".")[2].partition(".")[0]
        return f"{time_text(int(record.created * 1000))} {package}: {visible(record.getMessage())}"


class _Lines(logging.StreamHandler):  # type: ignore[type-arg]
    """Handler that never ends a run: if a line cannot be written, one warning is printed."""

    gone = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Say once that the log has gaps."""
        if not self.gone:
            self.gone = True
            with contextlib.suppress(OSError):
                sys.stderr.write(f"krepair: the log has gaps: {sys.exc_info()[1]}\n")


@contextlib.contextmanager
def logged(verb: str, options: Options, log_dirs: Sequence[str]) -> Iterator[None]:
    """Write the events of a run to stderr (``--verbose``) and to a file (``--log``), which is appended to.

    Raises:
        RefusedError: the file would lie in a log directory.
        UsageError: its folder does not exist.
        UnwritableError: it cannot be opened.
    """
    handlers: list[logging.Handler] = [_Lines(sys.stderr)] if options.verbose else []
    if options.log:
        handlers.append(_Lines(_opened(options.log, log_dirs)))
    if not handlers:
        yield
        return
    for handler in handlers:
        handler.setFormatter(_Line())
        LOGGER.addHandler(handler)
    level = LOGGER.level
    LOGGER.setLevel(logging.INFO)
    began = time.monotonic()
    LOGGER.info(
        "krepair %s of %s begins, process %d, user %d", verb, ", ".join(log_dirs), os.getpid(), os.geteuid()
    )
    try:
        yield
    except BaseException as error:
        LOGGER.info("stopped: %s", str(error) or type(error).__name__)
        raise
    finally:
        LOGGER.info("krepair %s ends after %.1f s", verb, time.monotonic() - began)
        LOGGER.setLevel(level)
        for handler in handlers:
            LOGGER.removeHandler(handler)
            if isinstance(handler, _Lines) and handler.stream is not sys.stderr:
                with contextlib.suppress(OSError):
                    handler.stream.close()


def _opened(path: str, log_dirs: Sequence[str]):  # type: ignore[no-untyped-def]
    target = place_of(_LOG, path, log_dirs)
    try:
        return open(target, "a", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UnwritableError(
            f"{path}: the log cannot be opened: {error.strerror or error}",
            next_command=Next.by_hand("the same command with another file after --log"),
        ) from error
