"""Records of __consumer_offsets."""

from __future__ import annotations

import struct
from typing import Any

from krepair.formats import group_metadata
from tests import builders
from tests.encoders import encode_versioned


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def key_of(group: str, partition: int, version: int = 1) -> bytes:
    return struct.pack(">h", version) + text(group) + text("t") + struct.pack(">i", partition)


def value_of(offset: int, metadata: str = "") -> bytes:
    return struct.pack(">hqi", 3, offset, -1) + text(metadata) + struct.pack(">q", 1000 + offset)


def group_record(
    group: str, members: list[dict[str, Any]], generation: int = 1, version: int = 3
) -> builders.Record:
    value = {
        "protocol_type": "consumer",
        "generation": generation,
        "protocol": "range",
        "leader": "m0",
        "members": members,
    }
    return builders.Record(
        struct.pack(">h", 2) + text(group),
        encode_versioned(group_metadata.GROUP_METADATA_VALUE, version, value),
    )


def member(name: str, *topics: str) -> dict[str, Any]:
    assigned = [{"topic": topic, "partitions": [0, 1]} for topic in topics]
    return {
        "member_id": name, "client_id": f"client-{name}", "client_host": "/10.0.0.1", "session_timeout": 1,
        "subscription": encode_versioned(group_metadata.SUBSCRIPTION, 1, {"topics": list(topics)}),
        "assignment": encode_versioned(group_metadata.ASSIGNMENT, 0, {"assigned_partitions": assigned}),
    }  # fmt: skip
