"""Record batches of message format v2: the 61-byte header, its CRC, and retained empty batches.

This plain Python serves tests, verification and dumps. The fast code is in ``krepair.kernels``.

Source: ``clients/.../common/record/DefaultRecordBatch.java`` (2.2.1, 3.9.0), KIP-98, KIP-534 (delete horizon).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from krepair.errors import UsageError
from krepair.formats.castagnoli import crc32c
from krepair.formats.damage import Bytes, Damage
from krepair.formats.java_numbers import INT32_MAX
from krepair.formats.layout import Layout, LayoutField

HEADER = Layout(
    LayoutField("base_offset", "i8", "offset of the first record at the append; compaction keeps it"),
    LayoutField("batch_length", "i4", "bytes after this field"),
    LayoutField("partition_leader_epoch", "i4", "leader epoch, set by the broker; not covered by the CRC"),
    LayoutField("magic", "i1", "2"),
    LayoutField("crc", "u4", "CRC-32C of everything from attributes to the end of the batch"),
    LayoutField("attributes", "i2", "codec, timestamp type, transactional, control, delete horizon"),
    LayoutField("last_offset_delta", "i4", "last offset minus base offset; compaction keeps it"),
    LayoutField(
        "base_timestamp",
        "i8",
        "time of the first record in ms; or the delete horizon, or -1 in an emptied batch",
    ),
    LayoutField("max_timestamp", "i8", "largest time of a record in ms, or log append time"),
    LayoutField("producer_id", "i8", "-1 for none"),
    LayoutField("producer_epoch", "i2", "-1 for none"),
    LayoutField("base_sequence", "i4", "-1 for none; markers have -1"),
    LayoutField("record_count", "i4", "0 in an emptied batch"),
)
HEADER_SIZE = HEADER.size
assert HEADER_SIZE == 61

MAGIC = 2
LOG_OVERHEAD = HEADER.place("partition_leader_epoch")
"""Bytes at the start of a batch that ``batch_length`` does not count."""
CRC_START = HEADER.place("attributes")
"""Byte of the header at which the CRC's coverage starts; the coverage ends with the batch."""

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1


def next_sequence(sequence: int, increment: int) -> int:
    """Add to a sequence number, which wraps from 2^31-1 to 0 (``DefaultRecordBatch.incrementSequence``)."""
    return (sequence + increment) % (INT32_MAX + 1)


class BatchHeader(NamedTuple):
    """Header of one batch, with the fields of ``HEADER``.

    The values can be trusted only after ``batch_damage`` has returned None.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch in bytes."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the batch's last record at append time; compaction may have removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """Compression codec id, see ``krepair.formats.codec.Codec``."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """True if ``max_timestamp`` is the broker's append time and applies to every record."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """True if the batch holds a control record, such as a transaction marker."""
        return bool(self.attributes & CONTROL)

    @property
    def is_empty(self) -> bool:
        """True if compaction has removed all records."""
        return self.record_count == 0

    @property
    def has_producer_id(self) -> bool:
        """True if an idempotent or transactional producer wrote the batch."""
        return self.producer_id > NO_PRODUCER_ID


assert BatchHeader._fields == HEADER.names


class PlacedBatch(NamedTuple):
    """A batch header and its position.

    Attributes:
        position: byte of the buffer at which the batch starts.
    """

    position: int
    header: BatchHeader


def decode_header(buf: Bytes, position: int = 0) -> BatchHeader:
    """Read the header at ``position`` without checking its values.

    Raises:
        UsageError: fewer than 61 bytes follow (call ``header_damage`` first on untrusted input).
    """
    if position < 0 or len(buf) - position < HEADER_SIZE:
        raise UsageError(f"a batch header at position {position} needs {HEADER_SIZE} bytes of {len(buf)}")
    return BatchHeader._make(HEADER.unpack(buf, position))


def computed_crc(buf: Bytes, position: int, size_bytes: int) -> int:
    """Compute the CRC-32C of the batch of ``size_bytes`` bytes at ``position``."""
    return int(crc32c(memoryview(buf)[position + CRC_START : position + size_bytes]))


def header_damage(buf: Bytes, position: int = 0, rest: int = -1) -> Damage | None:
    """Check that a whole v2 batch can start at ``position``; None if it can.

    CRC and records are not checked.

    Args:
        buf: bytes that hold the header.
        position: byte of the buffer at which the batch starts.
        rest: bytes from ``position`` to the end of the file, if the buffer ends earlier; negative if the buffer reaches
            the end of the file.
    """
    rest = len(buf) - position if rest < 0 else rest
    if rest < HEADER_SIZE:
        return Damage(position, rest, f"a batch header of {HEADER_SIZE} bytes", f"{rest} bytes")
    header = BatchHeader._make(HEADER.unpack(buf, position))
    expected = ""
    actual = ""
    if header.magic != MAGIC:
        expected, actual = f"magic {MAGIC}", f"magic {header.magic}"
    elif header.size_bytes < HEADER_SIZE:
        expected, actual = f"batch length of at least {HEADER_SIZE - LOG_OVERHEAD}", f"{header.batch_length}"
    elif header.size_bytes > rest:
        expected, actual = f"a batch of {header.size_bytes} bytes", f"{rest} bytes to the end"
    elif header.last_offset_delta < 0:
        expected, actual = "last offset delta of 0 or more", f"{header.last_offset_delta}"
    elif header.record_count < 0:
        expected, actual = "record count of 0 or more", f"{header.record_count}"
    return Damage(position, rest, expected, actual) if expected else None


def batch_damage(buf: Bytes, position: int = 0) -> Damage | None:
    """Check header and CRC of the v2 batch at ``position``; None if both are valid.

    The damaged range extends from ``position`` to the end of the buffer.
    """
    wrong = header_damage(buf, position)
    if wrong is not None:
        return wrong
    header = decode_header(buf, position)
    crc = computed_crc(buf, position, header.size_bytes)
    if crc != header.crc:
        return Damage(
            position, len(buf) - position, f"CRC {header.crc:#010x} as stored", f"{crc:#010x} computed"
        )
    return None


def headers_of(read: Callable[[int, int], bytes], size: int) -> Iterator[PlacedBatch | Damage]:
    """Walk a file batch by batch like ``batches``, but read only the headers and check no CRC.

    A log is not mapped into memory: an unreadable page, or a file that another process truncates, would kill krepair
    with SIGBUS and without a message.

    Args:
        read: function that returns up to ``size`` bytes from a position, called as ``read(size, position)``.
        size: size of the file in bytes.
    """
    position = 0
    while position < size:
        head = read(min(HEADER_SIZE, size - position), position)
        wrong = header_damage(head, rest=size - position)
        if wrong is not None:
            yield wrong._replace(position=position)
            return
        header = decode_header(head)
        yield PlacedBatch(position, header)
        position += header.size_bytes


def batches(buf: Bytes, *, check_crc: bool = True) -> Iterator[PlacedBatch | Damage]:
    """Walk a buffer batch by batch; the last value is a ``Damage`` if the walk stops early.

    The walk ends at the first invalid batch, as a broker's log recovery does. The sizes of the batches before it and
    the length of the damage add up to the size of the buffer.
    """
    position = 0
    while position < len(buf):
        wrong = batch_damage(buf, position) if check_crc else header_damage(buf, position)
        if wrong is not None:
            yield wrong
            return
        header = decode_header(buf, position)
        yield PlacedBatch(position, header)
        position += header.size_bytes


def damage(buf: Bytes) -> list[Damage]:
    """Return the damage in a buffer of batches: an empty list, or one range that extends to the end."""
    return [batch for batch in batches(buf) if isinstance(batch, Damage)]


def encode_batch(header: BatchHeader, records: bytes) -> bytes:
    """Build a batch from a header and record bytes, with computed length and CRC.

    Raises:
        UsageError: a value does not fit its field, or the batch is too long for its length field.
    """
    sized = header._replace(batch_length=HEADER_SIZE - LOG_OVERHEAD + len(records), crc=0)
    body = HEADER.pack(sized)[CRC_START:]
    crc = crc32c(records, crc32c(body))
    return HEADER.pack(sized._replace(crc=crc)) + records


def empty_header(header: BatchHeader) -> BatchHeader:
    """Build the header that compaction keeps after it has removed all records of a batch.

    Offsets, producer, sequence, leader epoch, timestamp type, max timestamp, and the transactional and control bits
    are kept. The base timestamp becomes -1, the codec becomes none, and a delete horizon is lost.

    Source: ``MemoryRecords.filterTo``, ``DefaultRecordBatch.writeEmptyHeader`` (2.2.1, 3.9.0).
    """
    kept_bits = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return header._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD,
        attributes=kept_bits,
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )


def empty_batch(header: BatchHeader) -> bytes:
    """Build the 61-byte retained empty batch of ``empty_header``."""
    return encode_batch(empty_header(header), b"")


def emptied(batch: bytes) -> bytes | None:
    """Remove the records of a batch; None if ``batch`` is not exactly one whole v2 batch."""
    if header_damage(batch) is not None:
        return None
    header = decode_header(batch)
    if header.size_bytes != len(batch):
        return None
    return batch if header.is_empty else empty_batch(header)
