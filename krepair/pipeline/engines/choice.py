"""Which engine a verb takes: ``auto`` takes Spark where that is sooner done, its start included, and says why."""

from __future__ import annotations

from krepair.errors import KrepairError, RefusedError
from krepair.pipeline.engines import costs
from krepair.pipeline.engines.costs import Load
from krepair.pipeline.engines.engine import Engine, InlineEngine
from krepair.pipeline.engines.java import prepare_java, why_no_spark
from krepair.pipeline.engines.master import why_not_reached, why_not_started
from krepair.pipeline.progress import Progress


def choose_engine(wanted: str, master: str, work: Load, progress: Progress | None = None) -> Engine:
    """Make the engine for a job.

    Args:
        wanted: ``auto``, ``spark`` or ``inline``.
        master: Spark master URL, empty for all cores of this host.
        work: bytes of logs that the verb reads, by what is done with them. Before there are items these are the logs
            that items will be made of.
        progress: see ``Engine``.

    Raises:
        RefusedError: Spark was asked for and cannot start here, or its master cannot be reached.
    """
    if wanted == "inline":
        return InlineEngine("inline: --engine inline", progress)
    reason, cores = why_no_spark(), costs.cores_here()
    pays = costs.spark_pays(work, cores)
    if wanted == "spark" or (wanted == "auto" and (master or (pays and not reason))):
        unreached = "" if reason else why_not_reached(master)
        if unreached:
            raise RefusedError(
                f"the Spark master {master} cannot be reached from this host: {unreached}",
                next_command="krepair ... --engine inline",
            )
        reason = reason or prepare_java()
        if reason and wanted == "auto" and not master:
            return InlineEngine(f"inline: {reason}", progress, reason)
        if reason:
            raise RefusedError(
                f"Spark cannot be started: {reason}. Java comes with the system, or with pip install 'krepair[java]'",
                next_command="krepair ... --engine inline",
            )
        asked = "--engine spark" if wanted == "spark" else "--master" if master else ""
        return _start_spark(master, f"spark: {asked or costs.said(work, cores)}", progress)
    if reason:
        return InlineEngine(f"inline: {reason}", progress, reason if pays else "")
    return InlineEngine(f"inline: {costs.said(work, cores)}", progress)


def _start_spark(master: str, reason: str, progress: Progress | None) -> Engine:
    from krepair.pipeline.engines.spark import SparkEngine

    try:
        return SparkEngine(master or "local[*]", reason, progress)
    except KrepairError:
        raise
    except Exception as error:
        raise RefusedError(
            f"Spark did not start: {why_not_started(error, master)}",
            next_command="krepair ... --engine inline",
        ) from error
