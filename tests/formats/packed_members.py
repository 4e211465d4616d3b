"""Members of classic groups, with subscriptions and assignments of each version, valid and invalid."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from krepair.formats import group_metadata
from tests import builders
from tests.encoders import encode_fields as encode
from tests.encoders import encode_versioned

OWNED: Final = [{"topic": "a", "partitions": [0, 2]}, {"topic": "b", "partitions": []}]
SUBSCRIBED: Final = {"topics": ["b", "a"], "user_data": b"\xff\0u", "owned_partitions": OWNED,
                     "generation_id": 7, "rack_id": "rack-1"}  # fmt: skip
ASSIGNED: Final = {"assigned_partitions": OWNED, "user_data": None}
VERSIONS: Final = range(4)


def subscription(version: int) -> bytes:
    return encode_versioned(group_metadata.SUBSCRIPTION, version, SUBSCRIBED)


def assignment(version: int) -> bytes:
    return encode_versioned(group_metadata.ASSIGNMENT, version, ASSIGNED)


def as_version(version: int, data: bytes) -> bytes:
    """The same bytes under another version."""
    return struct.pack(">h", version) + data[2:]


def member(subscribed: bytes, assigned: bytes) -> dict[str, Any]:
    return {"member_id": "m", "client_id": "c", "client_host": "/10.0.0.1", "session_timeout": 1,
            "subscription": subscribed, "assignment": assigned}  # fmt: skip


def groups() -> Iterator[builders.Record]:
    """Records of groups: every version of the record with every version of what is packed, and what cannot be read."""
    sound = [member(subscription(version), assignment(version)) for version in VERSIONS]
    odd = [
        member(subscription(3)[:-1], assignment(0)[:-1]),
        member(b"", b""),
        member(b"\0", b"\xff"),
        member(subscription(3) + b"more", assignment(3) + b"more"),
        member(as_version(9, subscription(3)), as_version(4, assignment(3))),
    ]
    for version in range(group_metadata.GROUP_METADATA_VALUE.latest + 1):
        yield _group("consumer", sound + odd, version)
    yield _group("connect", sound, 3)


def _group(protocol_type: str, members: list[dict[str, Any]], version: int) -> builders.Record:
    value = {
        "protocol_type": protocol_type,
        "generation": 7,
        "protocol": "range",
        "leader": "m",
        "members": members,
    }
    return builders.Record(
        struct.pack(">h", group_metadata.GROUP_METADATA)
        + encode(group_metadata.GROUP_METADATA_KEY, 0, {"group": f"g{version}"}),
        encode_versioned(group_metadata.GROUP_METADATA_VALUE, version, value),
    )
