"""Implement ``krepair warm``: compile all kernels now, so that no later run has to."""

from __future__ import annotations

import os
from collections.abc import Callable

from krepair.errors import RefusedError
from krepair.kernels.cache import INSTALLED_FOLDER, user_folders
from krepair.next_command import Next
from krepair.plan.view import NAMES_AND_VALUES, Section, View, bytes_text, table_of
from krepair.report import Report

_NEXT = Next.by_hand("krepair warm --into DIR, and KREPAIR_CACHE_DIR=DIR when krepair is used")


class WarmReport(Report, frozen=True, kw_only=True):
    """Result of ``warm``.

    Attributes:
        folder: folder of the compiled kernels.
        kernels: number of kernels there are.
        compiled: number of kernels compiled by this run; the others came from a cache.
        bytes: size of all kernels in bytes.
        processors: level of the processors on which they run, or the name of the only one.
    """

    folder: str
    kernels: int
    compiled: int
    bytes: int
    processors: str


def warm(into: str, on_kernel: Callable[[int], None] | None) -> WarmReport:
    """Compile all kernels.

    Args:
        into: folder for them; empty for the installation's own, or this user's where that cannot be written.
        on_kernel: called with the number of kernels that have to be compiled, if there are any.

    Raises:
        RefusedError: the folder cannot be made, or another user may write there too.
    """
    from krepair.kernels import warming  # late: it loads the compiler

    if into:
        folder = os.path.abspath(into)
    elif os.access(os.path.dirname(INSTALLED_FOLDER), os.W_OK):
        folder = INSTALLED_FOLDER
    else:
        folder = user_folders()[0]
    try:
        made = warming.warm(folder, on_kernel or (lambda _kernels: None))
    except OSError as error:
        raise RefusedError(
            f"{folder}: compiled kernels cannot be kept here: {error.strerror or error}", next_command=_NEXT
        ) from error
    return WarmReport(
        folder=made.folder,
        kernels=made.kernels,
        compiled=made.compiled,
        bytes=made.payload_bytes,
        processors=made.processors,
    )


def warm_view(report: WarmReport) -> View:
    """Return the report as a page."""
    rows = (
        ("folder", report.folder),
        ("kernels", f"{report.kernels}, {report.compiled} of them compiled now"),
        ("size", bytes_text(report.bytes)),
        ("for processors", report.processors),
    )
    return View(
        title="krepair warm", sections=(Section(title="Compiled", table=table_of(NAMES_AND_VALUES, rows)),)
    )
