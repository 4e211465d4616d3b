"""Table of finding rows, in reporting order. Fixes report their own findings; no fix repairs those defined here.

A row is a small function from an analyzed directory to findings. A new one is one line in the tables below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from krepair.checks.catalogue import IN_USE, Finding, Severity, of_version
from krepair.checks.fetch_size import MOST_RESPONSE_BYTES, fetch_overflows
from krepair.checks.recovery_time import duration_text
from krepair.checks.retention import Deletions
from krepair.commit.reports import KeptPlan
from krepair.engine.items import Failed, LogItem
from krepair.findings.coordinator_versions import VersionsInUse, coordinator_findings
from krepair.findings.open_transactions import transaction_findings
from krepair.fixes.analysis import PartitionAnalysis, next_start_of
from krepair.fixes.checkpoints import MISSING_TAILS_RESULT, absent_partitions, absent_text
from krepair.fixes.context import Context, place_of
from krepair.fixes.dead_cleaner import cleaner_is_stalled
from krepair.fixes.epochs import log_start_of
from krepair.fixes.index.decide import deletion_findings
from krepair.fixes.leftovers import freed_at_start
from krepair.fixes.markers.decide import MARKER_CLASSES, left_alone
from krepair.fixes.missing_tails import kept_names
from krepair.fixes.table import FIXES
from krepair.formats.broker_version import Version, version_of
from krepair.formats.codec import Codec
from krepair.formats.filenames import METADATA_TOPIC, base_offset_of, log_name
from krepair.formats.words import count_text, names_text
from krepair.kernels import classes as c
from krepair.logdir.cluster import MetadataImage
from krepair.logdir.config import DEFAULT, LARGEST_RECORD_BYTES, Setting, configured_log_dirs
from krepair.logdir.lock import Holder, is_locked
from krepair.logdir.values import LogDir, Partition, Special
from krepair.next_command import NOTHING, PLAN, Next, by_id
from krepair.rules.broker_clock import mtimes_look_copied
from krepair.rules.checkpoints import Key
from krepair.rules.missing_tails import RULE
from krepair.rules.model import SegmentFacts, Skipped
from krepair.start.findings import Starting, recovery_findings, retention_findings
from krepair.start.line import ForecastLine
from krepair.start.needs import StartSpace, space_findings
from krepair.start.ownership import Node, lacks, nodes_of, owner_evidence, usual_owner
from krepair.start.placed import Missing
from krepair.start.refusal import RootFacts
from krepair.start.room import removable
from krepair.start.times import time_findings

if TYPE_CHECKING:
    from krepair.formats.damage import Damage


class AnalyzedDir(NamedTuple):
    """One analyzed log directory.

    Attributes:
        context: log directory, settings and options.
        others: other log directories that were given.
        analyses: analyses of the directory's partitions.
        root: facts about the files in the root.
        going: folder -> segments that time-based retention deletes at the next start.
        starting: causes that stop the next start or make it take folders offline.
        forecast: effect of the next start on each partition.
        space: disk space that the next start needs.
        kept: originals that applied plans keep.
        metadata: cluster state in the node's metadata log, None if that log is incomplete.
        missing: partitions without a folder that the metadata log assigns to the node: KR611.
        in_use: versions of the records of groups and transactions.
    """

    context: Context
    others: Sequence[LogDir]
    analyses: Sequence[PartitionAnalysis]
    root: RootFacts
    going: Mapping[str, Deletions]
    starting: Starting
    forecast: tuple[ForecastLine, ...]
    space: StartSpace
    kept: tuple[KeptPlan, ...]
    metadata: MetadataImage | None
    missing: tuple[Missing, ...] = ()
    in_use: VersionsInUse = ()

    @property
    def view(self) -> LogDir:
        """Listing of the log directory."""
        return self.context.view


Row = Callable[[AnalyzedDir], Iterator[Finding]]
PartitionRow = Callable[[AnalyzedDir, PartitionAnalysis], Iterator[Finding]]


# -- rows that pass on the findings of other modules


def _root_fixes(directory: AnalyzedDir) -> Iterator[Finding]:
    for fix in FIXES:
        yield from fix.propose_root(directory.context).findings


def _fixes(directory: AnalyzedDir, analysis: PartitionAnalysis) -> Iterator[Finding]:
    if analysis.partition.topic == METADATA_TOPIC:
        return  # a KRaft node rebuilds these files at every start; what it cannot rebuild is KR610
    ends = directory.context.root.result(MISSING_TAILS_RESULT) or ()
    gone = next((tail for tail in ends if tail.folder == analysis.partition.folder), None)
    for fix in FIXES:
        for finding in fix.propose(directory.context, analysis).findings:
            if gone is None or not (finding.rule == "KR502" or finding.file in gone.orphans):
                yield finding  # KR312 reports the others


def _freed_at_next_start(directory: AnalyzedDir) -> Iterator[Finding]:
    deleted = [folder for folder in directory.view.marked if folder.role == "delete"]
    freed = freed_at_start(directory.analyses, deleted)
    if freed is not None:
        # It only matters if the start lacks space: a broker can delete nothing before it is up.
        short = 0 <= directory.space.free_bytes < directory.space.needs_bytes
        yield freed if short else replace(freed, severity=Severity.INFORMATION)


def _transactions(directory: AnalyzedDir) -> Iterator[Finding]:
    context = directory.context
    return transaction_findings(
        (directory.view, *directory.others),
        directory.analyses,
        context.options.now_ms,
        context.settings.transaction_max_timeout_ms,
        context.engine,
    )


def _coordinators(directory: AnalyzedDir) -> Iterator[Finding]:
    typed = version_of(directory.context.options.broker_version)
    return coordinator_findings(directory.view, directory.in_use, typed, directory.context.engine)


def _emptied(directory: AnalyzedDir) -> Iterator[Finding]:
    # A directory proves a lowest version only, so the typed version alone counts here.
    typed = directory.context.version if directory.context.options.broker_version else None
    return emptied_findings(
        directory.view, directory.forecast, directory.space, nodes_of(directory.view), typed
    )


def _space(directory: AnalyzedDir) -> Iterator[Finding]:
    """Yield findings on missing disk space, with what can be removed without loss."""
    findings = list(space_findings(directory.space))
    removals = removable(directory.view.path) if findings else ()
    safe = "".join(f"; what can safely go: {removal.text}" for removal in removals)
    for finding in findings:
        lacks = f"; at least {-(-finding.bytes // 1024):,} KiB have to become free" if finding.bytes else ""
        command = removals[0].command if removals else NOTHING
        yield replace(finding, evidence=f"{finding.evidence}{lacks}{safe}", command=command)


# -- partitions that a checkpoint in the root names but that have no folder here (KR312)

_BACK: Final = (
    "the folders have to be back before any broker starts: it would create them again, without their records"
)


def absent_findings(directory: AnalyzedDir) -> Iterator[Finding]:
    """Yield one finding that names all absent partitions.

    A partition that lies in another directory, was deleted or was moved by the cluster is not lost.
    """
    elsewhere = {partition.key for view in directory.others for partition in (*view.partitions, *view.marked)}
    elsewhere |= {missing.key for missing in directory.missing}
    absent = {
        key: offset
        for key, offset in absent_partitions(directory.root.checkpoints).items()
        if key not in elsewhere and not _belongs_elsewhere(directory.view, directory.metadata, key)
    }
    if not absent:
        return
    views = 1 + len(directory.others)
    all_given = 0 < len(configured_log_dirs(directory.context.options.config)) <= views
    lost = directory.view.clean_shutdown and all_given and any(absent.values())
    where = (
        "not in any log directory of the broker"
        if all_given
        else "not here; --config shows whether log.dirs has more"
    )
    reason = (
        "after the last clean stop they were here"
        if directory.view.clean_shutdown
        else "they may be deleted ones"
    )
    yield Finding(
        rule=RULE,
        file=directory.view.recovery_point.file.name if directory.view.recovery_point.file else "",
        evidence=f"{absent_text(absent)} {where}; {reason}: if somebody moved them away, {_BACK}",
        severity=None if lost else Severity.CONFUSING,
    )


def _belongs_elsewhere(view: LogDir, image: MetadataImage | None, key: Key) -> bool:
    """Return whether the metadata log has deleted a partition or assigns it to another broker or directory."""
    if image is None:
        return False
    broker = int(view.broker_id) if view.broker_id.isdecimal() else -1
    topic_id = next((uuid for uuid, name in image.topics.items() if name == key[0]), "")
    state = image.partitions.get((topic_id, key[1]))
    if state is None or (broker >= 0 and broker not in state.replicas):
        return True
    named = dict(zip(state.replicas, state.directories, strict=False)).get(broker, "")
    return bool(view.directory_id) and named in image.brokers.get(broker, ()) and named != view.directory_id


# -- compressed content that cannot be read (KR307): only ``check --deep`` looks, since decompressing costs CPU time


def content_findings(context: Context, analyses: Sequence[PartitionAnalysis]) -> Iterator[Finding]:
    """Yield findings on compressed content of all partitions; none without ``--deep``."""
    if not context.options.deep:
        return
    from krepair.engine.items import LogItem
    from krepair.scan.contents import read_contents

    items = [
        LogItem(
            place=place_of(context.view, analysis.partition),
            base_offset=segment.base_offset,
            size=segment.log.size,
        )
        for analysis in analyses
        for segment in analysis.partition.segments
    ]
    results = dict(context.engine.map(read_contents, items))
    for index, item in enumerate(items):
        problems = results[index]
        if isinstance(problems, Failed):
            yield unread(item.place.folder, problems)
        else:
            yield from (_of_damage(item, *problem) for problem in problems)


def unread(folder: str, failed: Failed) -> Finding:
    """Return KR308 for a log that failed in a later reading only."""
    return Finding(rule="KR308", partition=folder, evidence=failed.why)


def _of_damage(item: LogItem, codec: int, problem: Damage) -> Finding:
    known = {codec.value: codec.name.lower() for codec in Codec}
    name = known.get(codec, f"codec {codec}")
    return Finding(
        rule="KR307",
        partition=item.place.folder,
        file=log_name(item.base_offset),
        position=problem.position,
        evidence=f"{problem.length} bytes of {name}: expected {problem.expected}, found {problem.found}",
        bytes=problem.length,
    )


# -- KR804: a broker since 4.0 may empty healthy segments that it cannot write to during recovery

EMPTIES_SINCE: Final = (4, 0, 0)


def emptied_findings(
    view: LogDir,
    lines: Sequence[ForecastLine],
    space: StartSpace,
    nodes: Iterable[Node],
    version: Version,
) -> Iterator[Finding]:
    """Yield KR804 for the directory if its disk is too full, and for each recovered folder that is not writable.

    Args:
        lines: forecast lines of the next start.
        space: disk space that the next start needs.
        nodes: files and folders, as ``ownership.nodes_of`` returns them.
        version: version of the broker that is to start, None if it may be any.
    """
    recovered = {line.partition: line for line in lines if line.segments and line.bytes_read}
    if view.clean_shutdown or not recovered or (version is not None and version < EMPTIES_SINCE):
        return
    total = sum(line.bytes_read for line in recovered.values())
    if 0 <= space.free_bytes < space.needs_bytes:
        yield Finding(
            rule="KR804",
            evidence=(
                f"the next start recovers {total} bytes of {count_text(len(recovered), 'partition')} and may write "
                f"{space.needs_bytes} bytes, {space.free_bytes} are free; {_MAY}; free the space before any start"
            ),
            bytes=total,
        )
    yield from _folders(view, recovered, nodes)


_MAY: Final = (
    "if the disk becomes full, a broker since 4.0 may empty the healthy segment that it is recovering and delete all "
    "later ones (a broker before 4.0 only stops)"
)


def _folders(view: LogDir, recovered: Mapping[str, ForecastLine], nodes: Iterable[Node]) -> Iterator[Finding]:
    known = list(nodes)
    usual = usual_owner(known)
    for node in known:
        line = recovered.get(node.partition)
        missing = lacks(node, *usual)
        if line is None or not node.is_folder or not missing:
            continue
        yield Finding(
            rule="KR804",
            partition=node.partition,
            evidence=(
                f"the next start recovers {line.bytes_read} bytes here, from {log_name(line.segments[0])} on, in a "
                f"folder that its user cannot write: {owner_evidence(view, node, usual, missing)}; a broker since 4.0 "
                "then may empty the first of these segments and delete all later ones (a broker before 4.0 only stops)"
            ),
            bytes=line.bytes_read,
        )


# -- KR309: topics with batches so large, and so many partitions here, that old clients fail


def fetch_findings(analyses: Sequence[PartitionAnalysis]) -> Iterator[Finding]:
    """Yield KR309 for each topic whose largest batches overflow a fetch response."""
    largest: dict[str, list[int]] = {}
    for analysis in analyses:
        sizes = [facts.summary.largest_batch for facts in analysis.segments]
        largest.setdefault(analysis.partition.topic, []).append(max(sizes, default=0))
    for overflow in fetch_overflows(largest):
        yield Finding(
            rule="KR309",
            evidence=(
                f"topic {overflow.topic}: {count_text(overflow.partitions, 'partition')} here and a batch of "
                f"{overflow.largest_batch} bytes make "
                f"a response of up to {overflow.response_bytes} bytes, but at most {MOST_RESPONSE_BYTES} can be sent"
            ),
        )


# -- bytes that stop the cleaner of a compacted partition for good (KR105)

READS_LARGE_BATCHES_SINCE: Final = (2, 0, 0)
"""KAFKA-6834; before, a batch above ``max.message.bytes`` killed the cleaner."""

SPLITS_OVERFLOWED_SEGMENTS_SINCE: Final = (2, 0, 0)
"""KAFKA-6264."""

LIMITS_RECORDS_SINCE: Final = (4, 4, 0)
"""``max.decompressed.message.bytes``."""

_UNSTEPPABLE: Final = frozenset({c.D_LENGTH, c.D_PAST_END, c.D_ZEROS, c.D_TORN, c.D_OLD_LENGTH})
"""Damage after which the cleaner finds no next batch. It ignores a wrong CRC."""


def cleaner_findings(view: LogDir, analysis: PartitionAnalysis, version: Version) -> Iterator[Finding]:
    """Yield KR105 for the bytes of a compacted partition at which every cleaner pass stops."""
    if not analysis.settings.compacts:
        return
    first_dirty = view.cleaner.offsets.get(analysis.partition.key, -1)
    for facts in analysis.segments[:-1]:
        position, text = _stops_cleaner(analysis, facts, version)
        if text:
            where = (
                "in what it cleans next" if facts.summary.last_offset >= first_dirty else "in its clean part"
            )
            yield Finding(
                rule="KR105",
                partition=analysis.partition.folder,
                file=log_name(facts.base_offset),
                position=position,
                evidence=f"{text}; {where}",
            )


def _stops_cleaner(analysis: PartitionAnalysis, facts: SegmentFacts, version: Version) -> tuple[int, str]:
    """Return position and description of what stops the cleaner; the description is empty if nothing does."""
    summary = facts.summary
    if summary.damage in _UNSTEPPABLE:
        return summary.valid_bytes, f"the cleaner finds no next batch: {summary.damage_text}"
    overflows = summary.damage == c.D_OFFSET_RANGE
    if overflows and version is not None and version < SPLITS_OVERFLOWED_SEGMENTS_SINCE:
        return summary.valid_bytes, f"offsets too far from the base offset: {summary.damage_text}"
    most = analysis.settings.max_message_bytes
    large = version is not None and version < READS_LARGE_BATCHES_SINCE
    if large and summary.largest_batch > most:
        return -1, f"a batch of {summary.largest_batch} bytes, above max.message.bytes={most}"
    return -1, ""


def large_record_findings(context: Context, analyses: Sequence[PartitionAnalysis]) -> Iterator[Finding]:
    """Yield KR105 for a record in a compressed batch that a cleaner of 4.4 refuses to read.

    Only logs of topics with a limit below the default are decompressed.
    """
    if context.version is not None and context.version < LIMITS_RECORDS_SINCE:
        return
    limited = [
        analysis
        for analysis in analyses
        if analysis.settings.compacts
        and analysis.settings.max_decompressed_message_bytes < LARGEST_RECORD_BYTES
    ]
    if not limited:
        return
    from krepair.scan.contents import find_large_record

    items = [
        (
            LogItem(
                place=place_of(context.view, analysis.partition),
                base_offset=segment.base_offset,
                size=segment.log.size,
            ),
            analysis.settings.max_decompressed_message_bytes,
        )
        for analysis in limited
        for segment in analysis.partition.segments[:-1]
    ]
    results = dict(context.engine.map(find_large_record, items))
    for index, (item, most) in enumerate(items):
        large_record = results[index]
        if isinstance(large_record, Failed):
            yield unread(item.place.folder, large_record)
        elif large_record is not None:
            yield Finding(
                rule="KR105",
                partition=item.place.folder,
                file=log_name(item.base_offset),
                position=large_record.position,
                evidence=f"the batch of offsets {large_record.first_offset} to {large_record.last_offset} "
                f"has a record of {large_record.bytes} bytes when decompressed, "
                f"above max.decompressed.message.bytes={most}: "
                "a cleaner of 4.4.0 or later stops there",
                first_offset=large_record.first_offset,
                last_offset=large_record.last_offset,
            )


# -- findings from one partition's analysis


def root_findings(view: LogDir, holder: Holder | None) -> Iterator[Finding]:
    """Yield findings on the root of the log directory."""
    if holder is not None:
        yield Finding(
            rule=IN_USE,
            file=".lock",
            evidence=f"locked by {holder}: files may change while krepair reads them",
        )
    for entry in view.foreign:
        if entry.kind != "file":  # loose files in the root are harmless on every version
            yield special_finding(entry, "")


def special_finding(entry: Special, partition: str) -> Finding:
    """Return the finding for a file or folder that does not belong where it is."""
    if entry.kind == "folder" and not partition:
        return Finding(
            rule="KR602",
            file=entry.name,
            evidence=f"folder {entry.name} is not a partition: a broker refuses to start; {_how_to_move(entry.name)}",
        )
    return Finding(
        rule="KR606",
        partition=partition,
        file=entry.name,
        evidence=f"{entry.kind}; krepair skips it and does not open it",
    )


def _how_to_move(name: str) -> str:
    if name == "lost+found":
        return (
            "it belongs to the file system: give log.dirs a sub-folder of it, and move the partitions there"
        )
    return "move it out of the log directory"


def partition_findings(view: LogDir, analysis: PartitionAnalysis) -> Iterator[Finding]:
    """Yield findings on one analyzed partition."""
    partition = analysis.partition
    if partition.unreadable:
        rule = "KR606" if partition.is_link else "KR308"
        yield Finding(rule=rule, partition=partition.folder, evidence=partition.unreadable)
        return
    failed = next_start_of(analysis).unread
    if failed is not None:
        yield unread(partition.folder, failed)
    if analysis.is_read_only:
        yield Finding(
            rule="KR607",
            partition=partition.folder,
            evidence=f"{analysis.settings.tiered or 'the KRaft metadata log'}: read only",
        )
    yield from (special_finding(entry, partition.folder) for entry in partition.specials)
    yield from _log_findings(analysis)
    skipped = left_alone(analysis)
    if skipped is not None:
        yield from _skipped_findings(partition, skipped)
    if cleaner_is_stalled(view, analysis):
        yield _stalled_cleaner(view, analysis)
    if mtimes_look_copied(analysis.segments, analysis.partition.topic):
        yield Finding(
            rule="KR106",
            partition=partition.folder,
            evidence="the segments' modification times do not fit the times at which brokers wrote into them",
        )


def _log_findings(analysis: PartitionAnalysis) -> Iterator[Finding]:
    old = next((facts for facts in analysis.segments if facts.summary.old_format), None)
    if old is not None:
        yield Finding(
            rule="KR306",
            partition=analysis.partition.folder,
            file=log_name(old.base_offset),
            position=old.summary.old_position,
            evidence="message format v0 or v1 begins here",
        )
    for facts, after in pairwise(analysis.segments):
        if not facts.summary.damage and facts.end_offset > after.base_offset:
            yield Finding(
                rule="KR303",
                partition=analysis.partition.folder,
                file=log_name(facts.base_offset),
                evidence=(
                    f"batches pass {after.base_offset}, where the next segment begins; the last offset is "
                    f"{facts.summary.last_offset}. Consumers that come from before read these, not those of the same "
                    "offsets in the next segment; a compaction that merges the two fails. krepair has no fix for it"
                ),
                severity=Severity.DATA_LOSS,
                fix="none",
                first_offset=after.base_offset,
                last_offset=facts.summary.last_offset,
            )


def _skipped_findings(partition: Partition, outcome: Skipped) -> Iterator[Finding]:
    if outcome.code == "no-high-watermark":
        yield Finding(rule="KR409", partition=partition.folder, evidence=outcome.why)
    elif outcome.code in {"txnindex-disagrees", "txnindex-damage"}:
        unknown = outcome.code == "txnindex-damage" and not outcome.damaged
        finding = Finding(rule="KR204", partition=partition.folder, evidence=outcome.why)
        yield of_version(finding, unknown=unknown)
    elif outcome.code == "unreadable":
        yield Finding(rule="KR308", partition=partition.folder, evidence=outcome.why)


def _stalled_cleaner(view: LogDir, analysis: PartitionAnalysis) -> Finding:
    first_dirty = view.cleaner.offsets.get(analysis.partition.key, -1)
    dirty = sum(
        segment.log.size
        for segment in analysis.partition.segments[:-1]
        if segment.base_offset >= max(first_dirty, 0)
    )
    where = f"stands at offset {first_dirty}" if first_dirty >= 0 else "has no line for it"
    return Finding(
        rule="KR104",
        partition=analysis.partition.folder,
        evidence=f"cleaner-offset-checkpoint {where}; {dirty} bytes after it wait to be cleaned",
        bytes=dirty,
    )


# -- offsets without a record in a topic whose offsets should be contiguous (KR310, KR311)
#
# A leader gives each record the next offset, so a topic that was never compacted has a record for each offset from log
# start to log end. Compaction leaves harmless gaps: everything depends on what is known of cleanup.policy.

_SHOWN_AT_MOST: Final = 3
_CAUSES: Final = (
    "usual causes: the topic was compacted once, an earlier --fix tail=excise removed them, or a log file was lost or "
    "moved away (here, or on the replica from which this one was copied)"
)
_NOT_KNOWN: Final = (
    "if the topic is or was compacted, this is normal; if not, these records are lost. Its cleanup.policy is not "
    "known here: give the output of kafka-configs.sh --describe with --topic-config, or --set cleanup.policy=delete"
)
_POLICY: Final = "cleanup.policy"
_EMPTIED: Final = [c.EMPTIED, c.EMPTIED_PRODUCER, c.EMPTIED_MARKER, c.EMPTIED_LAST]


class Gap(NamedTuple):
    """Range of offsets without records.

    Attributes:
        start: first offset of the range.
        end: the offset after the range.
        missing: number of offsets without a record; all of the range, if it lies between two segments.
        base_offset: base offset of the segment that holds the range, -1 between two segments.
    """

    start: int
    end: int
    missing: int
    base_offset: int = -1


def missing_findings(view: LogDir, analysis: PartitionAnalysis) -> Iterator[Finding]:
    """Yield KR310 if the topic is known not to be compacted, KR311 if its policy is unknown.

    KR310 counts as data loss only if somebody has set the policy and nothing shows an earlier cleaning. A compacted
    topic gives no finding, nor does one of unknown policy that stands in ``cleaner-offset-checkpoint``: only a cleaner
    writes there.
    """
    partition = analysis.partition
    if analysis.is_read_only or analysis.settings.compacts:
        return
    if len(analysis.segments) != len(partition.segments):
        return
    gaps = gaps_of(analysis.segments, log_start_of(view, partition, analysis.segments))
    lost = _lost_at_the_start(view, analysis)
    gaps = [*(gap for gap in lost if gap not in gaps), *gaps]
    gaps = _unexplained(partition, gaps) if gaps else gaps
    if not gaps:
        return
    policy = next(setting for setting in analysis.settings.settings if setting.key == _POLICY)
    cleaned_to = view.cleaner.offsets.get(partition.key, -1)
    known = analysis.settings.policy_is_known
    if not known and cleaned_to >= 0:
        return
    if known and cleaned_to >= gaps[-1].end:
        text = f"cleaner-offset-checkpoint stands at {cleaned_to}: the topic was compacted once, which leaves gaps"
        yield _of_gaps("KR311", partition, gaps, text)
    elif known:
        says_so = policy.source != DEFAULT or gaps[0] in lost
        is_loss = says_so and cleaned_to < 0 and not _was_cleaned(analysis.segments)
        first = "first copy it back, or take it from a replica; " if gaps[0] in lost else ""
        text = f"{first}the topic is not compacted ({_of_policy(policy)}); {_CAUSES}"
        yield _of_gaps("KR310", partition, gaps, text, None if is_loss else Severity.CONFUSING)
    else:
        yield _of_gaps("KR311", partition, gaps, _NOT_KNOWN)


def _lost_at_the_start(view: LogDir, analysis: PartitionAnalysis) -> list[Gap]:
    """Return the offsets from the log start on that are in no segment.

    Either the first segment is empty, or it is missing. A recorded log start proves a missing segment only after a
    clean stop: otherwise a broker may have deleted the segment before it could write the new log start.
    """
    first = next(
        (facts for facts in analysis.segments if facts.summary.batches or not facts.summary.is_whole), None
    )
    if first is None or analysis.segments[0].summary.old_format:
        return []
    recorded = view.log_start.offsets.get(analysis.partition.key, -1)
    begins = analysis.segments[0].base_offset
    if view.clean_shutdown and 0 <= recorded < begins:
        begins = recorded
    start = max(begins, recorded)
    return [Gap(start, first.base_offset, first.base_offset - start)] if start < first.base_offset else []


def gaps_of(segments: Sequence[SegmentFacts], log_start: int) -> list[Gap]:
    """Return every range of offsets without records, ascending.

    A segment whose content is hidden by damage or by messages of v0 and v1 gives no range.

    Args:
        segments: all segments of the partition, ascending.
        log_start: log start offset: offsets below it are deleted.
    """
    gaps: list[Gap] = []
    for place, facts in enumerate(segments):
        summary = facts.summary
        if not summary.is_whole:
            continue
        end = max(summary.last_offset + 1, facts.base_offset)
        if summary.batches and not summary.old_format and facts.base_offset >= log_start:
            missing = end - facts.base_offset - _offsets_with_records(facts)
            if missing > 0:
                gaps.append(Gap(facts.base_offset, end, missing, facts.base_offset))
        following = segments[place + 1].base_offset if place + 1 < len(segments) else end
        start = max(end, log_start)
        if start < following:
            gaps.append(Gap(start, following, following - start))
    return gaps


def _offsets_with_records(facts: SegmentFacts) -> int:
    """Count the offsets that a segment's records take; a control batch has one record."""
    tallies = facts.summary.tallies
    controls = tallies[[*MARKER_CLASSES, c.CONTROL_OTHER], c.T_BATCHES]
    return int(tallies[c.RECORDS, c.T_RECORDS] + controls.sum())


def _unexplained(partition: Partition, gaps: Sequence[Gap]) -> list[Gap]:
    """Return the gaps without the offsets that krepair's backups or a waiting swap fill."""
    swaps = {leftover.base_offset for leftover in partition.leftovers if leftover.kind == "swap"}
    filled = _kept_bases(partition) | swaps
    if not filled:
        return list(gaps)
    bases = sorted(filled | {segment.base_offset for segment in partition.segments})
    ends = dict(pairwise(bases))
    remaining: list[Gap] = []
    for gap in gaps:
        if gap.base_offset >= 0:
            remaining += [gap] if gap.base_offset not in filled else []
            continue
        start = gap.start
        for base in sorted(filled):
            until = min(ends.get(base, base), gap.end)
            if base <= start < until:
                start = until
            elif start < base < until:
                remaining.append(Gap(start, base, base - start))
                start = until
        if start < gap.end:
            remaining.append(Gap(start, gap.end, gap.end - start))
    return remaining


def _kept_bases(partition: Partition) -> set[int]:
    """Return base offsets of the logs for which krepair keeps an original or a removed part."""
    named = ((base_offset_of(name), name.split(".")[1:2]) for name in kept_names(partition))
    return {base for base, kind in named if base is not None and kind == ["log"]}


def _was_cleaned(segments: Sequence[SegmentFacts]) -> bool:
    """Return whether batches without records exist: only a cleaner makes them."""
    return any(int(facts.summary.tallies[_EMPTIED, c.T_BATCHES].sum()) for facts in segments)


def _of_gaps(
    rule: str, partition: Partition, gaps: Sequence[Gap], why: str, severity: Severity | None = None
) -> Finding:
    missing = sum(gap.missing for gap in gaps)
    shown = "; ".join(_shown(gap) for gap in gaps[:_SHOWN_AT_MOST])
    more = (
        f"; and {count_text(len(gaps) - _SHOWN_AT_MOST, 'more place')}" if len(gaps) > _SHOWN_AT_MOST else ""
    )
    deleted = _deleted_inside(partition, gaps)
    return Finding(
        rule=rule,
        partition=partition.folder,
        evidence=f"{count_text(missing, 'offset')} without a record: {shown}{more}{deleted}; {why}",
        severity=severity,
    )


def _shown(gap: Gap) -> str:
    if gap.base_offset >= 0:
        name = log_name(gap.base_offset)
        inside = f"{count_text(gap.end - gap.start, 'offset')} from {gap.start} to {gap.end - 1} in {name}"
        return f"{gap.missing} of the {inside}"
    return f"{gap.start} to {gap.end - 1} are in no segment"


def _deleted_inside(partition: Partition, gaps: Sequence[Gap]) -> str:
    """Warn of a ``.deleted`` log that may fill a gap: the next start deletes it."""
    for leftover in partition.leftovers:
        base = leftover.base_offset
        if leftover.kind == "deleted" and any(
            gap.start <= base < gap.end for gap in gaps if gap.base_offset < 0
        ):
            return f"; {leftover.file.name} may be what is missing, and the next start deletes it"
    return ""


def _of_policy(policy: Setting) -> str:
    return f"{_POLICY}={policy.value}, {policy.source}"


# -- originals that earlier plans keep (KR901), and changes that an interrupted run left half done (KR902)


def kept_findings(view: LogDir, plans: Sequence[KeptPlan]) -> Iterator[Finding]:
    """Yield one finding for each plan that keeps something."""
    for plan in plans:
        half = plan.state == "half done"
        by_hand = NOTHING if half else plan.next_command  # set for a damaged journal
        yield Finding(
            rule="KR902" if half else "KR901",
            partition=plan.partitions[0] if len(plan.partitions) == 1 else "",
            evidence=_half_done(view, plan) if half else _kept_text(view, plan),
            bytes=plan.bytes,
            severity=Severity.SLOW if by_hand else None,
            command=by_hand,
        )


def _age_text(plan: KeptPlan) -> str:
    """Return the age of a plan in words; file times may be arbitrary."""
    return (
        f"for {duration_text(plan.age_seconds)}"
        if plan.age_seconds >= 0
        else "since a time that is not known"
    )


def _kept_text(view: LogDir, plan: KeptPlan) -> str:
    where = names_text(plan.partitions)
    words = [f"plan {plan.plan_id} ({plan.state}) keeps {plan.bytes} bytes in {where} {_age_text(plan)}"]
    if plan.next_command:
        return "; ".join([*words, f"first: {plan.why_not}; next: {plan.next_command}"])
    if plan.state == "unknown" and plan.forbidden:
        return "; ".join([*words, f"it is not known whether undo is possible: {plan.why_not}"])
    if plan.undo == "yes":
        words.append(f"undo is possible: {_undo_command(view, plan)}")
    elif plan.undo == "partly":
        words.append(f"undo is possible in part ({plan.why_not}): {_undo_command(view, plan)}")
    elif plan.why_not:
        words.append(f"no undo: {plan.why_not}")
    words.append(f"to free the space for good: {by_id('purge', view.path, plan.plan_id)}")
    return "; ".join(words)


def _half_done(view: LogDir, plan: KeptPlan) -> str:
    reason = f"{names_text(plan.half_done)} is half done" if plan.half_done else "its recovery guard remained"
    words = [f"plan {plan.plan_id}: {reason} {_age_text(plan)}"]
    if plan.fence:
        words.append(
            f"a broker that starts now recovers {names_text(plan.fence)} (the recovery guard is set)"
        )
    words.append(f"to finish it: krepair apply PLAN; to take it back: {_undo_command(view, plan)}")
    return "; ".join(words)


def _undo_command(view: LogDir, plan: KeptPlan) -> str:
    if plan.copy == "there":
        return str(by_id("undo", view.path, plan.plan_id))
    return f"{Next.of('undo', PLAN)} (no copy of the plan is here: {plan.copy})"


# -- the table

OF_THE_ROOT: Final[tuple[Row, ...]] = (
    lambda directory: root_findings(directory.view, is_locked(directory.view.path)),
    lambda directory: iter(directory.starting.findings),
    _root_fixes,
    absent_findings,
    _freed_at_next_start,
)

OF_A_PARTITION: Final[tuple[PartitionRow, ...]] = (
    lambda directory, analysis: partition_findings(directory.view, analysis),
    lambda directory, analysis: missing_findings(directory.view, analysis),
    _fixes,
    lambda directory, analysis: cleaner_findings(directory.view, analysis, directory.context.version),
    lambda directory, analysis: deletion_findings(
        analysis, directory.going[analysis.partition.folder], directory.context.options
    ),
    lambda directory, analysis: time_findings(
        directory.view, analysis, directory.going[analysis.partition.folder], directory.context.options.now_ms
    ),
    lambda directory, analysis: retention_findings(
        analysis, directory.going[analysis.partition.folder], directory.context.options
    ),
)

OF_ALL_TOGETHER: Final[tuple[Row, ...]] = (
    _transactions,
    _coordinators,
    lambda directory: fetch_findings(directory.analyses),
    lambda directory: large_record_findings(directory.context, directory.analyses),
    lambda directory: recovery_findings(directory.forecast),
    _space,
    _emptied,
    lambda directory: kept_findings(directory.view, directory.kept),
    lambda directory: content_findings(directory.context, directory.analyses),
)


def all_findings(directory: AnalyzedDir) -> Iterator[Finding]:
    """Return the findings of the root, of each partition, then of the next start, without duplicates.

    Several readers may meet the same unreadable file and report it alike.
    """
    return iter(dict.fromkeys(_every_finding(directory)))


def _every_finding(directory: AnalyzedDir) -> Iterator[Finding]:
    for row in OF_THE_ROOT:
        yield from row(directory)
    for analysis in directory.analyses:
        for partition_row in OF_A_PARTITION:
            yield from partition_row(directory, analysis)
    for row in OF_ALL_TOGETHER:
        yield from row(directory)
