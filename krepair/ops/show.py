"""``krepair show``, and how every other verb reads and saves a plan file."""

from __future__ import annotations

from krepair.durable.real_disk import RealDisk
from krepair.ops.again import evidence_command
from krepair.plan import planfile
from krepair.plan.model import Plan
from krepair.plan.render import plan_view
from krepair.plan.review import review
from krepair.plan.view import Section, Table, View


def load(path: str) -> Plan:
    """Read a plan file; see ``krepair.plan.planfile.read_plan`` for what it raises."""
    return planfile.read_plan(path)


def save(path: str, plan: Plan) -> None:
    """Write a sealed plan outside of the log directory; see ``krepair.plan.planfile.write_plan``."""
    planfile.write_plan(path, plan, RealDisk())


def check_place(path: str, log_dir: str) -> None:
    """Prove before the work that the plan can be saved there; see ``krepair.plan.planfile.check_place``."""
    planfile.check_place(path, log_dir)


def show_view(plan: Plan, path: str) -> View:
    """The plan as a page, and what the review says against it."""
    page = plan_view(plan, path, evidence_command(plan))
    objections = review(plan)
    if not objections:
        return page
    rows = tuple((objection.code, objection.where or "plan", objection.text) for objection in objections)
    refused = Section(
        title="The review objects: apply will refuse this plan",
        table=Table(columns=("code", "where", "what"), rows=rows),
    )
    return View(title=page.title, sections=(refused, *page.sections))
