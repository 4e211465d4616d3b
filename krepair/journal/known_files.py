"""Files of a journal by their bytes: how a file is known where its inode tells nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from krepair.durable.tree import Tree
from krepair.formats.castagnoli import crc32c
from krepair.formats.filenames import LOG, SWAP
from krepair.journal.record import ApplyIntent, FileState
from krepair.logdir.fingerprint import digest_batches, digest_content, digest_file
from krepair.plan.model import FileFingerprint

_CHUNK_BYTES: Final = 1 << 20

Check = Callable[[str, Tree], bool]
"""Whether the file at an absolute path of a tree holds the bytes that are known."""


class KnownFile(NamedTuple):
    """A file of an intent.

    Attributes:
        state: as it was recorded.
        made: whether krepair made it; else it is an original.
        check: of its bytes; None if nobody knows them.
        must: whether it has to be there while its change is done, or as an original also while it is half done.
    """

    state: FileState
    made: bool
    check: Check | None
    must: bool = True


class InPlace(NamedTuple):
    """A file that a change makes another one without giving it another inode.

    Attributes:
        recorded: as the journal has it.
        here: as it is; None if it cannot be that file.
        problem: what is wrong with what is kept of it, or empty.
    """

    recorded: FileState
    here: FileState | None
    problem: str


def known_originals(
    states: Iterable[FileState],
    digests: Mapping[str, str],
    planned: Mapping[str, FileFingerprint],
) -> list[KnownFile]:
    """Originals, by the digests of the journal or else of the plan."""
    return [
        KnownFile(
            one, False, content_check(digests.get(one.name, "")) or planned_check(planned.get(one.name))
        )
        for one in states
    ]


def known_made_of_group(group: ApplyIntent, freed: Mapping[str, str]) -> list[KnownFile]:
    """What a rewritten group has made. A broker may make its indexes anew; its log it only ever cuts.

    Args:
        group: its intent.
        freed: name -> digest of what was read again before originals were freed.
    """
    found = []
    for state in group.merged:
        is_log = state.name.endswith(LOG)
        check = parts_check(group.parts) if is_log else file_check(group.made.get(state.name, ""))
        found.append(KnownFile(state, True, content_check(freed.get(state.name, "")) or check, is_log))
    return found


def content_check(digest: str) -> Check | None:
    """By ``digest_content``; None without a digest."""
    return (lambda path, tree: digest_content(path, tree) == digest) if digest else None


def file_check(digest: str) -> Check | None:
    """By ``digest_file``; None without a digest."""
    return (lambda path, tree: digest_file(path, tree) == digest) if digest else None


def planned_check(planned: FileFingerprint | None) -> Check | None:
    """By the digest of the plan, of a log with the CRC of each batch; None if the plan has none."""
    if planned is None or not planned.digest:
        return None
    name, digest = planned.name.removesuffix(SWAP), planned.digest
    if not name.endswith(LOG):
        return file_check(digest)
    base_offset = int(name.partition(".")[0])
    return lambda path, tree: digest_batches(path, base_offset, tree, check_crc=True) == digest


def parts_check(parts: Sequence[tuple[int, int]]) -> Check | None:
    """By the CRC-32C of what each source gave; None if that is not known."""
    return (lambda path, tree: _has_parts(path, tree, parts)) if parts else None


def _has_parts(path: str, tree: Tree, parts: Sequence[tuple[int, int]]) -> bool:
    with tree.opened(path) as descriptor:
        position = 0
        for size, expected in parts:
            found, end = 0, position + size
            while position < end:
                piece = os.pread(descriptor, min(end - position, _CHUNK_BYTES), position)
                if not piece:
                    return False
                found = crc32c(piece, found)
                position += len(piece)
            if found != expected:
                return False
    return True
