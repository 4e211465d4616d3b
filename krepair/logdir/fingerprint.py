"""Tells whether a file is still the one that a plan was made of."""

from __future__ import annotations

import errno
import hashlib
import os

from krepair.durable.tree import Tree
from krepair.formats.damage import Bytes
from krepair.kernels.scan import ScanInputs, scan_segment
from krepair.logdir.reading import opened_for_reading

DIGEST_BYTES = 16
_CHUNK_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16


def digest_file(path: str, tree: Tree | None = None) -> str:
    """Digest a file's bytes: 32 hex digits, BLAKE2b of 128 bits. Reads it in chunks; meant for small files.

    Raises:
        OSError: the file cannot be read, or is a symlink or no regular file.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with opened_for_reading(path, tree) as descriptor:
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def digest_content(path: str, tree: Tree | None = None) -> str:
    """Digest what a file holds, zeros left out: 32 hex digits, for files of any size.

    A broker preallocates an index to 10 MiB, nearly all of it a hole. Where the file system knows a hole, it is not
    read; where it does not, zeros are read and passed over. Both give the same digest: over the size, and over place
    and bytes of each piece that is not all zero.

    Raises:
        OSError: the file cannot be read, or is a symlink or no regular file.
    """
    with opened_for_reading(path, tree) as descriptor:
        size = os.fstat(descriptor).st_size
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


def digest_batches(path: str, base_offset: int, tree: Tree | None = None) -> str:
    """Digest position and header of each batch of a ``.log``, as a scan does: 32 hex digits. A header has its CRC.

    Two logs of equal size have the same digest only if their batches are the same. No CRC is computed: whoever needs to
    know that the bytes behind a header are still those of its CRC has to read them himself.

    Args:
        path: of the ``.log``.
        base_offset: of its segment.
        tree: the tree below which the path is.

    Raises:
        OSError: the file cannot be read, or is a symlink or no regular file.
    """
    with opened_for_reading(path, tree) as descriptor:
        inputs = ScanInputs(
            base_offset=base_offset, file_size=os.fstat(descriptor).st_size, now_ms=0, check_crc=False
        )
        return scan_segment(inputs, lambda piece, at: os.preadv(descriptor, [piece], at)).headers


def _next_data(descriptor: int, position: int, size: int) -> int:
    """Where the next bytes are that are no hole; the size if none follow."""
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        return position  # this file system cannot tell


def digest_bytes(data: Bytes) -> str:
    """Digest bytes as ``digest_file`` does those of a file."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()
