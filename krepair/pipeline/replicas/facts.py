"""What of a replica stands in a facts file: its headers, its keys and its records, each a section."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import numpy as np

from krepair.durable.scratch import write_scratch
from krepair.formats.arrays import Uint64s
from krepair.formats.facts_file import FactsReader, FactsWriter
from krepair.kernels.replica_rows import KEY_WORDS
from krepair.pipeline.replicas.items import RowsResult, Run
from krepair.pipeline.replicas.join import rows_of
from krepair.rules.replicas.replica import ReplicaHeaders

_RECORD_COLUMNS: Final = 2
_PIECE_ROWS: Final = 1 << 16
_WORD_BYTES: Final = 8
_HEADERS_AT_MOST: Final = 1 << 30
"""Bytes of the headers of one replica: a log with ten million transactions has fewer."""


@contextmanager
def opened_facts(path: str) -> Iterator[FactsReader]:
    """Open a facts file.

    Raises:
        OSError: it cannot be read.
        FactsDamagedError: see ``FactsReader``.
        FactsVersionError: see ``FactsReader``.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield FactsReader(_reading(descriptor), os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _reading(descriptor: int) -> Callable[[int, int], bytes]:
    def read_at(position: int, size: int) -> bytes:
        return os.pread(descriptor, size, position)

    return read_at


def write_headers(writer: FactsWriter, index: int, headers: ReplicaHeaders) -> str:
    """Write the result of the headers of the replica with a number; why not, if nobody would read so much of one."""
    data = msgspec.msgpack.encode(headers)
    if len(data) > _HEADERS_AT_MOST:
        return f"its headers come to {len(data)} bytes, and a facts file takes {_HEADERS_AT_MOST}: give its directory"
    writer.section(f"headers/{index}", [data])
    return ""


def read_headers_of(reader: FactsReader, index: int) -> ReplicaHeaders | None:
    """The result of the headers of a replica; None if the file has nothing of it."""
    data = reader.whole(f"headers/{index}", _HEADERS_AT_MOST)
    return msgspec.msgpack.decode(data, type=ReplicaHeaders) if data else None


def write_rows(writer: FactsWriter, index: int, found: RowsResult) -> None:
    """Write the rows of a replica, run after run, column after column, so that they pack well."""
    for number, run in enumerate(found.keys):
        rows = rows_of(run, KEY_WORDS)
        writer.section(f"keys/{index}/{number}", _by_columns(rows[np.argsort(rows[:, 0])]))
    for number, run in enumerate(found.records):
        writer.section(f"records/{index}/{number}", _by_columns(rows_of(run, _RECORD_COLUMNS)))


def _by_columns(rows: Uint64s) -> Iterator[bytes]:
    """Pieces of rows: the first column as differences, and of all numbers first the lowest bytes, then the next."""
    for first in range(0, len(rows), _PIECE_ROWS):
        piece = np.array(rows[first : first + _PIECE_ROWS])
        piece[1:, 0] = np.diff(piece[:, 0])
        yield np.ascontiguousarray(_as_bytes(piece.T).transpose(0, 2, 1)).tobytes()


def _as_bytes(columns: Uint64s) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.ascontiguousarray(columns).view(np.uint8).reshape(len(columns), -1, _WORD_BYTES)


def _of_columns(data: bytes, columns: int) -> Uint64s:
    planes = np.frombuffer(data, np.uint8).reshape(columns, _WORD_BYTES, -1)
    piece: Uint64s = np.array(planes.transpose(2, 0, 1), order="C").view(np.uint64).reshape(-1, columns)
    piece[:, 0] = np.cumsum(piece[:, 0], dtype=np.uint64)
    return piece


def read_rows(reader: FactsReader, index: int, scratch: str, rows_inline: int) -> RowsResult:
    """The rows of a replica; large runs go to scratch files.

    Args:
        reader: of the facts file.
        index: number of the replica.
        scratch: folder for them.
        rows_inline: runs of so many rows stay in memory.
    """
    found: dict[str, list[Run]] = {"keys": [], "records": []}
    for name, columns in (("keys", KEY_WORDS), ("records", _RECORD_COLUMNS)):
        while f"{name}/{index}/{len(found[name])}" in reader.sections:
            section = f"{name}/{index}/{len(found[name])}"
            found[name].append(_run(reader, section, columns, scratch, rows_inline))
    return RowsResult(keys=tuple(found["keys"]), records=tuple(found["records"]))


def _run(reader: FactsReader, section: str, columns: int, scratch: str, rows_inline: int) -> Run:
    rows = reader.sections[section].bytes // (8 * columns)
    pieces = _pieces(reader, section, columns)
    if rows <= rows_inline:
        return Run(rows=rows, data=b"".join(piece.tobytes() for piece in pieces))
    return Run(rows=rows, path=write_scratch(scratch, "facts", pieces))


def _pieces(reader: FactsReader, section: str, columns: int) -> Iterator[Uint64s]:
    """A piece may lie in several blocks, since blocks are cut by bytes."""
    waiting = b""
    size = _PIECE_ROWS * 8 * columns
    for block in reader.blocks(section):
        waiting += block
        while len(waiting) >= size:
            yield _of_columns(waiting[:size], columns)
            waiting = waiting[size:]
    if waiting:
        yield _of_columns(waiting, columns)
