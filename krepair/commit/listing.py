"""Listing of a folder's files when a change or its undo begins; the journal record contains the listing.

A later run compares the folder with the listing to find out whether another program has changed the folder in between.
Clocks and inodes cannot show such a change, and both differ in a restored copy of the directory. So the listing has the
name, the size and a digest of each file. The digest covers all bytes of a file up to 1 MiB, the last 64 KiB of a longer
log, and the last 16 MiB of a longer file that an undo needs as evidence. Longer parts are not read: a file with a
crafted size could make a commit take hours.

A file takes at most 40 bytes in the journal: names are abbreviated, and 48 bits of a digest detect accidental changes.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from krepair.commit.folder import ROOT, PartitionFolder
from krepair.commit.journal import FolderListing
from krepair.formats.checkpoint import EpochEntry, decode_epochs
from krepair.formats.filenames import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    PRIVATE_PREFIX,
    TXN_INDEX,
    segment_name,
)

WHOLE_BYTES: Final = 1 << 20
TAIL_BYTES: Final = 64 << 10
EVIDENCE_BYTES: Final = 16 << 20
_DIGEST_BYTES: Final = 6
_SHORT: Final = {
    ".log": ".l",
    ".index": ".i",
    ".timeindex": ".t",
    ".txnindex": ".x",
    ".snapshot": ".s",
}
_LONG: Final = {short: long for long, short in _SHORT.items()}
_OF_SEGMENT: Final = re.compile(r"(\d{20})(\.[a-z]+)")


class Entry(NamedTuple):
    """Identity of a file in a listing.

    Attributes:
        size: size in bytes; -1 for anything but a regular file.
        digest: digest of the content; empty for an empty file, or for a file that is too long to be read.
    """

    size: int
    digest: str


def take_listing(folder: PartitionFolder, marker: str) -> FolderListing:
    """List the files of a folder, after syncing the folder.

    Args:
        folder: partition folder, or the root, for which only the marker is listed.
        marker: digest of the clean-shutdown marker, see ``marker_of``.

    Raises:
        OSError: a file could not be read.
    """
    folder.disk.sync_dir(folder.path)
    entries = [] if folder.folder == ROOT else _entries(folder)
    fields = (field for name, entry in entries for field in (_short(name), str(entry.size), entry.digest))
    return FolderListing(files="/".join(fields), marker=marker, epochs=epochs_of(folder))


def epochs_of(folder: PartitionFolder) -> tuple[EpochEntry, ...]:
    """Return the entries of ``leader-epoch-checkpoint``; no entries if the file is missing or damaged.

    Raises:
        OSError: the file could not be read.
    """
    data = folder.tree.read(folder.at(LEADER_EPOCH_CHECKPOINT), EVIDENCE_BYTES)
    return () if data is None else tuple(decode_epochs(data).entries)


def _entries(folder: PartitionFolder) -> list[tuple[str, Entry]]:
    return [
        (name, _entry(folder, name, status))
        for name, status in folder.tree.entries(folder.path)
        if not name.startswith(PRIVATE_PREFIX)
    ]


def entry_of(folder: PartitionFolder, name: str) -> Entry | None:
    """Return the identity of a file in the folder; None if nothing has the name.

    Raises:
        OSError: the file could not be read.
    """
    status = folder.tree.status(folder.at(name))
    return None if status is None else _entry(folder, name, status)


def _entry(folder: PartitionFolder, name: str, found: os.stat_result) -> Entry:
    if not stat.S_ISREG(found.st_mode):
        return Entry(-1, "")
    return Entry(found.st_size, digest_at(folder, name, found.st_size))


def digest_at(folder: PartitionFolder, path: str, size: int) -> str:
    """Return the digest of a file's first ``size`` bytes, by the rules of a listing; empty if the file is not read.

    Raises:
        OSError: the file could not be read.
    """
    longest = TAIL_BYTES if LOG in path else EVIDENCE_BYTES if is_evidence(path) else 0
    if not size or (size > WHOLE_BYTES and not longest):
        return ""
    position = max(0, size - longest) if size > WHOLE_BYTES else 0
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    with folder.tree.opened(folder.at(path)) as descriptor:
        while position < size and (
            piece := os.pread(descriptor, min(WHOLE_BYTES, size - position), position)
        ):
            digest.update(piece)
            position += len(piece)
    return base64.urlsafe_b64encode(digest.digest()).decode()


def is_evidence(name: str) -> bool:
    """Return whether recovery derives the file from the whole log: a transaction index or the leader epochs."""
    return name.endswith(TXN_INDEX) or name == LEADER_EPOCH_CHECKPOINT


def marker_of(folder: PartitionFolder, places: Iterator[str] | list[str]) -> str:
    """Return the digest of the clean-shutdown marker in the root or in a recovery guard; empty without a marker.

    Args:
        places: paths of the recovery guards that are set.

    Raises:
        OSError: the marker could not be read.
    """
    for path in (folder.log_dir, *places):
        data = folder.tree.read(f"{path}/{CLEAN_SHUTDOWN}", WHOLE_BYTES)
        if data is not None:
            return base64.urlsafe_b64encode(
                hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
            ).decode()
    return ""


@lru_cache(maxsize=1)
def listed(listing: FolderListing) -> Mapping[str, Entry]:
    """Return the files of a listing, by name."""
    fields = listing.files.split("/") if listing.files else []
    return {
        _long(name): Entry(int(size), digest)
        for name, size, digest in zip(fields[::3], fields[1::3], fields[2::3], strict=True)
    }


def is_whole(listing: FolderListing) -> bool:
    """Return whether a listing has the form in which krepair writes it."""
    fields = listing.files.split("/") if listing.files else []
    return len(fields) % 3 == 0 and all(size.removeprefix("-").isdecimal() for size in fields[1::3])


def _short(name: str) -> str:
    match = _OF_SEGMENT.fullmatch(name)
    if match is not None and match[2] in _SHORT:
        return f"{int(match[1])}{_SHORT[match[2]]}"
    return f":{name}" if name.isascii() else f"={os.fsencode(name).hex()}"


def _long(short: str) -> str:
    if short.startswith(":"):
        return short[1:]
    if short.startswith("="):
        return os.fsdecode(bytes.fromhex(short[1:]))
    digits, suffix = short[:-2], short[-2:]
    return segment_name(int(digits), _LONG[suffix])
