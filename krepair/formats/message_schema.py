"""Messages of Kafka's protocol. Each is described once as a list of fields, and is read and written by that list.

A message starts with its first field. On disk its version comes before it.

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
        note: one line for the documentation.
        since: first version that has the field.
        until: last version that has the field.
        nullable: first version in which the field may be null.
        tag: tag of a tagged field, -1 for a plain field. Only flexible versions have tagged fields.
        default: the value if the field is absent.
        fields: the fields of a struct.
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
        name: name for people, such as ``offset_commit value``.
        latest: the highest version that krepair knows; it knows all versions from 0 on.
        fields: the fields in the order of the bytes.
        flexible: first version with compact lengths and tagged fields.
        api_keys: numbers of the type of record, which stand in front of it or of its key.
        newer_are_read: whether a version above ``latest`` is read as ``latest``. That is right for the consumer
            protocol, because Kafka only adds fields at its end.
    """

    name: str
    latest: int
    fields: tuple[Field, ...]
    flexible: int = NEVER
    api_keys: tuple[int, ...] = ()
    newer_are_read: bool = False


@dataclass(frozen=True, slots=True)
class VersionedMessage:
    """A message that had its version in front.

    Attributes:
        version: the stored version, which may be above ``Schema.latest``.
        values: the values by field name, see ``decode``.
        left_over: how many bytes are behind the last field that is known.
    """

    version: int
    values: dict[str, Any]
    left_over: int


class _CutError(Exception):
    """The bytes end too early or are wrong. ``decode`` turns this into a ``Damage``."""


def decode(schema: Schema, version: int, buf: Bytes, position: int = 0) -> dict[str, Any] | Damage:
    r"""Read one message. Bytes behind it are ignored, as Kafka's readers do.

    Args:
        schema: schema of the message.
        version: the stored version.
        buf: holds the message up to its end.
        position: position of the first field.

    Returns:
        The values by field name: numbers, strings (a byte that is not UTF-8 is spelled ``\xNN``), ``bytes``, ids of 22
        characters, lists, dicts, and None for null. ``unknown_tags`` is there if tagged fields are not known. For
        damaged bytes or an unknown version the result is a ``Damage``.
    """
    found = _read(schema, version, buf, position)
    return found if isinstance(found, Damage) else found[0]


def _read(schema: Schema, version: int, buf: Bytes, position: int) -> tuple[dict[str, Any], int] | Damage:
    """The values, and the position behind the last of them."""
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
    """Read a message with its version in front: (version, values). Null is a ``Damage``; callers handle tombstones."""
    found = read_message(schema, buf)
    return found if isinstance(found, Damage) else (found.version, found.values)


def read_message(schema: Schema, buf: Bytes | None) -> VersionedMessage | Damage:
    """Like ``decode_versioned``, and says how many bytes are left over."""
    if buf is None:
        return Damage(0, 0, schema.name, "null")
    version = stored_version(buf)
    if version is None:
        return Damage(0, len(buf), f"the version of {schema.name}", f"{len(buf)} bytes")
    found = _read(schema, version, buf, VERSION_BYTES)
    if isinstance(found, Damage):
        return found
    values, end = found
    return VersionedMessage(version, values, len(buf) - end)


def stored_version(buf: Bytes) -> int | None:
    """The version in front of a stored key or value (two bytes); None if the bytes are missing."""
    return int(_NUMBERS["int16"].unpack_from(buf)[0]) if len(buf) >= VERSION_BYTES else None


def front(schema: Schema, last: str, version: int = 0) -> struct.Struct:
    """What a stored message begins with, up to the field ``last``: its version, and nothing but numbers."""
    codes = ">h"
    for field in schema.fields:
        if field.tag < 0 and field.since <= version <= field.until:
            codes += _NUMBERS[field.type].format[1:]
        if field.name == last:
            break
    return struct.Struct(codes)


class _MessageReader:
    """Walks the bytes of one message."""

    def __init__(self, buf: Bytes, position: int, version: int, *, flexible: bool) -> None:
        self.buf = buf
        self.position = position
        self.version = version
        self.flexible = flexible

    def struct(self, fields: tuple[Field, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in fields:
            if field.since <= self.version <= field.until:
                found[field.name] = field.default if field.tag >= 0 else self._value(field)
        if self.flexible:
            self._tagged(fields, found)
        return found

    def _tagged(self, fields: tuple[Field, ...], found: dict[str, Any]) -> None:
        known = {field.tag: field for field in fields if field.tag >= 0}
        for _ in range(self._unsigned_varint()):
            tag, size = self._unsigned_varint(), self._unsigned_varint()
            end = self.position + self._within(size)
            if tag in known:
                found[known[tag].name] = self._value(known[tag])
            else:
                found.setdefault("unknown_tags", {})[str(tag)] = self._take(size)
            if self.position > end:
                raise _CutError(f"tagged field {tag} is longer than its {size} bytes")
            self.position = end

    def _value(self, field: Field) -> Any:
        nullable = self.version >= field.nullable
        if not field.is_array:
            return self._one(field, nullable=nullable)
        count = self._length(self._int32, nullable=nullable, what=field.name)
        if count is None:
            return None
        self._within(count)  # every element has at least one byte, so a larger count is wrong
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
        size = self._length(width, nullable=nullable, what=field.name)
        if size is None:
            return None
        data = self._take(size)
        return data.decode("utf-8", "backslashreplace") if kind == "string" else data

    def _is_null(self, field: Field) -> bool:
        """Read the byte in front of a struct that may be null. Null is a negative byte, in a tagged field 0."""
        mark = self._take(1)[0]
        return mark == 0 if field.tag >= 0 else mark > 127

    def _length(self, plain: Callable[[], int], *, nullable: bool, what: str) -> int | None:
        length = self._unsigned_varint() - 1 if self.flexible else plain()
        if length >= 0:
            return length
        if nullable:
            return None
        raise _CutError(f"null for {what}")

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
        found = read_unsigned(self.buf, self.position, len(self.buf))
        if found is None:
            is_cut = len(self.buf) - self.position < INT_BYTES
            self.position = min(self.position + INT_BYTES, len(self.buf))
            raise _CutError("0 bytes where 1 are announced" if is_cut else "a length of more than 5 bytes")
        self.position = found.end
        return found.value

    def _within(self, size: int) -> int:
        left = len(self.buf) - self.position
        if size > left:
            raise _CutError(f"{left} bytes where {size} are announced")
        return size

    def _take(self, size: int) -> bytes:
        start = self.position
        self.position += self._within(size)
        return bytes(self.buf[start : start + size])


def id_text(raw: bytes) -> str:
    """An id as Kafka writes it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")
