"""No dead ends: what check, plan, apply, verify, undo and purge advise is typed on the directory that it is about.

By default one case of each kind of damage, and a few drawn directories with several damages at once.
``KREPAIR_EVERY_STATE=1`` takes every case of the corpus, and as many drawn ones as tests/product.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.corpus.advice import Follower
from tests.corpus.bases import BASES
from tests.corpus.case import Case
from tests.corpus.cases import CASES
from tests.corpus.harness import made
from tests.ops.conftest import memory_dir
from tests.product.scene import Drawn, draw

__all__ = ["memory_dir"]

EVERY = os.environ.get("KREPAIR_EVERY_STATE", "") == "1"


def of_each_kind() -> Iterator[Case]:
    """A few cases in which each finding and each choice of fixes is met: the one with most of what is left, in turn."""
    left = {one for case in CASES for one in of(case)}
    while left:
        yield (case := max(CASES, key=lambda case: len(of(case) & left)))
        left -= of(case)


def of(case: Case) -> set[object]:
    return {*case.findings, case.fixes}


TRIED = CASES if EVERY else tuple(of_each_kind())
SEEDS = range(60) if EVERY else (0, 8, 18, 49, 59)
"""In the few: a swap that waits, an index of an active segment, epochs of an old log, several consents."""


def follow(log_dir: Path, fixes: tuple[str, ...], settings: list[str], likes: str) -> list[str]:
    """Type check, a plan of these fixes, and whatever is advised; the dead ends."""
    follower = Follower(log_dir, likes)
    follower.follow(shlex.join(["krepair", "check", str(log_dir), *settings]))
    words = ["krepair", "plan", str(log_dir), "--fix", ",".join(fixes), *settings, "--out", "PLAN"]
    follower.follow(shlex.join(words))
    assert len(follower.typed) > 2
    return follower.dead_ends


@pytest.mark.parametrize("likes", ["purge", "undo"] if EVERY else ["purge"])
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=pytest.mark.slow if number % 10 else ())
        for number, case in enumerate(TRIED)
    ],
)
def test_each_command_that_is_advised_does_something(case: Case, likes: str, memory_dir: Path) -> None:
    directory = made(case, memory_dir / "logs")
    settings = [
        word for key, value in BASES[case.base].config.items() for word in ("--set", f"{key}={value}")
    ]
    assert follow(directory.log_dir, case.fixes, settings, likes) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_where_several_things_are_wrong(seed: int, memory_dir: Path) -> None:
    drawn = draw(seed, memory_dir / "logs")
    assert follow(drawn.path, drawn.options.fixes, settings_of(drawn), ("purge", "undo")[seed % 2]) == [], (
        drawn.text
    )


def settings_of(drawn: Drawn) -> list[str]:
    """As typed."""
    words = [word for key, value in drawn.options.settings for word in ("--set", f"{key}={value}")]
    version = drawn.options.broker_version
    return [*words, "--broker-version", version] if version else words
