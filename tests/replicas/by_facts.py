"""Facts, questions and answers of a model's brokers: only these files travel to the one that krepair repairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

from krepair.errors import ExitCode
from krepair.ops.ask import ask
from krepair.ops.facts import facts
from krepair.options import Engine, Options


def answers(asker: int, dirs: Mapping[int, Path], given: Options, root: Path) -> tuple[str, ...]:
    """``ID=FILE`` of the answers of all other brokers to the question of one."""
    question = root / f"b{asker}.question"
    said = dataclasses.replace(given, replicas=())
    assert ask(str(dirs[asker]), str(question), said).exit_code is ExitCode.DONE
    others = (broker for broker in dirs if broker != asker)
    return tuple(taken(others, dirs, root, given, question=str(question)))


def taken(
    brokers: Iterable[int], dirs: Mapping[int, Path], root: Path, given: Options, *, question: str = ""
) -> Iterable[str]:
    """``ID=FILE`` of the facts of some brokers."""
    options = Options(engine=Engine.INLINE, now_ms=given.now_ms)
    for broker in brokers:
        path = root / f"b{broker}.facts"
        facts([str(dirs[broker])], str(path), options, question=question)
        yield f"{broker}={path}"
