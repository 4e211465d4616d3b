"""Random logs of ``__consumer_offsets``."""

from __future__ import annotations

import random
import struct

from tests import builders, codecs
from tests.builders import Batch, Record
from tests.old_messages import plain


def record(chance: random.Random, *, keyless: bool = True) -> Record:
    """A commit, metadata of a group, a key that is too short or unknown, or none."""
    name = b"group-%d" % chance.randrange(3000) + b"-" * chance.choice([0, 0, 1, 9, 40])
    value = None if chance.random() < 0.2 else bytes(chance.randrange(200))
    kind = chance.random()
    if kind < 0.05 and keyless:
        return Record(None, value)
    if kind < 0.1:
        return Record(chance.randbytes(chance.randrange(6)), value)
    version = chance.choice([0, 1, 1, 1, 2, 70])
    return Record(struct.pack(">hh", version, len(name) + chance.choice([0, 0, 0, 500])) + name, value)


def log_of(
    chance: random.Random, other: str, offset: int = 0, *, transactions: bool = True, keyless: bool = True
) -> tuple[bytes, int]:
    """Some thousand records, with transactions and markers; and, if asked, something that is no plain v2 batch."""
    batches: list[bytes] = []
    for number in range(900):
        count = chance.choice([1, 1, 1, 2, 7])
        batch: Batch
        if transactions and chance.random() < 0.1:
            batch = builders.commit(offset, pid=5)
        elif number == 500 and other == "old":
            batch = plain(offset)
        elif number == 500 and other == "large":
            batch = builders.data(offset, [Record(b"\0\1\0\1g", bytes(2 << 20))])
        else:
            txn = transactions and chance.random() < 0.3
            batch = builders.data(
                offset,
                [record(chance, keyless=keyless) for _ in range(count)],
                pid=chance.randrange(3) if txn else -1,
                txn=txn,
            )
        raw = batch.raw
        if number in {300, 301} and other == "packed":
            raw = bytes(
                codecs.packed(builders.encode(offset, [record(chance, keyless=keyless) for _ in range(2)]), 3)
            )
            batches.append(raw)
            offset += 2
            continue
        batches.append(raw)
        offset = batch.last_offset + 1
    return b"".join(batches), offset
