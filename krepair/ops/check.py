"""``krepair check``: find what is wrong in log directories. Writes nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from msgspec.structs import replace

from krepair.checks.catalogue import IN_USE, Severity, StartEffect, counts, severity_of, start_of
from krepair.commit.kept import kept_originals
from krepair.durable.scratch import Scratch
from krepair.engine.choice import WorkKind, choose_engine
from krepair.engine.progress import Progress
from krepair.errors import AS_A_READER
from krepair.findings.by_rule import WORST_FIRST, by_rule, with_next_commands
from krepair.findings.coordinator_versions import VersionsInUse, causes_in, versions_in_use
from krepair.findings.reports import CheckReport, LogDirReport, PartitionSummary
from krepair.findings.table import AnalyzedDir, all_findings
from krepair.fixes.analysis import PartitionAnalysis, log_end_of
from krepair.fixes.checkpoints import CHECKPOINTS_RESULT
from krepair.fixes.context import Context
from krepair.fixes.fix import named_or_all
from krepair.fixes.index.decide import deletions_of, read_logs_and_indexes
from krepair.fixes.markers.decide import MARKER_CLASSES, left_alone, sum_tallies
from krepair.fixes.next_start import simulate_next_starts
from krepair.fixes.table import FIXES, command_for, requested_fixes
from krepair.formats.kafka_versions import release_of
from krepair.kernels import classes as c
from krepair.logdir.cluster import ClusterView, view_of_image
from krepair.logdir.config import load_settings, log_dirs_left_out
from krepair.logdir.values import LogDir
from krepair.next_command import NOTHING, PLAN, Next
from krepair.options import Options
from krepair.plan.commands import is_with_evidence
from krepair.plan.fit import shortage_at_start
from krepair.plan.space import files_at_most
from krepair.start.findings import Starting, starting_of
from krepair.start.forecast import forecast, with_another
from krepair.start.identity import StartingNode, metadata_of, node_of
from krepair.start.log_dirs_given import check_named, read_log_dirs
from krepair.start.metadata_log import MetadataLog, see_metadata_log
from krepair.start.needs import held_by_start, start_space
from krepair.start.placed import Missing, missing_partitions
from krepair.start.readable import Readable, readable_of
from krepair.start.refusal import RootFacts
from krepair.start.unformatted import UnusableDir, unformatted_finding

_FREEING: Final = ("--keep", "auto")


_LOG: Final = logging.getLogger(__name__)


def check(log_dirs: Sequence[str], options: Options, progress: Progress | None = None) -> CheckReport:
    """Check log directories.

    Args:
        log_dirs: paths of one broker's log directories, which are compared with one another.
        progress: receiver of the bytes done so far.

    Raises:
        NotALogDirError: a path is no log directory, or a named partition is in none of them.
        UsageError: a configuration file or value is wrong.
    """
    views, unusable = read_log_dirs(log_dirs, options)
    metadata_log = see_metadata_log(views)
    readable = readable_of(views, metadata_log)
    voters = () if metadata_log is None else metadata_log.voters
    node = node_of(views, options, voters, readable.releases)
    recorded = None if metadata_log is None else metadata_log.configs(node.node_id)
    image = None if metadata_log is None else metadata_log.image
    missing = missing_partitions(views, image, node.node_id, len(log_dirs), options.config)
    settings = load_settings(options.config, options.topic_config, dict(options.settings), recorded)
    check_named(views, options)
    sizes = (
        segment.log.size for view in views for partition in view.partitions for segment in partition.segments
    )
    with (
        closing(
            choose_engine(options.engine, options.master, {WorkKind.READ: sum(sizes)}, progress)
        ) as engine,
        closing(Scratch(options.scratch, [view.path for view in views])) as scratch,
    ):
        own_metadata: tuple[ClusterView, ...] = ()
        if metadata_log is not None and image is not None:
            own_metadata = (view_of_image(metadata_log.log.path, image, views[0].cluster_id),)
        contexts = [
            Context(
                view,
                settings,
                options,
                engine,
                scratch,
                own_metadata=own_metadata,
                readable_by=readable.releases,
            )
            for view in views
        ]
        results = [_check_one(context, views, node, metadata_log, readable, missing) for context in contexts]
    results += [_not_formatted(directory, views, node, missing, options) for directory in unusable]
    in_use = [usage for result in results for usage in result.in_use]
    releases = [
        release
        for release in readable.releases
        if not any(causes_in(partition, versions, release) for partition, versions in in_use)
    ]
    reports = tuple(_with_others(results, number) for number in range(len(results)))
    best_modes = {context.view.path: _best_modes(context) for context in contexts}
    best_modes |= {directory.path: {} for directory in unusable}
    if _LOG.isEnabledFor(logging.INFO):
        for finding in (finding for report in reports for finding in report.findings):
            _LOG.info("%s: %s: %s", finding.partition or "root", finding.rule, finding.evidence)
    return CheckReport(
        log_dirs=reports,
        engine=engine.why,
        next_command=_as_a_reader(views) or _next_command(reports, best_modes),
        left_out=log_dirs_left_out([directory.report.log_dir for directory in results], options.config),
        oldest_version=release_of(releases[0]) if releases else "",
        newest_version=release_of(releases[-1]) if releases else "",
    )


def _as_a_reader(views: Sequence[LogDir]) -> Next:
    """Return the same command for a user who may read everything, or an empty one if nothing was forbidden."""
    if not any(partition.forbidden for view in views for partition in view.partitions):
        return NOTHING
    return Next.of("check", *(view.path for view in views), when=AS_A_READER)


def _best_modes(context: Context) -> dict[str, str]:
    return {fix.name: fix.best_mode(list(context.analyses.values())) for fix in FIXES}


def _next_command(reports: Sequence[LogDirReport], best_modes: Mapping[str, dict[str, str]]) -> Next:
    """Return the next command: for the directory with the worst finding, in whatever order they were given."""
    for report in sorted(reports, key=_worst_of):
        if any(finding.rule == "KR902" for finding in report.findings):
            return Next.of("undo", report.log_dir)  # lists what is half done
        by_hand = next((finding.command for finding in report.findings if finding.rule == "KR901"), NOTHING)
        if by_hand:
            return by_hand
        not_read = [finding.rule for finding in report.findings if finding.rule in {"KR805", "KR806"}]
        if not_read:
            return Next.of("explain", not_read[0])  # a plan for a version that does not start helps nobody
        fixes = command_for(report.findings, best_modes[report.log_dir])
        known = _with_evidence(report)
        if not known and fixes:
            # without --fix, plan looks for markers
            known = Next.of(
                "plan", report.log_dir, *(() if fixes == "markers" else ("--fix", fixes)), out=PLAN
            )
        if known:
            return _while_in_use(report, known.more(_FREEING if _is_tight(report) else ()), fixes)
    codes = [
        (WORST_FIRST[severity_of(finding)], finding.rule) for report in reports for finding in report.findings
    ]
    return Next.of("explain", min(codes)[1]) if codes else NOTHING


def _worst_of(report: LogDirReport) -> int:
    """Return the severity rank of the worst finding that can be repaired."""
    repairable = [
        finding
        for finding in report.findings
        if finding.fix != "none" or finding.command or finding.rule in {"KR901", "KR902"}
    ]
    return min((WORST_FIRST[severity_of(finding)] for finding in repairable), default=len(Severity))


def _while_in_use(report: LogDirReport, command: Next, fixes: str) -> Next:
    """Add ``--preview`` to a plan of a locked directory if all its fixes allow one, else say to stop the broker."""
    if all(finding.rule != IN_USE for finding in report.findings):
        return command
    if all(fix.previews for fix in requested_fixes(fixes.split(","))):
        return command.more(("--preview",))
    return command.at("when the broker is stopped")


def _with_evidence(report: LogDirReport) -> Next:
    """Return the plan that reads other replicas, if every repair waits for what they hold."""
    commands = [finding.command for finding in report.findings if counts(finding) and finding.fix != "none"]
    return commands[0] if commands and all(map(is_with_evidence, commands)) else NOTHING


def _is_tight(report: LogDirReport) -> bool:
    """Return whether repaired logs may not fit on the disk beside their originals."""
    folders = {finding.partition for finding in report.findings}
    parts = [partition for partition in report.partitions if partition.partition in folders]
    logs = sum(partition.log_bytes for partition in parts)
    files = sum(files_at_most(partition.segments) for partition in parts)
    needs_bytes, needs_files = max(logs, report.start_needs_bytes), max(files, report.start_needs_files)
    return any(shortage_at_start(needs_bytes, needs_files, report.free_bytes, report.free_files))


def analyze_everything(context: Context) -> tuple[list[PartitionAnalysis], RootFacts]:
    """Read one log directory completely, simulate its next start where needed, and let every fix analyze it."""
    analyses = context.analyze_all(named_or_all(context.view, context.options))
    read_logs_and_indexes(context, analyses)
    simulate_next_starts(context, analyses, whole=True)
    for fix in FIXES:
        fix.read(context, analyses, "check")
    root = RootFacts(context.root.result(CHECKPOINTS_RESULT) or (), metadata_of(context.view))
    return analyses, root


class _Looked(NamedTuple):
    """Report on one log directory by itself, with the effect of its broker's start there."""

    report: LogDirReport
    starting: Starting
    in_use: VersionsInUse = ()


def _with_others(looked: Sequence[_Looked], number: int) -> LogDirReport:
    """Return the report of one directory, updated for other directories that stop the broker or its recovery."""
    report = looked[number].report
    for other in looked:
        if other.report.log_dir != report.log_dir:
            lines = with_another(report.forecast, other.report.log_dir, other.starting)
            report = replace(report, forecast=lines)
    return report


def _check_one(
    context: Context,
    views: Sequence[LogDir],
    node: StartingNode,
    metadata_log: MetadataLog | None,
    readable: Readable,
    missing: tuple[Missing, ...],
) -> _Looked:
    """Analyze one log directory and build its report."""
    view, options = context.view, context.options
    others = [other for other in views if other is not view]
    analyses, root = analyze_everything(context)
    going = {analysis.partition.folder: deletions_of(analysis, options) for analysis in analyses}
    starting = starting_of(context, others, analyses, root, node, metadata_log, readable, missing)
    lines = tuple(forecast(view, analyses, going, root, context.version, starting))
    directory = AnalyzedDir(
        context=context,
        others=others,
        analyses=analyses,
        root=root,
        going=going,
        starting=starting,
        forecast=lines,
        space=start_space(view, analyses, {line.partition: line for line in lines}),
        kept=kept_originals(view, options.now_ms),
        metadata=None if metadata_log is None else metadata_log.image,
        missing=missing,
        in_use=versions_in_use(view, context.engine, whole=context.version is not None),
    )
    held = held_by_start(view, context.version)
    skipped = [(analysis, left_alone(analysis)) for analysis in analyses]
    uncleanable = [analysis for analysis, reason in skipped if reason is not None and reason.damaged]
    waiting = {analysis.partition.folder for analysis in analyses if analysis.partition.waiting_swap}
    tiered = {analysis.partition.folder for analysis in analyses if analysis.settings.tiered}
    findings = with_next_commands(
        view.path, list(all_findings(directory)), _best_modes(context), waiting, tiered
    )
    report = LogDirReport(
        log_dir=view.path,
        cluster_id=view.cluster_id,
        broker_id=view.broker_id,
        findings=findings,
        rules=by_rule(findings),
        partitions=tuple(_summary(analysis) for analysis in analyses),
        forecast=lines,
        settings={analysis.partition.topic: analysis.settings.settings for analysis in analyses},
        retention_not_known=tuple(
            folder
            for folder, deletions in going.items()
            if deletions.if_delete and (deletions.expected or deletions.due)
        ),
        uncleanable_partitions=len(uncleanable),
        uncleanable_bytes=sum(
            segment.log.size for analysis in uncleanable for segment in analysis.partition.segments
        ),
        scanned_bytes=sum(facts.summary.valid_bytes for analysis in analyses for facts in analysis.segments),
        start_needs_bytes=directory.space.needs_bytes,
        start_reserves_bytes=directory.space.reserves_bytes,
        free_bytes=directory.space.free_bytes,
        start_needs_files=directory.space.needs_files,
        free_files=directory.space.free_files,
        start_opens_files=held.files,
        start_maps_files=held.maps,
        kept=directory.kept,
    )
    return _Looked(report, starting, directory.in_use)


def _not_formatted(
    directory: UnusableDir,
    views: Sequence[LogDir],
    node: StartingNode,
    missing: Sequence[Missing],
    options: Options,
) -> _Looked:
    """Return the report of a directory that Kafka has not formatted or that cannot be read (KR407)."""
    finding = unformatted_finding(directory, views, node, missing, options.config)
    findings = with_next_commands(directory.path, [finding], {}, set())
    ended = finding.evidence if start_of(finding) is StartEffect.ENDS else ""
    report = LogDirReport(log_dir=directory.path, findings=findings, rules=by_rule(findings))
    return _Looked(report, Starting(findings, ended, ended))


def _summary(analysis: PartitionAnalysis) -> PartitionSummary:
    """Summarize one partition's batches and offsets."""
    tallies = sum_tallies(analysis.segments)
    markers = tallies[list(MARKER_CLASSES)].sum(axis=0)
    partition = analysis.partition
    return PartitionSummary(
        partition=partition.folder,
        segments=len(partition.segments),
        log_bytes=partition.log_bytes,
        batches=int(tallies[:, c.T_BATCHES].sum()),
        markers=int(markers[c.T_BATCHES]),
        marker_bytes=int(markers[c.T_BYTES]),
        emptied=int(tallies[c.EMPTIED, c.T_BATCHES]),
        emptied_bytes=int(tallies[c.EMPTIED, c.T_BYTES]),
        log_start_offset=partition.segments[0].base_offset if partition.segments else 0,
        log_end_offset=log_end_of(analysis.segments),
    )
