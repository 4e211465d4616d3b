"""``krepair show``, and how every other verb comes to a plan that may be carried out."""

from __future__ import annotations

import shlex
from typing import Final, Literal

from krepair.durable.real_disk import RealDisk
from krepair.errors import RefusedError, UsageError
from krepair.plan import planfile
from krepair.plan.model import Plan
from krepair.plan.render import plan_view, to_json, to_markdown
from krepair.plan.review import Objection, review
from krepair.plan.view import Section, Table, View

Format = Literal["text", "md", "json"]

FORMATS: Final = ("text", "md", "json")
_SHOWN_OBJECTIONS: Final = 5


def load(path: str) -> Plan:
    """Read a plan file; see ``krepair.plan.planfile.read_plan`` for what it raises."""
    return planfile.read_plan(path)


def load_safe(path: str) -> Plan:
    """Read a plan file for a verb that acts on it.

    Raises:
        RefusedError: the review objects; the codes are named.
    """
    plan = load(path)
    require_safe(plan, path)
    return plan


def require_safe(plan: Plan, name: str = "plan") -> None:
    """Prove that the coded review has nothing against a plan.

    Raises:
        RefusedError: it has; the first objections and all codes are named.
    """
    objections = review(plan)
    if not objections:
        return
    shown = "; ".join(_one_line(objection) for objection in objections[:_SHOWN_OBJECTIONS])
    codes = ", ".join(sorted({objection.code for objection in objections}))
    raise RefusedError(
        f"{name}: the review objects ({codes}): {shown}; nothing was changed",
        next_command=f"krepair plan {shlex.quote(plan.log_dir)} --out PLAN",
    )


def save(path: str, plan: Plan) -> None:
    """Write a sealed plan outside of the log directory; see ``krepair.plan.planfile.write_plan``."""
    planfile.write_plan(path, plan, RealDisk())


def check_place(path: str, log_dir: str) -> None:
    """Prove before the work that the plan can be saved there; see ``krepair.plan.planfile.check_place``."""
    planfile.check_place(path, log_dir)


def show_text(plan: Plan, output_format: str, path: str) -> str:
    """The plan as Markdown or JSON.

    Raises:
        UsageError: another format.
    """
    if output_format == "md":
        return to_markdown(plan, path)
    if output_format == "json":
        return to_json(plan)
    raise UsageError(f"--format {output_format!r}: not built yet; the formats are {', '.join(FORMATS)}")


def show_view(plan: Plan, path: str) -> View:
    """The plan as a page, and what the review says against it."""
    page = plan_view(plan, path)
    objections = review(plan)
    if not objections:
        return page
    rows = tuple((objection.code, objection.where or "plan", objection.text) for objection in objections)
    refused = Section(
        title="The review objects: apply will refuse this plan",
        table=Table(columns=("code", "where", "what"), rows=rows),
    )
    return View(title=page.title, sections=(refused, *page.sections))


def _one_line(objection: Objection) -> str:
    where = f"{objection.where}: " if objection.where else ""
    return f"{objection.code} {where}{objection.text}"
