"""Kafka's own log class on every damaged and every mended partition of the corpus.

Damaged it refuses or loads as check forecast; mended it loads without a word, and gives what the healthy one gave.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.corpus.bases import BASES, MARKER, Made
from tests.corpus.case import Case
from tests.corpus.cases import CASES
from tests.corpus.conftest import Mended
from tests.corpus.harness import made
from tests.lab.jars import VERSIONS
from tests.lab.judge import Judge, JudgeError, Loaded
from tests.ops.conftest import memory_dir

__all__ = ["memory_dir"]
pytestmark = [pytest.mark.broker, pytest.mark.slow]

# The judge also reads every record, which damaged logs and swaps do not let it; tests/brokers has their starts.
UNREADABLE = {"KR301", "KR302", "KR305", "KR601"}
IN_PARTITION = [case for case in CASES if case.in_partition]


def load(judge: Judge, case: Case, directory: Made, copy: Path) -> Loaded:
    """Open a copy of the partition as after the stop that the directory tells of."""
    shutil.copytree(directory.log_dir, copy)
    clean = (directory.log_dir / MARKER).exists()
    try:
        return judge.load(
            copy / directory.folder.name,
            clean=clean,
            recovery_point=BASES[case.base].end if clean else 0,
            settings=BASES[case.base].config,
        )
    finally:
        shutil.rmtree(copy)


def seen(loaded: Loaded) -> tuple[object, ...]:
    """What a consumer, a producer and a follower can tell of a log."""
    return (
        loaded.log_start,
        loaded.log_end,
        loaded.stable_offset,
        loaded.served,
        loaded.producers,
        loaded.aborted,
    )


def starts_otherwise(judge: Judge, case: Case, directory: Made, work: Path) -> str:
    """Whether Kafka loads the damaged partition where it was to refuse it, or the other way round."""
    refused = case.before.of(judge.version) == "refuse"
    try:
        load(judge, case, directory, work / "copy")
    except JudgeError as error:
        return "" if refused else f"was to be loaded: {error}"[:600]
    return "was loaded" if refused else ""


def differs(judge: Judge, case: Case, healthy: Loaded, mended: Mended, work: Path) -> str:
    """What of a case is not as its row says, or empty."""
    directory = made(case, work / "damaged")
    problem = "" if UNREADABLE & case.findings else starts_otherwise(judge, case, directory, work)
    if problem:
        return problem
    if not case.mended:
        return ""
    after = load(judge, case, mended.copy(case, work / "mended"), work / "copy")
    if "records" in case.differs:
        return ""  # what a person consented to lose
    more = set(after.complaints) - set(healthy.complaints)
    if seen(after) != seen(healthy) or more:
        return f"{seen(after)} instead of {seen(healthy)}, {more}"
    return ""


@pytest.mark.parametrize("version", VERSIONS)
def test_every_damaged_partition_is_refused_as_forecast_and_every_mended_one_gives_what_it_gave(
    memory_dir: Path, judge: Callable[[str], Judge], mended: Mended, version: str
) -> None:
    healthy: dict[str, Loaded] = {}
    wrong: dict[str, str] = {}
    for case in IN_PARTITION:
        work = memory_dir / case.name
        if case.base not in healthy:
            whole = BASES[case.base].write(work / "healthy", case.name)
            healthy[case.base] = load(judge(version), case, whole, work / "copy")
        problem = differs(judge(version), case, healthy[case.base], mended, work)
        if problem:
            wrong[case.name] = problem
        shutil.rmtree(work)
    assert sorted(wrong.items()) == []
