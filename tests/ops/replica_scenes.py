"""Several brokers with replicas of one partition, and what each says of it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import crc32c

from krepair.options import Options
from tests.builders import NOW_MS, Batch, LogDir, Record, abort, commit, data, emptied
from tests.compaction.directories import logs, options
from tests.old_messages import plain, raw_message

OLD = NOW_MS - 30 * 86_400_000
EXPIRED = (("producer.id.expiration.ms", "1"), ("transactional.id.expiration.ms", "1"))


def old_record(offset: int, key: str, value: bytes | None) -> Batch:
    """A message of v1."""
    raw = raw_message(offset, value, magic=1, timestamp=OLD, key=key.encode())
    return replace_batch(plain(offset), raw)


def replace_batch(batch: Batch, raw: bytes) -> Batch:
    """The same batch with other bytes."""
    return Batch(raw, *[getattr(batch, name) for name in list(batch.__dataclass_fields__)[1:]])


def record(offset: int, key: str, value: bytes | None, *, magic: int, stamped: bool) -> Batch:
    """One record of its own batch; a tombstone may have a stamp that is past."""
    if magic == 1:
        return old_record(offset, key, value)
    made = data(offset, [Record(key.encode(), value)], timestamp=OLD)
    if value is None and stamped:
        raw = bytearray(made.raw)
        attributes = struct.unpack_from(">h", raw, 21)[0] | 0x40
        struct.pack_into(">h", raw, 21, attributes)
        struct.pack_into(">I", raw, 17, crc32c.crc32c(bytes(raw[21:])))
        made = replace_batch(made, bytes(raw))
    return made


def directory(root: Path, *, magic: int = 2, stamped: bool = False, mtime_ms: int = OLD) -> Path:
    """Values and a tombstone above one; a committed, an aborted and an empty transaction; their producers are gone."""
    horizon = {"delete_horizon": OLD} if stamped else {}
    log_dir = LogDir(root / "logs")
    partition = log_dir.partition("t", index_interval_bytes=200)
    partition.segment(
        record(0, "a", b"1", magic=magic, stamped=stamped),
        record(1, "gone", b"1", magic=magic, stamped=stamped),
        mtime_ms=mtime_ms,
    )
    middle = [
        record(2, "a", b"2", magic=magic, stamped=stamped),
        record(3, "gone", None, magic=magic, stamped=stamped),
    ]
    if magic == 2:
        middle += [
            data(4, [Record(b"b", b"1")], pid=7, txn=True, timestamp=OLD),
            commit(5, pid=7, timestamp=OLD, **horizon),
            data(6, [Record(b"x", b"aborted")], pid=8, txn=True, timestamp=OLD),
            abort(7, pid=8, timestamp=OLD, **horizon),
            emptied(8, pid=9, timestamp=OLD),
            commit(9, pid=9, timestamp=OLD, **horizon),
        ]
    middle += [
        record(10, "b", b"2", magic=magic, stamped=False),
        record(11, "end", b"1", magic=magic, stamped=False),
    ]
    partition.segment(*middle, mtime_ms=mtime_ms)
    partition.segment(record(12, "late", b"1", magic=magic, stamped=False), mtime_ms=NOW_MS - 1000)
    partition.segment(data(13, [Record(b"active", b"1")]))
    log_dir.write()
    return root / "logs"


SAID: dict[str, dict[str, object]] = {
    "none": {},
    "only-replica": {"only_replica": ("t",)},
    "as-broker": {"as_broker": True},
}


def given(root: Path, kind: str, **more: object) -> Options:
    common: dict[str, object] = {
        "delete_horizon": "newest",
        "assume_high_watermark": "",
        "settings_given": EXPIRED,
    }
    return options(root, **(common | SAID[kind] | more))


def watermark(log_dir: Path, offset: int = 14) -> None:
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")


@dataclass(frozen=True)
class Left:
    """What is in a partition: offsets of whole markers and of all batches of v2, and how many tombstones there are."""

    markers: tuple[int, ...]
    tombstones: int
    batches: tuple[int, ...]


def left_in(folder: Path) -> Left:
    markers, batches, tombstones = [], [], 0
    for log in logs(folder).values():
        place = 0
        while place < len(log):
            base, length = struct.unpack_from(">qi", log, place)
            raw = log[place : place + 12 + length]
            if raw[16] == 2:
                attributes, count = struct.unpack_from(">h", raw, 21)[0], struct.unpack_from(">i", raw, 57)[0]
                batches.append(base)
                if attributes & 0x20 and count:
                    markers.append(base)
            tombstones += b"gone\x01\x00" in raw or b"gone\xff\xff\xff\xff" in raw
            place += len(raw)
    return Left(tuple(markers), tombstones, tuple(batches))
