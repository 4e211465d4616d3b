"""A start of 3.0 or later, simple and slow: over a folder as a mapping from names to bytes, and without producers.

It shares no code with ``krepair.loading``. Where a start would fail or split a segment it tells nothing.

Source: LogLoader.load and recoverLog, LogSegment.recover and readNextOffset, ProducerStateManager (3.0, 3.9).
"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import crc32c

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


class Unsure(Exception):  # noqa: N818 - no error
    """The start fails, splits a segment, or empties one: not told here."""


class Seen(NamedTuple):
    """What the start of a broker of 3.0 or later sees; ``snapshot`` is None where that is not told."""

    segments: tuple[tuple[int, int], ...]
    recovered: tuple[int, ...]
    log_end: int
    snapshot: int | None


class Batch(NamedTuple):
    position: int
    data: bytes
    offset: int
    last: int
    timestamp: int

    @property
    def is_valid(self) -> bool:
        if self.data[16] < 2:
            return struct.unpack_from(">I", self.data, 12)[0] == zlib.crc32(self.data[16:])
        return len(self.data) >= 61 and struct.unpack_from(">I", self.data, 17)[0] == crc32c.crc32c(
            self.data[21:]
        )


def batches(log: bytes, position: int = 0) -> Iterator[Batch]:
    """By their sizes; a size below the smallest one raises ``Unsure`` once the batches before it are taken."""
    while position < len(log) - 17:
        offset, length = struct.unpack_from(">qi", log, position)
        if length < 14:
            raise Unsure
        data = log[position : position + 12 + length]
        if len(data) < 12 + length:
            return
        last, timestamp = offset, -1
        if not 0 <= data[16] < 2:
            if len(data) < 61:
                raise Unsure
            last, timestamp = (
                offset + struct.unpack_from(">i", data, 23)[0],
                struct.unpack_from(">q", data, 35)[0],
            )
        elif data[16] == 1:
            timestamp = struct.unpack_from(">q", data, 18)[0]
        yield Batch(position, data, offset, last, timestamp)
        position += len(data)


class Start:
    """One start on a folder, which it changes."""

    def __init__(
        self, files: dict[str, bytes], *, clean: bool, point: int, log_start: int, interval: int
    ) -> None:
        self.files = files
        self.clean, self.point, self.log_start, self.interval = clean, point, log_start, interval
        self.recovered: set[int] = set()
        self.first_snapshot: int | None = None

    def name(self, base: int, suffix: str) -> str:
        return f"{base:020d}{suffix}"

    def bases(self) -> list[int]:
        return sorted(int(name[:20]) for name in self.files if name.endswith(".log"))

    def load(self) -> Seen:
        self.rename_swaps()
        for base in self.bases():
            entries = self.files.get(self.name(base, ".txnindex"), b"")
            ends = [struct.unpack_from(">h16xq", entries, at) for at in range(0, len(entries) // 34 * 34, 34)]
            if any(version for version, _ in ends):
                raise Unsure
            if self.name(base, ".index") not in self.files or any(end < base for _, end in ends):
                self.recover(base)
        if not self.clean:
            self.recover_unflushed()
        bases = self.bases()
        end = self.next_offset(bases[-1])
        if end < self.log_start:
            self.files = {self.name(self.log_start, ".log"): b""}
            return Seen(((self.log_start, 0),), tuple(sorted(self.recovered)), self.log_start, None)
        logs = tuple((base, len(self.files[self.name(base, ".log")])) for base in bases)
        return Seen(logs, tuple(sorted(self.recovered)), end, self.snapshot(bases, end))

    def rename_swaps(self) -> None:
        cleaned = [int(name[:20]) for name in self.files if name.endswith(".cleaned")]
        lowest = min(cleaned, default=1 << 63)
        for name in list(self.files):
            void = name.endswith(".swap") and int(name[:20]) >= lowest
            if void or name.endswith((".cleaned", ".deleted")):
                del self.files[name]
        swaps = [int(name[:20]) for name in self.files if name.endswith(".log.swap")]
        if swaps:
            end = max(self.next_offset(base, ".swap") for base in swaps)
            for name in [one for one in self.files if not one.endswith(".swap") and one.endswith(SUFFIXES)]:
                if min(swaps) <= int(name[:20]) < end:
                    del self.files[name]
            for base in swaps:
                self.files.setdefault(self.name(base, ".index.swap"), b"")
        for name in [one for one in self.files if one.endswith(".swap")]:
            self.files[name.removesuffix(".swap")] = self.files.pop(name)

    def next_offset(self, base: int, state: str = "") -> int:
        index = self.files.get(self.name(base, f".index{state}"), b"")
        entries = [struct.unpack_from(">ii", index, at) for at in range(0, len(index) // 8 * 8, 8)]
        if any(after[0] <= before[0] for before, after in itertools.pairwise(entries)):
            raise Unsure
        offset, position = entries[-1] if entries else (0, 0)
        found = list(batches(self.files[self.name(base, f".log{state}")], max(position, 0)))
        if position < 0 or not any(one.last >= base + offset for one in found):
            return base
        return found[-1].last + 1

    def recover(self, base: int) -> bool:
        """Return whether the log was cut."""
        self.recovered.add(base)
        if self.first_snapshot is None:
            self.first_snapshot = self.newest(base)
        log, valid, since, entries = self.files[self.name(base, ".log")], 0, 0, [(-1, 0)]
        largest, times = (-1, base), [base]
        try:
            for one in batches(log):
                if not one.is_valid:
                    break
                if not 0 <= one.last - base < 1 << 31:
                    raise OverflowError
                if one.timestamp > largest[0]:
                    largest = (one.timestamp, one.last)
                if valid - since > self.interval:
                    if one.last - base <= entries[-1][0] or largest[1] < times[-1]:
                        raise OverflowError
                    entries.append((one.last - base, valid))
                    times.append(largest[1])
                    since = valid
                valid += len(one.data)
        except Unsure:
            pass
        except OverflowError as error:
            raise Unsure from error
        self.files[self.name(base, ".log")] = log[:valid]
        self.files[self.name(base, ".index")] = b"".join(struct.pack(">ii", *one) for one in entries[1:])
        self.files.pop(self.name(base, ".txnindex"), None)
        return valid < len(log)

    def recover_unflushed(self) -> None:
        bases = self.bases()
        floor = max((base for base in bases if base <= self.point), default=bases[0])
        left = [base for base in bases if base >= floor]
        for number, base in enumerate(left):
            if self.recover(base):
                self.next_offset(base)
                for later in left[number + 1 :]:
                    del self.files[self.name(later, ".log")]
                return

    def newest(self, limit: int) -> int:
        offsets = [int(name[:20]) for name in self.files if name.endswith(".snapshot")]
        return max(
            (one for one in offsets if self.log_start < one <= limit and self.is_readable(one)), default=-1
        )

    def is_readable(self, offset: int) -> bool:
        data = self.files[self.name(offset, ".snapshot")]
        if len(data) < 10 or struct.unpack_from(">h", data)[0] != 1:
            return False
        count = struct.unpack_from(">i", data, 6)[0]
        whole = len(data) == 10 + 46 * count
        return whole and struct.unpack_from(">I", data, 2)[0] == crc32c.crc32c(data[6:])

    def snapshot(self, bases: list[int], end: int) -> int | None:
        if self.recovered:
            return None if self.clean else self.first_snapshot
        offsets = sorted(int(name[:20]) for name in self.files if name.endswith(".snapshot"))
        strays = [one for one in offsets if one not in bases]
        for one in strays[:-1] if strays and strays[-1] >= bases[-1] else strays:
            del self.files[self.name(one, ".snapshot")]
        self.log_start = max(self.log_start, bases[0])
        return self.newest(end)
