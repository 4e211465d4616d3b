"""What becomes of the segments that a change touches: what each ``.log`` holds before it and after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from krepair.rules.reasons import Reason


class Content(StrEnum):
    """What a stretch of a log holds, in the words that a legend uses."""

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
    Reason.EMPTIED_PRODUCER.value: Content.EMPTIED,
    Reason.EMPTIED_LAST.value: Content.EMPTIED,
    Reason.LAST_EMPTIED_NOW.value: Content.MARKERS,
    Reason.EMPTIED.value: Content.EMPTIED,
    Reason.EMPTIED_MARKER.value: Content.EMPTIED,
    Reason.MARKER.value: Content.MARKERS,
    Reason.MARKER_STAMP_PAST.value: Content.MARKERS,
}


class Run(NamedTuple):
    """A stretch of one kind.

    Attributes:
        content: of which kind.
        bytes: how long.
    """

    content: Content
    bytes: int


class Fate(NamedTuple):
    """What becomes of the segments that a change touches. A log may be there and hold nothing.

    Attributes:
        before: base offset -> what its log holds now, of the segments that are there now.
        after: base offset -> what its log holds afterwards, of the segments that are there afterwards.
    """

    before: Mapping[int, tuple[Run, ...]]
    after: Mapping[int, tuple[Run, ...]]


def before_keys_go(
    stream: Iterable[tuple[Content, int]], file_bytes: int, emptied_bytes: int
) -> tuple[Run, ...]:
    """What a ``.log`` holds from which records go by key: superseded, tombstones past their horizon, aborted.

    Markers and batches without records are as they are in the stream; so all else are records. As many bytes of them
    stay as the stream has. Batches compressed anew may take more than they did, but never more than there was.

    Args:
        stream: what the ``.log`` holds once these records are gone.
        file_bytes: size of the ``.log``.
        emptied_bytes: of the stream, the headers of batches that lose all of their records.
    """
    sums = {run.content: run.bytes for run in summed(stream)}
    stay = sums.pop(Content.RECORDS, 0)
    sums[Content.EMPTIED] = max(sums.get(Content.EMPTIED, 0) - max(emptied_bytes, 0), 0)
    records = max(file_bytes - sum(sums.values()), 0)
    stay = min(stay, records)
    return summed([*sums.items(), (Content.RECORDS, stay), (Content.BY_KEY, records - stay)])


def summed(stretches: Iterable[tuple[Content, int]]) -> tuple[Run, ...]:
    """One run for each kind that has bytes, in the order of ``Content``."""
    sums = dict.fromkeys(Content, 0)
    for content, size in stretches:
        sums[content] += max(size, 0)
    return tuple(Run(content, size) for content, size in sums.items() if size)


def removed(base_offset: int, size: int, content: Content) -> Fate:
    """A whole segment is taken out."""
    return Fate({base_offset: summed(((content, size),))}, {})
