"""Messages of Kafka's protocol, each described once as a list of fields that drives its decoding.

A message starts with its first field. On disk its version precedes it.

Source: ``generator/.../MessageDataGenerator.java`` and ``ByteBufferAccessor`` (3.9, 4.3), KIP-482 (tagged fields,
compact lengths).
"""

from __future__ import annotations

import base64
import dataclasses
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from krepair.formats.damage import Bytes, Damage
from krepair.formats.varint import INT_BYTES, read_unsigned

LATEST: Final = 2**15 - 1
NEVER: Final = LATEST + 1
VERSION_BYTES: Final = 2

Number = struct.Struct
_NUMBERS: Final = {name: Number(code) for name, code in
                   (("int8", ">b"), ("int16", ">h"), ("uint16", ">H"), ("int32", ">i"), ("int64", ">q"))}  # fmt: skip
_INT16: Final = _NUMBERS["int16"]
_INT32: Final = _NUMBERS["int32"]
_UUID_BYTES: Final = 16
_WORDS: Final = frozenset({"string", "bytes", "uuid", "struct"})


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message.

    Attributes:
        name: Kafka's name in snake_case.
        type: ``int8`` to ``int64``, ``uint16``, ``uuid``, ``string``, ``bytes`` or ``struct``; ``[]`` in front makes it
            an array.
        note: one-line description for the documentation.
        since: first version that has the field.
        until: last version that has the field.
        nullable: first version in which the field may be null.
        tag: tag of a tagged field, -1 for a plain field. Only flexible versions have tagged fields.
        default: value of an absent field.
        fields: nested fields of a struct.
    """

    name: str
    type: str
    note: str
    since: int = 0
    until: int = LATEST
    nullable: int = NEVER
    tag: int = -1
    default: Any = None
    fields: tuple[Field, ...] = ()
    kind: str = dataclasses.field(init=False, repr=False)
    is_array: bool = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        kind = self.type.removeprefix("[]")
        assert kind in _NUMBERS or kind in _WORDS, self.type
        assert (kind == "struct") == bool(self.fields), self.name
        # Stored, because they are needed for every value that is read.
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "is_array", kind != self.type)


@dataclass(frozen=True, slots=True)
class Schema:
    """One message.

    Attributes:
        name: readable name, such as ``offset_commit value``.
        latest: highest version that krepair knows; it knows all versions from 0.
        fields: fields in the order of the bytes.
        flexible: first version with compact lengths and tagged fields.
        api_keys: numbers of the record type, which precede the record or its key.
        newer_are_read: True if a version above ``latest`` is read as ``latest``. That is right for the consumer
            protocol, because Kafka only appends fields to it.
    """

    name: str
    latest: int
    fields: tuple[Field, ...]
    flexible: int = NEVER
    api_keys: tuple[int, ...] = ()
    newer_are_read: bool = False


@dataclass(frozen=True, slots=True)
class VersionedMessage:
    """Decoded message that was stored after its version.

    Attributes:
        version: the stored version, which may be above ``Schema.latest``.
        values: values by field name, see ``decode``.
        left_over: number of bytes after the last known field.
    """

    version: int
    values: dict[str, Any]
    left_over: int


class _CutError(Exception):
    """Error: the bytes are truncated or invalid. ``decode`` turns this exception into a ``Damage``."""


def decode(schema: Schema, version: int, buf: Bytes, position: int = 0) -> dict[str, Any] | Damage:
    r"""Decode one message; bytes after it are ignored, as Kafka's readers do.

    Args:
        version: version that is stored before the message.
        buf: buffer that holds the message up to its end.
        position: position in the buffer of the first field.

    Returns:
        The values by field name: numbers, strings (an invalid UTF-8 byte is shown as ``\xNN``), ``bytes``, ids of 22
        characters, lists, dicts, and None for null. ``unknown_tags`` holds tagged fields that krepair does not know.
        Damaged bytes or an unknown version give a ``Damage``.
    """
    decoded = _read(schema, version, buf, position)
    return decoded if isinstance(decoded, Damage) else decoded[0]


def _read(schema: Schema, version: int, buf: Bytes, position: int) -> tuple[dict[str, Any], int] | Damage:
    """Return the values, and the position after the last of them."""
    if not 0 <= version <= schema.latest:
        if version < 0 or not schema.newer_are_read:
            known = f"version 0 to {schema.latest} of {schema.name}"
            return Damage(position, len(buf) - position, known, f"version {version}")
        version = schema.latest
    reader = _MessageReader(buf, position, version, flexible=version >= schema.flexible)
    try:
        return reader.struct(schema.fields), reader.position
    except _CutError as error:
        return Damage(reader.position, len(buf) - reader.position, schema.name, str(error))


def decode_versioned(schema: Schema, buf: Bytes | None) -> tuple[int, dict[str, Any]] | Damage:
    """Decode a message that follows its version; null is a ``Damage``, so callers handle tombstones first."""
    message = read_message(schema, buf)
    return message if isinstance(message, Damage) else (message.version, message.values)


def read_message(schema: Schema, buf: Bytes | None) -> VersionedMessage | Damage:
    """Decode a message that follows its version, and count the bytes after the last known field."""
    if buf is None:
        return Damage(0, 0, schema.name, "null")
    version = stored_version(buf)
    if version is None:
        return Damage(0, len(buf), f"the version of {schema.name}", f"{len(buf)} bytes")
    decoded = _read(schema, version, buf, VERSION_BYTES)
    if isinstance(decoded, Damage):
        return decoded
    values, end = decoded
    return VersionedMessage(version, values, len(buf) - end)


def stored_version(buf: Bytes) -> int | None:
    """Read the two-byte version before a stored key or value; None if the bytes are missing."""
    return int(_NUMBERS["int16"].unpack_from(buf)[0]) if len(buf) >= VERSION_BYTES else None


def front(schema: Schema, last: str, version: int = 0) -> struct.Struct:
    """Build the packer of a stored message's start: its version and the numeric fields up to ``last``."""
    codes = ">h"
    for field in schema.fields:
        if field.tag < 0 and field.since <= version <= field.until:
            codes += _NUMBERS[field.type].format[1:]
        if field.name == last:
            break
    return struct.Struct(codes)


class _MessageReader:
    """Cursor over the bytes of one message."""

    def __init__(self, buf: Bytes, position: int, version: int, *, flexible: bool) -> None:
        self.buf = buf
        self.position = position
        self.version = version
        self.flexible = flexible

    def struct(self, fields: tuple[Field, ...]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for field in fields:
            if field.since <= self.version <= field.until:
                values[field.name] = field.default if field.tag >= 0 else self._value(field)
        if self.flexible:
            self._tagged(fields, values)
        return values

    def _tagged(self, fields: tuple[Field, ...], values: dict[str, Any]) -> None:
        known = {field.tag: field for field in fields if field.tag >= 0}
        for _ in range(self._unsigned_varint()):
            tag, size = self._unsigned_varint(), self._unsigned_varint()
            end = self.position + self._within(size)
            if tag in known:
                values[known[tag].name] = self._value(known[tag])
            else:
                values.setdefault("unknown_tags", {})[str(tag)] = self._take(size)
            if self.position > end:
                raise _CutError(f"tagged field {tag} is longer than its {size} bytes")
            self.position = end

    def _value(self, field: Field) -> Any:
        nullable = self.version >= field.nullable
        if not field.is_array:
            return self._one(field, nullable=nullable)
        count = self._length(self._int32, nullable=nullable, name=field.name)
        if count is None:
            return None
        self._within(count)  # each element has at least one byte, so a larger count is damage
        if field.type == "[]int32":
            return list(struct.unpack(f">{count}i", self._take(4 * count)))
        return [self._one(field, nullable=False) for _ in range(count)]

    def _one(self, field: Field, *, nullable: bool) -> Any:
        kind = field.kind
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == "uuid":
            return id_text(self._take(_UUID_BYTES))
        if kind == "struct":
            if nullable and self._is_null(field):
                return None
            return self.struct(field.fields)
        width = self._int16 if kind == "string" else self._int32
        size = self._length(width, nullable=nullable, name=field.name)
        if size is None:
            return None
        data = self._take(size)
        return data.decode("utf-8", "backslashreplace") if kind == "string" else data

    def _is_null(self, field: Field) -> bool:
        """Read the byte before a nullable struct. Null is a negative byte, or 0 in a tagged field."""
        mark = self._take(1)[0]
        return mark == 0 if field.tag >= 0 else mark > 127

    def _length(self, plain: Callable[[], int], *, nullable: bool, name: str) -> int | None:
        length = self._unsigned_varint() - 1 if self.flexible else plain()
        if length >= 0:
            return length
        if nullable:
            return None
        raise _CutError(f"null for {name}")

    def _number(self, number: Number) -> int:
        try:
            (value,) = number.unpack_from(self.buf, self.position)
        except struct.error:
            raise _CutError(
                f"{len(self.buf) - self.position} bytes where {number.size} are announced"
            ) from None
        self.position += number.size
        return int(value)

    def _int16(self) -> int:
        return self._number(_INT16)

    def _int32(self) -> int:
        return self._number(_INT32)

    def _unsigned_varint(self) -> int:
        number = read_unsigned(self.buf, self.position, len(self.buf))
        if number is None:
            is_cut = len(self.buf) - self.position < INT_BYTES
            self.position = min(self.position + INT_BYTES, len(self.buf))
            raise _CutError("0 bytes where 1 are announced" if is_cut else "a length of more than 5 bytes")
        self.position = number.end
        return number.value

    def _within(self, size: int) -> int:
        remaining = len(self.buf) - self.position
        if size > remaining:
            raise _CutError(f"{remaining} bytes where {size} are announced")
        return size

    def _take(self, size: int) -> bytes:
        start = self.position
        self.position += self._within(size)
        return bytes(self.buf[start : start + size])


def id_text(raw: bytes) -> str:
    """Encode an id as Kafka does: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")
