"""Commands that make a plan again, in whole or in part, and the digest that is typed for one."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from krepair.errors import StalePlanError, UsageError
from krepair.formats.words import time_text
from krepair.next_command import PLAN, Next, operand
from krepair.options import Options
from krepair.plan.model import Plan, Preview
from krepair.rules.evidence import WITH_CLUSTER

LEAST_DIGITS: Final = 32


_DIGITS: Final = re.compile(r"[0-9a-f]{32,64}")


def check_digest(plan: Plan, expected: str, path: str) -> None:
    """Check that a plan is the one that was approved.

    Args:
        plan: the plan as read from its file, whose digest is proven.
        expected: the digest as typed: its first 32 hex digits or more.
        path: path of the plan file.

    Raises:
        UsageError: the typed text is no digest, or too short: another plan may begin with the same few digits.
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
    """Return the options and the clock that a plan was made with.

    A plan does not record where the work was done: neither engine nor scratch folder.

    Raises:
        StalePlanError: the words that the plan records are no options of ``plan``.
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
    """Return the command for the same plan with evidence from the running brokers, at the clock of that day."""
    # The --cluster file of this plan was no evidence, so the command asks the brokers for a new one.
    return _command(plan.log_dir, replace(options_of(plan), cluster=""), *WITH_CLUSTER)


def is_with_evidence(command: Next) -> bool:
    """Return whether a command reads the file that the running brokers must be asked for first."""
    return command.has(*WITH_CLUSTER)


def later_horizon_command(plan: Plan) -> Next:
    """Return the command for the same plan with the time at which it was made as the delete horizon."""
    return _command(plan.log_dir, replace(options_of(plan), delete_horizon=time_text(plan.policy.now_ms)))


def second_plan_command(log_dir: str, options: Options, fix: str, only: tuple[str, int]) -> Next:
    """Return the command for a plan of one fix and one partition, with the other options of an earlier plan.

    The new plan uses the clock of the moment at which the command is typed.

    Args:
        log_dir: path of the log directory.
        options: options of the earlier plan.
        fix: the word for ``--fix``.
        only: the partition, as topic and number.
    """
    narrowed = replace(options, fixes=(fix,), topics=(), partitions=(only,), accepted_losses=())
    return _command(log_dir, narrowed)


def after_stop_command(preview: Plan) -> Next:
    """Return the command for the real plan of a preview: the same command without ``--preview``."""
    return _command(preview.log_dir, options_of(preview))


def plan_command(
    plan: Plan,
    *,
    keep: str | None = None,
    at: Options | None = None,
) -> Next:
    """Return the command for the same plan, with the same options and the same clock.

    Args:
        plan: any plan; of a preview, the command makes a preview.
        keep: another place for backups, as ``--keep`` takes it.
        at: options that say where the work is done: engine and scratch folder.
    """
    options = options_of(plan)
    if keep is not None:
        options = replace(options, keep=keep)
    where = at.words("scratch", "place") if at is not None else ()
    return _command(
        plan.log_dir, options, *options.words("clock"), *where, preview=isinstance(plan.preview, Preview)
    )
