"""Which engine a verb takes: ``auto`` takes Spark when there is enough to read to repay its start, and says why."""

from __future__ import annotations

from krepair.errors import KrepairError, RefusedError
from krepair.pipeline.engines.engine import Engine, InlineEngine
from krepair.pipeline.engines.java import prepare_java, why_no_spark
from krepair.pipeline.progress import Progress

SPARK_FROM_BYTES = 20 * 10**9


def choose_engine(wanted: str, master: str, total_bytes: int, progress: Progress | None = None) -> Engine:
    """Make the engine for a job.

    Args:
        wanted: ``auto``, ``spark`` or ``inline``.
        master: Spark master URL, empty for all cores of this host.
        total_bytes: what the items of the verb read: of a first job that reads everything the sum of
            ``WorkItem.bytes_to_read``, before there are items the bytes of the logs that they will be made of.
        progress: see ``Engine``.

    Raises:
        RefusedError: Spark was asked for and cannot start here.
    """
    if wanted == "inline":
        return InlineEngine("inline: --engine inline", progress)
    reason = why_no_spark()
    if wanted == "spark" or (
        wanted == "auto" and (master or (total_bytes >= SPARK_FROM_BYTES and not reason))
    ):
        reason = reason or prepare_java()
        if reason and wanted == "auto" and not master:
            return InlineEngine(f"inline: {reason}", progress)
        if reason:
            raise RefusedError(
                f"Spark cannot be started: {reason}. Java comes with the system, or with pip install 'krepair[java]'",
                next_command="krepair ... --engine inline",
            )
        asked = "--engine spark" if wanted == "spark" else "--master" if master else ""
        return _start_spark(master, f"spark: {asked or _gigabytes(total_bytes) + ' to read'}", progress)
    if reason:
        return InlineEngine(f"inline: {reason}", progress)
    return InlineEngine(
        f"inline: {_gigabytes(total_bytes)} to read, Spark starts at {_gigabytes(SPARK_FROM_BYTES)}",
        progress,
    )


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"


def _start_spark(master: str, reason: str, progress: Progress | None) -> Engine:
    from krepair.pipeline.engines.spark import SparkEngine

    try:
        return SparkEngine(master or "local[*]", reason, progress)
    except KrepairError:
        raise
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        raise RefusedError(
            f"Spark did not start: {first_line}", next_command="krepair ... --engine inline"
        ) from error
