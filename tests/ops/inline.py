"""The verbs as most tests call them: in this process, with the options that a file of tests has in common."""

from __future__ import annotations

from pathlib import Path

from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.reports import LogDirReport
from krepair.options import Engine, Options
from krepair.plan.model import Plan


class Inline:
    """Verbs under common options; each call may change some of them.

    Args:
        common: of ``Options``.
    """

    def __init__(self, **common: object) -> None:
        self._common = {"engine": Engine.INLINE} | common

    def options(self, **changed: object) -> Options:
        """What the command line would hand over."""
        return Options(**(self._common | changed))  # type: ignore[arg-type]

    def checked(self, log_dir: Path, **changed: object) -> LogDirReport:
        """What ``krepair check`` says of one log directory."""
        return check([str(log_dir)], self.options(**changed)).log_dirs[0]

    def planned(self, log_dir: Path, **changed: object) -> Plan:
        """``krepair plan``."""
        return make_plan(str(log_dir), self.options(**changed))
