"""``apply --expect DIGEST``: only the plan that was approved is carried out."""

from __future__ import annotations

import re
import shlex
from typing import Final

from krepair.errors import StalePlanError, UsageError
from krepair.plan.model import Plan

LEAST_DIGITS: Final = 32
_DIGITS: Final = re.compile(r"[0-9a-f]{32,64}")


def check_digest(plan: Plan, expected: str, path: str) -> None:
    """Check that a plan is the one that was approved.

    Args:
        plan: as read from its file, whose digest is proven.
        expected: the digest as typed: its first 32 hex digits or more.
        path: of the plan file.

    Raises:
        UsageError: what was typed is no digest, or too short: a few digits can be met by another plan.
        StalePlanError: the plan has another digest; nothing was changed.
    """
    wanted = expected.strip().lower()
    if not _DIGITS.fullmatch(wanted):
        raise UsageError(
            f"--expect {expected!r}: expected {LEAST_DIGITS} to 64 hex digits, as krepair show prints the digest"
        )
    if not plan.digest.startswith(wanted):
        raise StalePlanError(
            f"{path}: its digest is {plan.digest}, not the expected {wanted}; nothing was changed",
            next_command=f"krepair show {shlex.quote(path)}",
        )
