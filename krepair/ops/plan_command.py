"""The command that makes a plan again: with what was typed for it, or with one thing changed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from krepair.options import Options
from krepair.plan.model import Plan, Preview
from krepair.plan.view import time_text
from krepair.rules.evidence import WITH_CLUSTER

_NAMES: Final = frozenset({"--topic", "--partition"})
_REPEATED: Final = frozenset({"--accept-data-loss"})


def with_options(command: str, words: Sequence[str]) -> str:
    """A command with the options that it does not have yet, before its ``--out``.

    Args:
        command: of krepair.
        words: of a command line, options with their values.
    """
    present = set(command.split())
    # What names partitions belongs together: with one name more, the command would be about more partitions.
    if present & _NAMES:
        present |= _NAMES
    missing = [
        option
        for option in _options(words)
        if option[0] not in present or (option[0] in _REPEATED and option[-1] not in present)
    ]
    more = shlex.join(word for option in missing for word in option)
    head, out, tail = command.partition(" --out ")
    return f"{head} {more}{out}{tail}" if more else command


def _options(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Each option with its value, if it takes one."""
    starts = [index for index, word in enumerate(words) if word.startswith("--")]
    for start, end in pairwise([*starts, len(words)]):
        yield words[start:end]


def left_alone_command(command: str, options: Options) -> str:
    """What a plan says is to be typed for a partition that it leaves alone, with the options it was made with.

    Args:
        command: with ``LOGDIR`` in the place of the path; it may be empty.
        options: of the plan.
    """
    if command.startswith("krepair check "):
        return with_options(command, options.words("reading"))
    if not command.startswith("krepair plan "):
        return command
    if "--accept-data-loss" not in command:
        # Those of one fix are refused beside another.
        options = replace(options, accepted_losses=())
    return with_options(command, options.words("plan", "reading"))


def options_of(plan: Plan) -> Options:
    """The options and the clock that a plan was made with.

    A plan does not hold where the work was done: engine, scratch folder.

    Raises:
        UsageError: its words are not those of a plan.
    """
    return Options.of_words(plan.asked, now_ms=plan.policy.now_ms)


def _command(log_dir: str, options: Options, *more: str, preview: bool = False) -> str:
    words = (*(("--preview",) if preview else ()), *options.words("plan", "reading"), *more)
    return shlex.join(("krepair", "plan", log_dir, *words, "--out", "PLAN"))


def evidence_command(plan: Plan) -> str:
    """What to type for the same plan with what the running brokers say, with the clock of that day."""
    # What was given as the state of the cluster is no evidence: it is asked for anew.
    return _command(plan.log_dir, replace(options_of(plan), cluster=""), *WITH_CLUSTER)


def is_with_evidence(command: str) -> bool:
    """Whether a command reads the file that the running brokers have to be asked for first."""
    return f" {shlex.join(WITH_CLUSTER)} " in command


def later_horizon_command(plan: Plan) -> str:
    """What to type for the same plan with the time at which it was made as the delete horizon."""
    return _command(plan.log_dir, replace(options_of(plan), delete_horizon=time_text(plan.policy.now_ms)))


def second_plan_command(log_dir: str, options: Options, fix: str, only: tuple[str, int]) -> str:
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


def after_stop_command(preview: Plan) -> str:
    """What to type for the real plan of a preview: the same command without ``--preview``."""
    return _command(preview.log_dir, options_of(preview))


def plan_command(
    plan: Plan,
    *,
    keep: str | None = None,
    only: Sequence[tuple[str, int]] = (),
    at: Options | None = None,
) -> str:
    """What to type for the same plan: the same options, and the same clock.

    Args:
        plan: any plan; of a preview, the command makes a preview.
        keep: where originals stay instead, as ``--keep`` takes it.
        only: the partitions (topic, number) to plan instead of all.
        at: where the work is done: of these options, the engine and the scratch folder count.
    """
    options = options_of(plan)
    if keep is not None:
        options = replace(options, keep=keep)
    if only:
        options = replace(options, topics=(), partitions=tuple(only))
    where = at.words("scratch", "place") if at is not None else ()
    return _command(
        plan.log_dir, options, *options.words("clock"), *where, preview=isinstance(plan.preview, Preview)
    )
