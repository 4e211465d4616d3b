"""Findings about the next start as a whole: what ends it, which folders it renames to -stray, what it costs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from krepair.checks.catalogue import Finding, StartEffect, start_of
from krepair.checks.recovery_time import ASSUMED, recovery_text
from krepair.checks.retention import Deletions
from krepair.engine.items import Failed
from krepair.fixes.analysis import PartitionAnalysis, indexes_of
from krepair.fixes.context import Context
from krepair.formats.broker_version import VersionNumber, version_of
from krepair.formats.filenames import METADATA_TOPIC, offset_name
from krepair.formats.words import count_text, time_text
from krepair.logdir.cluster import Fault
from krepair.logdir.config import DEFAULT
from krepair.logdir.values import LogDir, Special
from krepair.options import Options
from krepair.start.folders import contents_of_strays, duplicate_findings, marked_findings
from krepair.start.identity import StartingNode, meta_findings, metadata_findings
from krepair.start.line import ForecastLine
from krepair.start.loaded import why_unknown
from krepair.start.metadata_log import MetadataLog, deletes_strays, known_image, metadata_log_findings, strays
from krepair.start.needs import causes_of_limits, limits_of_host
from krepair.start.ownership import nodes_of, ownership_findings
from krepair.start.placed import Missing, missing_findings
from krepair.start.readable import Readable, readable_findings
from krepair.start.refusal import READ_IN_ROOT, Cause, RootFacts, causes_of_refusal
from krepair.start.topic_settings import TopicConfigs, settings_findings

_NAMED_AT_MOST: Final = 3


def recovery_findings(lines: Sequence[ForecastLine]) -> Iterator[Finding]:
    """Yield one finding for the log directory that names the partitions with the longest recovery (KR801)."""
    read = [line for line in lines if line.bytes_read]
    if not read:
        return
    total = sum(line.bytes_read for line in read)
    seconds = sum(line.seconds for line in read)
    longest = sorted(read, key=lambda line: (-line.seconds, line.partition))[:_NAMED_AT_MOST]
    named = ", ".join(f"{line.partition} ({line.bytes_read:,} bytes)" for line in longest)
    yield Finding(
        rule="KR801",
        evidence=(
            f"{count_text(sum(len(line.segments) for line in read), 'segment')} of "
            f"{count_text(len(read), 'partition')}, {total:,} bytes: "
            f"{recovery_text(seconds)} ({ASSUMED}); longest: {named}"
        ),
        bytes=total,
    )


class Starting(NamedTuple):
    """Reasons why a broker does not start on a log directory, and folders that its start puts aside.

    Attributes:
        findings: findings about this directory, each with its effect on the start.
        refused: reason why the broker does not start, or starts without this directory; empty if the directory loads.
        ends_broker: reason why the broker does not start even with several log directories; empty if it does.
        aside: folder -> reason why the start puts the folder aside.
        all_aside: reason why the partitions of all directories are put aside, or empty.
        cuts_metadata: True if the start truncates the metadata log.
        not_known: reason why the outcome of the start cannot be predicted, or empty.
        deletes: True if folders are deleted instead of put aside, as KRaft brokers before 3.7 do.
    """

    findings: tuple[Finding, ...] = ()
    refused: str = ""
    ends_broker: str = ""
    aside: Mapping[str, str] = {}
    all_aside: str = ""
    cuts_metadata: bool = False
    not_known: str = ""
    deletes: bool = False


def starting_of(
    context: Context,
    others: Sequence[LogDir],
    analyses: Sequence[PartitionAnalysis],
    root: RootFacts,
    node: StartingNode,
    metadata_log: MetadataLog | None,
    readable: Readable,
    missing: Sequence[Missing] = (),
) -> Starting:
    """Collect everything in a log directory that ends a start or makes the start put folders aside.

    Args:
        context: context of the log directory.
        others: the broker's other log directories that were given.
        analyses: partitions of the log directory.
        root: facts about the root of the log directory.
        node: the node that starts.
        metadata_log: the node's metadata log, in whichever directory it lies; None if none was given.
        readable: requirements of the node's directories on the version.
        missing: partitions of the node that have no folder.
    """
    view, typed = context.view, version_of(context.options.broker_version)
    image = known_image(node, metadata_log)
    aside = {} if image is None else strays(view, node, image, root.metadata)
    partitions = sum(len(log_dir.partitions) for log_dir in (view, *others))
    findings = [
        *readable_findings(view, readable, typed, kraft=node.kraft is True),
        *settings_findings(_configs(context, analyses, readable), typed),
        *missing_findings(view, missing),
        *meta_findings(view, others, root.metadata, node),
        *metadata_log_findings(view, node, metadata_log, partitions),
        *metadata_findings(view, root.metadata, node, image, aside),
        *marked_findings(view, node.versions, contents_of_strays(view, context.engine)),
        *duplicate_findings(view, others, context.engine),
        *ownership_findings(view, nodes_of(view), node.versions),
    ]
    refusals = list(_refusals(context, others, analyses, root, node.versions))
    texts = [(finding, text) for finding, text in refusals] + [
        (finding, finding.evidence) for finding in findings
    ]
    by_effect = {
        effect: next(
            (text for finding, text in texts if start_of(finding) is effect and _is_of(finding, effect)), ""
        )
        for effect in StartEffect
    }
    ended = by_effect[StartEffect.ENDS]
    examined = None if metadata_log is None or metadata_log.place != view.path else metadata_log.examined
    return Starting(
        findings=(*findings, *(finding for finding, _ in refusals)),
        refused=ended or by_effect[StartEffect.DIRECTORY],
        ends_broker=ended,
        aside={
            finding.partition: finding.evidence
            for finding in findings
            if finding.partition and start_of(finding) is StartEffect.ASIDE
        },
        all_aside=by_effect[StartEffect.ASIDE],
        cuts_metadata=examined is not None and examined.fault is Fault.CUT,
        not_known=by_effect[StartEffect.UNKNOWN]
        or _not_opened(view.foreign, READ_IN_ROOT)
        or (_metadata_unread(analyses) if node.kraft else ""),
        deletes=deletes_strays(node),
    )


def _metadata_unread(analyses: Sequence[PartitionAnalysis]) -> str:
    """Return why a file of the metadata log could not be read, without which no node of KRaft starts."""
    logs = [analysis for analysis in analyses if analysis.partition.topic == METADATA_TOPIC]
    reasons = (
        (log.partition.folder, why_unknown(log) or _not_opened(log.partition.specials)) for log in logs
    )
    return next((f"{folder}: {why}" for folder, why in reasons if why), "")


def _not_opened(specials: Sequence[Special], names: Collection[str] = ()) -> str:
    """Return why a file that the start reads was not opened: a link, a pipe or a device in its place; or empty."""
    read = (
        one for one in specials if one.kind not in {"file", "folder"} and (not names or one.name in names)
    )
    return next((f"{one.name}: a {one.kind}, which krepair does not open" for one in read), "")


def _configs(context: Context, analyses: Sequence[PartitionAnalysis], readable: Readable) -> TopicConfigs:
    """Return the topics' settings: typed values first, then those of a metadata log in this directory."""
    view = context.view
    recorded = (
        readable.configs if any(partition.topic == METADATA_TOPIC for partition in view.partitions) else {}
    )
    typed = {
        analysis.partition.topic: {
            setting.key: setting.value
            for setting in analysis.settings.settings
            if setting.source.startswith("topic-config")
        }
        for analysis in analyses
    }
    return {topic: {**recorded.get(topic, {}), **typed.get(topic, {})} for topic in {*recorded, *typed}}


def _is_of(finding: Finding, effect: StartEffect) -> bool:
    """Return whether a finding concerns more than a single partition that the start puts aside."""
    return effect is not StartEffect.ASIDE or not finding.partition


def _refusals(
    context: Context,
    others: Sequence[LogDir],
    analyses: Sequence[PartitionAnalysis],
    root: RootFacts,
    versions: Sequence[VersionNumber],
) -> Iterator[tuple[Finding, str]]:
    """Yield each cause that keeps a broker from starting, as a finding and as a short reason (KR803)."""
    view, limits = context.view, limits_of_host(context.options.config)
    refused: dict[Cause, list[str]] = {}
    ending: dict[Cause, list[str]] = {}
    for version in versions:
        for cause in (
            *causes_of_refusal(view, analyses, root.metadata, version),
            *causes_of_limits(view, others, limits, version),
        ):
            name, same = ".".join(map(str, version)), cause._replace(ends_broker=False)
            refused.setdefault(same, []).append(name)
            ending.setdefault(same, []).extend([name] * cause.ends_broker)
    for cause, names in refused.items():
        finding = Finding(
            rule="KR803",
            partition=cause.partition,
            file=cause.file,
            evidence=f"{_do_not_start(names)}: {cause.text}{_with_others(names, ending[cause])}",
            start=StartEffect.ENDS if ending[cause] else StartEffect.DIRECTORY,
        )
        yield finding, cause.text


def _do_not_start(versions: Sequence[str]) -> str:
    if len(versions) == 1:
        return f"broker {versions[0]} does not start"
    return f"brokers {', '.join(versions)} do not start"


def _with_others(refused: Sequence[str], ending: Sequence[str]) -> str:
    """Return the clause about a broker with several log directories; empty if that broker starts with the others."""
    if not ending:
        return ""
    if len(ending) == len(refused):
        return "; it ends a broker with several log directories, too"
    return f"; {_do_not_start(ending)} with several log directories, either"


def retention_findings(
    analysis: PartitionAnalysis, deletions: Deletions, options: Options
) -> Iterator[Finding]:
    """Yield segments past their retention time, if that time is known and not merely Kafka's default (KR702)."""
    if not deletions.due or deletions.if_delete or not _retention_is_known(analysis, options):
        return
    bases = set(deletions.due)
    size = sum(segment.log.size for segment in analysis.partition.segments if segment.base_offset in bases)
    youngest = max(
        clock.largest
        for base, clock in indexes_of(analysis).items()
        if base in bases and not isinstance(clock, Failed)
    )
    of_file = max(
        segment.log.mtime_ns // 1_000_000
        for segment in analysis.partition.segments
        if segment.base_offset in bases
    )
    when = f"their youngest record is of {time_text(youngest)}"
    if youngest < 0:
        when = f"their records have no timestamp, and the youngest file is of {time_text(of_file)}"
    yield Finding(
        rule="KR702",
        partition=analysis.partition.folder,
        evidence=(
            f"{count_text(len(bases), 'segment')} "
            f"from {offset_name(deletions.due[0])} to {offset_name(deletions.due[-1])}, {size} bytes: {when}, "
            f"retention.ms={analysis.settings.retention_ms}; the next start "
            "deletes them"
        ),
        bytes=size,
    )


def _retention_is_known(analysis: PartitionAnalysis, options: Options) -> bool:
    source = next(setting.source for setting in analysis.settings.settings if setting.key == "retention.ms")
    return source != DEFAULT or options.config is not None
