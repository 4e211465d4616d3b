"""The slow twin of key compaction: plain Python over bytes and dictionaries of keys, sharing no code with krepair.

It takes the records away, batch by batch, and hands what is left to the slow twin of marker-only compaction
(``tests.naive``). It knows v2 only; what becomes of v0 and v1 is judged by Kafka's classes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tests import naive
from tests.codecs import PACK, UNPACK, sealed


@dataclass(frozen=True)
class Record:
    """One record as it lies in its batch; ``raw`` with its length in front."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    raw: bytes
    attributes: int


def records(raw: bytes) -> list[Record]:
    """The records of one v2 batch."""
    base, attributes, base_time, max_time, count = (
        struct.unpack_from(form, raw, place)[0]
        for form, place in ((">q", 0), (">h", 21), (">q", 27), (">q", 35), (">i", 57))
    )
    if count == 0:
        return []
    data = UNPACK[attributes & 7](raw[61:])
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return (value >> 1) ^ -(value & 1)

    def blob() -> bytes | None:
        nonlocal place
        size = varint()
        if size < 0:
            return None
        place += size
        return data[place - size : place]

    out = []
    for _ in range(count):
        start = place
        size = varint()
        end = place + size
        record_attributes = data[place]
        place += 1
        time, delta = base_time + varint(), varint()
        key, value = blob(), blob()
        headers = tuple((blob() or b"", blob()) for _ in range(varint()))
        assert place == end
        time = max_time if attributes & 8 else time
        out.append(Record(base + delta, time, key, value, headers, data[start:end], record_attributes))
    assert place == len(data)
    return out


def _batches(log: bytes) -> list[tuple[naive.Batch, bytes]]:
    return [(batch, log[batch.position : batch.position + batch.size]) for batch in naive.parse(log)]


def aborted(batches: Sequence[naive.Batch]) -> set[int]:
    """Base offsets of the data batches of aborted transactions, by the markers alone."""
    out: set[int] = set()
    waiting: dict[int, list[int]] = {}
    for batch in batches:
        if batch.ends_transaction:
            ended = waiting.pop(batch.producer_id, [])
            out.update(ended if batch.control_type == 0 else [])
        elif batch.transactional and not batch.control:
            waiting.setdefault(batch.producer_id, []).append(batch.base_offset)
    return out


@dataclass(frozen=True)
class Outcome:
    """The whole answer.

    Attributes:
        markers: of the slow twin of markers, over what is left.
        superseded, tombstones, aborted, keyless: records.
        keys: distinct ones below the bound.
        changes: whether anything would be rewritten.
    """

    markers: naive.Outcome
    superseded: int
    tombstones: int
    aborted: int
    keyless: int
    keys: int
    changes: bool


def compact(
    segments: Sequence[naive.Segment], rules: naive.Rules, snapshots: Mapping[int, bytes] | None = None
) -> Outcome:
    """The whole of key compaction over one partition."""
    end = naive.compact(segments, rules, snapshots).span_end
    parsed = {segment.base_offset: _batches(segment.log) for segment in segments}
    gone = aborted([batch for batches in parsed.values() for batch, _ in batches])
    last: dict[bytes, int] = {}
    for base, batches in parsed.items():
        for batch, raw in batches:
            if base < end and not batch.control and batch.base_offset not in gone:
                last.update({r.key: r.offset for r in records(raw) if r.key is not None})
    with_records = [
        b for base, each in parsed.items() if base < end for b, _ in each if b.records and not b.control
    ]
    held = with_records[-1].base_offset if with_records and rules.ends_in_records else -1
    counts = dict.fromkeys(("superseded", "tombstones", "aborted", "keyless"), 0)

    def stays(record: Record, batch: naive.Batch, segment: naive.Segment) -> bool:
        if record.key is None:
            counts["keyless"] += 1
            return True
        if last[record.key] != record.offset:
            counts["superseded"] += 1
            return False
        if batch.base_offset == held:
            return True
        past = batch.base_timestamp <= rules.now_ms if batch.stamped else segment.mtime_ms <= rules.horizon_ms
        counts["tombstones"] += record.value is None and past
        return record.value is not None or not past

    left: list[naive.Segment] = []
    for segment in segments:
        if segment.base_offset >= end:
            left.append(segment)
            continue
        log = b""
        for batch, raw in parsed[segment.base_offset]:
            if batch.control or not batch.records:
                log += raw
                continue
            found = records(raw)
            kept = (
                [record for record in found if stays(record, batch, segment)]
                if batch.base_offset not in gone
                else []
            )
            counts["aborted"] += len(found) if batch.base_offset in gone else 0
            log += raw if len(kept) == len(found) else left_of(raw, batch, kept)
        left.append(replace(segment, log=log))
    outcome = naive.compact(left, _times_of_sources(rules, segments, left), snapshots)
    changes = outcome.changes or any(a.log != b.log for a, b in zip(segments, left, strict=True))
    return Outcome(outcome, **counts, keys=len(last), changes=changes)


def _times_of_sources(
    rules: naive.Rules, segments: Sequence[naive.Segment], left: Sequence[naive.Segment]
) -> naive.Rules:
    """The bound was found already; a lag that looks at times of records that went must not move it."""
    del segments, left
    return replace(rules, min_compaction_lag_ms=0)


def left_of(raw: bytes, batch: naive.Batch, kept: Sequence[Record]) -> bytes:
    """A v2 batch of which only these records stay, but not all."""
    if not kept:
        return naive.emptied(replace(batch, position=0), raw)
    newest = (
        batch.max_timestamp if batch.attributes & 8 else max([-1, *(record.timestamp for record in kept)])
    )
    body = PACK[batch.attributes & 7](b"".join(record.raw for record in kept))
    return sealed(raw, body, max_timestamp=newest, count=len(kept))
