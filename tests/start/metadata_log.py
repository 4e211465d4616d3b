"""Records behind the metadata log of a directory."""

from __future__ import annotations

from pathlib import Path

from krepair.formats.batch_v2 import PlacedBatch, batches
from tests.logdir.metadata_records import batch
from tests.start.states import LOG


def appended(log_dir: Path, *values: bytes) -> None:
    """Write records behind the metadata log."""
    path = log_dir / LOG
    data = path.read_bytes()
    last = [one for one in batches(data) if isinstance(one, PlacedBatch)][-1].header
    more = bytearray(batch(last.last_offset + 1, list(values), last.max_timestamp))
    more[12:16] = last.partition_leader_epoch.to_bytes(4, "big")
    path.write_bytes(data + more)
