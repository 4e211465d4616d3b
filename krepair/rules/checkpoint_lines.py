"""Single lines of an offset checkpoint: what mending changes of an intact file, and how that is carried out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from krepair.formats.checkpoint import OffsetEntry, decode_offsets, encode_offsets


class Line(NamedTuple):
    """One line that changes.

    Attributes:
        topic: of the line.
        partition: its number.
        old: offset as it was, None if there was no such line.
        new: offset that it becomes, None if the line goes.
    """

    topic: str
    partition: int
    old: int | None
    new: int | None


def lines_between(before: Sequence[OffsetEntry], after: Iterable[OffsetEntry]) -> tuple[Line, ...]:
    """The lines that differ, in the order of the first; of lines of one partition the first one stays.

    Args:
        before: entries of an intact file.
        after: entries of the mended one, at most one of each partition.
    """
    left = {(entry.topic, entry.partition): entry.offset for entry in after}
    lines = []
    for entry in before:
        new = left.pop((entry.topic, entry.partition), None)
        if new != entry.offset:
            lines.append(Line(entry.topic, entry.partition, entry.offset, new))
    added = (Line(topic, partition, None, offset) for (topic, partition), offset in left.items())
    return (*lines, *added)


def with_lines(data: bytes, lines: Iterable[Line]) -> bytes | None:
    """The file with the lines changed; every other line is as it was.

    Args:
        data: of the file as it is on the disk.
        lines: that change.

    Returns:
        The new bytes; None where the file is damaged, or a line is not there as it was planned.
    """
    found = decode_offsets(data)
    if found.damage:
        return None
    entries: list[OffsetEntry | None] = list(found.entries)
    places: dict[tuple[str, int, int], list[int]] = {}
    for place, entry in enumerate(found.entries):
        places.setdefault((entry.topic, entry.partition, entry.offset), []).append(place)
    known = {(entry.topic, entry.partition) for entry in found.entries}
    for line in lines:
        new = None if line.new is None else OffsetEntry(line.topic, line.partition, line.new)
        if line.old is None:
            if (line.topic, line.partition) in known:
                return None
            entries.append(new)
            continue
        here = places.get((line.topic, line.partition, line.old))
        if not here:
            return None
        entries[here.pop(0)] = new
    return encode_offsets(tuple(entry for entry in entries if entry is not None))


def has_new_lines(data: bytes, lines: Iterable[Line]) -> bool:
    """Whether the lines are in the file as they become: each partition has the new offset alone, or no line at all."""
    offsets = _offsets_in(data)
    if offsets is None:
        return False
    wanted: dict[tuple[str, int], list[int]] = {}
    for line in lines:
        kept = wanted.setdefault((line.topic, line.partition), [])
        if line.new is not None:
            kept.append(line.new)
    return all(_holds(offsets.get(key, []), news) for key, news in wanted.items())


def _offsets_in(data: bytes) -> dict[tuple[str, int], list[int]] | None:
    """Offsets of each partition, in the order of the file; None of a damaged file."""
    found = decode_offsets(data)
    if found.damage:
        return None
    offsets: dict[tuple[str, int], list[int]] = {}
    for entry in found.entries:
        offsets.setdefault((entry.topic, entry.partition), []).append(entry.offset)
    return offsets


def _holds(here: list[int], news: list[int]) -> bool:
    """A repeated line goes while another one of its partition stays: that one may be any."""
    return here == news if news else len(here) <= 1


def raised(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Those that come in or become larger: of a recovery point, a start then reads less of that partition."""
    return tuple(line for line in lines if line.new is not None and (line.old is None or line.new > line.old))


def lines_in(data: bytes, lines: Iterable[Line]) -> tuple[Line, ...]:
    """Those of the lines that the file has as they become; none of a damaged file."""
    offsets = _offsets_in(data)
    if offsets is None:
        return ()
    return tuple(
        line
        for line in lines
        if _holds(offsets.get((line.topic, line.partition), []), [] if line.new is None else [line.new])
    )


def lines_left(data: bytes, lines: Iterable[Line]) -> tuple[Line, ...]:
    """Those of the lines that the file still has as they were; none of a damaged file."""
    offsets = _offsets_in(data)
    if offsets is None:
        return ()
    return tuple(line for line in lines if _is_old(offsets.get((line.topic, line.partition), []), line))


def _is_old(here: list[int], line: Line) -> bool:
    return not here if line.old is None else line.old in here
