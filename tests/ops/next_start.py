"""What stands behind a stopped broker."""

from __future__ import annotations

from pathlib import Path

from tests import builders
from tests.builders import data


def compacted(root: Path, damage: str) -> Path:
    directory = builders.LogDir(root)
    big = [builders.Record(b"k", b"x" * 2000)]
    first = data(0, big) if damage == "large" else data(0, 3)
    directory.partition("c").segment(first, data(3, 2)).segment(data(5, 2)).segment(data(7, 1))
    path = directory.write()
    log = path / "c-0" / f"{0:020d}.log"
    raw = bytearray(log.read_bytes())
    if damage == "cut":
        raw = raw[:-7]
    elif damage == "crc":
        raw[len(first.raw) - 2] ^= 0xFF  # in a value: the records can still be read
    elif damage == "zeros":
        raw += b"\0" * 64
    log.write_bytes(raw)
    return path


KILLS = {
    # damage -> versions whose cleaner stops there; tests/brokers/test_next_start.py asks Kafka's own
    "cut": ("", "1.1.0", "2.2.1", "3.9.2"),
    "zeros": ("", "1.1.0", "2.2.1", "3.9.2"),
    "crc": (),
    "large": ("1.1.0",),
}
