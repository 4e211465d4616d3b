"""The result of a run, for the node exporter's text file collector.

The two figures of KIP-346 have its names (``uncleanable-partitions-count``, ``uncleanable-bytes``) in the spelling of
Prometheus, one sample a log directory. The format is the text format 0.0.4 of Prometheus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from krepair.checks.catalogue import severity_of
from krepair.durable.disk import Disk
from krepair.formats.words import printable
from krepair.ops import output_file
from krepair.ops.compare import CompareReport
from krepair.ops.output_file import OutputKind
from krepair.ops.reports import (
    ApplyReport,
    CheckReport,
    VerifyEachReport,
    VerifyReport,
)
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
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Family(NamedTuple):
    """One metric with its samples.

    Attributes:
        name: of the metric.
        help: what it says.
        samples: (labels, value).
    """

    name: str
    help: str
    samples: tuple[tuple[dict[str, str], float], ...]


class Ended(NamedTuple):
    """How a run ended.

    Attributes:
        verb: as typed.
        exit_code: of the process.
        at_s: when it ended, seconds since 1970.
        duration_s: how long it took.
    """

    verb: str
    exit_code: int
    at_s: float
    duration_s: float


def check_place(path: str, log_dirs: Iterable[str]) -> str:
    """Prove, before any work, that metrics may be written to a path; see ``krepair.ops.output_file.check_place``."""
    return output_file.check_place(METRICS, path, log_dirs)


def families(report: Any, ended: Ended) -> list[Family]:
    """What is told of a run.

    Args:
        report: of ``check``, ``compare``, ``plan``, ``apply`` or ``verify``; None if the
            run failed before.
        ended: how it ended.
    """
    run = {"verb": ended.verb}
    found = [
        Family("krepair_last_run_timestamp_seconds", "When the last run ended.", ((run, ended.at_s),)),
        Family("krepair_last_run_duration_seconds", "How long it took.", ((run, ended.duration_s),)),
        Family("krepair_last_run_exit_code", "Its exit code.", ((run, ended.exit_code),)),
    ]
    return found + _figures(report)


def _figures(report: Any) -> list[Family]:
    """Of each kind of report: its own; none of a run that failed."""
    if isinstance(report, CheckReport):
        return _of_check(report)
    if isinstance(report, CompareReport):
        return _of_compare(report)
    if isinstance(report, ApplyReport):
        return _of_apply(report)
    if isinstance(report, Plan):
        return _of_plan(report)
    verified = _verified_of(report)
    return [_of_verify(verified)] if verified else []


def _verified_of(report: Any) -> Sequence[VerifyReport]:
    """One report a log directory."""
    if isinstance(report, VerifyEachReport):
        return report.reports
    return [report] if isinstance(report, VerifyReport) else []


def _of_apply(report: ApplyReport) -> list[Family]:
    rows = [(report.log_dir, report.bytes_freed)]
    uncleanable = (report.log_dir, report.uncleanable_partitions, report.uncleanable_bytes)
    return [
        *_uncleanable([uncleanable], report.verb),
        _per_dir("krepair_reclaimed_bytes", "Bytes that the last run freed.", rows, report.verb),
    ]


def _of_plan(plan: Plan) -> list[Family]:
    rows = [(plan.log_dir, plan.freed_at_purge)]
    return [
        *_uncleanable([(plan.log_dir, plan.uncleanable_partitions, plan.uncleanable_bytes)], "plan"),
        _per_dir("krepair_reclaimable_bytes", "Bytes that can be freed.", rows, "plan"),
    ]


def _of_verify(reports: Iterable[VerifyReport]) -> Family:
    """What each report found."""
    rows = [(report.target, len(report.problems)) for report in reports]
    return _per_dir("krepair_problems", "What verify found wrong.", rows, "verify")


def _of_check(report: CheckReport) -> list[Family]:
    dirs = report.log_dirs
    counts = Counter(
        (report.log_dir, finding.rule, severity_of(finding).value)
        for report in dirs
        for finding in report.findings
    )
    findings = tuple(
        (
            {"verb": "check", "log_directory": log_dir, "rule": rule, "severity": severity},
            count,
        )
        for (log_dir, rule, severity), count in sorted(counts.items())
    )
    reclaimable = [
        (report.log_dir, sum(finding.bytes for finding in report.findings if finding.rule == _RECLAIMABLE))
        for report in dirs
    ]
    return [
        *_uncleanable(
            [(report.log_dir, report.uncleanable_partitions, report.uncleanable_bytes) for report in dirs],
            "check",
        ),
        Family("krepair_findings", "Findings by rule and severity.", findings),
        _per_dir("krepair_reclaimable_bytes", "Bytes that can be freed.", reclaimable, "check"),
    ]


def _of_compare(report: CompareReport) -> list[Family]:
    verdicts = tuple(({"verb": "compare", "verdict": name}, report.counts.get(name, 0)) for name in VERDICTS)
    kinds = Counter(
        (found.rule, found.kind, broker)
        for one in report.partitions
        for found in one.disagreements
        for broker in found.brokers
    )
    wrong = tuple(
        ({"verb": "compare", "rule": rule, "kind": kind, "broker": str(broker)}, count)
        for (rule, kind, broker), count in sorted(kinds.items())
    )
    return [
        Family("krepair_replica_verdicts", "Partitions by verdict.", verdicts),
        Family("krepair_replica_disagreements", "Partitions by what is wrong, and on which broker.", wrong),
    ]


def _uncleanable(rows: Sequence[tuple[str, int, int]], verb: str) -> list[Family]:
    counts = [(log_dir, count) for log_dir, count, _ in rows]
    sizes = [(log_dir, size) for log_dir, _, size in rows]
    return [
        _per_dir(
            "krepair_uncleanable_partitions_count",
            "Partitions that cannot be cleaned (KIP-346).",
            counts,
            verb,
        ),
        _per_dir("krepair_uncleanable_bytes", "Bytes that cannot be cleaned (KIP-346).", sizes, verb),
    ]


def _per_dir(name: str, text: str, rows: Iterable[tuple[str, int]], verb: str) -> Family:
    return Family(
        name, text, tuple(({"verb": verb, "log_directory": log_dir}, value) for log_dir, value in rows)
    )


def render(found: Iterable[Family]) -> bytes:
    """The metrics as text; names that are no UTF-8 are spelled out."""
    lines = [f"{_FIRST_LINE.decode()} for the text file collector of the node exporter."]
    for family in found:
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


def write(target: str, data: bytes, disk: Disk | None = None) -> None:
    """Write metrics so that the collector sees the old ones or the new ones, whole.

    Args:
        target: from ``check_place``.
        data: from ``render``.
        disk: does it.

    Raises:
        OSError: the operating system refused.
    """
    output_file.write(METRICS, target, data, disk)
