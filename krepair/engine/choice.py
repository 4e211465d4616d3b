"""The choice between this process and Spark, by estimates of the time that each needs.

``auto`` takes Spark only if it finishes clearly sooner, its start included. The cost figures come from ``make bench``
(docs/benchmarks.md), rounded up so that in doubt the work is done in this process. They never change what is in a plan.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from krepair.engine.engine import Engine, InlineEngine
from krepair.engine.java import prepare_java, why_no_spark
from krepair.engine.progress import Progress
from krepair.errors import KrepairError, RefusedError
from krepair.next_command import INLINE

_LOG: Final = logging.getLogger(__name__)
_STANDALONE: Final = "spark://"
_OTHER_MASTERS: Final = re.compile(r"local\b|yarn$|k8s://")
_PATIENCE_S: Final = 5.0
"""Seconds for which a Spark master may take to accept a connection."""
_JAVA_CAUSE: Final = re.compile(r"(?:Caused by: )?(?:[a-z]\w*\.)+\w*(?:Exception|Error): (?P<cause>\S.*)")


def choose_engine(wanted: str, master: str, work: Load, progress: Progress | None = None) -> Engine:
    """Choose and start the engine for a job.

    Args:
        wanted: ``auto``, ``spark`` or ``inline``.
        master: Spark master URL, empty for all cores of this host.
        work: bytes of logs that the verb reads, by kind of work.
        progress: receiver of each job's progress, see ``Engine``.

    Raises:
        RefusedError: Spark was requested and cannot start here, or its master cannot be reached.
    """
    engine = _choose(wanted, master, work, progress)
    _LOG.info("engine %s", engine.why)
    return engine


def _choose(wanted: str, master: str, work: Load, progress: Progress | None) -> Engine:
    if wanted == "inline":
        return InlineEngine("inline: --engine inline", progress)
    reason, cores = why_no_spark(), cores_here()
    pays = spark_pays(work, cores)
    if wanted == "spark" or (wanted == "auto" and (master or (pays and not reason))):
        unreached = why_not_reached(master) if master and not reason else ""
        if unreached:
            raise RefusedError(
                f"the Spark master {master} cannot be reached from this host: {unreached}",
                next_command=INLINE,
            )
        reason = reason or prepare_java()
        if reason and wanted == "auto" and not master:
            return InlineEngine(f"inline: {reason}", progress, reason)
        if reason:
            raise RefusedError(
                f"Spark cannot be started: {reason}. Java comes with the system, or with pip install 'krepair[java]'",
                next_command=INLINE,
            )
        option = "--engine spark" if wanted == "spark" else "--master" if master else ""
        return _start_spark(master, f"spark: {option or cost_text(work, cores)}", progress)
    if reason:
        return InlineEngine(f"inline: {reason}", progress, reason if pays else "")
    return InlineEngine(f"inline: {cost_text(work, cores)}", progress)


def _start_spark(master: str, reason: str, progress: Progress | None) -> Engine:
    from krepair.engine.spark import SparkEngine

    try:
        return SparkEngine(master or "local[*]", reason, progress)
    except KrepairError:
        raise
    except Exception as error:
        raise RefusedError(
            f"Spark did not start: {why_not_started(error, master)}",
            next_command=INLINE,
        ) from error


class WorkKind(StrEnum):
    """Kind of work, by its cost per byte."""

    READ = "read"
    """Batches are read, checked and copied: ``check``, ``verify``, markers, indexes, tails."""
    RECOVER = "recover"
    """Files of a log are rebuilt and read a second time: recovery."""
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
"""Seconds that Spark costs in addition to the work: its start, and the fixed cost of its jobs."""
_SHARE_THAT_DIVIDES: Final = 0.85
"""Share of the work that Spark divides among cores. The driver alone lists folders, joins summaries and commits."""
_WORTH_IT: Final = 0.8
"""Largest share of the time in this process at which Spark counts as clearly faster."""

Load = Mapping[WorkKind, int]
"""Bytes of logs by kind of work."""


def cores_here() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0))


def inline_seconds(work: Load) -> float:
    """Estimate the seconds that the work takes in this process."""
    return sum(SECONDS_PER_GB[kind] * size / 1e9 for kind, size in work.items())


def spark_seconds(work: Load, cores: int) -> float:
    """Estimate the seconds that the work takes on Spark, start included."""
    seconds = inline_seconds(work)
    return SPARK_START_S + seconds * (1 - _SHARE_THAT_DIVIDES + _SHARE_THAT_DIVIDES / cores)


def spark_pays(work: Load, cores: int) -> bool:
    """Return whether Spark on ``cores`` cores of this host finishes clearly sooner."""
    return spark_seconds(work, cores) < _WORTH_IT * inline_seconds(work)


def cost_text(work: Load, cores: int) -> str:
    """Format both estimates for the report."""
    here, there = _seconds(inline_seconds(work)), _seconds(spark_seconds(work, cores))
    return f"{here} of work, {there} with Spark on {cores} {'core' if cores == 1 else 'cores'}"


def _seconds(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds >= 1 else "less than 1 s"


def why_not_reached(master: str, patience_s: float = _PATIENCE_S) -> str:
    """Return why a Spark master cannot be reached; empty if one listens, or if the URL is of another kind.

    Args:
        master: Spark master URL, as ``spark://host:7077`` or ``spark://host:7077,other:7077``.
        patience_s: timeout of one connection in seconds.
    """
    if master == "yarn" and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        return "neither HADOOP_CONF_DIR nor YARN_CONF_DIR names the folder with the addresses of the cluster"
    if not master.startswith(_STANDALONE):
        return (
            ""
            if _OTHER_MASTERS.match(master)
            else "local[*], spark://HOST:PORT, yarn or k8s://... is expected"
        )
    problems = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            return f"{address!r} is not HOST:PORT"
        try:
            with socket.create_connection((host.strip("[]"), int(port)), patience_s):
                return ""
        except (OSError, OverflowError) as error:
            cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            problems.append(f"{address}: {cause}")
    return "; ".join(problems)


def why_not_started(error: Exception, master: str) -> str:
    """Extract from Spark's error, in one line, why a session did not start."""
    text = str(error).strip()
    if "stopped SparkContext" in text or "All masters are unresponsive" in text:
        return (
            f"{master} took no application for a minute: is it a Spark master, and of this version of Spark?"
        )
    causes = [match["cause"] for line in text.splitlines() if (match := _JAVA_CAUSE.fullmatch(line.strip()))]
    return causes[-1] if causes else text.partition("\n")[0]
