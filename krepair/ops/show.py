"""Show a plan: the context of its page, and the commands that make the plan again, in whole or in part."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from krepair.next_command import NOTHING, operand
from krepair.plan.commands import after_stop_command, evidence_command, later_horizon_command, plan_command
from krepair.plan.model import Plan, Preview
from krepair.plan.render import plan_view
from krepair.plan.review import review
from krepair.plan.short import NOT_REPAIRED, DiskObservation, PageContext, damage_that_stays
from krepair.plan.view import Section, View


def page_context_of(plan: Plan, path: str, place: Sequence[str] = ()) -> PageContext:
    """Return the context that the plan alone gives: commands that make it again, and the review.

    Args:
        path: path of the plan file.
        place: words for where the work is done, which the next commands need too.
    """
    preview = isinstance(plan.preview, Preview)
    return PageContext(
        path=operand(path),
        place=tuple(place),
        same=plan_command(plan).more(place),
        with_evidence=evidence_command(plan).more(place),
        with_later_horizon=later_horizon_command(plan).more(place),
        after_stop=after_stop_command(plan).more(place) if preview else NOTHING,
        objections=tuple(review(plan)),
        unmended=Section(title=NOT_REPAIRED, lines=tuple(damage_that_stays(plan)), part="partitions"),
        only_root=_is_for_root_alone(path, plan.log_dir),
    )


def _is_for_root_alone(path: str, log_dir: str) -> bool:
    """Return whether the owner of the log directory cannot read the plan file, as one that root made."""
    try:
        file, owner = os.stat(path), os.stat(log_dir).st_uid
    except OSError:
        return False
    return file.st_uid != owner and not file.st_mode & stat.S_IROTH


def show_view(plan: Plan, path: str, observed: DiskObservation | str = "not looked at here") -> View:
    """Return the page of a plan, with the objections of the review.

    Args:
        path: path of the plan file.
        observed: observation of the plan's disk, or the reason why there is none.
    """
    return plan_view(plan, page_context_of(plan, path)._replace(observed=observed))
