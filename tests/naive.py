"""The slow twin of marker-only compaction: plain Python over bytes, sharing no code with krepair.

It says, batch by batch, what stays and what goes, by the rule of krepair's marker-only mode (Kafka 2.2.1 plus
KAFKA-8351, 13727, 14055, 17076, in one ascending pass to the fixpoint), and what the new segments hold. Speed
is no aim; being read and believed is. Reasons are the codes of ``krepair/rules/reasons.py``.

Where more than one reason keeps a marker, the first of K02 (data remains), K05 (epoch of a producer without
data), K03/K04 (horizon) is given.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import crc32c

KEEP, EMPTY, DROP = "keep", "empty", "drop"
GONE_REASONS = {"D01", "D02", "D03", "D04"}
INT_MAX = 2**31 - 1


@dataclass(frozen=True)
class Batch:
    """A batch as parsed: its header, and the control type when it is a control batch with a record."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    epoch: int
    records: int
    control_type: int | None

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def control(self) -> bool:
        return bool(self.attributes & 0x20)

    @property
    def stamped(self) -> bool:
        return bool(self.attributes & 0x40)

    @property
    def ends_transaction(self) -> bool:
        return self.control_type in {0, 1}

    @property
    def kind(self) -> str:
        """``data``, ``emptied``, ``abort``, ``commit``, ``control N`` or ``emptied control``."""
        if self.control:
            names = {None: "emptied control", 0: "abort", 1: "commit"}
            return names.get(self.control_type, f"control {self.control_type}")
        return "data" if self.records else "emptied"


@dataclass(frozen=True)
class Segment:
    """One segment as found: its files' bytes and its modification time."""

    base_offset: int
    log: bytes
    mtime_ms: int
    txnindex: bytes = b""


@dataclass(frozen=True)
class SnapshotEntry:
    """A producer in a ``.snapshot``; -1 is none."""

    producer_id: int
    epoch: int
    last_offset: int
    timestamp: int
    open_from: int


@dataclass(frozen=True)
class Rules:
    """Settings and choices.

    ``expiration_ms`` is the longer of the two producer expiry settings. ``ends_in_records``: the log of a transaction
    coordinator, whose new segments end with records.
    """

    now_ms: int
    horizon_ms: int
    high_watermark: int | None = None
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    expiration_ms: int = 604_800_000
    min_compaction_lag_ms: int = 0
    merge: bool = True
    ends_in_records: bool = False


@dataclass(frozen=True)
class Decision:
    """What becomes of one batch of the span."""

    segment: int
    batch: Batch
    verdict: str
    reason: str

    @property
    def bytes_after(self) -> int:
        return {KEEP: self.batch.size, EMPTY: 61, DROP: 0}[self.verdict]


@dataclass(frozen=True)
class Group:
    """One new segment: its sources' base offsets, its ``.log`` and ``.txnindex``, its modification time."""

    base_offset: int
    sources: tuple[int, ...]
    log: bytes
    txnindex: bytes
    mtime_ms: int


@dataclass(frozen=True)
class Outcome:
    """The whole answer. Segments at or above ``span_end`` stay as they are."""

    span_end: int
    limit: str
    decisions: tuple[Decision, ...]
    groups: tuple[Group, ...]
    rest: tuple[Segment, ...]

    @property
    def logs(self) -> dict[int, bytes]:
        """Base offset -> ``.log`` of the whole partition afterwards."""
        return {g.base_offset: g.log for g in self.groups} | {s.base_offset: s.log for s in self.rest}

    @property
    def changes(self) -> bool:
        """Whether anything would be rewritten."""
        return any(d.verdict != KEEP for d in self.decisions) or any(len(g.sources) > 1 for g in self.groups)

    def tally(self) -> dict[str, int]:
        """Reason -> how many batches."""
        counts: dict[str, int] = {}
        for decision in self.decisions:
            counts[decision.reason] = counts.get(decision.reason, 0) + 1
        return dict(sorted(counts.items()))


def parse(log: bytes) -> list[Batch]:
    """All batches of a v2 ``.log``; a torn tail ends it.

    Raises:
        ValueError: a batch whose magic or CRC is wrong.
    """
    out: list[Batch] = []
    position = 0
    while position + 61 <= len(log):
        base, length, _, magic, crc = struct.unpack_from(">qiibI", log, position)
        size = 12 + length
        if position + size > len(log):
            break
        if magic != 2 or crc32c.crc32c(log[position + 21 : position + size]) != crc:
            raise ValueError(f"no valid v2 batch at position {position}")
        attributes, delta, base_time, max_time, pid, epoch, _, count = struct.unpack_from(
            ">hiqqqhii", log, position + 21
        )
        control_type = None
        if attributes & 0x20 and count:
            control_type = _control_type(log[position + 61 : position + size])
        out.append(
            Batch(
                position,
                size,
                base,
                base + delta,
                attributes,
                base_time,
                max_time,
                pid,
                epoch,
                count,
                control_type,
            )
        )
        position += size
    return out


def _control_type(record: bytes) -> int:
    """The type in the key of the first record, behind length, attributes, timestamp, offset, key length."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = record[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return (value >> 1) ^ -(value & 1)

    varint()
    place += 1
    varint()
    varint()
    if varint() != 4:
        raise ValueError("the key of a control record has four bytes")
    kind: int = struct.unpack_from(">hh", record, place)[1]
    return kind


def parse_snapshot(content: bytes) -> list[SnapshotEntry]:
    """A ``.snapshot`` of version 1.

    Raises:
        ValueError: wrong version or CRC.
    """
    version, crc, count = struct.unpack_from(">hIi", content)
    if version != 1 or crc32c.crc32c(content[6:]) != crc:
        raise ValueError("not a valid snapshot of version 1")
    out = []
    for n in range(count):
        pid, epoch, _, last, _, time, _, opened = struct.unpack_from(">qhiqiqiq", content, 10 + 46 * n)
        out.append(SnapshotEntry(pid, epoch, last, time, opened))
    return out


@dataclass
class Producer:
    """State of one producer id while the log is walked."""

    epoch: int
    last_data_offset: int | None = None
    timestamp: int = -1
    open_from: int | None = None

    def take(self, batch: Batch) -> None:
        if batch.epoch != self.epoch:
            self.epoch, self.last_data_offset = batch.epoch, None
        self.timestamp = batch.max_timestamp
        if batch.control:
            if batch.ends_transaction:
                self.open_from = None
            return
        self.last_data_offset = batch.last_offset
        if batch.transactional and self.open_from is None:
            self.open_from = batch.base_offset


def replay(batches: Sequence[Batch], start: Mapping[int, Producer] | None = None) -> dict[int, Producer]:
    """Producer state after these batches. Emptied control batches count for nothing."""
    state = {pid: replace(p) for pid, p in (start or {}).items()}
    for batch in batches:
        if batch.producer_id < 0 or (batch.control and batch.control_type is None):
            continue
        state.setdefault(batch.producer_id, Producer(batch.epoch)).take(batch)
    return state


def as_loaded(batches: Sequence[Batch], snapshots: Mapping[int, bytes]) -> dict[int, Producer]:
    """What a broker would load: the newest valid snapshot, then the batches from its offset on."""
    for offset in sorted(snapshots, reverse=True):
        try:
            entries = parse_snapshot(snapshots[offset])
        except (ValueError, struct.error):
            continue
        start = {
            e.producer_id: Producer(
                e.epoch,
                e.last_offset if e.last_offset >= 0 else None,
                e.timestamp,
                e.open_from if e.open_from >= 0 else None,
            )
            for e in entries
        }
        return replay([b for b in batches if b.base_offset >= offset], start)
    return {}


@dataclass
class Needed:
    """What active producers need: last offsets of data batches, and (producer, epoch) without data."""

    last_offsets: set[tuple[int, int]] = field(default_factory=set)
    epochs: set[tuple[int, int]] = field(default_factory=set)

    def add(self, state: Mapping[int, Producer], rules: Rules) -> None:
        for pid, p in state.items():
            if p.open_from is None and rules.now_ms - p.timestamp >= rules.expiration_ms:
                continue
            if p.last_data_offset is None:
                self.epochs.add((pid, p.epoch))
            else:
                self.last_offsets.add((pid, p.last_data_offset))


def span(
    segments: Sequence[Segment],
    parsed: Sequence[list[Batch]],
    open_from: Sequence[int],
    rules: Rules,
) -> tuple[int, str]:
    """(first offset out of the span, what limits it)."""
    limits = [(segments[-1].base_offset, "active segment")]
    limits += [(first, "open transaction") for first in open_from]
    if rules.high_watermark is not None:
        limits.append((rules.high_watermark, "high watermark"))
        begun: dict[int, int] = {}
        for batch in (b for each in parsed for b in each):
            if batch.ends_transaction:
                first = begun.pop(batch.producer_id, batch.base_offset)
                if batch.last_offset >= rules.high_watermark:
                    limits.append((first, "high watermark"))
            elif batch.transactional and not batch.control:
                begun.setdefault(batch.producer_id, batch.base_offset)
    if rules.min_compaction_lag_ms > 0:
        for segment, batches in zip(segments, parsed, strict=True):
            if (
                max((b.max_timestamp for b in batches), default=-1)
                > rules.now_ms - rules.min_compaction_lag_ms
            ):
                limits.append((segment.base_offset, "min.compaction.lag.ms"))
                break
    bases = [s.base_offset for s in segments]
    # the limits are stable-sorted, so that of two equal ones the first named counts
    ends = [(max([b for b in bases if b <= offset], default=bases[0]), why) for offset, why in limits]
    return min(ends, key=lambda end: end[0])


def decide(
    sources: Sequence[tuple[Segment, list[Batch]]],
    needed: Needed,
    rules: Rules,
    forced: frozenset[tuple[int, int]] = frozenset(),
) -> list[Decision]:
    """One ascending pass. ``forced``: (segment, position) of batches that stay as the last of their group."""
    out: list[Decision] = []
    keep_log_dir_open: set[int] = set()

    def marker(batch: Batch, segment: Segment) -> str:
        met = batch.producer_id in keep_log_dir_open
        keep_log_dir_open.discard(batch.producer_id)
        if met:
            return "K02"
        if (batch.producer_id, batch.epoch) in needed.epochs:
            return "K05"
        if batch.stamped:
            return "D04" if batch.base_timestamp <= rules.now_ms else "K04"
        return "D03" if segment.mtime_ms <= rules.horizon_ms else "K03"

    def reason(batch: Batch, segment: Segment) -> str:
        if batch.control:
            if batch.control_type is None:
                return "K05" if (batch.producer_id, batch.epoch) in needed.epochs else "D02"
            return marker(batch, segment) if batch.ends_transaction else "K06"
        if batch.records:
            return "K01"
        return "K07" if (batch.producer_id, batch.last_offset) in needed.last_offsets else "D01"

    for segment, batches in sources:
        for batch in batches:
            code = reason(batch, segment)
            verdict = DROP if code in GONE_REASONS else KEEP
            if verdict == DROP and (segment.base_offset, batch.position) in forced:
                code, verdict = ("E01", EMPTY) if batch.records else ("K08", KEEP)
            if verdict != DROP and batch.transactional and not batch.control:
                keep_log_dir_open.add(batch.producer_id)
            out.append(Decision(segment.base_offset, batch, verdict, code))
    return out


def groups_of(
    sources: Sequence[tuple[Segment, list[Batch]]], sizes: Mapping[int, int], end: int, rules: Rules
) -> list[list[Segment]]:
    """Neighbours merged greedily by what they will hold."""
    out: list[list[Segment]] = []
    bases = [s.base_offset for s, _ in sources] + [end]
    held = 0
    for (segment, batches), following in zip(sources, bases[1:], strict=True):
        size = sizes[segment.base_offset]
        if rules.ends_in_records and out and ((batches and not size) or (not held and out[-1][0].log)):
            out[-1].append(segment)
            held += size
            continue
        entries = (held + size) // (rules.index_interval_bytes + 1) + 1
        fits = (
            rules.merge
            and bool(out)
            and held + size <= rules.segment_bytes
            and 12 * entries <= rules.segment_index_bytes
            and following - 1 - out[-1][0].base_offset <= INT_MAX
        )
        if fits:
            out[-1].append(segment)
            held += size
        else:
            out.append([segment])
            held = size
    return out


def emptied(batch: Batch, log: bytes) -> bytes:
    """The batch without its records (``DefaultRecordBatch.writeEmptyHeader``, 2.2.1): 61 bytes."""
    leader_epoch = struct.unpack_from(">i", log, batch.position + 12)[0]
    base_sequence = struct.unpack_from(">i", log, batch.position + 53)[0]
    rest = struct.pack(
        ">hiqqqhii",
        batch.attributes & 0x38,
        batch.last_offset - batch.base_offset,
        -1,
        batch.max_timestamp,
        batch.producer_id,
        batch.epoch,
        base_sequence,
        0,
    )
    return struct.pack(">qiibI", batch.base_offset, 49, leader_epoch, 2, crc32c.crc32c(rest)) + rest


def kept_entries(segment: Segment, decisions: Sequence[Decision]) -> bytes:
    """Entries of its ``.txnindex`` that are carried over: those of which a data batch is left."""
    left = [d.batch for d in decisions if d.verdict != DROP and d.batch.transactional and not d.batch.control]
    out = b""
    for place in range(0, len(segment.txnindex) // 34 * 34, 34):
        _, pid, first, last, _ = struct.unpack_from(">hqqqq", segment.txnindex, place)
        if any(b.producer_id == pid and first <= b.base_offset and b.last_offset <= last for b in left):
            out += segment.txnindex[place : place + 34]
    return out


def compact(
    segments: Sequence[Segment], rules: Rules, snapshots: Mapping[int, bytes] | None = None
) -> Outcome:
    """The whole of marker-only compaction over one partition.

    Args:
        segments: all segments, ascending; the last is the active one.
        rules: settings and choices.
        snapshots: offset -> bytes of the ``.snapshot`` files.
    """
    parsed = [parse(segment.log) for segment in segments]
    everything = [batch for batches in parsed for batch in batches]
    needed = Needed()
    scanned = replay(everything)
    loaded = as_loaded(everything, snapshots or {})
    for state in (scanned, loaded):
        needed.add(state, rules)
    open_from = sorted(p.open_from for s in (scanned, loaded) for p in s.values() if p.open_from is not None)
    end, limit = span(segments, parsed, open_from, rules)
    sources = [(s, b) for s, b in zip(segments, parsed, strict=True) if s.base_offset < end]
    rest = tuple(s for s in segments if s.base_offset >= end)
    forced: set[tuple[int, int]] = set()
    last = [(s.base_offset, b[-1].position) for s, b in sources if b]
    if not rules.ends_in_records or not any(segment.log for segment in rest):
        forced.update(last[-1:])
    while True:
        decisions = decide(sources, needed, rules, frozenset(forced))
        sizes = {s.base_offset: 0 for s, _ in sources}
        for decision in decisions:
            sizes[decision.segment] += decision.bytes_after
        groups = groups_of(sources, sizes, end, rules)
        # a batch that only holds its group's place is, as any kept batch, a reason for its marker to stay
        more = set()
        for group in groups:
            bases = {s.base_offset for s in group}
            lasts = [place for place in last if place[0] in bases]
            if lasts and not any(sizes[b] for b in bases) and not rules.ends_in_records:
                more.add(lasts[-1])
        more -= forced
        if not more:
            break
        # one at a time: the marker that stays for it may lie in another of these groups, which then has a batch left
        forced.add(min(more))
    return Outcome(end, limit, tuple(decisions), tuple(_group(g, decisions) for g in groups), rest)


def _group(group: Sequence[Segment], decisions: Sequence[Decision]) -> Group:
    log, txnindex = b"", b""
    for segment in group:
        for d in (d for d in decisions if d.segment == segment.base_offset):
            if d.verdict == KEEP:
                log += segment.log[d.batch.position : d.batch.position + d.batch.size]
            elif d.verdict == EMPTY:
                log += emptied(d.batch, segment.log)
        txnindex += kept_entries(segment, decisions)
    bases = tuple(s.base_offset for s in group)
    return Group(bases[0], bases, log, txnindex, group[-1].mtime_ms)


def read_partition(folder: Path) -> tuple[list[Segment], dict[int, bytes]]:
    """(segments, snapshots) of a partition folder."""
    segments, snapshots = [], {}
    for path in sorted(folder.glob("*.log")):
        txnindex = path.with_suffix(".txnindex")
        mtime_ms = path.stat().st_mtime_ns // 1_000_000
        entries = txnindex.read_bytes() if txnindex.exists() else b""
        segments.append(Segment(int(path.stem), path.read_bytes(), mtime_ms, entries))
    for path in folder.glob("*.snapshot"):
        snapshots[int(path.stem)] = path.read_bytes()
    return segments, snapshots
