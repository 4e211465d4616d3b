"""Checkpoint files: offsets by partition, and leader epochs.

These text files hold version ``0``, the number of entries, then one entry per line. A broker that cannot read a
checkpoint takes the log directory offline. If that was its only log directory, the broker does not start.

Source: ``CheckpointFile`` (2.2.1 in Scala, 3.9.0 in Java), ``OffsetCheckpointFile.scala``,
``LeaderEpochCheckpointFile``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

from krepair.errors import UsageError
from krepair.formats.bulk import many_values
from krepair.formats.damage import Bytes, Damage, UnknownVersion, shown
from krepair.formats.java_numbers import parse_java_integer
from krepair.formats.words import count_text

VERSION = 0
MAX_LINE_BYTES = 4096
"""Longest line that is decoded. A topic name has at most 249 characters, so a longer line is damage."""
MAX_DAMAGES = 100
CHUNK_BYTES = 1 << 16
MAX_ENTRIES = 1_000_000

LINE_END = re.compile(rb"\r\n|\n|\r")
# With so few digits the numbers cannot overflow, and there is no white space except what a broker writes.
AS_WRITTEN_HEAD = re.compile(rb"0\n([0-9]{1,9})\n")
AS_WRITTEN_HEAD_BYTES = 12
AS_WRITTEN_LINE_BYTES = 280
AS_WRITTEN = re.compile(r"(?:\S{1,249} [0-9]{1,9} [0-9]{1,18}\n)*+")
JAVA_WHITE_SPACE = re.compile("[ \t\n\x0b\f\r]+")


class CheckpointEntry(NamedTuple):
    """One entry of an offset checkpoint.

    Attributes:
        offset: recovery point, high watermark, first dirty offset or log start offset, depending on the file.
    """

    topic: str
    partition: int
    offset: int


class EpochEntry(NamedTuple):
    """One entry of a leader epoch checkpoint."""

    epoch: int
    start_offset: int


Entry = TypeVar("Entry", CheckpointEntry, EpochEntry)


class Checkpoint(NamedTuple, Generic[Entry]):
    """Content of a checkpoint file.

    Attributes:
        entries: readable entries in the order of the file.
        damage: differences from what a broker writes. An empty file is not damaged: a broker creates the file empty and
            fills it later.
        broker_reads: True if a broker reads the file without error. A broker also accepts a file that ends after the
            version, and a last line without a line end.
    """

    entries: tuple[Entry, ...]
    damage: tuple[Damage, ...]
    broker_reads: bool


class Line(NamedTuple):
    """A line's position, its length without the line end, and its first ``MAX_LINE_BYTES`` + 1 bytes."""

    position: int
    length: int
    start: bytes


def _lines(buf: Bytes) -> Iterator[Line]:
    """Split into lines as Java's ``BufferedReader.readLine`` does, chunk by chunk to bound the memory."""
    memory = memoryview(buf)
    position = 0
    for chunk_start in range(0, len(buf), CHUNK_BYTES):
        # One byte more, so that a CR at the end of a chunk is seen together with its LF.
        chunk = bytes(memory[chunk_start : chunk_start + CHUNK_BYTES + 1])
        for match in LINE_END.finditer(chunk):
            end = chunk_start + match.start()
            if match.start() == CHUNK_BYTES or end < position:
                continue  # the next chunk will find it, or it is the LF of a CR that ended the chunk before
            start = bytes(memory[position : min(end, position + MAX_LINE_BYTES + 1)])
            yield Line(position, end - position, start)
            position = chunk_start + match.end()
    if position < len(buf):
        yield Line(position, len(buf) - position, bytes(memory[position : position + MAX_LINE_BYTES + 1]))


def _text(line: Line) -> str | None:
    if line.length > MAX_LINE_BYTES:
        return None
    try:
        return line.start.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _shown(line: Line) -> str:
    if line.length > MAX_LINE_BYTES:
        return f"a line of {line.length} bytes: {shown(line.start[:100].decode('latin-1'))}"
    return shown(line.start.decode("latin-1"))


def _words(text: str) -> list[str]:
    """Split as Java's ``Pattern.split``: leading white space gives an empty word, trailing white space none."""
    words = JAVA_WHITE_SPACE.split(text)
    while len(words) > 1 and not words[-1]:
        words.pop()
    return words


def _number_line(line: Line) -> int | None:
    text = _text(line)
    return None if text is None else parse_java_integer(text, 32)


def _offset_entry(text: str) -> CheckpointEntry | None:
    words = _words(text)
    if len(words) != 3:
        return None
    partition = parse_java_integer(words[1], 32)
    offset = parse_java_integer(words[2], 64)
    return None if partition is None or offset is None else CheckpointEntry(words[0], partition, offset)


def _epoch_entry(text: str) -> EpochEntry | None:
    words = _words(text)
    if len(words) != 2:
        return None
    epoch = parse_java_integer(words[0], 32)
    start_offset = parse_java_integer(words[1], 64)
    return None if epoch is None or start_offset is None else EpochEntry(epoch, start_offset)


def _decode(buf: Bytes, parse: Callable[[str], Entry | None], form: str) -> Checkpoint[Entry]:
    lines = _lines(buf)
    head = next(lines, None)
    if head is None:
        # A broker creates the file empty when it starts, and fills it later.
        return Checkpoint((), (), broker_reads=True)
    if (version := _number_line(head)) != VERSION:
        kind = UnknownVersion if version is not None and version > VERSION else Damage
        return Checkpoint((), (kind(0, len(buf), f"version {VERSION}", _shown(head)),), broker_reads=False)
    count_line = next(lines, None)
    if count_line is None:
        missing = Damage(len(buf), 0, "the number of entries", "the end of the file")
        return Checkpoint((), (missing,), broker_reads=True)
    damage: list[Damage] = []
    count = _number_line(count_line)
    if count is None:
        damage.append(
            Damage(count_line.position, count_line.length, "the number of entries", _shown(count_line))
        )
    entries = _decode_entries(lines, parse, form, len(buf), damage)
    if count is not None and count != len(entries):
        damage.append(
            Damage(
                count_line.position,
                count_line.length,
                f"{len(entries)} (the number of entries that follow)",
                str(count),
            )
        )
    broker_reads = not damage
    if memoryview(buf)[-1] not in b"\r\n":
        damage.append(Damage(len(buf), 0, "a line end", "the end of the file; the last number may be cut"))
    return Checkpoint(tuple(entries), tuple(sorted(damage)), broker_reads)


def _decode_entries(
    lines: Iterator[Line], parse: Callable[[str], Entry | None], form: str, size: int, damage: list[Damage]
) -> list[Entry]:
    entries: list[Entry] = []
    for line in lines:
        if len(entries) >= MAX_ENTRIES or len(damage) >= MAX_DAMAGES:
            limit = f"at most {MAX_ENTRIES} entries and {MAX_DAMAGES} damaged lines"
            damage.append(
                Damage(line.position, size - line.position, limit, "more lines, which were not read")
            )
            break
        text = _text(line)
        entry = None if text is None else parse(text)
        if entry is None:
            damage.append(Damage(line.position, line.length, form, _shown(line)))
        else:
            entries.append(entry)
    return entries


def decode_offsets(buf: Bytes) -> Checkpoint[CheckpointEntry]:
    """Read a recovery-point, replication, cleaner or log-start offset checkpoint.

    Two entries for one partition are damage, although a broker reads the file and uses the last one.
    """
    entries = _as_written(buf)
    checkpoint = (
        _decode(buf, _offset_entry, "topic partition offset")
        if entries is None
        else Checkpoint(entries, (), broker_reads=True)
    )
    with many_values():
        partitions = {entry[:2] for entry in checkpoint.entries}
    if len(partitions) == len(checkpoint.entries):
        return checkpoint
    twice = Damage(
        0,
        len(buf),
        "each partition once",
        count_text(len(checkpoint.entries) - len(partitions), "repeated line"),
    )
    return checkpoint._replace(damage=(*checkpoint.damage, twice))


def _as_written(buf: Bytes) -> tuple[CheckpointEntry, ...] | None:
    """Read a file that is exactly as a broker writes it, several times faster; None for any other file."""
    head = AS_WRITTEN_HEAD.match(bytes(memoryview(buf)[:AS_WRITTEN_HEAD_BYTES]))
    # A long line or a wrong count must not cost memory.
    if head is None or int(head[1]) > MAX_ENTRIES or len(buf) > (int(head[1]) + 1) * AS_WRITTEN_LINE_BYTES:
        return None
    try:
        text = bytes(buf).decode("ascii")
    except UnicodeDecodeError:
        return None
    if AS_WRITTEN.fullmatch(text, head.end()) is None:
        return None
    words = text.split()
    if int(head[1]) != len(words) // 3:
        return None
    topics, partitions, offsets = words[2::3], map(int, words[3::3]), map(int, words[4::3])
    with many_values():
        return tuple(map(CheckpointEntry._make, zip(topics, partitions, offsets, strict=True)))


def ends_unchecked(buf: Bytes) -> bool:
    """Return whether an offset checkpoint makes a broker since 3.2 fail with an unchecked exception.

    This happens if the count is negative, or if a line of three words has a word that should be a number and is not.
    Other malformed lines give an ``IOException``; the first malformed line decides. After an unchecked exception the
    broker continues; after an ``IOException`` it takes the log directory offline.

    Source: ``CheckpointFile.java``, ``OffsetCheckpointFile.Formatter`` (3.9.0).
    """
    return _ends_unchecked(buf, 3, _offset_entry)


def epochs_end_unchecked(buf: Bytes) -> bool:
    """Return whether a ``leader-epoch-checkpoint`` makes a broker fail with an unchecked exception.

    The rules are the same as in ``ends_unchecked``, but this exception ends the whole broker with all log directories.

    Source: ``CheckpointFile.java``, ``LeaderEpochCheckpointFile.Formatter`` (3.9.0); seen on 3.9.2 and 4.3.1.
    """
    return _ends_unchecked(buf, 2, _epoch_entry)


def _ends_unchecked(buf: Bytes, words: int, entry_of: Callable[[str], Entry | None]) -> bool:
    lines = _lines(buf)
    version, count_line = next(lines, None), next(lines, None)
    if version is None or _number_line(version) != VERSION or count_line is None:
        return False
    count = _number_line(count_line)
    if count is None or count < 0:
        return count is not None
    for line in lines:
        text = _text(line)
        if text is None or len(_words(text)) != words:
            return False
        if entry_of(text) is None:
            return True
    return False


def decode_epochs(buf: Bytes) -> Checkpoint[EpochEntry]:
    """Read a ``leader-epoch-checkpoint``.

    Epochs or start offsets that do not increase are damage, although a broker reads the file and silently drops such
    entries.
    """
    checkpoint = _decode(buf, _epoch_entry, "epoch startOffset")
    entries = checkpoint.entries
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start_offset <= before.start_offset:
            falling = Damage(
                0, len(buf), "epochs and start offsets that grow", f"{tuple(after)} after {tuple(before)}"
            )
            return checkpoint._replace(damage=(*checkpoint.damage, falling))
    return checkpoint


def is_as_written(buf: Bytes, entries: Iterable[CheckpointEntry | EpochEntry]) -> bool:
    """Return whether a file is byte for byte what a broker writes for these entries."""
    return bytes(buf) == _encode([" ".join(map(str, entry)) for entry in entries])


def _encode(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(lines)), *lines)).encode("utf-8")


def encode_offsets(entries: Iterable[CheckpointEntry]) -> bytes:
    """Encode entries in the given order, byte for byte as a broker does.

    Raises:
        UsageError: a topic name is empty, contains white space or cannot be printed, which would break the file.
    """
    lines = []
    for topic, partition, offset in entries:
        if not topic or JAVA_WHITE_SPACE.search(topic) or not topic.isprintable():
            raise UsageError(f"topic name {shown(topic)!r} cannot be written into a checkpoint file")
        lines.append(f"{topic} {partition} {offset}")
    return _encode(lines)


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Encode entries in the given order, byte for byte as a broker does."""
    return _encode([f"{epoch} {start_offset}" for epoch, start_offset in entries])
