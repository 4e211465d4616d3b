"""What a run came to, for the node exporter's text file collector.

The two figures of KIP-346 have its names (``uncleanable-partitions-count``, ``uncleanable-bytes``) in the spelling of
Prometheus, one sample a log directory. The format is the text format 0.0.4 of Prometheus.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from krepair.checks.catalogue import RULES
from krepair.durable.disk import Attributes, Disk
from krepair.durable.real_disk import RealDisk
from krepair.errors import RefusedError, UsageError
from krepair.ops.reports import ApplyReport, CheckReport, VerifyReport
from krepair.plan.model import Plan

SUFFIX: Final = ".prom"
_FIRST_LINE: Final = b"# Written by krepair"
_RECLAIMABLE: Final = "KR101"
_MODE: Final = 0o644
"""The node exporter runs as another user."""

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
    """Prove, before any work, that metrics may be written to a path.

    Args:
        path: where they are to go.
        log_dirs: log directories of this run.

    Returns:
        The absolute path, links in its folders resolved.

    Raises:
        RefusedError: it is in a log directory, or a file is there that krepair did not write.
        UsageError: no name that ends with ``.prom``, or no such folder.
    """
    folder, name = os.path.split(os.path.abspath(path))
    folder = os.path.realpath(folder)
    target = os.path.join(folder, name)
    if not name.endswith(SUFFIX):
        raise UsageError(f"--metrics {path!r}: the collector reads only names that end with {SUFFIX}")
    for log_dir in log_dirs:
        root = os.path.realpath(log_dir)
        if target.startswith(root.rstrip("/") + "/"):
            raise RefusedError(f"{path}: metrics are never written into the log directory {root}")
    if not os.path.isdir(folder):
        raise UsageError(f"--metrics {path!r}: the folder {folder} is not there")
    if not _replaceable(target):
        raise RefusedError(
            f"{path}: is there and was not written by krepair; it is not overwritten",
            next_command="the same command with another file after --metrics",
        )
    return target


def _replaceable(target: str) -> bool:
    try:
        descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        head = os.read(descriptor, len(_FIRST_LINE))
        return not head or head == _FIRST_LINE
    finally:
        os.close(descriptor)


def families(report: Any, ended: Ended) -> list[Family]:
    """What is told of a run.

    Args:
        report: of ``check``, ``plan``, ``apply`` or ``verify``; None if the run failed before there was one.
        ended: how it ended.
    """
    run = {"verb": ended.verb}
    found = [
        Family("krepair_last_run_timestamp_seconds", "When the last run ended.", ((run, ended.at_s),)),
        Family("krepair_last_run_duration_seconds", "How long it took.", ((run, ended.duration_s),)),
        Family("krepair_last_run_exit_code", "Its exit code.", ((run, ended.exit_code),)),
    ]
    if isinstance(report, CheckReport):
        found += _of_check(report)
    elif isinstance(report, Plan):
        found += _uncleanable(
            ((report.log_dir, report.uncleanable_partitions, report.uncleanable_bytes),), "plan"
        )
        freed = report.freed_at_apply + report.freed_at_purge
        found.append(
            _per_dir(
                "krepair_reclaimable_bytes", "Bytes that can be freed.", ((report.log_dir, freed),), "plan"
            )
        )
    elif isinstance(report, ApplyReport):
        found += _uncleanable(
            ((report.log_dir, report.uncleanable_partitions, report.uncleanable_bytes),), report.verb
        )
        rows = ((report.log_dir, report.bytes_freed),)
        found.append(_per_dir("krepair_reclaimed_bytes", "Bytes that the last run freed.", rows, report.verb))
    elif isinstance(report, VerifyReport):
        rows = ((report.target, len(report.problems)),)
        found.append(_per_dir("krepair_problems", "What verify found wrong.", rows, "verify"))
    return found


def _of_check(report: CheckReport) -> list[Family]:
    dirs = report.log_dirs
    counts = Counter((each.log_dir, finding.rule) for each in dirs for finding in each.findings)
    findings = tuple(
        (
            {"verb": "check", "log_directory": log_dir, "rule": rule, "severity": RULES[rule].severity.value},
            count,
        )
        for (log_dir, rule), count in sorted(counts.items())
    )
    reclaimable = [
        (each.log_dir, sum(finding.bytes for finding in each.findings if finding.rule == _RECLAIMABLE))
        for each in dirs
    ]
    return [
        *_uncleanable(
            [(each.log_dir, each.uncleanable_partitions, each.uncleanable_bytes) for each in dirs], "check"
        ),
        Family("krepair_findings", "Findings by rule and severity.", findings),
        _per_dir("krepair_reclaimable_bytes", "Bytes that can be freed.", reclaimable, "check"),
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
    return text.encode("utf-8", "backslashreplace").decode().translate(_ESCAPES)


def write(target: str, data: bytes, disk: Disk | None = None) -> None:
    """Write metrics so that the collector sees the old ones or the new ones, whole.

    Args:
        target: from ``check_place``.
        data: from ``render``.
        disk: does it.

    Raises:
        OSError: the operating system refused.
    """
    disk = disk or RealDisk()
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
    try:
        if disk.tree.is_there(temporary):
            disk.unlink(temporary)
        disk.create(temporary, data)
        made = os.stat(temporary)
        disk.set_attributes(temporary, Attributes(made.st_uid, made.st_gid, _MODE, made.st_mtime_ns, {}))
        if not _replaceable(target):  # since the run began, as a plan of this run may have come there
            raise FileExistsError(
                errno.EEXIST, "a file is there that krepair did not write as metrics", target
            )
        disk.rename(temporary, target)
        disk.sync_dir(folder)
    except OSError:
        with suppress(OSError):
            disk.unlink(temporary)
        raise
