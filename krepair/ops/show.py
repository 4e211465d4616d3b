"""``krepair show``, and how every other verb reads and saves a plan file."""

from __future__ import annotations

from collections.abc import Sequence

from krepair.durable.real_disk import RealDisk
from krepair.ops.plan_command import after_stop_command, evidence_command, later_horizon_command, with_options
from krepair.plan import planfile
from krepair.plan.model import Plan, Preview
from krepair.plan.render import Again, next_sections, plan_view, with_next
from krepair.plan.review import review
from krepair.plan.view import Section, View, table_of


def load(path: str) -> Plan:
    """Read a plan file; see ``krepair.plan.planfile.read_plan`` for what it raises."""
    return planfile.read_plan(path)


def save(path: str, plan: Plan) -> None:
    """Write a sealed plan outside of the log directory; see ``krepair.plan.planfile.write_file``."""
    planfile.write_file(path, planfile.dumps(plan), plan.log_dir, RealDisk())


def check_place(path: str, log_dir: str) -> None:
    """Prove before the work that the plan can be saved there; see ``krepair.plan.planfile.check_place``."""
    planfile.check_place(path, log_dir)


def _again(plan: Plan, place: Sequence[str]) -> Again:
    return Again(
        with_options(evidence_command(plan), place),
        with_options(later_horizon_command(plan), place),
        with_options(after_stop_command(plan), place) if isinstance(plan.preview, Preview) else "",
    )


def show_view(plan: Plan, path: str, place: Sequence[str] = ()) -> View:
    """The plan as a page, and what the review says against it.

    Args:
        plan: any plan.
        path: of its file.
        place: words for where the work is done, which the next commands need too.
    """
    page = plan_view(plan, path, _again(plan, place))
    if place:
        page = with_next(page, *next_sections(plan, path, place))
    objections = review(plan)
    if not objections:
        return page
    rows = tuple((objection.code, objection.where or "plan", objection.text) for objection in objections)
    refused = Section(
        title="The review objects: apply will refuse this plan",
        table=table_of("code | where | what", rows),
    )
    return View(title=page.title, sections=(refused, *page.sections))
