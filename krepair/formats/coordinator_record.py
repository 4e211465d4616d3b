"""Records of the coordinators' topics. The version of a record's key gives the type of the record.

The topics are ``__consumer_offsets``, ``__transaction_state`` and ``__share_group_state``. Their record types are
listed in ``group_metadata``, ``transaction_state`` and ``share_group_state``.

Source: ``CoordinatorRecordSerde.java`` and ``CoordinatorRecordType.java`` (4.3),
``GroupMetadataManager.readMessageKey`` (2.2.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from krepair.formats.damage import Bytes, Damage
from krepair.formats.message_schema import VERSION_BYTES, Schema, decode, stored_version


@dataclass(frozen=True, slots=True)
class RecordType:
    """One type of record.

    Attributes:
        key_version: version that precedes the key, which gives the type.
        name: Kafka's name in snake_case, such as ``offset_commit``.
        value: schema of the value, which has a version of its own in front.
    """

    key_version: int
    name: str
    key: Schema
    value: Schema


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One decoded record.

    Attributes:
        type: name of the record type, ``unknown`` for a key version that krepair does not know.
        key_version: version in front of the key, -1 if the key has none.
        key: fields of the key, empty if they cannot be read.
        value_version: version in front of the value, -1 for a tombstone.
        value: fields of the value; None for a tombstone or an unreadable value.
        tombstone: True if the value is null, which deletes earlier values of the key.
        problem: reason why a part cannot be read, or empty. An unknown version is a problem too.
    """

    type: str
    key_version: int
    key: dict[str, Any]
    value_version: int
    value: dict[str, Any] | None
    tombstone: bool
    problem: str = ""


class RecordTable:
    """Record types of one topic, by the version of their keys.

    Args:
        messages: schemas by name. Schemas of keys list their versions as ``api_keys``; ``NAME value`` belongs to ``NAME
            key``.
    """

    def __init__(self, topic: str, messages: Mapping[str, Schema]) -> None:
        self.topic = topic
        self.types: dict[int, RecordType] = {}
        for key in messages.values():
            name = key.name.removesuffix(" key")
            for version in key.api_keys:
                self.types[version] = RecordType(version, name, key, messages[f"{name} value"])

    def decode(self, key: Bytes | None, value: Bytes | None) -> CoordinatorRecord:
        """Read a record; if that fails, the result has a ``problem`` and nothing is raised."""
        version = None if key is None else stored_version(key)
        value_version = None if value is None else stored_version(value)
        known = None if version is None else self.types.get(version)
        fields: dict[str, Any] = {}
        values, problem = None, ""
        if key is None or version is None:
            problem = "the key is null" if key is None else "the key is shorter than its version"
        elif known is None:
            problem = f"the key has version {version}, which is not known here"
        elif isinstance(read := decode(known.key, 0, key, VERSION_BYTES), Damage):
            problem = problem_text("key", read)
        else:
            fields = read
            if value is not None:
                values, problem = _read_value(known.value, value_version, value)
        return CoordinatorRecord(
            type="unknown" if known is None else known.name,
            key_version=-1 if version is None else version,
            key=fields,
            value_version=-1 if value_version is None else value_version,
            value=values,
            tombstone=value is None,
            problem=problem,
        )


def _read_value(schema: Schema, version: int | None, value: Bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the fields of a value, or None and the reason why it cannot be read."""
    if version is None:
        return None, "the value is shorter than its version"
    fields = decode(schema, version, value, VERSION_BYTES)
    return (None, problem_text("value", fields)) if isinstance(fields, Damage) else (fields, "")


def problem_text(part: str, damage: Damage) -> str:
    """Describe in one line the damage of a part of a record."""
    return f"{part}, byte {damage.position}: {damage.text}"
