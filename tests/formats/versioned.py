"""Messages as the coordinators' topics store them: the version stands in front."""

from __future__ import annotations

import struct
from typing import Any

from krepair.formats.message_schema import Schema
from tests.encoders import encode_fields as encode


def encode_versioned(schema: Schema, version: int, values: dict[str, Any]) -> bytes:
    """The bytes of a message, its version in front of them."""
    return struct.pack(">h", version) + encode(schema, version, values)
