"""Turns what a survey saw into findings: one small function per kind, each pure over values already read."""

from __future__ import annotations

from collections.abc import Iterator

from krepair.checks.catalogue import IN_USE, Finding
from krepair.fixes.dead_cleaner import cleaner_stands_still
from krepair.fixes.markers import left_alone
from krepair.fixes.survey import Survey
from krepair.formats.filenames import METADATA_TOPIC, log_name
from krepair.logdir.holder import Holder
from krepair.logdir.values import LogDir, Partition, Special
from krepair.ops.findings.trouble import mtimes_look_copied
from krepair.rules.model import LeftAlone


def root_findings(view: LogDir, holder: Holder | None) -> Iterator[Finding]:
    """What is wrong in the root of the log directory."""
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
    """A name that is not what its place wants."""
    if entry.kind == "folder" and not partition:
        return Finding(
            rule="KR602",
            file=entry.name,
            evidence=f"folder {entry.name} is not a partition: a broker refuses to start; {_way_out(entry.name)}",
        )
    return Finding(
        rule="KR606",
        partition=partition,
        file=entry.name,
        evidence=f"{entry.kind}; krepair skips it and does not open it",
    )


def _way_out(name: str) -> str:
    if name == "lost+found":
        return (
            "it belongs to the file system: give log.dirs a sub-folder of it, and move the partitions there"
        )
    return "move it out of the log directory"


def partition_findings(view: LogDir, survey: Survey) -> Iterator[Finding]:
    """Everything that one partition's survey says."""
    partition = survey.partition
    if partition.unreadable:
        rule = "KR606" if partition.is_link else "KR308"
        yield Finding(rule=rule, partition=partition.folder, evidence=partition.unreadable)
        return
    if partition.topic == METADATA_TOPIC or survey.settings.remote_storage_enable:
        yield Finding(rule="KR607", partition=partition.folder, evidence=_never_touched(partition))
    yield from (special_finding(entry, partition.folder) for entry in partition.specials)
    yield from _log_findings(survey)
    left = left_alone(survey)
    if left is not None:
        yield from _left_alone(partition, left)
    if cleaner_stands_still(view, survey):
        yield _stands_still(view, survey)
    if mtimes_look_copied(survey.segments, survey.partition.topic):
        yield Finding(
            rule="KR106",
            partition=partition.folder,
            evidence="the segments' modification times do not fit the times at which brokers wrote into them",
        )


def _never_touched(partition: Partition) -> str:
    if partition.topic == METADATA_TOPIC:
        return "the KRaft metadata log: read only"
    return "the topic is tiered (remote.storage.enable=true): read only"


def _log_findings(survey: Survey) -> Iterator[Finding]:
    old = next((facts for facts in survey.segments if facts.summary.old_format), None)
    if old is not None:
        yield Finding(
            rule="KR306",
            partition=survey.partition.folder,
            file=log_name(old.base_offset),
            position=old.summary.old_position,
            evidence="message format v0 or v1 begins here",
        )


def _left_alone(partition: Partition, outcome: LeftAlone) -> Iterator[Finding]:
    if outcome.code == "no-high-watermark":
        yield Finding(rule="KR409", partition=partition.folder, evidence=outcome.why)
    elif outcome.code in {"txnindex-disagrees", "txnindex-damage"}:
        yield Finding(rule="KR204", partition=partition.folder, evidence=outcome.why)
    elif outcome.code == "unreadable":
        yield Finding(rule="KR308", partition=partition.folder, evidence=outcome.why)


def _stands_still(view: LogDir, survey: Survey) -> Finding:
    first_dirty = view.cleaner.offsets.get(survey.partition.key, -1)
    dirty = sum(
        segment.log.size
        for segment in survey.partition.segments[:-1]
        if segment.base_offset >= max(first_dirty, 0)
    )
    where = f"stands at offset {first_dirty}" if first_dirty >= 0 else "has no line for it"
    return Finding(
        rule="KR104",
        partition=survey.partition.folder,
        evidence=f"cleaner-offset-checkpoint {where}; {dirty} bytes after it wait to be cleaned",
        bytes=dirty,
    )
