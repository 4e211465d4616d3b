"""Questions and answers of a model's brokers: only these files travel to the one that krepair repairs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from krepair.errors import ExitCode
from krepair.ops.ask import ask
from krepair.ops.facts import facts
from krepair.options import Engine, Options


def asked(log_dir: Path, question: Path, given: Options) -> None:
    """Write the question of one broker."""
    said = dataclasses.replace(given, replicas=())
    assert ask(str(log_dir), str(question), said).exit_code is ExitCode.DONE


def answer(broker: int, log_dir: Path, question: Path, out: Path, given: Options) -> str:
    """``ID=FILE`` of the answer of one broker."""
    options = Options(engine=Engine.INLINE, now_ms=given.now_ms)
    facts([str(log_dir)], str(out), options, question=str(question))
    return f"{broker}={out}"
