"""``partition.metadata`` of a partition folder: the topic id (from 2.8 on, KIP-516).

Source: ``PartitionMetadataFile.java``, ``PartitionMetadata.java``, ``Uuid.java`` (3.9.0).
"""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from typing import NamedTuple

from krepair.formats.checkpoint import JAVA_WHITE_SPACE
from krepair.formats.damage import Bytes, Damage, shown
from krepair.formats.java_numbers import parse_java_integer

MAX_BYTES = 4096
ID_CHARACTERS = 22
ZERO_ID = uuid.UUID(int=0)
METADATA_TOPIC_ID = uuid.UUID(int=1)


class PartitionMetadata(NamedTuple):
    """Content of the file."""

    version: int
    topic_id: uuid.UUID


def topic_id_text(topic_id: uuid.UUID) -> str:
    """Encode a topic id as Kafka does: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode("ascii").rstrip("=")


def parse_uuid(text: str) -> uuid.UUID | None:
    """Parse an id as ``Uuid.fromString`` does; None if that throws."""
    if re.fullmatch(rf"[A-Za-z0-9_-]{{{ID_CHARACTERS}}}(==)?", text) is None:
        return None
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text[:ID_CHARACTERS] + "=="))
    except (binascii.Error, ValueError):
        return None


def _second_word(line: str) -> str | None:
    words = JAVA_WHITE_SPACE.split(line)
    while len(words) > 1 and not words[-1]:
        words.pop()
    return words[1] if len(words) == 2 else None


def decode(buf: Bytes) -> PartitionMetadata | Damage:
    """Read the file; a ``Damage`` says why a broker cannot read it."""
    size = len(buf)
    if size > MAX_BYTES:
        return Damage(0, size, f"at most {MAX_BYTES} bytes", f"{size} bytes")
    try:
        text = bytes(buf).decode("utf-8")
    except UnicodeDecodeError as error:
        return Damage(error.start, error.end - error.start, "UTF-8", shown(bytes(buf).decode("latin-1")))
    lines = re.split(r"\r\n|\n|\r", text)
    if len(lines) < 2:
        return Damage(
            0, size, "version: 0, then topic_id: on a line of its own", shown(text) or "an empty file"
        )
    version = parse_java_integer(_second_word(lines[0]) or "", 32)
    if version is None or version < 0:
        return Damage(0, size, "version: 0", shown(lines[0]))
    topic_id = parse_uuid(_second_word(lines[1]) or "")
    if topic_id is None or topic_id == ZERO_ID:
        return Damage(0, size, f"topic_id: and {ID_CHARACTERS} characters", shown(lines[1]))
    return PartitionMetadata(version, topic_id)
