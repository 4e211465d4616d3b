"""The incident report: a record of ``apply``, ``undo`` and ``purge`` that krepair keeps beside the plan file.

It begins with the short page of the plan; each run adds its time, user, result and page. It is Markdown, for a ticket.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from krepair import __version__
from krepair.durable.output_file import OutputKind, place_of
from krepair.errors import EXIT_CODE_MEANING, ExitCode
from krepair.formats.words import time_text
from krepair.plan.model import Plan
from krepair.plan.view import View, visible

SUFFIX: Final = ".report.md"
_FIRST: Final = "# Incident report of plan "
_KIND: Final = OutputKind(option="PLAN", what="reports", first=_FIRST.encode())


class Incident(NamedTuple):
    """Incident report of the runs that carry out one plan.

    Attributes:
        plan: plan that the run works on.
        path: path of its file.
    """

    plan: Plan
    path: str

    def add(
        self,
        verb: str,
        code: int,
        duration_s: float,
        page: Callable[[], View] | None,
        error: BaseException | None,
    ) -> None:
        """Add a run to the report; a failure here does not change how the run ends.

        Args:
            verb: verb as it was typed.
            code: exit code of the run.
            duration_s: seconds that it took.
            page: function that builds the page of its result, None if it has none.
            error: error that ended the run, None if it succeeded.
        """
        try:
            target = place_of(_KIND, f"{self.path}{SUFFIX}", (self.plan.log_dir,))
            with open(_descriptor(target), "r+b") as file:
                begin = file.read(len(_KIND.first))
                if begin not in {b"", _KIND.first}:
                    return  # somebody else's file of this name: never written to
                file.seek(0, os.SEEK_END)
                text = "" if begin else self._head()
                file.write(
                    (text + self._run(verb, code, duration_s, page, error)).encode(
                        "utf-8", "backslashreplace"
                    )
                )
        except Exception as problem:
            why = getattr(problem, "strerror", "") or problem
            with contextlib.suppress(OSError):
                sys.stderr.write(
                    f"krepair: {visible(self.path)}{SUFFIX}: the report cannot be written: {why}\n"
                )

    def _head(self) -> str:
        from krepair.cli.views.writers import markdown
        from krepair.plan.short import PageContext, short_page

        title = f"{_FIRST}{self.plan.plan_id}"
        page = replace(short_page(self.plan, PageContext(path=self.path)), title="The plan")
        return f"{title}\n\n#{markdown(page)}"

    def _run(
        self,
        verb: str,
        code: int,
        duration_s: float,
        page: Callable[[], View] | None,
        error: BaseException | None,
    ) -> str:
        from krepair.cli.views.writers import markdown

        meaning = EXIT_CODE_MEANING[ExitCode(code)] if code in set(ExitCode) else "a signal"
        now_ms = int(time.time() * 1000)
        title = f"{time_text(now_ms)} krepair {verb}: {code}, {meaning}"
        who = f"krepair {__version__} on {socket.gethostname()}, user {os.geteuid()}, {duration_s:.1f} s."
        message = f"\n\n{visible(str(error))}" if error is not None and page is None else ""
        body = "" if page is None else markdown(replace(page(), title="")).partition("\n")[2]
        body = body.replace("\n## ", "\n### ")
        return f"\n## {title}\n\n{who}{message}\n{body}"


def _descriptor(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
