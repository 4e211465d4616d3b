"""Contents of logs and indexes before and after a change, for the pictures of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from krepair.formats.filenames import LOG, segment_name
from krepair.plan.changes import Change, CompleteSwap, MendLog, RewriteSegments, SetAside
from krepair.rules.outcome import SourceSegment
from krepair.rules.reasons import Reason

EMPTIED_BATCH_BYTES: Final = 61
"""A v2 batch header without records (``DefaultRecordBatch.RECORD_BATCH_OVERHEAD``)."""

_MOST_RUNS: Final = 100
_STAYS: Final = frozenset(
    reason.value
    for reason in (
        Reason.RECORDS,
        Reason.MARKER_DATA_REMAINS,
        Reason.MARKER_HORIZON,
        Reason.MARKER_STAMP,
        Reason.MARKER_EPOCH,
        Reason.MARKER_HELD,
        Reason.CONTROL_OTHER,
    )
)
"""Reasons whose batches keep their size."""


class Content(StrEnum):
    """The kind of content of a part of a log; the values are the words of the legend."""

    RECORDS = "records"
    BY_KEY = "goes by key"
    MARKERS = "markers"
    EMPTIED = "emptied"
    OTHER = "other batches"
    DAMAGED = "damaged"
    CUT = "cut off from the damage on"
    ASIDE = "set aside"
    REPLACED = "replaced by a broker's swap"
    LEFT = "left as it is"


CONTENT_OF: Final = {
    Reason.RECORDS.value: Content.RECORDS,
    Reason.MARKER_DATA_REMAINS.value: Content.MARKERS,
    Reason.MARKER_HORIZON.value: Content.MARKERS,
    Reason.MARKER_STAMP.value: Content.MARKERS,
    Reason.MARKER_EPOCH.value: Content.MARKERS,
    Reason.MARKER_HELD.value: Content.MARKERS,
    Reason.EMPTIED_PRODUCER.value: Content.EMPTIED,
    Reason.EMPTIED_LAST.value: Content.EMPTIED,
    Reason.LAST_EMPTIED_NOW.value: Content.MARKERS,
    Reason.EMPTIED.value: Content.EMPTIED,
    Reason.EMPTIED_MARKER.value: Content.EMPTIED,
    Reason.MARKER.value: Content.MARKERS,
    Reason.MARKER_STAMP_PAST.value: Content.MARKERS,
}


class ContentRange(NamedTuple):
    """A part of a log with one kind of content.

    Attributes:
        content: kind of content of the part.
        bytes: length of the part.
    """

    content: Content
    bytes: int


class Fate(NamedTuple):
    """Contents of the logs that a change touches, before and after it. A log may be empty.

    Attributes:
        before: base offset -> contents of the log now, for segments that exist now.
        after: base offset -> contents of the log after the change, for segments that exist then.
    """

    before: Mapping[int, tuple[ContentRange, ...]]
    after: Mapping[int, tuple[ContentRange, ...]]


def before_keys_go(
    stream: Iterable[tuple[Content, int]], file_bytes: int, emptied_bytes: int
) -> tuple[ContentRange, ...]:
    """Return the contents of a ``.log`` before key compaction removes records.

    Markers and batches without records are the same as in the stream, so all other bytes are records. The stream shows
    how many bytes of records are kept. A batch that is compressed again may become larger; then the part shown as kept
    is limited to the bytes that were there.

    Args:
        stream: contents of the log without the removed records.
        file_bytes: size of the ``.log``.
        emptied_bytes: bytes of the stream that are headers of batches that lose all of their records.
    """
    sums = {run.content: run.bytes for run in summed(stream)}
    stay = sums.pop(Content.RECORDS, 0)
    sums[Content.EMPTIED] = max(sums.get(Content.EMPTIED, 0) - max(emptied_bytes, 0), 0)
    records = max(file_bytes - sum(sums.values()), 0)
    stay = min(stay, records)
    return summed([*sums.items(), (Content.RECORDS, stay), (Content.BY_KEY, records - stay)])


def summed(stretches: Iterable[tuple[Content, int]]) -> tuple[ContentRange, ...]:
    """Return one range for each kind that has bytes, in the order of ``Content``."""
    sums = dict.fromkeys(Content, 0)
    for content, size in stretches:
        sums[content] += max(size, 0)
    return tuple(ContentRange(content, size) for content, size in sums.items() if size)


def fate_of(change: Change, sizes: Mapping[str, int]) -> Fate:
    """Return the contents of the logs that a change touches, before and after it.

    Args:
        sizes: file name -> size in bytes, of the partition's files.
    """
    match change:
        case RewriteSegments():
            return _rewritten(change)
        case MendLog():
            return _mended(change)
        case SetAside():
            size = sizes.get(segment_name(change.base_offset, LOG), 0)
            return Fate({change.base_offset: summed(((Content.ASIDE, size),))}, {})
        case CompleteSwap():
            logs = {base: sizes.get(segment_name(base, LOG), 0) for base in change.replaces}
            before = {base: summed(((Content.REPLACED, size),)) for base, size in logs.items()}
            return Fate(before, {change.base_offset: summed(((Content.LEFT, change.log_bytes),))})
        case _:
            return Fate({}, {})


def _rewritten(change: RewriteSegments) -> Fate:
    """Return the contents by reason. Bytes beyond the batches that are kept are headers of empty batches."""
    before = {source.base_offset: _holds(source) for source in change.sources}
    stays = [
        (CONTENT_OF.get(tally.reason, Content.OTHER), tally.bytes)
        for source in change.sources
        for tally in source.reasons
        if tally.reason in _STAYS
    ]
    emptied = change.log_bytes - sum(size for _, size in stays)
    return Fate(before, {change.base_offset: summed([*stays, (Content.EMPTIED, emptied)])})


def _holds(source: SourceSegment) -> tuple[ContentRange, ...]:
    tallied = [(CONTENT_OF.get(tally.reason, Content.OTHER), tally.bytes) for tally in source.reasons]
    keys = source.by_key
    if keys is None:
        return summed(tallied)
    return before_keys_go(tallied, keys.file_bytes, EMPTIED_BATCH_BYTES * keys.emptied)


def _mended(change: MendLog) -> Fate:
    """Return the parts of the log in order, unless there are many: the reader wants to see where the log is damaged."""
    lost = Content.CUT if change.method == "cut" else Content.DAMAGED
    runs, position = [], 0
    for gap in change.removed:
        runs += [ContentRange(Content.LEFT, gap.start - position), ContentRange(lost, gap.end - gap.start)]
        position = gap.end
    runs.append(ContentRange(Content.LEFT, change.size_before - position))
    few = len(runs) <= _MOST_RUNS
    before = tuple(run for run in runs if run.bytes > 0) if few else summed(runs)
    return Fate(
        {change.base_offset: before}, {change.base_offset: summed(((Content.LEFT, change.size_after),))}
    )
