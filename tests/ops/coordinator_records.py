"""Log directories with a partition of a coordinator, of whose records only the versions matter."""

from __future__ import annotations

import struct
from pathlib import Path

from krepair.formats.batch_v2 import BatchHeader, encode_batch
from krepair.formats.record import Record
from tests.builders import NOW_MS
from tests.encoders import encode_record

OFFSETS, TRANSACTIONS = "__consumer_offsets-3", "__transaction_state-3"


def keyed(key: int, value: int | None) -> Record:
    """A record of which only the versions matter."""
    name = b"\0\1g"
    data = None if value is None else struct.pack(">h", value) + bytes(40)
    return Record(key=struct.pack(">h", key) + name + bytes(8), value=data)


def log_dir(root: Path, folder: str, records: list[Record]) -> Path:
    path = root / folder
    path.mkdir(parents=True)
    body = b"".join(encode_record(one._replace(offset_delta=n)) for n, one in enumerate(records))
    count = len(records)
    header = BatchHeader(0, 0, 1, 2, 0, 0, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count)
    (path / f"{0:020d}.log").write_bytes(encode_batch(header, body))
    (root / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return root
