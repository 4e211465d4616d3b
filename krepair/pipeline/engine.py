"""Where tasks run: in this process, or on Spark. The same functions either way.

``auto`` takes Spark when there is enough to read to repay its start, and says why it took what it took.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from krepair.errors import KrepairError, RefusedError
from krepair.pipeline.jobs import Task
from krepair.pipeline.place import kept_open

SPARK_FROM_BYTES = 20 * 10**9


class Engine(Protocol):
    """Runs the tasks of one job."""

    why: str

    def run(self, task: Task[Any, Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield (index of the item, result) as results come, in any order."""

    def close(self) -> None:
        """Give back what the engine holds."""


class InlineEngine:
    """Runs every item here, one after the other."""

    def __init__(self, why: str) -> None:
        self.why = why

    def run(self, task: Task[Any, Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield results in the order of the items."""
        with kept_open():
            for index, item in enumerate(items):
                yield index, task.run(item)

    def close(self) -> None:
        """Nothing is held."""


def choose_engine(wanted: str, master: str, total_bytes: int) -> Engine:
    """Make the engine for a job.

    Args:
        wanted: ``auto``, ``spark`` or ``inline``.
        master: Spark master URL, empty for all cores of this host.
        total_bytes: of ``.log`` to be read.

    Raises:
        RefusedError: Spark was asked for and cannot start here.
    """
    if wanted == "inline":
        return InlineEngine("inline: --engine inline")
    has_java = shutil.which("java") is not None
    if wanted == "spark" or (wanted == "auto" and (master or (total_bytes >= SPARK_FROM_BYTES and has_java))):
        if not has_java:
            raise RefusedError(
                "Spark needs Java 17 or later, and there is no java on the path",
                next_command="krepair ... --engine inline",
            )
        asked = "--engine spark" if wanted == "spark" else "--master" if master else ""
        return _start_spark(master, f"spark: {asked or _gigabytes(total_bytes) + ' to read'}")
    if not has_java:
        return InlineEngine("inline: there is no java on the path")
    return InlineEngine(
        f"inline: {_gigabytes(total_bytes)} to read, Spark starts at {_gigabytes(SPARK_FROM_BYTES)}"
    )


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"


def _start_spark(master: str, reason: str) -> Engine:
    from krepair.pipeline.spark import SparkEngine

    try:
        return SparkEngine(master or "local[*]", reason)
    except KrepairError:
        raise
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        raise RefusedError(
            f"Spark did not start: {first_line}", next_command="krepair ... --engine inline"
        ) from error
