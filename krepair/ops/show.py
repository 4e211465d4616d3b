"""``krepair show``: the context of a plan, and the commands that make it again, in whole or in part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from krepair.errors import StalePlanError, UsageError
from krepair.formats.words import time_text
from krepair.next_command import NOTHING, PLAN, Next, operand
from krepair.options import Options
from krepair.plan.model import Plan, Preview
from krepair.plan.render import plan_view
from krepair.plan.review import review
from krepair.plan.short import DiskObservation, PageContext
from krepair.plan.view import View
from krepair.rules.evidence import WITH_CLUSTER


def page_context_of(plan: Plan, path: str, place: Sequence[str] = ()) -> PageContext:
    """Return the context that the plan alone gives: commands that make it again, and the review.

    Args:
        plan: any plan.
        path: of its file.
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
    )


def show_view(plan: Plan, path: str, observed: DiskObservation | str = "not looked at here") -> View:
    """The page of a plan, and what the review says against it.

    Args:
        plan: any plan.
        path: of its file.
        observed: what its disk says, or why it was not looked at.
    """
    return plan_view(plan, page_context_of(plan, path)._replace(observed=observed))


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
            next_command=Next.of("show", operand(path)),
        )


def options_of(plan: Plan) -> Options:
    """The options and the clock that a plan was made with.

    A plan does not hold where the work was done: engine, scratch folder.

    Raises:
        StalePlanError: its words are not those of a plan.
    """
    try:
        return Options.of_words(plan.asked, now_ms=plan.policy.now_ms)
    except UsageError as error:
        raise StalePlanError(
            f"plan {plan.plan_id}: {error.message}: it was edited, or another krepair made it",
            next_command=Next.of("plan", plan.log_dir, out=PLAN),
        ) from error


def _command(log_dir: str, options: Options, *more: str, preview: bool = False) -> Next:
    first = ("--preview",) if preview else ()
    return Next.of("plan", log_dir, *first, *options.words("plan", "reading"), *more, out=PLAN)


def evidence_command(plan: Plan) -> Next:
    """What to type for the same plan with what the running brokers say, with the clock of that day."""
    # What was given as the state of the cluster is no evidence: it is asked for anew.
    return _command(plan.log_dir, replace(options_of(plan), cluster=""), *WITH_CLUSTER)


def is_with_evidence(command: Next) -> bool:
    """Whether a command reads the file that the running brokers have to be asked for first."""
    return command.has(*WITH_CLUSTER)


def later_horizon_command(plan: Plan) -> Next:
    """What to type for the same plan with the time at which it was made as the delete horizon."""
    return _command(plan.log_dir, replace(options_of(plan), delete_horizon=time_text(plan.policy.now_ms)))


def second_plan_command(log_dir: str, options: Options, fix: str, only: tuple[str, int]) -> Next:
    """What to type for a plan of one fix and one partition, with the other options of a plan that was made before it.

    The clock is the one of the day on which it is typed.

    Args:
        log_dir: path of the log directory.
        options: of the plan that was made before it.
        fix: word for ``--fix``.
        only: the partition, as topic and number.
    """
    narrowed = replace(options, fixes=(fix,), topics=(), partitions=(only,), accepted_losses=())
    return _command(log_dir, narrowed)


def after_stop_command(preview: Plan) -> Next:
    """What to type for the real plan of a preview: the same command without ``--preview``."""
    return _command(preview.log_dir, options_of(preview))


def plan_command(
    plan: Plan,
    *,
    keep: str | None = None,
    at: Options | None = None,
) -> Next:
    """What to type for the same plan: the same options, and the same clock.

    Args:
        plan: any plan; of a preview, the command makes a preview.
        keep: where originals stay instead, as ``--keep`` takes it.
        at: where the work is done: of these options, the engine and the scratch folder count.
    """
    options = options_of(plan)
    if keep is not None:
        options = replace(options, keep=keep)
    where = at.words("scratch", "place") if at is not None else ()
    return _command(
        plan.log_dir, options, *options.words("clock"), *where, preview=isinstance(plan.preview, Preview)
    )
