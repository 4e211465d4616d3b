"""Messages of formats v0 and v1, plain and in compressed wrappers.

A wrapper is a message whose value holds compressed messages. The wrapper's offset is the offset of its last inner
message. Inner offsets are absolute in a v0 wrapper and relative in a v1 wrapper. A broker before 0.10.2 could put
messages of another format into a wrapper (KAFKA-4298); every broker reads each inner message by its own format.

Source: ``LegacyRecord.java``, ``AbstractLegacyRecordBatch.java`` (2.2.1), KIP-31 (relative offsets), KIP-32
(timestamps).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from krepair.formats.damage import Bytes, Damage
from krepair.formats.layout import Layout, LayoutField

ENTRY_FIELDS = (
    LayoutField("offset", "i8", "offset of the message; for a wrapper, offset of its last message"),
    LayoutField("message_size", "i4", "bytes after this field"),
    LayoutField("crc", "u4", "CRC-32 (zlib) of everything from magic to the end of the message"),
    LayoutField("magic", "i1", "0 or 1"),
    LayoutField("attributes", "i1", "codec, timestamp type (v1)"),
)
HEADER_V0 = Layout(*ENTRY_FIELDS)
HEADER_V1 = Layout(*ENTRY_FIELDS, LayoutField("timestamp", "i8", "ms"))
assert HEADER_V0.size == 18
assert HEADER_V1.size == 26
HEADERS = {0: HEADER_V0, 1: HEADER_V1}

LOG_OVERHEAD = HEADER_V0.place("crc")
CRC_START = HEADER_V0.place("magic")
LENGTH = Layout(LayoutField("length", "i4", "length of the key or value in bytes, -1 for null"))

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
NO_TIMESTAMP = -1


class Message(NamedTuple):
    """One message.

    Attributes:
        magic: message format, 0 or 1.
        timestamp: timestamp in ms, -1 in v0. An inner message with LogAppendTime has the timestamp of its wrapper.
        key: key; None is null, which differs from empty.
        value: value; None is null, which differs from empty. A wrapper's value holds the compressed messages.
    """

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        """Compression codec id; nonzero in a wrapper."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """True if the timestamp is the broker's append time, for the message and all its inner messages (v1)."""
        return self.magic > 0 and bool(self.attributes & LOG_APPEND_TIME)


class PlacedMessage(NamedTuple):
    """A message and its position.

    Attributes:
        position: position in the buffer of the first byte of the message's entry.
        size_bytes: size of the whole entry in bytes.
    """

    position: int
    size_bytes: int
    message: Message


def _body_damage(buf: Bytes, position: int, rest: int) -> Damage | None:
    """Return the damage if key and value do not fill the entry exactly, else None."""
    header = HEADERS[buf[position + CRC_START]]
    size = LOG_OVERHEAD + HEADER_V0.unpack(buf, position)[1]
    if size < header.size + 2 * LENGTH.size:
        return Damage(
            position, rest, f"a message of at least {header.size + 2 * LENGTH.size} bytes", f"{size}"
        )
    place = header.size
    for name in ("key", "value"):
        if size - place < LENGTH.size:
            return Damage(position, rest, f"the length of the {name}", "the end of the message")
        length = LENGTH.unpack(buf, position + place)[0]
        place += LENGTH.size + max(length, 0)
        if length < -1 or place > size:
            return Damage(position, rest, f"a {name} within {size} bytes", f"length {length}")
    if place != size:
        return Damage(position, rest, f"a message of {place} bytes by its fields", f"{size} bytes")
    return None


def message_damage(buf: Bytes, position: int = 0, *, check_crc: bool = True) -> Damage | None:
    """Check the v0 or v1 message at ``position``; None if it is valid.

    The ``Damage`` extends to the end of the buffer, because nothing after a damaged size can be trusted.
    """
    rest = len(buf) - position
    if rest < HEADER_V0.size:
        return Damage(position, rest, f"a message header of {HEADER_V0.size} bytes", f"{rest} bytes")
    _, message_size, crc, magic, _ = HEADER_V0.unpack(buf, position)
    size = LOG_OVERHEAD + message_size
    if magic not in HEADERS:
        return Damage(position, rest, "magic 0 or 1", f"magic {magic}")
    if not HEADER_V0.size <= size <= rest:
        return Damage(position, rest, f"a message of {size} bytes", f"{rest} bytes to the end")
    wrong = _body_damage(buf, position, rest)
    if wrong is not None:
        return wrong
    if check_crc:
        computed = zlib.crc32(memoryview(buf)[position + CRC_START : position + size])
        if computed != crc:
            return Damage(position, rest, f"CRC {crc:#010x} as stored", f"{computed:#010x} computed")
    return None


def _message_at(buf: Bytes, position: int) -> PlacedMessage:
    magic = buf[position + CRC_START]
    values = HEADERS[magic].unpack(buf, position)
    place = position + HEADERS[magic].size
    parts: list[bytes | None] = []
    for _ in ("key", "value"):
        length = LENGTH.unpack(buf, place)[0]
        place += LENGTH.size
        parts.append(None if length < 0 else bytes(buf[place : place + length]))
        place += max(length, 0)
    timestamp = values[5] if magic else NO_TIMESTAMP
    message = Message(values[0], magic, values[4], timestamp, parts[0], parts[1])
    return PlacedMessage(position, LOG_OVERHEAD + values[1], message)


def messages(buf: Bytes, *, check_crc: bool = True) -> Iterator[PlacedMessage | Damage]:
    """Walk a buffer of outer messages; the last value is a ``Damage`` if the walk stops early.

    A v2 batch also ends the walk, with a ``Damage`` that expects "magic 0 or 1". The caller must handle that case: a
    log may contain v2 batches after older messages.
    """
    position = 0
    while position < len(buf):
        wrong = message_damage(buf, position, check_crc=check_crc)
        if wrong is not None:
            yield wrong
            return
        placed = _message_at(buf, position)
        yield placed
        position += placed.size_bytes


def damage(buf: Bytes) -> list[Damage]:
    """Return the damage in a buffer of outer messages: an empty list, or one range that extends to the end."""
    return [placed for placed in messages(buf) if isinstance(placed, Damage)]
