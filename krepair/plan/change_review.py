"""Objections to a change of each kind, in one table, whatever program wrote the plan. See ``review.py``.

A person must have consented to the loss of data; torn tails need no consent. What the plan says about other replicas
must allow everything that it removes: an edited plan must not remove more.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import UnsetType

from krepair.checks.catalogue import RULES
from krepair.formats.cleanup_policy import compacts
from krepair.formats.filenames import (
    INDEX_KINDS,
    INDEX_SUFFIXES,
    MAX_OFFSET,
    SEGMENT_SUFFIXES,
    SWAP,
    FileKind,
    NameState,
    offset_name,
    parse_file_name,
    segment_name,
)
from krepair.formats.words import count_text
from krepair.plan.changes import (
    Change,
    ChangeLines,
    CompleteSwap,
    MendLog,
    RemovedRange,
    ReplaceFile,
    RewriteSegments,
    RollSegment,
    SetAside,
)
from krepair.plan.facts import HEX_32, SNAPSHOT_NAME, PartitionFacts, is_plain_path, own_setting, setting
from krepair.plan.model import Evidence, FileFingerprint, Others, Plan, SourceSegment
from krepair.plan.objection import Objection, is_plain_name
from krepair.rules.evidence import BY_TIME, Kind, latest_horizon_ms
from krepair.rules.own_policy import not_asked_for
from krepair.rules.reasons import Reason
from krepair.rules.stale_transactions import STALE_TRANSACTION

_TAIL_FIX: Final = "tail"
_BY_CONSENT: Final = frozenset({"KR302", "KR303", "KR304", "KR305"})
"""Findings of damage whose removal needs a person's consent."""
_ZEROS: Final = "KR305"
_TORN: Final = frozenset({"KR301", _ZEROS})
_INDEX_ENTRY_BYTES: Final = 8
_SMALLEST_MESSAGE_BYTES: Final = 26
"""Size in bytes of a v0 message without key and value."""
_GONE: Final = frozenset({Reason.MARKER.value, Reason.MARKER_STAMP_PAST.value, Reason.LAST_EMPTIED_NOW.value})
"""Reasons for which a marker is removed or emptied; for a follower both are the same."""
_HORIZON_NAMES: Final = frozenset({"newest", "next-pass"})
_INDEX: Final = re.compile(r"([0-9]{20})\.(?:index|timeindex|txnindex)")
_BASE: Final = re.compile(r"([0-9]{20})\.")
_LEFT_BEHIND: Final = (".cleaned", ".deleted")
_EMPTY_CHECKPOINT: Final = b"0\n0\n"
_OF_A_SEGMENT: Final = (*SEGMENT_SUFFIXES, ".snapshot")
_RECOVERY: Final = "recovery"
_LEFTOVERS: Final = "leftovers"
_RULE_OF_SWAPS: Final = "KR601"
_REPLACED_BY: Final[Mapping[FileKind, Collection[str]]] = {
    FileKind.LEADER_EPOCHS: ("epochs", _RECOVERY),
    FileKind.SNAPSHOT: ("snapshots", _RECOVERY),
    **dict.fromkeys(INDEX_KINDS, ("index", _LEFTOVERS, _RECOVERY)),
}
"""Fixes that may replace a file, by its kind. An edited plan might name any file; this does not ask the fixes."""


# -- segments that are rewritten


def _group(facts: PartitionFacts, change: RewriteSegments) -> Iterator[Objection]:
    """Check that the active segment and at least one batch are kept, and that the new log ends as its sources do."""
    where = change.change_id
    if where != f"{facts.partition.folder}/{offset_name(change.base_offset)}":
        yield Objection("RV09", where, "change_id is not folder and base offset")
    bases = [source.base_offset for source in change.sources]
    if facts.bases and facts.bases[-1] in bases:
        yield Objection("RV18", where, f"segment {facts.bases[-1]} is the last one: a broker writes to it")
    if change.batches < 1 or change.log_bytes < _SMALLEST_MESSAGE_BYTES or not bases:
        yield Objection("RV21", where, "no batch would be left; a group keeps at least one")
        return
    kept_bytes = sum(source.kept_bytes for source in change.sources)
    if change.log_bytes != kept_bytes:
        yield Objection("RV21", where, f"log_bytes is {change.log_bytes}, its sources give {kept_bytes}")
    first = bisect_left(facts.bases, bases[0])
    if change.base_offset != bases[0] or facts.bases[first : first + len(bases)] != bases:
        yield Objection(
            "RV17", where, f"it is not made of segments that follow each other from {bases[0]} on"
        )
    place = bisect_right(facts.bases, bases[-1])
    following = facts.bases[place] if place < len(facts.bases) else None
    kept = [source.base_offset for source in change.sources if source.kept_batches > 0]
    if change.last_offset < max(kept, default=bases[-1]) or (
        following is not None and change.last_offset >= following
    ):
        yield Objection("RV21", where, f"last offset {change.last_offset} is not in its last kept segment")
    last_log = facts.files.get(segment_name(bases[-1], ".log"))
    if last_log is not None and last_log.mtime_ns != change.mtime_ns:
        yield Objection("RV24", where, "modification time is not that of its last source")
    merged = [name for base in bases[1:] if (name := segment_name(base, ".snapshot")) in facts.files]
    expected = tuple(name for name in sorted(merged) if name != facts.newest_snapshot)
    if change.removes_snapshots != expected:
        text = f"the producer snapshots that go with its segments are {list(expected)}"
        yield Objection("RV23", where, text)


def _groups(facts: PartitionFacts, changes: Sequence[RewriteSegments]) -> Iterator[Objection]:
    """Check that the topic is compacted, the groups are cleanable, and no replica may need what is removed."""
    policy, topic = facts.policy, facts.partition.topic
    if not compacts(setting(policy, topic, "cleanup.policy")):
        yield Objection("RV14", facts.partition.folder, f"{topic} is not compacted (cleanup.policy)")
    own = own_setting(policy, topic, "cleanup.policy")
    why = not_asked_for(topic, own.value, own.source)
    if why and any(change.loses_records for change in changes):
        yield Objection("RV14", facts.partition.folder, f"records go by key, but {why}")
    yield from _evidence(facts, changes)
    yield from _span(facts, changes)


def _span(facts: PartitionFacts, changes: Sequence[RewriteSegments]) -> Iterator[Objection]:
    partition = facts.partition
    where, span = partition.folder, partition.span
    if span is None:
        yield Objection("RV16", where, "segments are rewritten, but the plan has no cleanable range for them")
        return
    if not 0 <= span.start_offset < span.end_offset <= partition.log_end_offset:
        yield Objection(
            "RV16",
            where,
            f"cleanable range {span.start_offset} to {span.end_offset} is empty, or not in the log",
        )
    if not facts.policy.assume_high_watermark and span.end_offset > partition.high_watermark:
        yield Objection(
            "RV16",
            where,
            f"cleanable range ends at {span.end_offset}, past the high watermark {partition.high_watermark}",
        )
    for change in changes:
        if not span.start_offset <= change.base_offset <= change.last_offset < span.end_offset:
            yield Objection(
                "RV16",
                change.change_id,
                f"offsets {change.base_offset} to {change.last_offset} are not in the cleanable range "
                f"{span.start_offset} to {span.end_offset}",
            )


# -- what other replicas may need


def _evidence(facts: PartitionFacts, changes: Sequence[RewriteSegments]) -> Iterator[Objection]:
    """Yield all objections to removals that the evidence does not allow."""
    others, evidence, where = facts.policy.others, facts.partition.evidence, facts.partition.folder
    sources = [source for change in changes for source in change.sources]
    if isinstance(evidence, UnsetType):
        yield Objection("RV33", where, "segments are rewritten, but nothing is said of other replicas")
        return
    why = _why_not_asked(others, evidence, facts.partition.topic)
    if why:
        yield Objection("RV33", where, f"its evidence is {evidence.kind!r}, but {why}")
    for source in sources:
        yield from _source(source, evidence, f"{where}/{offset_name(source.base_offset)}")
    latest = latest_horizon_ms(evidence.kind, facts.policy.now_ms, _retention_ms(facts))
    by_time = evidence.kind in BY_TIME or facts.policy.horizon in _HORIZON_NAMES
    if by_time:
        latest = min(latest, facts.policy.now_ms - _retention_ms(facts))
    if not evidence.keeps_all and facts.partition.horizon_ms > max(latest, 0):
        text = f"the delete horizon {facts.partition.horizon_ms} is later than {evidence.kind!r} allows: {latest}"
        yield Objection("RV33", where, text)


def evidence_of_searches(plan: Plan) -> Iterator[Objection]:
    """Yield all objections to the directories in which ``apply`` looks for replicas that a broker may be creating.

    Every log that the plan rests on is in one of them, or in the plan's own.
    """
    others = plan.policy.others
    paths = [searched.path for searched in others.searched]
    if paths != sorted(set(paths)):
        yield Objection("RV33", "", "the log directories that were searched are not by path, each once")
    for path in paths:
        if not is_plain_path(path):
            yield Objection("RV33", "", f"{path!r} was searched, which is not an absolute, plain path")
    searched = {plan.log_dir, *paths}
    for partition in plan.changing:
        logs = () if isinstance(partition.evidence, UnsetType) else partition.evidence.logs
        for log_dir in sorted({log.log_dir for log in logs} - searched):
            text = f"the plan rests on a log in {log_dir!r}, which is not among the directories that were searched"
            yield Objection("RV33", partition.folder, text)


def _source(source: SourceSegment, evidence: Evidence, where: str) -> Iterator[Objection]:
    if source.keeps != evidence.keeps_all or isinstance(source.keeps_all, UnsetType):
        yield Objection("RV33", where, f"keeps_all does not fit the evidence {evidence.kind!r}")
    if not evidence.keeps_all:
        return
    markers, tombstones = _going(source)
    if markers or tombstones or source.drop_unstamped:
        goes = _goes_text(markers, tombstones)
        yield Objection("RV33", where, f"{goes} would go, but nothing is known of other replicas")


def _going(source: SourceSegment) -> tuple[int, int]:
    """Return how many (markers, tombstones) of a source would be removed."""
    markers = sum(tally.batches for tally in source.reasons if tally.reason in _GONE)
    return markers, 0 if source.by_key is None else source.by_key.tombstones


def _goes_text(markers: int, tombstones: int) -> str:
    counts = ((markers, "marker"), (tombstones, "tombstone"))
    parts = [count_text(count, word) for count, word in counts if count]
    return " and ".join(parts) or "what has no delete horizon of its own"


def _why_not_asked(others: Others, evidence: Evidence, topic: str) -> str:
    """Return why the options of the plan cannot have given this evidence, or an empty string."""
    possible: dict[Kind, bool] = {
        "none": True,
        "in-sync": bool(others.cluster_digest) and others.cluster_source == "describe",
        "replicas": bool(others.cluster_digest) and bool(others.replicas),
        "only-replica": topic in others.only_replica
        or "*" in others.only_replica
        or bool(others.own_metadata),
        "as-broker": others.as_broker,
    }
    return "" if possible[evidence.kind] else "no option of the plan says so"


def _retention_ms(facts: PartitionFacts) -> int:
    text = setting(facts.policy, facts.partition.topic, "delete.retention.ms")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 2**63 - 1


# -- swaps that a broker began


def _swap(facts: PartitionFacts, change: CompleteSwap) -> Iterator[Objection]:
    """Check that the swap exists and is valid, and replaces exactly the segments that a broker would replace."""
    where, base = change.change_id, change.base_offset
    log = segment_name(base, ".log.swap")
    if _LEFTOVERS not in facts.fixes or change.rule != _RULE_OF_SWAPS:
        yield Objection("RV31", where, f"a swap is completed by --fix leftovers alone, for {_RULE_OF_SWAPS}")
    in_place = where == f"{facts.partition.folder}/{log}"
    if not 0 <= base <= change.last_offset < MAX_OFFSET or not in_place:
        yield Objection("RV31", where, "its offsets or its change_id are wrong")
    if any(_base_of(name) <= base for name in facts.files if name.endswith(".cleaned")):
        yield Objection(
            "RV31",
            where,
            "there is a .cleaned at or below its offset: every broker throws this swap away",
        )
    yield from _replaced(facts, change)
    names = [made.name for made in change.makes]
    own = {segment_name(base, suffix) for suffix in INDEX_SUFFIXES}
    if names != sorted(set(names)) or not set(names) <= own:
        yield Objection("RV31", where, "it makes files that are not its own indexes")


def _base_of(name: str) -> int:
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else -1


def _replaced(facts: PartitionFacts, change: CompleteSwap) -> Iterator[Objection]:
    where, base = change.change_id, change.base_offset
    covered = tuple(other for other in facts.bases if base <= other <= change.last_offset)
    if change.replaces != covered:
        yield Objection(
            "RV31",
            where,
            f"it replaces segments {list(change.replaces)}; every broker replaces {list(covered)}",
        )
    segments = sorted({base, *covered})
    names = [segment_name(segment, suffix) for segment in segments for suffix in SEGMENT_SUFFIXES]
    names += [segment_name(base, f"{suffix}.swap") for suffix in INDEX_SUFFIXES]
    if change.goes != tuple(sorted(name for name in names if name in facts.files)):
        yield Objection("RV31", where, "the files that it removes are not those of the segments replaced")
    if not set(change.copied) <= set(change.replaces):
        yield Objection("RV31", where, "it copies a segment that it does not replace")


# -- data that is removed


def _mended(facts: PartitionFacts, change: MendLog) -> Iterator[Objection]:
    """Check that ranges, sizes and digests fit, and that a person consented to the loss of each range."""
    yield from _log(facts, change)
    yield from _indexes(facts, change)
    for removed in change.removed:
        yield from _consent(facts, change, removed)


def _mended_all(facts: PartitionFacts, changes: Sequence[MendLog]) -> Iterator[Objection]:
    """Check that the fix ``tail``, which alone removes bytes, is among the plan's fixes."""
    if _TAIL_FIX not in facts.fixes:
        yield Objection("RV29", facts.partition.folder, "data is removed, but tail is not among the fixes")


def _log(facts: PartitionFacts, change: MendLog) -> Iterator[Objection]:
    where, file = change.change_id, facts.files.get(change.name)
    if (
        change.name != segment_name(change.base_offset, ".log")
        or where != f"{facts.partition.folder}/{change.name}"
    ):
        yield Objection("RV09", where, f"{change.name!r} is not the log of segment {change.base_offset}")
    if file is None or (change.size_before, change.mtime_ns) != (file.size, file.mtime_ns):
        yield Objection("RV30", where, "size or modification time is not that of its fingerprint")
    places = [place for removed in change.removed for place in (removed.start, removed.end)]
    if not places or places != sorted(set(places)) or places[0] < 0 or places[-1] > change.size_before:
        yield Objection("RV30", where, "the removed ranges do not ascend, or are not inside of the file")
    gone = sum(removed.end - removed.start for removed in change.removed)
    if gone != change.size_before - change.size_after or change.size_after < 0:
        sizes = f"{change.size_before} to {change.size_after} bytes"
        yield Objection("RV30", where, f"{gone} bytes are removed, but the size changes from {sizes}")
    at_the_end = len(change.removed) == 1 and change.removed[0].end == change.size_before
    if (change.method == "cut") != at_the_end:
        yield Objection("RV30", where, f"method {change.method!r} does not fit the removed ranges")
    if change.method == "cut" and change.removed and change.removed[0].first_lost != change.last_offset + 1:
        text = f"offset {change.last_offset} is the last that stays, {change.removed[0].first_lost} the first lost one"
        yield Objection("RV30", where, text)
    if any(min(removed.last_lost, removed.records) < -1 for removed in change.removed):
        yield Objection("RV30", where, "a lost offset or a number of lost records is negative")
    if not HEX_32.fullmatch(change.digest_after) or not HEX_32.fullmatch(change.digest_removed):
        yield Objection("RV30", where, "a digest is not 32 hex digits")


def _indexes(facts: PartitionFacts, change: MendLog) -> Iterator[Objection]:
    where = change.change_id
    names = [companion.name for companion in change.companions]
    own = {segment_name(change.base_offset, suffix) for suffix in INDEX_SUFFIXES}
    if len(set(names)) != len(names) or not set(names) <= own:
        yield Objection("RV30", where, "a replaced index is not one of this segment")
    for companion in change.companions:
        name = companion.name
        if companion.size_before != facts.sizes.get(name, -1) or companion.size_after < 0:
            yield Objection("RV30", where, f"{name}: size_before is not that of its fingerprint")
        if not HEX_32.fullmatch(companion.digest_after):
            yield Objection("RV30", where, f"{name}: digest_after is not 32 hex digits")
        if name.endswith(".index") and not 0 <= change.front_bytes <= companion.size_after:
            yield Objection("RV30", where, f"{name}: its front is larger than itself")
    if change.front_bytes % _INDEX_ENTRY_BYTES:
        yield Objection("RV30", where, "the front of the index ends within an entry")


def _consent(facts: PartitionFacts, change: MendLog, removed: RemovedRange) -> Iterator[Objection]:
    where = change.change_id
    if not removed.consent:
        of_last = change.base_offset == max(facts.bases, default=-1)
        whole = removed.rule == _ZEROS and change.last_offset + 1 in facts.bases
        if not (of_last or whole) or removed.end != change.size_before or removed.rule not in _TORN:
            yield Objection(
                "RV29",
                where,
                f"bytes from position {removed.start} are removed without consent, and they are not a torn tail",
            )
        return
    expected = f"{removed.rule}:{facts.partition.folder}:{removed.first_lost}"
    if removed.consent != expected or removed.rule not in _BY_CONSENT:
        text = f"consent {removed.consent!r} is not the one for this damage, {expected!r}"
        yield Objection("RV29", where, text)
    elif removed.consent not in facts.policy.accepted_losses:
        yield Objection("RV29", where, f"consent {removed.consent!r} is not among those that were given")


def _aside(facts: PartitionFacts, change: SetAside) -> Iterator[Objection]:
    """Check that the change names the files of one segment, and that a person consented to the loss."""
    where, stem = change.change_id, offset_name(change.base_offset)
    expected = [stem + suffix for suffix in _OF_A_SEGMENT if stem + suffix in facts.files]
    if where != f"{facts.partition.folder}/{stem}" or list(change.names) != expected:
        yield Objection("RV30", where, f"the files of segment {change.base_offset} are {expected}")
    if change.bytes != sum(facts.sizes.get(name, 0) for name in change.names):
        yield Objection("RV30", where, "bytes are not those of its files")
    if change.consent not in facts.policy.accepted_losses or change.rule not in _BY_CONSENT:
        yield Objection("RV29", where, f"a segment is set aside without consent ({change.consent!r})")


def _aside_all(facts: PartitionFacts, changes: Sequence[SetAside]) -> Iterator[Objection]:
    """Check that all segments after a cut are moved out with its consent, highest first, and before the cut."""
    folder, consent = facts.partition.folder, changes[0].consent
    if _TAIL_FIX not in facts.fixes:
        yield Objection("RV29", folder, "segments are set aside, but tail is not among the fixes")
    cut = _cut(facts.partition.changes, consent)
    if cut is None or any(change.consent != consent for change in changes):
        yield Objection("RV30", folder, "segments are set aside without a cut of the same consent")
        return
    behind = [base for base in facts.bases if base > cut.base_offset]
    if [change.base_offset for change in changes] != behind[::-1]:
        text = "not all segments behind the cut are set aside, the highest first"
        yield Objection("RV30", folder, text)
    order = [change.change_id for change in facts.partition.changes if change in (*changes, cut)]
    if order != [*(change.change_id for change in changes), cut.change_id]:
        yield Objection("RV30", folder, "segments behind a cut are set aside after it")


def _cut(changes: Sequence[Change], consent: str) -> MendLog | None:
    """Return the cut with this consent, or None."""
    for change in changes:
        if isinstance(change, MendLog) and change.method == "cut" and _consent_of(change) == consent:
            return change
    return None


def _consent_of(cut: MendLog) -> str | None:
    return cut.removed[0].consent if cut.removed else None


# -- files


def _file(facts: PartitionFacts, change: ReplaceFile) -> Iterator[Objection]:
    """Check that a chosen fix may replace or remove the file; ``apply`` computes its bytes again."""
    where, rule = change.change_id, RULES.get(change.rule)
    fix = "" if rule is None else rule.fix
    if rule is None or fix not in facts.fixes:
        yield Objection("RV25", where, f"{change.rule!r} is not a rule that the chosen fixes mend")
    if not is_plain_name(change.name) or where != f"{facts.partition.folder}/{change.name}":
        yield Objection("RV09", where, f"file {change.name!r} is not a plain name of this folder")
    if change.method == "remove" and not _may_go(facts, change.name, fix):
        yield Objection("RV25", where, f"{change.name!r} is not a file that {fix or 'a fix'} removes")
    if change.method != "remove" and fix:
        yield from _replaced_name(facts, change, fix)


def _file_in_root(change: ReplaceFile, file: FileFingerprint) -> Iterator[Objection]:
    """Check that the file is regenerated, and that the sizes fit."""
    where = change.change_id
    if change.method != "regenerate" or not HEX_32.fullmatch(change.digest_after):
        yield Objection("RV28", where, "a checkpoint is regenerated, and its digest has 32 hex digits")
    if change.size_before != file.size or change.size_after < len(_EMPTY_CHECKPOINT):
        yield Objection("RV28", where, f"size_before is {change.size_before}, the file has {file.size}")


def _replaced_name(facts: PartitionFacts, change: ReplaceFile, fix: str) -> Iterator[Objection]:
    where, name = change.change_id, change.name
    file = parse_file_name(name)
    is_live = file.is_canonical and file.state is NameState.LIVE
    if not is_live or fix not in _REPLACED_BY.get(file.kind, ()):
        yield Objection("RV25", where, f"{name!r} is not a file that --fix {fix} replaces")
    elif change.method != "regenerate" and (file.kind not in INDEX_KINDS or fix == _LEFTOVERS):
        yield Objection("RV25", where, f"{name!r} is regenerated by --fix {fix}")
    elif file.kind is FileKind.SNAPSHOT:
        at_end = name == segment_name(facts.partition.log_end_offset, ".snapshot")
        if not (name in facts.files if change.rule == STALE_TRANSACTION else at_end):
            yield Objection("RV25", where, f"the log ends at offset {facts.partition.log_end_offset}")
    elif fix == _LEFTOVERS and name + SWAP not in facts.files:
        yield Objection("RV25", where, f"{name!r} is not an index that waits in a .swap")


def _may_go(facts: PartitionFacts, name: str, fix: str) -> bool:
    files = facts.files
    if name not in files:
        return False
    if fix in {"snapshots", _RECOVERY}:
        return SNAPSHOT_NAME.fullmatch(name) is not None
    if fix != _LEFTOVERS:
        return False
    if name.endswith(_LEFT_BEHIND):
        return True
    if name.endswith(SWAP):
        return _is_void(files, name) or _is_index_alone(files, name)
    index = _INDEX.fullmatch(name)
    return index is not None and not any(f"{index[1]}.log{suffix}" in files for suffix in ("", SWAP))


def _is_void(files: Mapping[str, FileFingerprint], name: str) -> bool:
    """Return whether every broker deletes a ``.swap``: a ``.cleaned`` is at or below its base offset."""
    base = _BASE.match(name)
    cleaned = [
        int(match[1]) for other in files if other.endswith(".cleaned") and (match := _BASE.match(other))
    ]
    return base is not None and any(offset <= int(base[1]) for offset in cleaned)


def _is_index_alone(files: Mapping[str, FileFingerprint], name: str) -> bool:
    """Return whether a ``.swap`` is an index without its log: it holds no records and can be rebuilt."""
    index = _INDEX.fullmatch(name.removesuffix(SWAP))
    return index is not None and f"{index[1]}.log{SWAP}" not in files


# -- new segments


def _roll(facts: PartitionFacts, change: RollSegment) -> Iterator[Objection]:
    """Check that the segment begins at the log end, and that none of its file names is taken."""
    where = change.change_id
    rule = RULES.get(change.rule)
    if rule is None or rule.fix != _RECOVERY or _RECOVERY not in facts.fixes:
        yield Objection("RV25", where, f"{change.rule!r} is not a rule that the chosen fixes mend")
    if where != f"{facts.partition.folder}/{offset_name(change.base_offset)}":
        yield Objection("RV09", where, f"is not segment {change.base_offset} of this folder")
    end = facts.partition.log_end_offset
    if change.base_offset != end or not max(facts.bases, default=-1) < end <= MAX_OFFSET:
        yield Objection("RV30", where, f"the log ends at offset {end}, a segment cannot begin elsewhere")
    for name in change.names:
        if name in facts.files:
            yield Objection("RV30", where, f"{name} is there already")


def _roll_alone(facts: PartitionFacts, changes: Sequence[RollSegment]) -> Iterator[Objection]:
    """Check that the new segment is the only one, and the last change: the log before it must be whole by then."""
    if facts.partition.changes[-1] is not changes[0]:  # nor is the first of two
        yield Objection("RV30", facts.partition.folder, "a new segment is not the last change")


# -- lines of checkpoints


def _lines(facts: PartitionFacts, change: ChangeLines) -> Iterator[Objection]:
    """Refuse every such change in a partition."""
    yield Objection("RV28", change.change_id, "lines of a checkpoint change, in a partition")


def _lines_in_root(change: ChangeLines, file: FileFingerprint) -> Iterator[Objection]:
    """Check that each entry really changes, that none is listed twice, and that all offsets are possible."""
    where = change.change_id
    if change.size_before != file.size:
        yield Objection("RV28", where, f"size_before is {change.size_before}, the file has {file.size}")
    if not change.lines:
        yield Objection("RV28", where, "no line changes")
    news = [(line.topic, line.partition) for line in change.lines if line.new is not None]
    if len(news) != len(set(news)):
        yield Objection("RV28", where, "two lines of one partition stay")
    for line in change.lines:
        if line.old == line.new or (line.new is not None and line.new < 0):
            text = f"{line.topic}-{line.partition}: {line.old} becomes {line.new}"
            yield Objection("RV28", where, text)


# -- the table


def _none(facts: PartitionFacts, changes: Sequence[Change]) -> Iterator[Objection]:
    return iter(())


def _not_in_root(change: Change, file: FileFingerprint) -> Iterator[Objection]:
    yield Objection("RV28", ".", "a change of this kind is not made in the root")


class Review(NamedTuple):
    """Checks of the changes of one kind; each of them yields objections.

    Attributes:
        one: checks one change of a partition.
        all: checks all changes of the kind in one partition together, in the order of the plan.
        in_root: checks a change of a file in the root, given its fingerprint.
    """

    one: Callable[[PartitionFacts, Any], Iterator[Objection]]
    all: Callable[[PartitionFacts, Sequence[Any]], Iterator[Objection]] = _none
    in_root: Callable[[Any, FileFingerprint], Iterator[Objection]] = _not_in_root


REVIEWS: Final[dict[type[Change], Review]] = {
    RewriteSegments: Review(_group, _groups),
    CompleteSwap: Review(_swap),
    MendLog: Review(_mended, _mended_all),
    SetAside: Review(_aside, _aside_all),
    ReplaceFile: Review(_file, in_root=_file_in_root),
    RollSegment: Review(_roll, _roll_alone),
    ChangeLines: Review(_lines, in_root=_lines_in_root),
}


def review_together(facts: PartitionFacts) -> Iterator[Objection]:
    """Yield the objections to a partition's changes, one kind of change after the other."""
    changes = facts.partition.changes
    for kind, review in REVIEWS.items():
        of_kind = [change for change in changes if type(change) is kind]
        if of_kind:
            yield from review.all(facts, of_kind)
