"""The twin of a root checkpoint: every changed line had to change, and no other line did.

krepair mends line by line (``krepair.rules.checkpoints``). This holds the new file against the kept original, and the
lines that differ against the ends of the logs, which it reads itself.

Source: the order of what a broker may keep is in ``docs/rules.md``; ``OffsetCheckpointFile`` (2.2.1, 3.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from krepair.durable.tree import Tree
from krepair.formats.checkpoint import CheckpointEntry, decode_offsets
from krepair.formats.filenames import RECOVERY_POINT_CHECKPOINT, REPLICATION_CHECKPOINT
from tests.twins.logs import LogPath, parts_of

Key = tuple[str, int]
"""Topic and partition number."""

_COMES_DOWN = frozenset({RECOVERY_POINT_CHECKPOINT, REPLICATION_CHECKPOINT})


def log_end_of(log: LogPath, tree: Tree) -> int:
    """The offset after the last batch of the last segment; -1 where damage hides it."""
    end = log.base_offset
    for part in parts_of([log], tree, check_crc=True):
        end = max([end, *(part.lasts[-1:] + 1).tolist()])
        if part.walked.problem:
            return -1
    return end


def changed_keys(old: bytes, new: bytes) -> frozenset[Key]:
    """Partitions whose lines differ. A line that stays may be past its log end: it tells that the end is gone."""
    before, after = (_lines(data) for data in (old, new))
    return frozenset(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def checkpoint_problems(name: str, old: bytes, new: bytes, ends: Mapping[Key, int]) -> list[str]:
    """What is wrong with a checkpoint that was mended.

    Args:
        name: of the file.
        old: bytes of the original.
        new: bytes of the new file.
        ends: log end offset of each partition that is in the log directory (one marked for deletion too), -1 where
            it cannot be told or was not asked for.

    Returns:
        One line for each problem.
    """
    return list(_problems(name, old, new, ends))


def _problems(name: str, old: bytes, new: bytes, ends: Mapping[Key, int]) -> Iterator[str]:
    found = decode_offsets(new)
    if found.damage or _written(found.entries) != new:
        wanted = found.damage[0].expected if found.damage else "the bytes that a broker writes"
        yield f"{wanted} was expected"
        return
    before, after = _lines(old), _lines(new)
    for key, (offset,) in after.items():
        yield from _kept(name, key, offset, before.get(key, ()), ends)
    for key in before.keys() - after.keys():
        yield from _gone(name, key, before[key], ends)
    once = {key for key, offsets in before.items() if len(offsets) == 1}
    if [key for key in after if key in once] != [key for key in before if key in once & after.keys()]:
        yield "the lines are in another order"


def _written(entries: Iterable[CheckpointEntry]) -> bytes:
    """The file as a broker writes it, also with a topic that none would have."""
    lines = [f"{entry.topic} {entry.partition} {entry.offset}\n" for entry in entries]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def _lines(data: bytes) -> dict[Key, tuple[int, ...]]:
    """The offsets of each partition, in the order of its lines."""
    lines: dict[Key, tuple[int, ...]] = {}
    entry: CheckpointEntry
    for entry in decode_offsets(data).entries:
        key = (entry.topic, entry.partition)
        lines[key] = (*lines.get(key, ()), entry.offset)
    return lines


def _kept(
    name: str, key: Key, offset: int, before: tuple[int, ...], ends: Mapping[Key, int]
) -> Iterator[str]:
    """A line of the new file: as it was, the lowest of several, or brought down to the log end."""
    where, end = f"{key[0]}-{key[1]}", ends.get(key, -1)  # of a partition that is not there, its lines stay
    if not before:
        yield f"{where} at {offset}: the original has no line of it"
    elif end >= 0 and offset > end:
        yield f"{where} at {offset}: past the log end {end}"
    elif offset not in _legal(name, before, end):
        yield f"{where} at {offset}: the original has {min(before)}"


def _legal(name: str, before: tuple[int, ...], end: int) -> set[int]:
    """What the line of a partition may say: the lowest of what its lines come to one by one."""
    past = [offset for offset in before if 0 <= end < offset]
    stay = [offset for offset in before if offset >= 0 and offset not in past]
    if past and name in _COMES_DOWN:
        stay.append(end)
    return {min(stay)} if stay else set()


def _gone(name: str, key: Key, before: tuple[int, ...], ends: Mapping[Key, int]) -> Iterator[str]:
    """A line that is in the new file no more, with an offset that can be."""
    end = ends.get(key, -1)
    if _legal(name, before, end):
        yield f"{key[0]}-{key[1]} at {min(before)}: its line is gone, and nothing speaks against it"
