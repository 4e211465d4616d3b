"""``krepair check``: finds what is wrong in log directories. Writes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from krepair.checks.catalogue import Finding
from krepair.checks.retention import Deletions
from krepair.fixes.checkpoints import checkpoint_findings, log_ends, see_checkpoints
from krepair.fixes.damage import damage_findings, look_at_damage
from krepair.fixes.epochs import epoch_findings, look_at_epochs
from krepair.fixes.indexes import (
    deletion_findings,
    deletions_of,
    index_findings,
    look_at_txn_indexes,
    scan_and_look,
)
from krepair.fixes.leftovers import (
    freed_at_start,
    leftover_findings,
    leftovers_mend,
    look_at_leftovers,
    next_version,
)
from krepair.fixes.snapshots import look_at_snapshots, snapshot_findings
from krepair.fixes.survey import (
    Surveyed,
    cannot_touch,
    decide_surveyed,
    log_end_of,
    watermark_of,
)
from krepair.kernels import classes as c
from krepair.logdir.config import Settings, load_settings
from krepair.logdir.lock import is_locked
from krepair.logdir.values import LogDir
from krepair.logdir.view import read_log_dir
from krepair.ops.asked import check_named, log_dirs_left_out
from krepair.ops.findings.contents import content_findings
from krepair.ops.findings.duplicates import duplicate_findings
from krepair.ops.findings.emptied import emptied_findings
from krepair.ops.findings.fetch_size import fetch_findings
from krepair.ops.findings.identity import configured_id, meta_findings, metadata_findings, read_metadata
from krepair.ops.findings.kept import kept_findings
from krepair.ops.findings.marked import marked_findings
from krepair.ops.findings.missing_offsets import missing_findings
from krepair.ops.findings.open_transactions import transaction_findings
from krepair.ops.findings.ownership import nodes_of, ownership_findings
from krepair.ops.findings.partitions import MARKER_CLASSES, partition_findings, root_findings, sum_tallies
from krepair.ops.findings.stuck import cleaner_findings
from krepair.ops.kept import kept_originals
from krepair.ops.next_start.findings import recovery_findings, refusal_findings, retention_findings
from krepair.ops.next_start.forecast import RootFacts, forecast
from krepair.ops.next_start.refusal import Version
from krepair.ops.next_start.rehearsal import look_at_starts
from krepair.ops.next_start.start_space import StartSpace, space_findings, start_space
from krepair.ops.reports import CheckReport, ForecastLine, KeptPlan, LogDirReport, PartitionSummary
from krepair.options import Options
from krepair.pipeline.engine import Engine, choose_engine
from krepair.pipeline.progress import Progress, SilentProgress
from krepair.rules.model import LeftAlone

PLAN_FIXES = frozenset({"KR101"})
BEFORE_MARKERS = (
    ("checkpoints", frozenset({"KR403", "KR404", "KR405", "KR410"})),
    ("epochs", frozenset({"KR401", "KR402"})),
    ("snapshots", frozenset({"KR501", "KR502", "KR503"})),
    ("tail", frozenset({"KR301", "KR302", "KR303", "KR304", "KR305"})),
)
INDEX_RULES = frozenset({"KR201", "KR202", "KR203", "KR204", "KR206", "KR207", "KR802"})


def check(log_dirs: Sequence[str], options: Options, progress: Progress | None = None) -> CheckReport:
    """Check log directories.

    Raises:
        NotALogDirError: a path is none, or a partition that was named is in none of them.
        UsageError: a configuration file or value is wrong.
    """
    progress = progress or SilentProgress()
    settings = load_settings(options.config, options.topic_config, dict(options.settings))
    views = [read_log_dir(path) for path in log_dirs]
    check_named(views, options)
    total = sum(segment.log.size for view in views for each in view.partitions for segment in each.segments)
    engine = choose_engine(options.engine, options.master, total)
    try:
        whole: set[str] = set()
        reports = tuple(_check_one(view, settings, options, engine, progress, whole, views) for view in views)
    finally:
        engine.close()
    return CheckReport(
        log_dirs=reports,
        engine=engine.why,
        next_command=_next_command(reports, whole),
        left_out=log_dirs_left_out([view.path for view in views], options.config),
    )


def _index_mends(finding: Finding) -> bool:
    """Whether ``--fix index`` has something for it; an index without a log is the broker's to delete."""
    return finding.rule in INDEX_RULES or (finding.rule == "KR205" and finding.position >= 0)


def _next_command(reports: Sequence[LogDirReport], whole: Collection[str]) -> str:
    for report in reports:
        found = {finding.rule for finding in report.findings}
        if "KR902" in found:
            return f"krepair undo {shlex.quote(report.log_dir)}"  # lists what is half done
        # What keeps a broker down, or makes it delete a partition, comes before what only wastes space.
        fixes = ["leftovers"] * any(map(leftovers_mend, report.findings))
        fixes += [name for name, rules in BEFORE_MARKERS if found & rules]
        indexes = any(_index_mends(finding) for finding in report.findings)
        way = "index=regenerate" if report.log_dir in whole else "index"
        if fixes:
            fixes += [way] * indexes + ["markers"] * bool(found & PLAN_FIXES)
            return f"krepair plan {shlex.quote(report.log_dir)} --fix {','.join(fixes)} --out PLAN"
        if found & PLAN_FIXES:
            return f"krepair plan {shlex.quote(report.log_dir)} --out PLAN"
        if indexes:
            return f"krepair plan {shlex.quote(report.log_dir)} --fix {way} --out PLAN"
    told = sorted({finding.rule for report in reports for finding in report.findings})
    return f"krepair explain {told[0]}" if told else ""


class _Seen(NamedTuple):
    """All that was read of one log directory."""

    view: LogDir
    others: Sequence[LogDir]
    surveyed: Sequence[Surveyed]
    root: RootFacts
    going: Mapping[str, Deletions]
    version: Version
    forecast: tuple[ForecastLine, ...]
    space: StartSpace
    kept: tuple[KeptPlan, ...]


def _check_one(
    view: LogDir,
    settings: Settings,
    options: Options,
    engine: Engine,
    progress: Progress,
    whole: set[str],
    views: Sequence[LogDir],
) -> LogDirReport:
    surveyed, root = look_at_everything(view, settings, options, engine, progress)
    if any(each.txn.problems or any(one.needs_reading for one in each.indexes.values()) for each in surveyed):
        whole.add(view.path)  # cutting is not enough for every file
    version = next_version(view, options)
    going = {each.partition.folder: deletions_of(view, each, options) for each in surveyed}
    lines = tuple(forecast(view, surveyed, going, root, version))
    seen = _Seen(
        view=view,
        others=[other for other in views if other is not view],
        surveyed=surveyed,
        root=root,
        going=going,
        version=version,
        forecast=lines,
        space=start_space(view, surveyed, {line.partition: line for line in lines}),
        kept=kept_originals(view, options.now_ms),
    )
    uncleanable = [each for each in surveyed if isinstance(each.outcome, LeftAlone) and each.outcome.damaged]
    return LogDirReport(
        log_dir=view.path,
        cluster_id=view.cluster_id,
        broker_id=view.broker_id,
        findings=(
            *_findings(seen, settings, options),
            *content_findings(view, surveyed, options, engine, progress),
        ),
        partitions=tuple(_summary(each) for each in surveyed),
        forecast=lines,
        uncleanable_partitions=len(uncleanable),
        uncleanable_bytes=sum(
            segment.log.size for each in uncleanable for segment in each.partition.segments
        ),
        scanned_bytes=sum(facts.summary.valid_bytes for each in surveyed for facts in each.segments),
        start_needs_bytes=seen.space.needs_bytes,
        start_reserves_bytes=seen.space.reserves_bytes,
        free_bytes=seen.space.free_bytes,
        kept=seen.kept,
    )


def look_at_everything(
    view: LogDir, settings: Settings, options: Options, engine: Engine, progress: Progress
) -> tuple[list[Surveyed], RootFacts]:
    """Read one log directory whole, and play the next start through where something is wrong."""
    surveyed = _survey(view, settings, options, engine, progress)
    root = RootFacts(see_checkpoints(view, log_ends(view, engine, surveyed)), read_metadata(view))
    look_at_starts(view, surveyed, settings, options, next_version(view, options), engine, progress)
    return surveyed, root


def _survey(
    view: LogDir, settings: Settings, options: Options, engine: Engine, progress: Progress
) -> list[Surveyed]:
    """Read every log, and look at everything beside it."""
    surveyed = [
        Surveyed(partition, settings.topic(partition.topic), high_watermark=watermark_of(view, partition))
        for partition in view.partitions
        if options.wants(partition.topic, partition.number)
    ]
    scan_and_look(view, surveyed, options, engine, progress)
    look_at_damage(view, surveyed, engine, progress)
    look_at_epochs(view, surveyed, options, engine, progress)
    look_at_snapshots(view, surveyed, settings, options, engine, progress)
    look_at_leftovers(view, surveyed, options, engine, progress)
    for each in surveyed:
        each.outcome = each.outcome or cannot_touch(each.partition, each.settings)
        if each.outcome is None:
            decide_surveyed(view, each, settings, options, engine)
    look_at_txn_indexes(view, surveyed, "check", engine, progress)
    return surveyed


def _findings(seen: _Seen, settings: Settings, options: Options) -> Iterator[Finding]:
    """The root first, then partition by partition, then what the next start makes of it."""
    yield from _findings_of_root(seen, options)
    for each in seen.surveyed:
        yield from _findings_of_partition(seen, each, options)
    views = (seen.view, *seen.others)
    yield from transaction_findings(views, seen.surveyed, options.now_ms, settings.transaction_max_timeout_ms)
    yield from fetch_findings(seen.surveyed)
    yield from recovery_findings(seen.forecast)
    yield from refusal_findings(seen.view, seen.surveyed, seen.root, seen.version)
    yield from space_findings(seen.space)
    told = seen.version if options.broker_version else None  # a directory tells only that it is not older
    yield from emptied_findings(seen.view, seen.forecast, seen.space, nodes_of(seen.view), told)
    yield from kept_findings(seen.view, seen.kept)


def _findings_of_root(seen: _Seen, options: Options) -> Iterator[Finding]:
    view = seen.view
    yield from root_findings(view, is_locked(view.path))
    yield from meta_findings(view, seen.others, seen.root.metadata, configured_id(options.config))
    yield from checkpoint_findings(view, seen.root.checkpoints)
    yield from metadata_findings(view, seen.root.metadata)
    yield from marked_findings(view, seen.version)
    yield from duplicate_findings(view, seen.others)
    yield from ownership_findings(view, nodes_of(view))
    freed = freed_at_start(seen.surveyed, [each for each in view.marked if each.role == "delete"])
    if freed is not None:
        yield freed


def _findings_of_partition(seen: _Seen, each: Surveyed, options: Options) -> Iterator[Finding]:
    going = seen.going[each.partition.folder]
    yield from partition_findings(seen.view, each)
    yield from damage_findings(seen.view, each)
    yield from missing_findings(seen.view, each)
    yield from leftover_findings(each)
    yield from index_findings(each)
    yield from epoch_findings(each)
    yield from cleaner_findings(seen.view, each, seen.version)
    yield from snapshot_findings(each)
    yield from deletion_findings(each, going, options)
    yield from retention_findings(each, going, options)


def _summary(each: Surveyed) -> PartitionSummary:
    tallies = sum_tallies(each.segments)
    markers = tallies[list(MARKER_CLASSES)].sum(axis=0)
    return PartitionSummary(
        partition=each.partition.folder,
        segments=len(each.partition.segments),
        log_bytes=sum(segment.log.size for segment in each.partition.segments),
        batches=int(tallies[:, c.T_BATCHES].sum()),
        markers=int(markers[c.T_BATCHES]),
        marker_bytes=int(markers[c.T_BYTES]),
        emptied=int(tallies[c.EMPTIED, c.T_BATCHES]),
        emptied_bytes=int(tallies[c.EMPTIED, c.T_BYTES]),
        log_start_offset=each.partition.segments[0].base_offset if each.partition.segments else 0,
        log_end_offset=log_end_of(each.segments),
    )
