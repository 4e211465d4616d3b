"""``krepair show``, and how every other verb reads and saves a plan file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from krepair.durable.real_disk import RealDisk
from krepair.errors import StalePlanError, UsageError
from krepair.ops.plan_command import (
    after_stop_command,
    evidence_command,
    later_horizon_command,
    plan_command,
    with_options,
)
from krepair.plan import planfile
from krepair.plan.model import Plan, Preview
from krepair.plan.render import plan_view
from krepair.plan.review import review
from krepair.plan.short import Around, Observed
from krepair.plan.view import View


def load(path: str) -> Plan:
    """Read a plan file; see ``krepair.plan.planfile.read_plan`` for what it raises."""
    return planfile.read_plan(path)


def save(path: str, plan: Plan) -> None:
    """Write a sealed plan outside of the log directory; see ``krepair.plan.planfile.write_file``."""
    planfile.write_file(path, planfile.dumps(plan), plan.log_dir, RealDisk())


def check_place(path: str, log_dir: str) -> None:
    """Prove before the work that the plan can be saved there; see ``krepair.plan.planfile.check_place``."""
    planfile.check_place(path, log_dir)


def around_of(plan: Plan, path: str, place: Sequence[str] = ()) -> Around:
    """What the plan alone says of what is around it: commands that make it again, and the review.

    Args:
        plan: any plan.
        path: of its file.
        place: words for where the work is done, which the next commands need too.
    """
    preview = isinstance(plan.preview, Preview)
    return Around(
        path=path,
        place=tuple(place),
        same=with_options(plan_command(plan), place),
        with_evidence=with_options(evidence_command(plan), place),
        with_later_horizon=with_options(later_horizon_command(plan), place),
        after_stop=with_options(after_stop_command(plan), place) if preview else "",
        objections=tuple(review(plan)),
    )


def show_view(
    plan: Plan, path: str, place: Sequence[str] = (), observed: Observed | str = "not looked at here"
) -> View:
    """The page of a plan, and what the review says against it.

    Args:
        plan: any plan.
        path: of its file.
        place: see ``around_of``.
        observed: what its disk says, or why it was not looked at.
    """
    return plan_view(plan, around_of(plan, path, place)._replace(observed=observed))


# -- ``apply --expect DIGEST``: only the plan that was approved is carried out

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
