"""Metrics of a run, for the node exporter's text file collector.

The two figures of KIP-346 have its names (``uncleanable-partitions-count``, ``uncleanable-bytes``) in the spelling of
Prometheus, one sample per log directory. The format is the text format 0.0.4 of Prometheus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from krepair.checks.catalogue import severity_of
from krepair.commit.reports import ApplyReport
from krepair.durable.output_file import OutputKind
from krepair.findings.reports import CheckReport, LogDirReport
from krepair.formats.words import printable
from krepair.ops.compare import CompareReport
from krepair.ops.verify import VerifyEachReport, VerifyReport
from krepair.plan.model import Plan
from krepair.rules.replicas.model import VERDICTS

SUFFIX: Final = ".prom"
_FIRST_LINE: Final = b"# Written by krepair"
_RECLAIMABLE: Final = "KR101"
METRICS: Final = OutputKind(
    option="--metrics",
    what="metrics",
    first=_FIRST_LINE,
    suffix=SUFFIX,
    why_suffix="the collector reads only names that end with",
)
_OF_A_DIR: Final = {
    "krepair_uncleanable_partitions_count": "Partitions that cannot be cleaned (KIP-346).",
    "krepair_uncleanable_bytes": "Bytes that cannot be cleaned (KIP-346).",
    "krepair_reclaimable_bytes": "Bytes that can be freed.",
    "krepair_reclaimed_bytes": "Bytes that the last run freed.",
    "krepair_problems": "Problems that verify found.",
}
"""Help texts of the metrics with one sample per log directory."""
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Family(NamedTuple):
    """One metric with its samples.

    Attributes:
        name: name of the metric.
        help: help text of the metric.
        samples: labels and value of each sample.
    """

    name: str
    help: str
    samples: tuple[tuple[dict[str, str], float], ...]


class Ended(NamedTuple):
    """End of a run.

    Attributes:
        verb: verb as the operator typed it.
        exit_code: exit code of the process.
        at_s: time of the end, in seconds since 1970.
        duration_s: duration of the run in seconds.
    """

    verb: str
    exit_code: int
    at_s: float
    duration_s: float


def families(report: Any, ended: Ended) -> list[Family]:
    """Build the metrics of a run.

    Args:
        report: report of ``check``, ``compare``, ``plan``, ``apply`` or ``verify``; None if the run failed before.
        ended: end of the run.
    """
    run = {"verb": ended.verb}
    metrics = [
        Family(
            "krepair_last_run_timestamp_seconds", "Time at which the last run ended.", ((run, ended.at_s),)
        ),
        Family("krepair_last_run_duration_seconds", "Duration of the last run.", ((run, ended.duration_s),)),
        Family("krepair_last_run_exit_code", "Exit code of the last run.", ((run, ended.exit_code),)),
    ]
    return metrics + _figures(report, ended.verb)


def _figures(report: Any, verb: str) -> list[Family]:
    """Build the metrics of each kind of report; none for a failed run."""
    if isinstance(report, CompareReport):
        return _of_compare(report)
    rows = list(_by_dir(report))
    names = list(rows[0][1]) if rows else []
    metrics = [
        Family(
            name,
            _OF_A_DIR[name],
            tuple(({"verb": verb, "log_directory": log_dir}, figures[name]) for log_dir, figures in rows),
        )
        for name in names
    ]
    return [*metrics, _findings(report)] if isinstance(report, CheckReport) else metrics


def _by_dir(report: Any) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield each log directory of a report, with its figures by metric name."""
    if isinstance(report, CheckReport):
        for log_dir in report.log_dirs:
            sizes = (finding.bytes for finding in log_dir.findings if finding.rule == _RECLAIMABLE)
            yield log_dir.log_dir, _uncleanable(log_dir) | {"krepair_reclaimable_bytes": sum(sizes)}
    elif isinstance(report, ApplyReport):
        yield report.log_dir, _uncleanable(report) | {"krepair_reclaimed_bytes": report.bytes_freed}
    elif isinstance(report, Plan):
        yield report.log_dir, _uncleanable(report) | {"krepair_reclaimable_bytes": report.freed_at_purge}
    elif isinstance(report, VerifyReport | VerifyEachReport):
        for verified in report.reports if isinstance(report, VerifyEachReport) else (report,):
            yield verified.target, {"krepair_problems": len(verified.problems)}


def _uncleanable(report: LogDirReport | ApplyReport | Plan) -> dict[str, int]:
    return {
        "krepair_uncleanable_partitions_count": report.uncleanable_partitions,
        "krepair_uncleanable_bytes": report.uncleanable_bytes,
    }


def _findings(report: CheckReport) -> Family:
    counts = Counter(
        (log_dir.log_dir, finding.rule, severity_of(finding).value)
        for log_dir in report.log_dirs
        for finding in log_dir.findings
    )
    samples = tuple(
        ({"verb": "check", "log_directory": log_dir, "rule": rule, "severity": severity}, count)
        for (log_dir, rule, severity), count in sorted(counts.items())
    )
    return Family("krepair_findings", "Findings by rule and severity.", samples)


def _of_compare(report: CompareReport) -> list[Family]:
    verdicts = tuple(({"verb": "compare", "verdict": name}, report.counts.get(name, 0)) for name in VERDICTS)
    kinds = Counter(
        (disagreement.rule, disagreement.kind, broker)
        for partition in report.partitions
        for disagreement in partition.disagreements
        for broker in disagreement.brokers
    )
    wrong = tuple(
        ({"verb": "compare", "rule": rule, "kind": kind, "broker": str(broker)}, count)
        for (rule, kind, broker), count in sorted(kinds.items())
    )
    return [
        Family("krepair_replica_verdicts", "Partitions by verdict.", verdicts),
        Family("krepair_replica_disagreements", "Partitions by problem and broker.", wrong),
    ]


def render(metrics: Iterable[Family]) -> bytes:
    """Format the metrics as text; names that are not UTF-8 are spelled out."""
    lines = [f"{_FIRST_LINE.decode()} for the text file collector of the node exporter."]
    for family in metrics:
        if family.samples:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} gauge"]
        for labels, value in family.samples:
            inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(
                f"{family.name}{{{inner}}} {value if isinstance(value, int) else format(value, '.3f')}"
            )
    return ("\n".join(lines) + "\n").encode()


def _escaped(text: str) -> str:
    return printable(text).translate(_ESCAPES)
