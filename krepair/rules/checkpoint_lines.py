"""Changes single lines of an intact offset checkpoint, and finds out which lines are changed already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from krepair.formats.checkpoint import OffsetEntry, decode_offsets, encode_offsets


class ChangedLine(Struct, frozen=True):
    """One line of a checkpoint of the root that changes.

    Attributes:
        topic: topic in the line.
        partition: partition number in the line.
        old: offset before the change, None if there was no such line.
        new: offset after the change, None if the line is removed.
    """

    topic: str
    partition: int
    old: int | None
    new: int | None


def lines_between(before: Sequence[OffsetEntry], after: Iterable[OffsetEntry]) -> tuple[ChangedLine, ...]:
    """The lines that differ, in the order of ``before``. If a partition has several lines, the first one stays.

    Args:
        before: entries of an intact file.
        after: entries of the mended file, at most one per partition.
    """
    left = {(entry.topic, entry.partition): entry.offset for entry in after}
    lines = []
    for entry in before:
        new = left.pop((entry.topic, entry.partition), None)
        if new != entry.offset:
            lines.append(ChangedLine(entry.topic, entry.partition, entry.offset, new))
    added = (ChangedLine(topic, partition, None, offset) for (topic, partition), offset in left.items())
    return (*lines, *added)


def with_lines(data: bytes, lines: Iterable[ChangedLine]) -> bytes | None:
    """Change lines of a file; all other lines stay as they are.

    Args:
        data: bytes of the file on the disk.
        lines: the lines that change.

    Returns:
        The new bytes; None if the file is damaged, or if a line is not as it was when the plan was made.
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


def has_new_lines(data: bytes, lines: Iterable[ChangedLine]) -> bool:
    """Whether the file has all these changes: each partition has only the new offset, or no line.

    A damaged file has none of them.
    """
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
    """Offsets by partition, in the order of the file; None for a damaged file."""
    found = decode_offsets(data)
    if found.damage:
        return None
    offsets: dict[tuple[str, int], list[int]] = {}
    for entry in found.entries:
        offsets.setdefault((entry.topic, entry.partition), []).append(entry.offset)
    return offsets


def _holds(here: list[int], news: list[int]) -> bool:
    """Whether the offsets of a partition are the new ones.

    If a line was removed because it was repeated, another line of the partition stays, with any offset.
    """
    return here == news if news else len(here) <= 1


def raised(lines: Iterable[ChangedLine]) -> tuple[ChangedLine, ...]:
    """The lines that are added or get a higher offset. After a higher recovery point a start reads less of the log."""
    return tuple(line for line in lines if line.new is not None and (line.old is None or line.new > line.old))


def lines_in(data: bytes, lines: Iterable[ChangedLine]) -> tuple[ChangedLine, ...]:
    """The lines that are changed in the file already; none for a damaged file."""
    offsets = _offsets_in(data)
    if offsets is None:
        return ()
    return tuple(
        line
        for line in lines
        if _holds(offsets.get((line.topic, line.partition), []), [] if line.new is None else [line.new])
    )


def lines_left(data: bytes, lines: Iterable[ChangedLine]) -> tuple[ChangedLine, ...]:
    """The lines that are not changed in the file yet; none for a damaged file."""
    offsets = _offsets_in(data)
    if offsets is None:
        return ()
    return tuple(line for line in lines if _is_old(offsets.get((line.topic, line.partition), []), line))


def _is_old(here: list[int], line: ChangedLine) -> bool:
    return not here if line.old is None else line.old in here
