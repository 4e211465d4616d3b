"""Streams of batches that are broken on purpose."""

from __future__ import annotations

from pathlib import Path

from krepair.formats.codec import Codec
from tests import builders
from tests.builders import LogDir, Record
from tests.look.huge_record import batch

AT = 3


def broken_stream(flip: int) -> bytes:
    """The compressed stream ends in the middle; the checksum is that of what is there."""
    raw = batch(Codec.GZIP, [(b"k", 4000 + flip)], AT)
    body = bytearray(raw[21:-9])
    front = bytearray(raw[:21])
    front[8:12] = (len(body) + 9).to_bytes(4, "big")
    front[17:21] = builders.crc32c.crc32c(bytes(body)).to_bytes(4, "big")
    return bytes(front + body)


def directory(root: Path, number: int, raw: bytes) -> Path:
    """``t-0`` with that batch, and ``u-0`` without it."""
    made = LogDir(root / f"b{number}")
    for topic in ("t", "u"):
        partition = made.partition(topic)
        partition.segment(builders.data(0, [Record(b"old", b"x")] * AT))
        partition.segment(builders.data(AT, [Record(b"k", b"y")]))
        partition.segment(builders.data(AT + 2, [Record(b"old", b"x")]))
    path = made.write()
    (path / "t-0" / f"{AT:020d}.log").write_bytes(raw)
    meta = path / "meta.properties"
    meta.write_text(meta.read_text().replace("broker.id=0", f"broker.id={number}"))
    return path
