"""``krepair diff``: what changed between two plans of one directory."""

from __future__ import annotations

from krepair.errors import ExitCode
from krepair.ops import show
from krepair.plan.diff import PlanDiff, diff_plans


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
    return diff_plans(show.load(first), show.load(second))


def exit_code_of(found: PlanDiff) -> ExitCode:
    """DONE when the plans are the same, else FOUND."""
    return ExitCode.DONE if found.same else ExitCode.FOUND
