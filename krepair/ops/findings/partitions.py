"""Turns what a survey saw into findings: one small function per kind, each pure over values already read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from krepair.checks.catalogue import Finding
from krepair.fixes.survey import NEVER_TOUCHED, Surveyed
from krepair.kernels import classes as c
from krepair.logdir.holder import Holder
from krepair.logdir.values import LogDir, Partition, Special
from krepair.ops.findings.trouble import cleaner_stands_still, mtimes_look_copied
from krepair.rules.model import LeftAlone, PartitionDecision, SegmentFacts


def root_findings(view: LogDir, holder: Holder | None) -> Iterator[Finding]:
    """What is wrong in the root of the log directory."""
    if holder is not None:
        yield Finding(
            rule="KR608",
            file=".lock",
            evidence=f"held by {holder}: what is read here may change while it is read",
        )
    for entry in view.foreign:
        if entry.kind != "file":  # loose files in the root are harmless on every version
            yield special_finding(entry, "")


def special_finding(entry: Special, partition: str) -> Finding:
    """A name that is not what its place wants."""
    if entry.kind == "folder" and not partition:
        return Finding(
            rule="KR602",
            file=entry.name,
            evidence=f"folder {entry.name} is no partition: a broker refuses to start; {_way_out(entry.name)}",
        )
    return Finding(
        rule="KR606",
        partition=partition,
        file=entry.name,
        evidence=f"{entry.kind}; it is skipped, never opened",
    )


def _way_out(name: str) -> str:
    if name == "lost+found":
        return (
            "it belongs to the file system: give log.dirs a sub-folder of it, and move the partitions there"
        )
    return "move it out of the log directory"


def partition_findings(view: LogDir, each: Surveyed) -> Iterator[Finding]:
    """Everything that one partition's survey says."""
    partition = each.partition
    if partition.unreadable:
        rule = "KR606" if partition.is_link else "KR308"
        yield Finding(rule=rule, partition=partition.folder, evidence=partition.unreadable)
        return
    if partition.topic == NEVER_TOUCHED or each.settings.remote_storage_enable:
        yield Finding(rule="KR607", partition=partition.folder, evidence=_never_touched(partition))
    yield from (special_finding(entry, partition.folder) for entry in partition.specials)
    yield from _log_findings(each)
    yield from _bloat(each)
    if isinstance(each.outcome, LeftAlone):
        yield from _left_alone(partition, each.outcome)
    if cleaner_stands_still(view, each):
        yield _stands_still(view, each)
    if mtimes_look_copied(each.segments, each.partition.topic):
        yield Finding(
            rule="KR106",
            partition=partition.folder,
            evidence="the segments' modification times do not fit the times at which brokers wrote into them",
        )


def _never_touched(partition: Partition) -> str:
    if partition.topic == NEVER_TOUCHED:
        return "the KRaft metadata log: read only"
    return "the topic is tiered (remote.storage.enable=true): read only"


def _log_findings(each: Surveyed) -> Iterator[Finding]:
    old = next((facts for facts in each.segments if facts.summary.old_format), None)
    if old is not None:
        yield Finding(
            rule="KR306",
            partition=each.partition.folder,
            file=f"{old.base_offset:020d}.log",
            position=old.summary.old_position,
            evidence="message format v0 or v1 begins here",
        )


def _bloat(each: Surveyed) -> Iterator[Finding]:
    if not isinstance(each.outcome, PartitionDecision):
        return
    unlimited = next((choice for choice in each.outcome.horizons if choice.name == "unlimited"), None)
    before = sum(outcome.log_bytes for outcome in each.outcome.outcomes)
    now = sum(outcome.kept_bytes for outcome in each.outcome.outcomes)
    most = before - unlimited.log_bytes_after if unlimited is not None else before - now
    if most <= 0:
        return
    tallies = sum_tallies(each.segments)
    markers = sum(int(tallies[number, c.T_BATCHES]) for number in MARKER_CLASSES)
    emptied = int(tallies[c.EMPTIED, c.T_BATCHES])
    yield Finding(
        rule="KR101",
        partition=each.partition.folder,
        evidence=(
            f"{markers} markers and {emptied} emptied batches; {before - now} of {before} bytes can go by the "
            f"chosen horizon, {most} in all"
        ),
        bytes=most,
    )


MARKER_CLASSES = (
    c.MARKER_DATA_REMAINS,
    c.MARKER_UNSTAMPED,
    c.MARKER_STAMP_TO_COME,
    c.MARKER_STAMP_PAST,
    c.MARKER_EPOCH,
)


def sum_tallies(segments: Sequence[SegmentFacts]) -> c.Tallies:
    """Tallies of all segments together."""
    total = c.no_tallies()
    for facts in segments:
        total += facts.summary.tallies
    return total


def _left_alone(partition: Partition, outcome: LeftAlone) -> Iterator[Finding]:
    if outcome.code == "no-high-watermark":
        yield Finding(rule="KR409", partition=partition.folder, evidence=outcome.why)
    elif outcome.code in {"txnindex-disagrees", "txnindex-damage"}:
        yield Finding(rule="KR204", partition=partition.folder, evidence=outcome.why)
    elif outcome.code == "unreadable":
        yield Finding(rule="KR308", partition=partition.folder, evidence=outcome.why)


def _stands_still(view: LogDir, each: Surveyed) -> Finding:
    first_dirty = view.cleaner.offsets.get((each.partition.topic, each.partition.number), -1)
    dirty = sum(
        segment.log.size
        for segment in each.partition.segments[:-1]
        if segment.base_offset >= max(first_dirty, 0)
    )
    where = f"stands at offset {first_dirty}" if first_dirty >= 0 else "has no line for it"
    return Finding(
        rule="KR104",
        partition=each.partition.folder,
        evidence=f"cleaner-offset-checkpoint {where}; {dirty} bytes behind it wait to be cleaned",
        bytes=dirty,
    )
