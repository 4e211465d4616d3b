"""Types the lines that ``undo`` shows where a journal is damaged, in a shell, as a person does."""

from __future__ import annotations

import subprocess

from krepair.commit.reports import ApplyReport
from krepair.errors import ExitCode
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.options import Options
from krepair.plan.model import Plan


def type_lines(report: ApplyReport) -> None:
    """The lines of a report, in a shell."""
    subprocess.run(["sh", "-e", "-c", "\n".join(report.by_hand)], check=True)


def take_back_by_hand(plan: Plan, options: Options) -> ApplyReport:
    """``undo``, its lines, and ``undo`` again, until it shows none; the last report."""
    report = undo(plan, options)
    while report.by_hand:
        type_lines(report)
        report = undo(plan, options)
    return report


def end_by_hand(plan: Plan, options: Options) -> None:
    """All originals come back, and purge leaves nothing of krepair's."""
    assert take_back_by_hand(plan, options).exit_code is ExitCode.DONE
    assert purge(plan, options).exit_code is ExitCode.DONE
