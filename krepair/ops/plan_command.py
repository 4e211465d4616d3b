"""The command that makes a plan again: with what was typed for it, or with one thing changed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from krepair.options import Options
from krepair.plan.model import Asked, Plan, Preview
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
    asked = asked_of(options)
    made = replace(
        options,
        config=asked.config or None,
        topic_config=asked.topic_config or None,
        # Those of one fix are refused beside another.
        accepted_losses=options.accepted_losses if "--accept-data-loss" in command else (),
    )
    if command.startswith("krepair plan "):
        return with_options(command, made.as_plan_words())
    return with_options(command, made.as_words()) if command.startswith("krepair check ") else command


def asked_of(options: Options) -> Asked:
    """What was typed, as a plan records it. Paths are made absolute: the command may be typed elsewhere."""
    return Asked(
        topics=options.topics,
        partitions=options.partitions,
        config=os.path.abspath(options.config) if options.config else "",
        topic_config=os.path.abspath(options.topic_config) if options.topic_config else "",
        settings=options.settings,
    )


def options_of(plan: Plan) -> Options:
    """The options and the clock that a plan was made with.

    A plan does not hold how it was made: engine, scratch folder, reserve.
    """
    policy = plan.policy
    asked = plan.asked if isinstance(plan.asked, Asked) else Asked()
    others = policy.others
    return Options(
        config=asked.config or None,
        topic_config=asked.topic_config or None,
        settings=asked.settings,
        now_ms=policy.now_ms,
        delete_horizon=policy.horizon,
        broker_version=policy.broker_version,
        topics=asked.topics,
        partitions=asked.partitions,
        fixes=policy.fixes,
        keep=policy.keep,
        merge=policy.merge,
        assume_high_watermark=policy.assume_high_watermark,
        accepted_losses=policy.accepted_losses,
        replicas=others.replicas,
        cluster=others.cluster,
        only_replica=others.only_replica,
        as_broker=others.as_broker,
    )


def evidence_command(plan: Plan) -> str:
    """What to type for the same plan with what the running brokers say, with the clock of that day."""
    # What was given as the state of the cluster is no evidence: it is asked for anew.
    words = replace(options_of(plan), cluster="").as_plan_words()
    return shlex.join(("krepair", "plan", plan.log_dir, *words, *WITH_CLUSTER, "--out", "PLAN"))


def is_with_evidence(command: str) -> bool:
    """Whether a command reads the file that the running brokers have to be asked for first."""
    return f" {shlex.join(WITH_CLUSTER)} " in command


def later_horizon_command(plan: Plan) -> str:
    """What to type for the same plan with the time at which it was made as the delete horizon."""
    options = replace(options_of(plan), delete_horizon=time_text(plan.policy.now_ms))
    return shlex.join(("krepair", "plan", plan.log_dir, *options.as_plan_words(), "--out", "PLAN"))


def second_plan_command(log_dir: str, options: Options, fix: str, only: tuple[str, int]) -> str:
    """What to type for a plan of one fix and one partition, with the other options of a plan that was made before it.

    The clock is the one of the day on which it is typed.

    Args:
        log_dir: path of the log directory.
        options: of the plan that was made before it.
        fix: word for ``--fix``.
        only: the partition, as topic and number.
    """
    asked = asked_of(options)
    narrowed = replace(
        options,
        fixes=(fix,),
        topics=(),
        partitions=(only,),
        config=asked.config or None,
        topic_config=asked.topic_config or None,
        accepted_losses=(),
    )
    # Defaults are left out of the words, and that default is markers alone.
    words = narrowed.as_plan_words()
    named = words if "--fix" in words else ("--fix", fix, *words)
    return shlex.join(("krepair", "plan", log_dir, *named, "--out", "PLAN"))


def after_stop_command(preview: Plan) -> str:
    """What to type for the real plan of a preview: the same command without ``--preview``."""
    return shlex.join(
        ("krepair", "plan", preview.log_dir, *options_of(preview).as_plan_words(), "--out", "PLAN")
    )


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
        at: where the work is done: of these options, the engine, the scratch folder and the reserve count.
    """
    options = options_of(plan)
    if keep is not None:
        options = replace(options, keep=keep)
    if only:
        options = replace(options, topics=(), partitions=tuple(only))
    preview = ("--preview",) if isinstance(plan.preview, Preview) else ()
    clock = ("--now", str(options.now_ms))
    words = (*preview, *options.as_plan_words(), *clock, *(at.as_place_words() if at is not None else ()))
    return shlex.join(("krepair", "plan", plan.log_dir, *words, "--out", "PLAN"))
