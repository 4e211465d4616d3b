"""Review of changes that take data away: see ``krepair.plan.review``. None without the consent that names it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from krepair.plan import figures
from krepair.plan.model import (
    MendLog,
    PartitionPlan,
    Policy,
    RemovedRange,
    ReplaceFile,
    RewriteSegments,
    SetAside,
)
from krepair.plan.objection import Objection

_HEX_32: Final = re.compile(r"[0-9a-f]{32}")
_COMPANIONS: Final = (".index", ".timeindex", ".txnindex")
_OF_A_SEGMENT: Final = (".log", *_COMPANIONS, ".snapshot")
_BY_CONSENT: Final = frozenset({"KR302", "KR303", "KR304", "KR305"})
_TORN: Final = frozenset({"KR301", "KR305"})
_INDEX_ENTRY_BYTES: Final = 8


def review_losses(policy: Policy, partition: PartitionPlan) -> Iterator[Objection]:
    """What speaks against the changes of a partition that take data away."""
    logs = [change for change in partition.changes if isinstance(change, MendLog)]
    aside = [change for change in partition.changes if isinstance(change, SetAside)]
    if not logs and not aside:
        return
    if "tail" not in {fix.partition("=")[0] for fix in policy.fixes}:
        yield Objection("RV29", partition.folder, "data goes, but tail is not among the fixes")
    for log in logs:
        yield from _log(partition, log)
        for removed in log.removed:
            yield from _consent(policy, partition, log, removed)
    for segment in aside:
        yield from _segment(partition, segment)
        if segment.consent not in policy.accepted_losses or segment.rule not in _BY_CONSENT:
            yield Objection(
                "RV29", segment.change_id, f"a segment goes without consent ({segment.consent!r})"
            )
    yield from _behind_the_cut(partition, logs, aside)
    yield from _once(partition, logs, aside)


def _consent(
    policy: Policy, partition: PartitionPlan, log: MendLog, removed: RemovedRange
) -> Iterator[Objection]:
    last = max(figures.segment_bases(partition.files), default=-1)
    if not removed.consent:
        at_the_end = log.base_offset == last and removed.end == log.size_before
        if not at_the_end or removed.rule not in _TORN:
            text = f"bytes from {removed.start} go without consent, and are no torn tail"
            yield Objection("RV29", log.change_id, text)
        return
    expected = f"{removed.rule}:{partition.folder}:{removed.first_lost}"
    if removed.consent != expected or removed.rule not in _BY_CONSENT:
        text = f"consent {removed.consent!r} is not the one for this damage, {expected!r}"
        yield Objection("RV29", log.change_id, text)
    elif removed.consent not in policy.accepted_losses:
        text = f"consent {removed.consent!r} is not among those that were given"
        yield Objection("RV29", log.change_id, text)


def _log(partition: PartitionPlan, log: MendLog) -> Iterator[Objection]:
    where = log.change_id
    files = {file.name: file for file in partition.files}
    file = files.get(log.name)
    if log.name != f"{log.base_offset:020d}.log" or where != f"{partition.folder}/{log.name}":
        yield Objection("RV09", where, f"{log.name!r} is not the log of segment {log.base_offset}")
    if file is None or (log.size_before, log.mtime_ns) != (file.size, file.mtime_ns):
        yield Objection("RV30", where, "size or modification time is not that of its fingerprint")
    places = [place for removed in log.removed for place in (removed.start, removed.end)]
    gone = sum(removed.end - removed.start for removed in log.removed)
    if not places or places != sorted(set(places)) or places[0] < 0 or places[-1] > log.size_before:
        yield Objection("RV30", where, "the ranges that go are not ascending and inside of the file")
    if gone != log.size_before - log.size_after or log.size_after < 0:
        yield Objection(
            "RV30", where, f"{gone} bytes go, {log.size_before - log.size_after} are missing after"
        )
    at_the_end = len(log.removed) == 1 and log.removed[0].end == log.size_before
    if (log.method == "cut") != at_the_end:
        yield Objection("RV30", where, f"method {log.method!r} does not fit the ranges that go")
    if not _HEX_32.fullmatch(log.digest_after) or not _HEX_32.fullmatch(log.digest_removed):
        yield Objection("RV30", where, "a digest is not 32 hex digits")
    yield from _companions(partition, log)


def _companions(partition: PartitionPlan, log: MendLog) -> Iterator[Objection]:
    sizes = figures.sizes_by_name(partition.files)
    names = [new.name for new in log.companions]
    stem = f"{log.base_offset:020d}"
    if len(set(names)) != len(names) or not set(names) <= {stem + suffix for suffix in _COMPANIONS}:
        yield Objection("RV30", log.change_id, "a replaced index is not one of this segment")
    for new in log.companions:
        if new.size_before != sizes.get(new.name, -1) or new.size_after < 0:
            yield Objection("RV30", log.change_id, f"{new.name}: size_before is not that of its fingerprint")
        if not _HEX_32.fullmatch(new.digest_after):
            yield Objection("RV30", log.change_id, f"{new.name}: digest_after is not 32 hex digits")
        if new.name.endswith(".index") and not 0 <= log.front_bytes <= new.size_after:
            yield Objection("RV30", log.change_id, f"{new.name}: its front is larger than itself")
    if log.front_bytes % _INDEX_ENTRY_BYTES:
        yield Objection("RV30", log.change_id, "the front of the index ends within an entry")


def _segment(partition: PartitionPlan, segment: SetAside) -> Iterator[Objection]:
    sizes = figures.sizes_by_name(partition.files)
    stem = f"{segment.base_offset:020d}"
    expected = [stem + suffix for suffix in _OF_A_SEGMENT if stem + suffix in sizes]
    if segment.change_id != f"{partition.folder}/{stem}" or list(segment.names) != expected:
        yield Objection(
            "RV30", segment.change_id, f"the files of segment {segment.base_offset} are {expected}"
        )
    if segment.bytes != sum(sizes.get(name, 0) for name in segment.names):
        yield Objection("RV30", segment.change_id, "bytes are not those of its files")


def _behind_the_cut(
    partition: PartitionPlan, logs: list[MendLog], aside: list[SetAside]
) -> Iterator[Objection]:
    """Whole segments go only behind a cut that they share the consent of, all of them, the highest first."""
    if not aside:
        return
    consent = aside[0].consent
    cut = next((log for log in logs if log.method == "cut" and consent == log.removed[0].consent), None)
    if cut is None or any(segment.consent != consent for segment in aside):
        yield Objection("RV30", partition.folder, "segments are set aside without a cut of the same consent")
        return
    later = [base for base in figures.segment_bases(partition.files) if base > cut.base_offset]
    if [segment.base_offset for segment in aside] != later[::-1]:
        text = "not all segments behind the cut are set aside, the highest first"
        yield Objection("RV30", partition.folder, text)
    order = [change.change_id for change in partition.changes if change in (*aside, cut)]
    if order != [*(segment.change_id for segment in aside), cut.change_id]:
        yield Objection("RV30", partition.folder, "segments behind a cut are set aside after it")


def _once(partition: PartitionPlan, logs: list[MendLog], aside: list[SetAside]) -> Iterator[Objection]:
    """No file is touched by two changes."""
    names = [name for log in logs for name in (log.name, *(new.name for new in log.companions))]
    names += [name for segment in aside for name in segment.names]
    for change in partition.changes:
        if isinstance(change, ReplaceFile):
            names.append(change.name)
        elif isinstance(change, RewriteSegments):
            names += [f"{source.base_offset:020d}.log" for source in change.sources]
            names += change.removes_snapshots
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        yield Objection("RV30", partition.folder, f"{twice[0]} is touched by two changes")
