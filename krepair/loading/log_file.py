"""Batches of a ``.log`` as a broker finds them, by their size fields; other fields are read only when needed.

Source: FileLogInputStream, FileRecords, DefaultRecordBatch, LegacyRecord (2.2.1, 2.8, 3.9).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from krepair.formats import batch_v2, compression
from krepair.formats.batch_v2 import HEADER, BatchHeader
from krepair.formats.castagnoli import crc32c
from krepair.formats.control import ControlKey, EndTxnMarker, decode_end_txn, decode_key
from krepair.formats.damage import Damage
from krepair.formats.message_set import PlacedMessage, messages
from krepair.formats.record import Record, records
from krepair.loading.behaviour import CorruptRecordError, StartFailsError

ReadAt = Callable[[int, int], memoryview]
"""Function (position, count) -> bytes of the file, fewer at its end."""

_UP_TO_MAGIC: Final = 17
_LOG_OVERHEAD: Final = 12
_SMALLEST: Final = 14
_OLD_ATTRIBUTES_PLACE: Final = _LOG_OVERHEAD + 5
_OLD_MAGIC_PLACE: Final = _LOG_OVERHEAD + 4
_OLD_TIMESTAMP_PLACE: Final = _LOG_OVERHEAD + 6
_INNER_FRONT: Final = struct.Struct(">qi")
_FRONT: Final = struct.Struct(">qi4xb")
assert _FRONT.size == _UP_TO_MAGIC


class SimulatedLog:
    """Bytes of one ``.log`` during a simulated start; truncation only changes ``size``.

    Attributes:
        name: name of the file.
        size: bytes that remain of the file.
    """

    def __init__(self, name: str, size: int, read_at: ReadAt, shared: SharedBatches | None = None) -> None:
        self.name = name
        self.size = size
        self._read_at = read_at
        self._shared = shared

    def bytes_at(self, position: int, count: int) -> memoryview:
        """Read up to ``count`` bytes from a position; fewer only at the end of the file."""
        return self._read_at(position, max(0, min(count, self.size - position)))

    def part(self, name: str, start: int, end: int) -> SimulatedLog:
        """Return a new file that consists of a part of these bytes."""
        read_at = self._read_at
        return SimulatedLog(name, end - start, lambda position, count: read_at(start + position, count))

    def batches(self, start: int = 0, end: int = -1) -> Iterator[LogBatch]:
        """Yield the batches from a position on, found by their size fields.

        Args:
            start: first position; a batch may or may not begin there.
            end: position past which no batch may end; negative for the end of the file.

        Raises:
            CorruptRecordError: the size field of a batch is smaller than the smallest batch.
        """
        position, end = start, self.size if end < 0 else min(end, self.size)
        known = {} if self._shared is None else self._shared.found
        while position < end - _UP_TO_MAGIC:
            batch = known.get(position) or self._batch_at(position)
            if position > end - batch.size:
                return
            yield batch
            position += batch.size

    def _batch_at(self, position: int) -> LogBatch:
        offset, length, magic = _FRONT.unpack_from(self.bytes_at(position, _UP_TO_MAGIC))
        if length < _SMALLEST:
            text = f"position {position}: a record size of {length}, smaller than {_SMALLEST}"
            raise CorruptRecordError(self.name, text)
        shared = (
            None if self._shared is None else self._shared.log_for(position, length + _LOG_OVERHEAD, magic)
        )
        batch = LogBatch(shared or self, position, offset, length + _LOG_OVERHEAD, magic)
        if shared is not None and self._shared is not None:
            self._shared.found[position] = batch
        return batch


class SharedBatches:
    """Batches of one log that all simulations share; each simulation truncates its own ``SimulatedLog``.

    Attributes:
        found: shared batches by position.
    """

    def __init__(self, name: str, size: int, read_at: ReadAt, at_most: int) -> None:
        """Initialize the store for at most ``at_most`` batches, so that memory stays bounded for a log of any size."""
        self.found: dict[int, LogBatch] = {}
        self._whole = SimulatedLog(name, size, read_at)
        self._at_most = at_most

    def log_for(self, position: int, size: int, magic: int) -> SimulatedLog | None:
        """Return the whole log for a batch that reads only its own bytes; None if the batch must not be shared.

        A batch shorter than its header reads bytes after itself, which a simulation may have truncated.
        """
        reads_itself = size >= HEADER.size or magic < batch_v2.MAGIC
        inside = position + size <= self._whole.size
        return self._whole if reads_itself and inside and len(self.found) < self._at_most else None


def _inner_offsets(wrapper: bytes) -> list[int]:
    """Return the offsets inside a v0 or v1 wrapper, without checking checksums; empty if it cannot be opened."""
    outer = next(messages(wrapper, check_crc=False), None)
    value = outer.message.value if isinstance(outer, PlacedMessage) else None
    if not isinstance(outer, PlacedMessage) or value is None:
        return []
    data = compression.decompress(outer.message.codec, value, magic=outer.message.magic)
    offsets, position = [], 0
    while not isinstance(data, Damage) and position + _LOG_OVERHEAD <= len(data):
        offset, length = _INNER_FRONT.unpack_from(data, position)
        if length < _SMALLEST:
            return []
        position += _LOG_OVERHEAD + length
        if position <= len(data):
            offsets.append(offset)
    return offsets


class LogBatch:
    """One batch of any format, whose header is read when first needed.

    Attributes:
        position: position of the batch's first byte.
        offset: value of the offset field: the base offset in v2, the last offset in v0 and v1.
        size: bytes of the batch by its length field.
        magic: magic byte, as a signed number.
    """

    __slots__ = ("_header", "_is_valid", "_log", "magic", "offset", "position", "size")

    def __init__(self, log: SimulatedLog, position: int, offset: int, size: int, magic: int) -> None:
        self._log = log
        self.position = position
        self.offset = offset
        self.size = size
        self.magic = magic
        self._header: BatchHeader | None = None
        self._is_valid: bool | None = None

    @property
    def is_old(self) -> bool:
        """True if a broker reads the batch as a message of v0 or v1."""
        return self.magic < batch_v2.MAGIC

    @property
    def header(self) -> BatchHeader:
        """Header of a batch that a broker reads as v2.

        Raises:
            StartFailsError: the file ends inside the header.
        """
        if self._header is None:
            data = self._log.bytes_at(self.position, HEADER.size)
            if len(data) < HEADER.size:
                raise StartFailsError(
                    self._log.name, f"position {self.position}: it ends within a batch header"
                )
            self._header = batch_v2.decode_header(bytes(data))
        return self._header

    @property
    def last_offset(self) -> int:
        """Last offset, from the header alone."""
        return self.offset if self.is_old else self.offset + self.header.last_offset_delta

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp, from the header alone, for a batch with a valid checksum."""
        if not self.is_old:
            return self.header.max_timestamp
        if self.magic == 0:
            return batch_v2.NO_TIMESTAMP
        place = self._log.bytes_at(self.position + _OLD_TIMESTAMP_PLACE, 8)
        return int.from_bytes(place, "big", signed=True)

    @property
    def has_producer_id(self) -> bool:
        """True if the batch has a producer id; a message of v0 or v1 has none."""
        return not self.is_old and self.header.has_producer_id

    @property
    def base_offset(self) -> int:
        """First offset; for a wrapper of v0 or v1 the offset of its first message.

        Raises:
            StartFailsError: the wrapper cannot be opened.
        """
        data = bytes(self._log.bytes_at(self.position, self.size)) if self.is_old else b""
        if not self.is_old or not data[_OLD_ATTRIBUTES_PLACE] & batch_v2.CODEC_MASK:
            return self.offset
        offsets = _inner_offsets(data)
        if not offsets or (self.magic == 1 and 0 != self.offset < offsets[-1]):
            raise StartFailsError(
                self._log.name, f"position {self.position}: a wrapper that cannot be opened"
            )
        relative_to = self.offset - offsets[-1] if self.magic == 1 and self.offset else 0
        return relative_to + offsets[0]

    def ensure_valid(self) -> None:
        """Raise ``CorruptRecordError`` if the checksum is wrong; like a broker, ignore a magic above 2."""
        if self._is_valid is None:
            self._is_valid = self._has_right_checksum()
        if not self._is_valid:
            raise CorruptRecordError(
                self._log.name, f"position {self.position}: a batch with a wrong checksum"
            )

    def _has_right_checksum(self) -> bool:
        data = self._log.bytes_at(self.position, self.size)
        if self.is_old:
            stored, computed = data[_LOG_OVERHEAD:_OLD_MAGIC_PLACE], zlib.crc32(data[_OLD_MAGIC_PLACE:])
            return int.from_bytes(stored, "big") == computed
        return self.size >= HEADER.size and self.header.crc == crc32c(data[batch_v2.CRC_START :])

    def marker(self) -> tuple[ControlKey, EndTxnMarker] | None:
        """Return key and value of a control batch; None if compaction has removed the record.

        Raises:
            CorruptRecordError: the record cannot be read.
            StartFailsError: the batch is not a commit or abort marker.
        """
        header = self.header
        where = f"position {self.position}"
        if self.size < HEADER.size:
            raise StartFailsError(self._log.name, f"{where}: a control batch shorter than its header")
        if header.record_count == 0:
            return None
        record = self._control_record()
        key = decode_key(record.key)
        if isinstance(key, Damage):
            raise CorruptRecordError(
                self._log.name, f"{where}: {key.expected} was expected, found {key.found}"
            )
        if not key.is_end_txn:
            raise StartFailsError(self._log.name, f"{where}: a control record that ends no transaction")
        value = decode_end_txn(record.value)
        if isinstance(value, Damage):
            text = f"{where}: {value.expected} was expected, found {value.found}"
            raise CorruptRecordError(self._log.name, text)
        return key, value

    def _control_record(self) -> Record:
        """Return the first record; like a broker, check the bytes after it only if it is the last record."""
        header = self.header
        data = bytes(self._log.bytes_at(self.position + HEADER.size, self.size - HEADER.size))
        readable = header.record_count > 0 and not header.codec
        decoded = list(islice(records(data, header.record_count), 2)) if readable else []
        looked_at = decoded if header.record_count == 1 else decoded[:1]
        if (
            not looked_at
            or isinstance(decoded[0], Damage)
            or any(isinstance(record, Damage) for record in looked_at)
        ):
            text = f"position {self.position}: a control record that cannot be read"
            raise CorruptRecordError(self._log.name, text)
        return decoded[0]
