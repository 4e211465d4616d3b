"""What work costs, in seconds of one core, and whether Spark repays its start.

The figures are those of ``make bench`` (docs/benchmarks.md), rounded up: a host that nobody has
measured rather works in this process. They decide where work is done, never what is in a plan.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class WorkKind(StrEnum):
    """Kinds of work that cost much more, or much less, than others for each byte."""

    READ = "read"
    """Batches are read, checked and copied: ``check``, ``verify``, markers, indexes, tails."""
    RECOVER = "recover"
    """Files of a log are made anew, and read a second time: recovery."""
    RECORDS = "records"
    """Each record is decoded: groups, transactions."""
    KEYS = "keys"
    """Each record is read by its key, several times: key compaction."""


SECONDS_PER_GB: Final[Mapping[WorkKind, float]] = {
    WorkKind.READ: 0.6,
    WorkKind.RECOVER: 1.2,
    WorkKind.RECORDS: 2.0,
    WorkKind.KEYS: 3.0,
}
SPARK_START_S: Final = 12.0
"""Until the first task runs, and what the waves of a run cost together."""
_SHARE_THAT_DIVIDES: Final = 0.85
"""The rest is done by the driver alone: listing, joining of summaries, committing."""
_WORTH_IT: Final = 0.8

Load = Mapping[WorkKind, int]
"""Bytes of logs by what is done with them."""


def cores_here() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def inline_seconds(work: Load) -> float:
    """Seconds that the work takes in this process."""
    return sum(SECONDS_PER_GB[kind] * size / 1e9 for kind, size in work.items())


def spark_seconds(work: Load, cores: int) -> float:
    """Seconds that the work takes on Spark, its start included."""
    seconds = inline_seconds(work)
    return SPARK_START_S + seconds * (1 - _SHARE_THAT_DIVIDES + _SHARE_THAT_DIVIDES / cores)


def spark_pays(work: Load, cores: int) -> bool:
    """Whether Spark on so many cores of this host is clearly sooner done."""
    return spark_seconds(work, cores) < _WORTH_IT * inline_seconds(work)


def said(work: Load, cores: int) -> str:
    """Both figures, for the report."""
    here, there = _seconds(inline_seconds(work)), _seconds(spark_seconds(work, cores))
    return f"{here} of work, {there} with Spark on {cores} {'core' if cores == 1 else 'cores'}"


def _seconds(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds >= 1 else "less than 1 s"
