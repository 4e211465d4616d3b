"""The contents of the logs that a change touches, before and after it, for pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from krepair.rules.reasons import Reason


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
        content: the kind.
        bytes: length of the part.
    """

    content: Content
    bytes: int


class Fate(NamedTuple):
    """The logs of the segments that a change touches, before and after. A log may be empty.

    Attributes:
        before: base offset -> content of its log now, for segments that are there now.
        after: base offset -> content of its log after the change, for segments that are there then.
    """

    before: Mapping[int, tuple[ContentRange, ...]]
    after: Mapping[int, tuple[ContentRange, ...]]


def before_keys_go(
    stream: Iterable[tuple[Content, int]], file_bytes: int, emptied_bytes: int
) -> tuple[ContentRange, ...]:
    """The content of a ``.log`` before key compaction removes records.

    Markers and batches without records are the same as in the stream, so all other bytes are records. The stream tells
    how many bytes of records stay. A batch that is compressed again may become larger; then the shown part that stays
    is limited to the bytes that were there.

    Args:
        stream: content of the stream that is left without these records.
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
    """One run for each kind with bytes, in the order of ``Content``."""
    sums = dict.fromkeys(Content, 0)
    for content, size in stretches:
        sums[content] += max(size, 0)
    return tuple(ContentRange(content, size) for content, size in sums.items() if size)


def removed(base_offset: int, size: int, content: Content) -> Fate:
    """The fate of a segment that is moved out as a whole."""
    return Fate({base_offset: summed(((content, size),))}, {})
