"""Changes of single entries of an offset checkpoint, as a plan records them.

Broker and krepair may both write a checkpoint. So a change replaces single entries, keeps all others, and is not made
if an entry no longer has the plan's old offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from krepair.formats.checkpoint import CheckpointEntry, decode_offsets, encode_offsets


class ChangedLine(Struct, frozen=True):
    """Changed entry of a checkpoint in the root.

    Attributes:
        topic: topic of the entry.
        partition: partition number of the entry.
        old: offset before the change, None if there was no such entry.
        new: offset after the change, None if the entry is removed.
    """

    topic: str
    partition: int
    old: int | None
    new: int | None


def changed_entries(
    before: Sequence[CheckpointEntry], after: Iterable[CheckpointEntry]
) -> tuple[ChangedLine, ...]:
    """Return the entries that differ, in the order of ``before``.

    Args:
        before: entries of an intact file.
        after: entries of the repaired file, at most one per partition.
    """
    remaining = {(entry.topic, entry.partition): entry.offset for entry in after}
    lines = []
    for entry in before:
        new = remaining.pop((entry.topic, entry.partition), None)
        if new != entry.offset:
            lines.append(ChangedLine(entry.topic, entry.partition, entry.offset, new))
    added = (ChangedLine(topic, partition, None, offset) for (topic, partition), offset in remaining.items())
    return (*lines, *added)


def with_entries(data: bytes, lines: Iterable[ChangedLine]) -> bytes | None:
    """Apply changes to the content of a file; all other entries remain as they are.

    Args:
        data: content of the file on the disk.
        lines: entries that are changed.

    Returns:
        The new content; None if the file is damaged, or if an entry differs from the plan's old value.
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


def has_new_entries(data: bytes, lines: Iterable[ChangedLine]) -> bool:
    """Return whether a file already has all these changes; a damaged file has none of them."""
    offsets = _offsets_in(data)
    return offsets is not None and all(_is_new(offsets, line) for line in lines)


def _offsets_in(data: bytes) -> dict[tuple[str, int], int] | None:
    """Read offsets by partition in file order; None for damage, such as two entries for one partition."""
    checkpoint = decode_offsets(data)
    if checkpoint.damage:
        return None
    return {(topic, partition): offset for topic, partition, offset in checkpoint.entries}


def _is_new(offsets: Mapping[tuple[str, int], int], line: ChangedLine) -> bool:
    """Return whether an entry has its new offset; a removed entry may have been written again by a broker."""
    offset = offsets.get((line.topic, line.partition))
    return offset != line.old if line.new is None else offset == line.new


def raised(lines: Iterable[ChangedLine]) -> tuple[ChangedLine, ...]:
    """Return the entries that are added or advance; a higher recovery point makes a start read less of the log."""
    return tuple(line for line in lines if line.new is not None and (line.old is None or line.new > line.old))


def entries_in(data: bytes, lines: Iterable[ChangedLine]) -> tuple[ChangedLine, ...]:
    """Return the changes that the file already has; none for a damaged file."""
    offsets = _offsets_in(data)
    if offsets is None:
        return ()
    return tuple(line for line in lines if _is_new(offsets, line))


def entries_left(data: bytes, lines: Iterable[ChangedLine]) -> tuple[ChangedLine, ...]:
    """Return the changes that the file does not have yet; none for a damaged file."""
    offsets = _offsets_in(data)
    if offsets is None:
        return ()
    return tuple(line for line in lines if offsets.get((line.topic, line.partition)) == line.old)
