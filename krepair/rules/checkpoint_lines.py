"""Changes single lines of an intact offset checkpoint, and finds out which lines are changed already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from krepair.formats.checkpoint import CheckpointEntry, decode_offsets, encode_offsets


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


def lines_between(
    before: Sequence[CheckpointEntry], after: Iterable[CheckpointEntry]
) -> tuple[ChangedLine, ...]:
    """The lines that differ, in the order of ``before``.

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
    offsets = _offsets_in(data)
    if offsets is None:
        return None
    for line in lines:
        place = (line.topic, line.partition)
        if offsets.get(place) != line.old:
            return None
        if line.new is None:
            offsets.pop(place, None)
        else:
            offsets[place] = line.new
    return encode_offsets(tuple(CheckpointEntry(*place, offset) for place, offset in offsets.items()))


def has_new_lines(data: bytes, lines: Iterable[ChangedLine]) -> bool:
    """Whether the file has all these changes. A damaged file has none of them."""
    offsets = _offsets_in(data)
    return offsets is not None and all(_is_new(offsets, line) for line in lines)


def _offsets_in(data: bytes) -> dict[tuple[str, int], int] | None:
    """Offsets by partition, in the order of the file; None for a damaged file, as one with two lines of a partition."""
    found = decode_offsets(data)
    if found.damage:
        return None
    return {(topic, partition): offset for topic, partition, offset in found.entries}


def _is_new(offsets: Mapping[tuple[str, int], int], line: ChangedLine) -> bool:
    """Whether a line is as it becomes. Where one was removed, a broker may have written another one since."""
    found = offsets.get((line.topic, line.partition))
    return found != line.old if line.new is None else found == line.new


def raised(lines: Iterable[ChangedLine]) -> tuple[ChangedLine, ...]:
    """The lines that are added or get a higher offset. After a higher recovery point a start reads less of the log."""
    return tuple(line for line in lines if line.new is not None and (line.old is None or line.new > line.old))


def lines_in(data: bytes, lines: Iterable[ChangedLine]) -> tuple[ChangedLine, ...]:
    """The lines that are changed in the file already; none for a damaged file."""
    offsets = _offsets_in(data)
    if offsets is None:
        return ()
    return tuple(line for line in lines if _is_new(offsets, line))


def lines_left(data: bytes, lines: Iterable[ChangedLine]) -> tuple[ChangedLine, ...]:
    """The lines that are not changed in the file yet; none for a damaged file."""
    offsets = _offsets_in(data)
    if offsets is None:
        return ()
    return tuple(line for line in lines if offsets.get((line.topic, line.partition)) == line.old)
