"""Every row of findings, in the order in which they are told. Fixes have rows of their own; these no fix mends.

A row is a small function from what was seen to findings. A new one is one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from krepair.checks.catalogue import Finding, Severity
from krepair.fixes.checkpoints import GONE_SEEN
from krepair.fixes.index import deletion_findings
from krepair.fixes.leftovers import freed_at_start
from krepair.fixes.survey import Survey
from krepair.fixes.table import FIXES
from krepair.formats.filenames import METADATA_TOPIC
from krepair.logdir.lock import is_locked
from krepair.ops.findings.absent import absent_findings
from krepair.ops.findings.contents import content_findings
from krepair.ops.findings.emptied import emptied_findings
from krepair.ops.findings.fetch_size import fetch_findings
from krepair.ops.findings.kept import kept_findings
from krepair.ops.findings.missing_offsets import missing_findings
from krepair.ops.findings.open_transactions import transaction_findings
from krepair.ops.findings.partitions import partition_findings, root_findings
from krepair.ops.findings.seen import Seen
from krepair.ops.findings.stuck import cleaner_findings, large_record_findings
from krepair.ops.removable import removable
from krepair.start.findings import recovery_findings, retention_findings
from krepair.start.ownership import nodes_of
from krepair.start.start_space import space_findings
from krepair.start.times import time_findings

Row = Callable[[Seen], Iterator[Finding]]
PartitionRow = Callable[[Seen, Survey], Iterator[Finding]]


def all_findings(seen: Seen) -> Iterator[Finding]:
    """The root first, then partition by partition, then what the next start makes of it.

    Several readers may meet the same file that cannot be read: what is the same is told once.
    """
    return iter(dict.fromkeys(_every_finding(seen)))


def _every_finding(seen: Seen) -> Iterator[Finding]:
    for row in OF_THE_ROOT:
        yield from row(seen)
    for survey in seen.surveys:
        for partition_row in OF_A_PARTITION:
            yield from partition_row(seen, survey)
    for row in OF_ALL_TOGETHER:
        yield from row(seen)


def _root_fixes(seen: Seen) -> Iterator[Finding]:
    for fix in FIXES:
        yield from fix.look_root(seen.context).findings


def _fixes(seen: Seen, survey: Survey) -> Iterator[Finding]:
    if survey.partition.topic == METADATA_TOPIC:
        return  # a node of KRaft makes all of it anew at every start; what it cannot is KR610
    ends = seen.context.root.seen(GONE_SEEN) or ()
    gone = next((one for one in ends if one.folder == survey.partition.folder), None)
    for fix in FIXES:
        for found in fix.look(seen.context, survey).findings:
            if gone is None or not (found.rule == "KR502" or found.file in gone.orphans):
                yield found  # else KR312 tells it


def _freed(seen: Seen) -> Iterator[Finding]:
    deleted = [folder for folder in seen.view.marked if folder.role == "delete"]
    freed = freed_at_start(seen.surveys, deleted)
    if freed is not None:
        # It matters where the start has no room: a broker has to come up before it can delete.
        short = 0 <= seen.space.free_bytes < seen.space.needs_bytes
        yield freed if short else replace(freed, severity=Severity.INFORMATION)


def _transactions(seen: Seen) -> Iterator[Finding]:
    context = seen.context
    return transaction_findings(
        (seen.view, *seen.others),
        seen.surveys,
        context.options.now_ms,
        context.settings.transaction_max_timeout_ms,
        context.engine,
    )


def _emptied(seen: Seen) -> Iterator[Finding]:
    # A directory tells only that its broker is not older than a version.
    told = seen.context.version if seen.context.options.broker_version else None
    return emptied_findings(seen.view, seen.forecast, seen.space, nodes_of(seen.view), told)


def _space(seen: Seen) -> Iterator[Finding]:
    """What has to become free, and what can go without loss."""
    found = list(space_findings(seen.space))
    could = removable(seen.view.path) if found else ()
    safe = "".join(f"; what can safely go: {one.text}" for one in could)
    for finding in found:
        lacks = f"; at least {-(-finding.bytes // 1024):,} KiB have to become free" if finding.bytes else ""
        command = could[0].command if could else ""
        yield replace(finding, evidence=f"{finding.evidence}{lacks}{safe}", command=command)


OF_THE_ROOT: Final[tuple[Row, ...]] = (
    lambda seen: root_findings(seen.view, is_locked(seen.view.path)),
    lambda seen: iter(seen.starting.findings),
    _root_fixes,
    absent_findings,
    _freed,
)

OF_A_PARTITION: Final[tuple[PartitionRow, ...]] = (
    lambda seen, survey: partition_findings(seen.view, survey),
    lambda seen, survey: missing_findings(seen.view, survey),
    _fixes,
    lambda seen, survey: cleaner_findings(seen.view, survey, seen.context.version),
    lambda seen, survey: deletion_findings(survey, seen.going[survey.partition.folder], seen.context.options),
    lambda seen, survey: time_findings(
        seen.view, survey, seen.going[survey.partition.folder], seen.context.options.now_ms
    ),
    lambda seen, survey: retention_findings(
        survey, seen.going[survey.partition.folder], seen.context.options
    ),
)

OF_ALL_TOGETHER: Final[tuple[Row, ...]] = (
    _transactions,
    lambda seen: fetch_findings(seen.surveys),
    lambda seen: large_record_findings(seen.context, seen.surveys),
    lambda seen: recovery_findings(seen.forecast),
    _space,
    _emptied,
    lambda seen: kept_findings(seen.view, seen.kept),
    lambda seen: content_findings(seen.context, seen.surveys),
)
