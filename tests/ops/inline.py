"""The verbs as most tests call them: in this process, with the options that a file of tests has in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from krepair.checks.catalogue import Finding
from krepair.commit.reports import ApplyReport
from krepair.errors import ExitCode
from krepair.findings.reports import LogDirReport
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from tests.ops.scene import tree
from tests.twins.of_plan import verified


class Inline:
    """Verbs under common options; each call may change some of them.

    Args:
        common: of ``Options``.
    """

    def __init__(self, **common: object) -> None:
        self._common = {"engine": EngineName.INLINE} | common

    def options(self, **changed: object) -> Options:
        """What the command line would hand over."""
        return Options(**(self._common | changed))  # type: ignore[arg-type]

    def checked(self, log_dir: Path, **changed: object) -> LogDirReport:
        """What ``krepair check`` says of one log directory."""
        return check([str(log_dir)], self.options(**changed)).log_dirs[0]

    def found(self, log_dir: Path, *rules: str, **changed: object) -> list[Finding]:
        """What it finds by these rules."""
        return [one for one in self.checked(log_dir, **changed).findings if one.rule in rules]

    def planned(self, log_dir: Path, **changed: object) -> Plan:
        """``krepair plan``."""
        return make_plan(str(log_dir), self.options(**changed))


@contextmanager
def there_and_back(log_dir: Path, plan: Plan, options: Options) -> Iterator[ApplyReport]:
    """The plan is applied and verified; the body says what is so then; undo gives every byte and time back."""
    before = tree(log_dir)
    report = apply(plan, options)
    assert report.exit_code == ExitCode.DONE, report.results
    assert verified(plan, options) == []
    yield report
    undone = undo(plan, options)
    assert undone.exit_code == ExitCode.DONE, undone.results
    assert tree(log_dir) == before
