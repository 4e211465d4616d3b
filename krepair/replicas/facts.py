"""Writing and reading of one replica's headers, keys and record digests in a facts file.

``krepair facts`` writes the file on one broker's host, and ``compare`` reads it in place of that broker's logs. The
container format is in ``formats.facts_file``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from krepair.durable.scratch import write_scratch
from krepair.errors import RefusedError, UnreadableError
from krepair.formats.arrays import Uint64s
from krepair.formats.facts_file import (
    BAD_CONTENT,
    FactsDamagedError,
    FactsReader,
    FactsVersionError,
    FactsWriter,
)
from krepair.kernels.replica_rows import KEY_WORDS
from krepair.logdir.reading import why
from krepair.logdir.view import BrokerState
from krepair.next_command import Next
from krepair.replicas.items import RowRun, RowsResult, rows_of
from krepair.rules.replicas.replica import ReplicaHeaders

_AGAIN: Final = "krepair facts LOGDIR... --out FILE"
_RECORD_COLUMNS: Final = 2
_PIECE_ROWS: Final = 1 << 16
_WORD_BYTES: Final = 8
_HEADERS_AT_MOST: Final = 1 << 30
"""Largest size of one replica's headers in bytes: a log with ten million transactions needs less."""


class FactsFile:
    """Open facts file whose digest matches its content.

    Args:
        path: path of the file.

    Raises:
        RefusedError: the file has a version that this krepair does not know.
        UnreadableError: the file cannot be read, is truncated or was changed; every method may raise this.

    Attributes:
        path: path of the facts file on this host.
        digest: digest of the content, in hex digits.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UnreadableError(f"{path}: {why(error)}") from None
        try:
            self._reader = FactsReader(self._read_at, os.fstat(self._descriptor).st_size)
        except FactsVersionError as error:
            self.close()
            raise RefusedError(
                f"{path}: {error}",
                next_command=Next.by_hand(f"{_AGAIN}, with this version of krepair on its host"),
            ) from None
        except FactsDamagedError as error:
            self.close()
            raise UnreadableError(
                f"{path}: {error}", next_command=Next.by_hand(f"{_AGAIN}, once more on its host")
            ) from None
        except OSError as error:
            self.close()
            raise UnreadableError(f"{path}: {why(error)}") from None
        self.digest = self._reader.digest

    def _read_at(self, position: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, position)

    def close(self) -> None:
        """Close the file; may be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @contextmanager
    def _as_input(self) -> Iterator[None]:
        """Report any error of decoding as unreadable content."""
        try:
            yield
        except BAD_CONTENT as error:
            raise UnreadableError(
                f"{self.path}: its content cannot be read: {error}",
                next_command=Next.by_hand(f"{_AGAIN}, once more on its host"),
            ) from None

    def broker(self) -> tuple[BrokerState, bytes]:
        """Return the state of the broker and the key of the hashes."""
        with self._as_input():
            header = self._reader.header
            return msgspec.json.decode(header.broker, type=BrokerState), bytes.fromhex(header.secret)

    def headers(self, index: int) -> ReplicaHeaders | None:
        """Read the headers of the replica with index ``index``; None if the file has none."""
        with self._as_input():
            data = self._reader.whole(f"headers/{index}", _HEADERS_AT_MOST)
            return msgspec.msgpack.decode(data, type=ReplicaHeaders) if data else None

    def rows(self, index: int, scratch: str, rows_inline: int) -> RowsResult:
        """Read the rows of a replica; large runs are written to scratch files.

        Args:
            index: index of the replica in the file.
            scratch: path of the scratch folder.
            rows_inline: largest run that stays in memory, in rows.
        """
        runs: dict[str, list[RowRun]] = {"keys": [], "records": []}
        with self._as_input():
            for name, columns in (("keys", KEY_WORDS), ("records", _RECORD_COLUMNS)):
                while (section := f"{name}/{index}/{len(runs[name])}") in self._reader.sections:
                    runs[name].append(_run(self._reader, section, columns, scratch, rows_inline))
        return RowsResult(keys=tuple(runs["keys"]), records=tuple(runs["records"]))


class FactsLog(NamedTuple):
    """Log of one replica in a facts file.

    Attributes:
        number: index of the replica in the file.
    """

    file: FactsFile
    number: int


def write_headers(writer: FactsWriter, index: int, headers: ReplicaHeaders) -> str:
    """Write a replica's headers; return the reason if they exceed what a reader accepts, else empty."""
    data = msgspec.msgpack.encode(headers)
    if len(data) > _HEADERS_AT_MOST:
        return f"its headers come to {len(data)} bytes, and a facts file takes {_HEADERS_AT_MOST}: give its directory"
    writer.section(f"headers/{index}", [data])
    return ""


def write_rows(writer: FactsWriter, index: int, rows_result: RowsResult) -> None:
    """Write the rows of a replica, run after run, column after column, so that they compress well."""
    for number, run in enumerate(rows_result.keys):
        rows = rows_of(run, KEY_WORDS)
        writer.section(f"keys/{index}/{number}", _by_columns(rows[np.argsort(rows[:, 0])]))
    for number, run in enumerate(rows_result.records):
        writer.section(f"records/{index}/{number}", _by_columns(rows_of(run, _RECORD_COLUMNS)))


def _by_columns(rows: Uint64s) -> Iterator[bytes]:
    """Yield pieces of rows: the first column as differences, and all numbers by byte planes, lowest first."""
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


def _run(reader: FactsReader, section: str, columns: int, scratch: str, rows_inline: int) -> RowRun:
    rows = reader.sections[section].bytes // (8 * columns)
    pieces = _pieces(reader, section, columns)
    if rows <= rows_inline:
        return RowRun(rows=rows, data=b"".join(piece.tobytes() for piece in pieces))
    return RowRun(rows=rows, path=write_scratch(scratch, "facts", pieces))


def _pieces(reader: FactsReader, section: str, columns: int) -> Iterator[Uint64s]:
    """Yield pieces of rows; a piece may span several blocks, because blocks are cut by bytes."""
    waiting = b""
    size = _PIECE_ROWS * 8 * columns
    for block in reader.blocks(section):
        waiting += block
        while len(waiting) >= size:
            yield _of_columns(waiting[:size], columns)
            waiting = waiting[size:]
    if waiting:
        yield _of_columns(waiting, columns)
