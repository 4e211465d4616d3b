"""What earlier plans keep in the log directory (KR901), and what an interrupted run left half done (KR902)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from krepair.checks.catalogue import Finding
from krepair.checks.recovery_time import duration_text
from krepair.checks.rule import Severity
from krepair.formats.words import few, names_text
from krepair.logdir.values import LogDir
from krepair.ops.kept import by_id_command
from krepair.ops.reports import KeptPlan
from krepair.plan.model import Risk
from krepair.plan.risks import KEPT_ORIGINALS
from krepair.plan.view import size_text


def kept_findings(view: LogDir, plans: Sequence[KeptPlan]) -> Iterator[Finding]:
    """One finding for each plan that keeps something."""
    for plan in plans:
        half = plan.state == "half done"
        by_hand = "" if half else plan.next_command  # of a damaged journal
        yield Finding(
            rule="KR902" if half else "KR901",
            partition=plan.partitions[0] if len(plan.partitions) == 1 else "",
            evidence=_half_done(view, plan) if half else _kept(view, plan),
            bytes=plan.bytes,
            severity=Severity.SLOW if by_hand else None,
            command=by_hand,
        )


def kept_risk(view: LogDir, plan: KeptPlan) -> Risk:
    """One earlier plan, as a risk of a new plan. Holds no age: the same directory, the same bytes."""
    where = few(plan.partitions)
    return Risk(
        code=KEPT_ORIGINALS,
        text=f"Plan {plan.plan_id} is half done in {where}."
        if plan.state == "half done"
        else f"Plan {plan.plan_id} still keeps {size_text(plan.bytes)} in {where}.",
        more="If both plans change the same files, undo this plan first before you undo that one. To see what is kept: "
        f"krepair undo {shlex.quote(view.path)}",
    )


def age_text(plan: KeptPlan) -> str:
    """Since when, in words; the times in a directory may be anything."""
    return (
        f"for {duration_text(plan.age_seconds)}"
        if plan.age_seconds >= 0
        else "since a time that is not known"
    )


def _kept(view: LogDir, plan: KeptPlan) -> str:
    words = [
        f"plan {plan.plan_id} ({plan.state}) keeps {plan.bytes} bytes in {names_text(plan.partitions)} {age_text(plan)}"
    ]
    if plan.next_command:
        return "; ".join([*words, f"first: {plan.why_not}; next: {plan.next_command}"])
    if plan.state == "unknown" and plan.forbidden:
        return "; ".join([*words, f"it is not known whether undo is possible: {plan.why_not}"])
    if plan.undo == "yes":
        words.append(f"undo is possible: {_undo_command(view, plan)}")
    elif plan.undo == "partly":
        words.append(f"undo is possible in part ({plan.why_not}): {_undo_command(view, plan)}")
    elif plan.why_not:
        words.append(f"no undo: {plan.why_not}")
    words.append(f"to free the space for good: {by_id_command('purge', view.path, plan.plan_id)}")
    return "; ".join(words)


def _half_done(view: LogDir, plan: KeptPlan) -> str:
    what = f"{names_text(plan.half_done)} is half done" if plan.half_done else "its fence was left"
    words = [f"plan {plan.plan_id}: {what} {age_text(plan)}"]
    if plan.fence:
        words.append(f"a broker that starts now recovers {names_text(plan.fence)} (the fence is up)")
    words.append(f"to finish it: krepair apply PLAN; to take it back: {_undo_command(view, plan)}")
    return "; ".join(words)


def _undo_command(view: LogDir, plan: KeptPlan) -> str:
    if plan.copy == "there":
        return by_id_command("undo", view.path, plan.plan_id)
    return f"krepair undo PLAN (no copy of the plan is here: {plan.copy})"
