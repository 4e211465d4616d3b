"""Slow twins of the kernels: plain Python over bytes, one batch after the other, sharing no code with krepair.

Being read and believed is the aim. Batch classes and kinds of damage are named here; the tests map the names.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import crc32c

HEADER_BYTES = 61
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


@dataclass
class Row:
    """What is known of one producer at the end of a segment; -1 is none."""

    id: int
    epoch: int = -1
    first_epoch: int = -1
    epochs_mixed: int = 0
    markers: int = 0
    free_markers: int = 0
    timestamp: int = -1
    open_first: int = -1
    open_kept: int = 0
    open_kept_now: int = 0
    last_data_offset: int = -1
    last_data_position: int = -1
    last_data_emptied: int = 0
    last_sequence: int = -1
    last_data_delta: int = -1
    last_data_timestamp: int = -1
    coordinator_epoch: int = -1
    lead: tuple[object, ...] | None = None
    next: tuple[object, ...] | None = None

    def enter(self, epoch: int) -> bool:
        """Take over an epoch; whether it is another than before."""
        if self.epoch == epoch:
            return False
        if self.first_epoch == -1 and self.epoch == -1:
            self.first_epoch = epoch
        else:
            self.epochs_mixed = 1
            self.last_data_offset = self.last_data_position = self.last_sequence = -1
            self.last_data_emptied = 0
            self.last_data_timestamp = -1
        self.epoch = epoch
        self.free_markers = 0
        return True


@dataclass
class Scanned:
    """What the twin says of a log."""

    valid_bytes: int = 0
    damage: str = ""
    old_positions: list[int] = field(default_factory=list)
    batches: list[tuple[int, int, str]] = field(default_factory=list)  # position, size, class
    records: dict[str, int] = field(default_factory=dict)
    first_offset: int = -1
    last_offset: int = -1
    timestamps: list[tuple[int, int]] = field(default_factory=list)  # max_timestamp, last offset
    epochs: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    stamped: int = 0
    rows: dict[int, Row] = field(default_factory=dict)
    entry_flags: list[str] = field(default_factory=list)
    aborts_unindexed: int = 0
    min_unreplicated: int = INT64_MAX

    @property
    def tallies(self) -> dict[str, tuple[int, int, int]]:
        """Class -> (batches, bytes, records), for classes that occur."""
        out: dict[str, tuple[int, int, int]] = {}
        for _, size, name in self.batches:
            count, total, _ = out.get(name, (0, 0, 0))
            out[name] = (count + 1, total + size, self.records.get(name, 0))
        return out


def control_kind(record: bytes) -> int | None:
    """Type in the key of a control record, None when it cannot be read."""
    place = 0
    for number in range(4):
        taken = 0
        while place < len(record) and record[place] & 0x80 and taken < 10:
            place, taken = place + 1, taken + 1
        place += 2 if number == 0 else 1
    if place + 4 > len(record):
        return None
    return int(struct.unpack_from(">h", record, place + 2)[0])


def is_old(log: bytes, position: int) -> bool:
    """Whether a message of v0 or v1 is declared at a position."""
    if len(log) - position < 17:
        return False
    return (
        log[position + 16] < 2 and int.from_bytes(log[position + 8 : position + 12], "big", signed=True) >= 14
    )


def old_damage_at(log: bytes, position: int, base_offset: int, last_offset: int) -> str:
    """Kind of damage of the message at a position, or an empty string if it is valid."""
    offset, length, crc, magic = struct.unpack_from(">qiIB", log, position)
    if magic == 1 and length < 22:
        return "old length"
    if length > len(log) - position - 12:
        return "past end"
    if zlib.crc32(log[position + 16 : position + 12 + length]) != crc:
        return "old crc"
    if not base_offset <= offset <= base_offset + INT32_MAX:
        return "offset range"
    return "offset order" if offset <= last_offset else ""


def damage_at(log: bytes, position: int, base_offset: int, last_offset: int) -> str:
    """Kind of damage of the batch at a position, or an empty string if it is valid."""
    left = len(log) - position
    if is_old(log, position):
        return old_damage_at(log, position, base_offset, last_offset)
    if left < HEADER_BYTES:
        return "torn" if any(log[position:]) else "zeros"
    offset, length, _, magic, crc = struct.unpack_from(">qiiBI", log, position)
    if magic != 2:
        if length == 0 and offset == 0:
            return "zeros"
        return "length" if length < 49 else "magic"
    if length < 49:
        return "length"
    if length + 12 > left:
        return "past end"
    if crc32c.crc32c(log[position + 21 : position + 12 + length]) != crc:
        return "crc"
    attributes, delta = struct.unpack_from(">hi", log, position + 21)
    count = struct.unpack_from(">i", log, position + 57)[0]
    if delta < 0 or count < 0:
        return "counts"
    if offset < base_offset or offset + delta - base_offset > INT32_MAX:
        return "offset range"
    if offset <= last_offset:
        return "offset order"
    if (
        attributes & 0x20
        and count > 0
        and control_kind(log[position + HEADER_BYTES : position + 12 + length]) is None
    ):
        return "control"
    return ""


class Scan:
    """One scan; ``run`` gives the result."""

    def __init__(
        self,
        log: bytes,
        base_offset: int,
        *,
        now_ms: int,
        high_watermark: int = INT64_MAX,
        entries: Sequence[tuple[int, int]] = (),
        carried: Collection[int] = (),
        keep_positions: Collection[int] = (),
        protected: Mapping[int, int] | None = None,
        last_position: int = -1,
    ) -> None:
        self.log, self.base_offset, self.now_ms, self.high_watermark = (
            log,
            base_offset,
            now_ms,
            high_watermark,
        )
        self.entries, self.carried, self.keep_positions = list(entries), set(carried), set(keep_positions)
        self.protected, self.last_position = dict(protected or {}), last_position
        self.found = Scanned(last_offset=base_offset - 1, entry_flags=["no marker"] * len(self.entries))

    def run(self) -> Scanned:
        """Walk the whole log, or up to its first damage."""
        found = self.found
        while found.valid_bytes < len(self.log):
            problem = damage_at(self.log, found.valid_bytes, self.base_offset, found.last_offset)
            if problem:
                found.damage = problem
                break
            if is_old(self.log, found.valid_bytes):
                self.take_old(found.valid_bytes)
            else:
                self.take(found.valid_bytes)
        return found

    def take_old(self, position: int) -> None:
        """One valid message of v0 or v1, plain or wrapping others."""
        found = self.found
        offset, length, _, magic, _ = struct.unpack_from(">qiIBB", self.log, position)
        time = struct.unpack_from(">q", self.log, position + 18)[0] if magic else -1
        found.batches.append((position, length + 12, "records"))
        found.records["records"] = found.records.get("records", 0) + 1
        found.first_offset = offset if found.first_offset < 0 else found.first_offset
        found.timestamps.append((time, offset))
        found.last_offset, found.valid_bytes = offset, position + length + 12
        found.old_positions.append(position)

    def take(self, position: int) -> None:
        """One valid batch."""
        found = self.found
        offset, length, leader_epoch = struct.unpack_from(">qii", self.log, position)
        size = length + 12
        attributes, delta, first_time, max_time, pid, epoch, sequence, count = struct.unpack_from(
            ">hiqqqhii", self.log, position + 21
        )
        last = offset + delta
        row = found.rows.setdefault(pid, Row(pid)) if pid >= 0 else None
        name = "records" if count else "emptied"
        if attributes & 0x20:
            kind = control_kind(self.log[position + HEADER_BYTES : position + size]) if count else None
            if count == 0:
                name = self.emptied_marker(row, epoch)
            elif kind not in {0, 1} or row is None:
                name = "control other"
            else:
                coordinator = struct.unpack_from(">i", self.log, position + size - 5)[0]
                stamp = first_time if attributes & 0x40 else None
                name = self.end(row, epoch, kind == 0, offset, position, size, stamp, max_time, coordinator)
        else:
            if not count and position in self.keep_positions:
                name = "emptied producer"
            if row is not None:
                row.enter(epoch)
                row.last_data_offset, row.last_data_position, row.last_data_emptied = (
                    last,
                    position,
                    int(not count),
                )
                row.last_sequence = -1 if sequence < 0 else (sequence + delta) % 2**31
                row.last_data_delta, row.last_data_timestamp = delta, max_time
                row.timestamp, row.next = max_time, None
                if attributes & 0x10:
                    row.open_first = offset if row.open_first < 0 else row.open_first
                    row.open_kept = int(bool(row.open_kept or count))
                    row.open_kept_now = int(bool(row.open_kept_now or name != "emptied"))
        if position == self.last_position:
            name = "last emptied now" if count else "emptied last"
        found.batches.append((position, size, name))
        if not attributes & 0x20:
            found.records[name] = found.records.get(name, 0) + count
        if found.first_offset < 0:
            found.first_offset = offset
        if leader_epoch >= 0 and leader_epoch != (found.epochs[-1][0] if found.epochs else -1):
            found.epochs.append((leader_epoch, offset, found.last_offset, len(found.batches) - 1, position))
        found.timestamps.append((max_time, last))
        found.stamped += bool(attributes & 0x40)
        found.last_offset = last
        found.valid_bytes = position + size

    def emptied_marker(self, row: Row | None, epoch: int) -> str:
        """An emptied control batch restores nothing; it may hold a producer's epoch."""
        if row is None:
            return "emptied marker"
        if self.protected.get(row.id) == epoch:
            return "marker epoch"
        row.free_markers += row.epoch == epoch
        return "emptied marker"

    def end(self, row: Row, epoch: int, abort: bool, offset: int, position: int, size: int, stamp: int | None,
            timestamp: int, coordinator_epoch: int) -> str:  # fmt: skip
        """A marker that ends a transaction."""
        found = self.found
        leads = row.markers == 0
        kept_now = bool(row.open_kept_now or (leads and row.id in self.carried))
        free = "marker unstamped"
        if self.protected.get(row.id) == epoch:
            free = "marker epoch"
        elif stamp is not None:
            free = "marker stamp past" if stamp <= self.now_ms else "marker stamp to come"
        entry = -1
        if abort:
            for number, (pid, at) in enumerate(self.entries):
                if at == offset:
                    entry = number if pid == row.id else -1
                    found.entry_flags[number] = "other producer"
                    break
        if entry >= 0:
            found.entry_flags[entry] = "data" if kept_now else "no data"
        elif abort and kept_now:
            found.aborts_unindexed += 1
        about = (position, free, size, entry, int(abort), row.open_kept)
        if leads:
            row.lead = (*about, offset, row.open_first)
        if row.last_data_position >= 0 and row.next is None:
            row.next = about
        if not leads and offset >= self.high_watermark:
            found.min_unreplicated = min(
                found.min_unreplicated, row.open_first if row.open_first >= 0 else offset
            )
        row.markers += 1
        row.open_first, row.open_kept, row.open_kept_now = -1, 0, 0
        row.enter(epoch)
        row.free_markers += not kept_now
        row.timestamp, row.coordinator_epoch = timestamp, coordinator_epoch
        return "marker data remains" if kept_now else free
