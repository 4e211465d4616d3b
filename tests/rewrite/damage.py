"""Damaged logs, and the same logs without the damage."""

from __future__ import annotations

import struct
import zlib

import crc32c

HIGHEST = 2**31 - 1


def batch_at(raw: bytes, place: int, base: int, last: int, highest: int) -> tuple[int, int, int] | None:
    """(End, first offset, last offset) of the valid batch at a place whose offsets go on from the last one."""
    if place + 17 > len(raw):
        return None
    offset, length = struct.unpack_from(">qi", raw, place)
    magic, end = raw[place + 16], place + 12 + length
    if magic > 2 or end > len(raw) or offset <= last or offset < base:
        return None
    if magic == 2:
        if (
            length < 49
            or crc32c.crc32c(raw[place + 21 : end]) != struct.unpack_from(">I", raw, place + 17)[0]
        ):
            return None
        delta, count = (
            struct.unpack_from(">i", raw, place + 23)[0],
            struct.unpack_from(">i", raw, place + 57)[0],
        )
        last_offset = offset + delta
        if delta < 0 or count < 0:
            return None
    else:
        smallest = 22 if magic else 14
        if (
            length < smallest
            or zlib.crc32(raw[place + 16 : end]) != struct.unpack_from(">I", raw, place + 12)[0]
        ):
            return None
        last_offset = offset
    return (end, offset, last_offset) if last_offset - base <= highest else None


def twin(
    base: int, raw: bytes, highest: int = HIGHEST
) -> tuple[list[tuple[int, int, int, int]], list[tuple[int, int]]]:
    """(Start, end, first offset, last offset) of valid ranges, and (start, end) of damaged ones, byte by byte."""
    valid: list[tuple[int, int, int, int]] = []
    damaged: list[tuple[int, int]] = []
    place, last = 0, base - 1
    while place < len(raw):
        start, first = place, -1
        while (batch := batch_at(raw, place, base, last, HIGHEST)) is not None:
            place, offset, last = batch
            first = offset if first < 0 else first
        if place > start:
            valid.append((start, place, first, last))
        if place == len(raw):
            break
        jump = jump_before(raw, valid, place, base, highest)
        if jump is not None:
            position, before, alternative = jump
            following = range(place + 1, len(raw))
            forward = next((at for at in following if batch_at(raw, at, base, last, highest)), len(raw))
            jumped = batch_at(raw, position, base, base - 1, HIGHEST)
            assert jumped is not None
            if jumped[2] - base > highest or jump_is_wrong(
                raw, position, before, place, base, smaller=place - position < forward - place
            ):
                valid[-1:] = alternative
                damaged.append((position, place))
                last = before
                continue
        start = place
        following = range(start + 1, len(raw))
        declared = start + 12 + struct.unpack_from(">i", raw, start + 8)[0] if start + 61 <= len(raw) else 0
        if (
            start + 12 < declared < len(raw)
            and raw[start + 16] <= 2
            and batch_at(raw, declared, base, last, highest)
        ):
            place = declared
        else:
            found = (at for at in following if batch_at(raw, at, base, last, highest))
            place = next(found, len(raw))
        damaged.append((start, place))
    return valid, damaged


def jump_is_wrong(raw: bytes, position: int, before: int, place: int, base: int, *, smaller: bool) -> bool:
    """Whether the batch at ``position`` is the damage, and not the one at ``place``: by their other neighbours."""
    jumped, back = (batch_at(raw, at, base, base - 1, HIGHEST) for at in (position, place))
    assert jumped is not None
    assert back is not None
    if raw[position + 16] == 2 and jumped[0] == place:
        (count,) = struct.unpack_from(">i", raw, position + 57)
        if jumped[1] + count == back[1]:
            return True
    follows = jumped[1] == before + 1
    end = back[0]
    is_v2 = raw[place + 16] == 2 and end + 12 <= len(raw)
    is_followed = is_v2 and struct.unpack_from(">q", raw, end)[0] == back[2] + 1
    if follows != is_followed:
        return is_followed
    if follows and jumped[1] < back[1]:
        return True
    return smaller and (follows or jumped[0] == place)


def jump_before(
    raw: bytes, valid: list[tuple[int, int, int, int]], place: int, base: int, highest: int
) -> tuple[int, int, list[tuple[int, int, int, int]]] | None:
    """Of a batch whose offset goes back: (position, offset before, front) where the batches before it leave the way."""
    back = batch_at(raw, place, base, base - 1, highest)
    if back is None or not valid or valid[-1][1] != place:
        return None
    start, _, first, _ = valid[-1]
    before = base - 1 if len(valid) == 1 else valid[-2][3]
    position = start
    while position < place:
        batch = batch_at(raw, position, base, base - 1, HIGHEST)
        assert batch is not None
        if batch[2] >= back[1]:
            break
        position, before = batch[0], batch[2]
    if position == place or back[1] <= before or (position == start and len(valid) > 1):
        return None
    return position, before, [(start, position, first, before)] if position > start else []
