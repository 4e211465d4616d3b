"""Digests of files, which show whether a file has changed since a plan was made."""

from __future__ import annotations

import errno
import hashlib
import os

from krepair.durable.tree import Tree
from krepair.formats.damage import Bytes
from krepair.kernels.scan import ScanInputs, SegmentSummary, scan_segment
from krepair.logdir.reading import opened_for_reading, opened_with_status

DIGEST_BYTES = 16
_CHUNK_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16


def digest_file(path: str, tree: Tree | None = None) -> str:
    """Digest all bytes of a file: BLAKE2b of 128 bits, as 32 hex digits. Meant for small files.

    Raises:
        OSError: the file cannot be read, is a symlink, or is not a regular file.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with opened_for_reading(path, tree) as descriptor:
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def digest_front(path: str, size: int, tree: Tree | None = None) -> str:
    """Digest the first ``size`` bytes of a file, or a whole shorter file, in the format of ``digest_file``.

    Raises:
        OSError: the file cannot be read, is a symlink, or is not a regular file.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with opened_for_reading(path, tree) as descriptor:
        while size > 0 and (chunk := os.read(descriptor, min(size, _CHUNK_BYTES))):
            digest.update(chunk)
            size -= len(chunk)
    return digest.hexdigest()


def digest_content(path: str, tree: Tree | None = None) -> str:
    """Digest a file that may consist mostly of holes, as 32 hex digits; pieces that are all zero are skipped.

    A broker preallocates an index to 10 MiB, and most of it is a hole. If the file system can report holes, they are
    not read. If not, zeros are read and skipped. The digest is the same: it covers the size, and the position and bytes
    of every piece that is not all zero.

    Raises:
        OSError: the file cannot be read, is a symlink, or is not a regular file.
    """
    with opened_with_status(path, tree) as (descriptor, status):
        size = status.st_size
        digest = hashlib.blake2b(size.to_bytes(8), digest_size=DIGEST_BYTES)
        position = 0
        while position < size:
            position = _next_data(descriptor, position, size) // _PIECE_BYTES * _PIECE_BYTES
            piece = os.pread(descriptor, _PIECE_BYTES, position) if position < size else b""
            if piece.strip(b"\0"):
                digest.update(position.to_bytes(8) + len(piece).to_bytes(8))
                digest.update(piece)
            position += _PIECE_BYTES
    return digest.hexdigest()


def digest_batches(
    path: str, base_offset: int, tree: Tree | None = None, *, check_crc: bool = False, size: int = -1
) -> str:
    """Digest the position and header of every batch of a ``.log``, as 32 hex digits; a scan computes the same digest.

    A header holds the CRC of its batch. So two logs of equal size have the same digest only if all their headers and
    stored CRCs are the same. Without ``check_crc``, a changed byte in the body of a batch goes unnoticed.

    Args:
        path: path of the ``.log``.
        base_offset: base offset of the log's segment.
        tree: directory tree that must contain the path; None to allow any path.
        check_crc: True to compute the CRC of each batch; a wrong CRC changes the digest.
        size: number of leading bytes to digest; -1 for all.

    Raises:
        OSError: the file cannot be read, is a symlink, or is not a regular file.
    """
    return scan_batches(path, base_offset, tree, check_crc=check_crc, size=size).headers


def scan_batches(
    path: str, base_offset: int, tree: Tree | None = None, *, check_crc: bool = True, size: int = -1
) -> SegmentSummary:
    """Summarize the batches of a ``.log``, see ``digest_batches``.

    Raises:
        OSError: the file cannot be read, is a symlink, or is not a regular file.
    """
    with opened_with_status(path, tree) as (descriptor, status):
        size = status.st_size if size < 0 else size
        inputs = ScanInputs(base_offset=base_offset, file_size=size, now_ms=0, check_crc=check_crc)
        return scan_segment(inputs, lambda piece, at: os.preadv(descriptor, [piece], at))


def _next_data(descriptor: int, position: int, size: int) -> int:
    """Return the position of the next bytes outside of a hole; the size if there are none."""
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        return position  # this file system cannot report holes


def digest_bytes(data: Bytes) -> str:
    """Digest bytes exactly as ``digest_file`` digests a file with these bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()
