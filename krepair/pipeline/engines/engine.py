"""Where tasks run: in this process, or on Spark. The same functions either way.

``auto`` takes Spark when there is enough to read to repay its start, and says why it took what it took.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from krepair.errors import KrepairError, RefusedError
from krepair.pipeline.engines.java import prepare_java, why_no_spark
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
        if not items:
            return
        run = task.run
        with kept_open():
            for index, item in enumerate(items):
                yield index, run(item)

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
    reason = why_no_spark()
    if wanted == "spark" or (
        wanted == "auto" and (master or (total_bytes >= SPARK_FROM_BYTES and not reason))
    ):
        reason = reason or prepare_java()
        if reason and wanted == "auto" and not master:
            return InlineEngine(f"inline: {reason}")
        if reason:
            raise RefusedError(
                f"Spark cannot be started: {reason}. Java comes with the system, or with pip install 'krepair[java]'",
                next_command="krepair ... --engine inline",
            )
        asked = "--engine spark" if wanted == "spark" else "--master" if master else ""
        return _start_spark(master, f"spark: {asked or _gigabytes(total_bytes) + ' to read'}")
    if reason:
        return InlineEngine(f"inline: {reason}")
    return InlineEngine(
        f"inline: {_gigabytes(total_bytes)} to read, Spark starts at {_gigabytes(SPARK_FROM_BYTES)}"
    )


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"


def _start_spark(master: str, reason: str) -> Engine:
    from krepair.pipeline.engines.spark import SparkEngine

    try:
        return SparkEngine(master or "local[*]", reason)
    except KrepairError:
        raise
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        raise RefusedError(
            f"Spark did not start: {first_line}", next_command="krepair ... --engine inline"
        ) from error
