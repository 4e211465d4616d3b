"""Comparison of krepair's compaction with Kafka's own cleaner classes: records, headers and bytes."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from tests import naive
from tests.compaction import twin


@dataclass(frozen=True)
class Shown:
    """A batch as both sides are compared by."""

    base_offset: int
    last_offset: int
    kind: str
    producer_id: int
    epoch: int
    sequence: int
    leader_epoch: int
    flags: int
    max_timestamp: int
    records: tuple[tuple[object, ...], ...]


def _text(data: bytes) -> bytes:
    """A header key as Kafka writes it anew: through a Java string."""
    return data.decode("utf-8", "replace").encode()


def shown(raw: bytes) -> Shown:
    """One v2 batch; codec, stamp and what follows from them left out."""
    batch = naive.parse(raw)[0]
    return Shown(
        batch.base_offset,
        batch.last_offset,
        batch.kind,
        batch.producer_id,
        batch.epoch,
        struct.unpack_from(">i", raw, 53)[0],
        struct.unpack_from(">i", raw, 12)[0],
        batch.attributes & 0x3F if batch.records else batch.attributes & 0x38,
        batch.max_timestamp,
        tuple(
            (r.offset, r.timestamp, r.key, r.value, tuple((_text(k), v) for k, v in r.headers))
            for r in twin.records(raw)
        ),
    )


def batches(log: bytes) -> list[bytes]:
    """The batches of a log of v2."""
    return [log[batch.position : batch.position + batch.size] for batch in naive.parse(log)]


@dataclass
class Difference:
    """What is not the same.

    Attributes:
        allowed: the differences that krepair names, counted.
        wrong: all others.
    """

    allowed: Counter[str]
    wrong: list[str]


def compared(ours: bytes, theirs: bytes, reasons: dict[int, str]) -> Difference:
    """Hold the compacted part of a partition against Kafka's.

    Args:
        ours: krepair's batches below the bound, in order.
        theirs: Kafka's.
        reasons: base offset -> reason of the slow twin for batches that stay.
    """
    found = Difference(Counter(), [])
    left = {naive.parse(raw)[0].base_offset: raw for raw in batches(theirs)}
    for raw in batches(ours):
        mine = shown(raw)
        other_raw = left.pop(mine.base_offset, None)
        other = None if other_raw is None else shown(other_raw)
        if other_raw is not None and mine == other:
            _bytes(raw, other_raw, found)
            continue
        reason = reasons.get(mine.base_offset, "")
        with_key = tuple(record for record in mine.records if record[2] is not None)
        if len(with_key) < len(mine.records) and _same_but_keyless(mine, other, with_key):
            found.allowed["records without a key stay"] += len(mine.records) - len(with_key)
        elif other is None and reason in {"E01", "K08"}:
            found.allowed["last batch of the span or of a group"] += 1
        elif reason == "K05" and (other is None or other.kind == "emptied control"):
            found.allowed["marker of an epoch"] += 1
        elif (
            other is not None
            and mine.kind == "emptied"
            and replace(mine, max_timestamp=0) == replace(other, max_timestamp=0)
        ):
            # its time is that of the records of the pass before
            found.allowed["emptied in two passes"] += 1
        else:
            found.wrong.append(f"ours {reason} {mine}, Kafka's {other}")
    found.wrong += [f"only Kafka keeps {shown(one)}" for one in left.values()]
    return found


def _bytes(ours: bytes, theirs: bytes, found: Difference) -> None:
    """The same batch: byte for byte where Kafka does not encode anew against another base timestamp."""
    codec = struct.unpack_from(">h", ours, 21)[0] & 7
    if ours == theirs:
        found.allowed["batches equal byte for byte"] += 1
    elif codec == 0 and ours[27:35] == theirs[27:35] and ours[21:23] == theirs[21:23]:
        found.wrong.append(f"the bytes of batch {shown(ours)} differ")
    else:
        found.allowed["batches equal but for encoding"] += 1


def _same_but_keyless(mine: Shown, other: Shown | None, records: tuple[tuple[object, ...], ...]) -> bool:
    if other is None:
        return not records
    return other.records == records and (mine.base_offset, mine.last_offset, mine.producer_id) == (
        other.base_offset,
        other.last_offset,
        other.producer_id,
    )


def below(folder: Path, end: int) -> bytes:
    """The bytes of all logs of a folder below an offset."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")) if int(path.stem) < end)
