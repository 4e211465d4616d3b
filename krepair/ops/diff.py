"""``krepair diff``: what changed between two plans of one directory."""

from __future__ import annotations

from krepair.errors import ExitCode
from krepair.ops import show
from krepair.plan.diff import PlanDiff, diff_plans
from krepair.plan.model import Plan
from krepair.plan.sequence import PlanSequence, merged


def diff(first: str, second: str) -> PlanDiff:
    """Compare two plan files.

    Args:
        first: path of the plan that was there before.
        second: path of the other one.

    Raises:
        UsageError: one is no plan, or they are for different hosts or directories.
        StalePlanError: one was edited.
        UnreadableError: one cannot be read.
    """
    return diff_plans(_plan_of(first), _plan_of(second))


def _plan_of(path: str) -> Plan:
    """The plan in a file; of a sequence, one with all its steps."""
    read = show.load_any(path)
    return merged(read) if isinstance(read, PlanSequence) else read


def exit_code_of(found: PlanDiff) -> ExitCode:
    """DONE when the plans are the same, else FOUND."""
    return ExitCode.DONE if found.same else ExitCode.FOUND
