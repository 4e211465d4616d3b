"""Files of a journal by their bytes: what is known of them where a record has no digest."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.durable.tree import Tree
from krepair.formats.castagnoli import crc32c
from krepair.journal.known_files import known_originals, parts_check
from krepair.journal.record import FileState
from krepair.logdir.fingerprint import digest_content, digest_file
from krepair.plan.model import FileFingerprint

NAME = "00000000000000000000.timeindex"


def original(root: Path) -> FileState:
    (root / NAME).write_bytes(b"as it was")
    status = (root / NAME).stat()
    return FileState(name=NAME, size=status.st_size, mtime_ns=status.st_mtime_ns, inode=status.st_ino)


def is_known(root: Path, digests: dict[str, str], planned: dict[str, FileFingerprint]) -> bool | None:
    """Whether the file is the original; None where nothing of its bytes is known."""
    [known] = known_originals([original(root)], digests, planned)
    return None if known.check is None else known.check(str(root / NAME), Tree(str(root)))


def test_the_digest_of_the_record_counts_and_without_one_that_of_the_plan(tmp_path: Path) -> None:
    state, tree = original(tmp_path), Tree(str(tmp_path))
    path = str(tmp_path / NAME)
    right = FileFingerprint(
        name=NAME, size=state.size, mtime_ns=state.mtime_ns, inode=state.inode, digest=digest_file(path, tree)
    )
    wrong = FileFingerprint(
        name=NAME, size=state.size, mtime_ns=state.mtime_ns, inode=state.inode, digest="0" * 32
    )
    recorded = {NAME: digest_content(path, tree)}
    assert is_known(tmp_path, recorded, {}) is True
    assert is_known(tmp_path, recorded, {NAME: wrong}) is True
    assert is_known(tmp_path, {NAME: "0" * 32}, {NAME: right}) is False
    assert is_known(tmp_path, {}, {NAME: right}) is True
    assert is_known(tmp_path, {}, {NAME: wrong}) is False
    assert is_known(tmp_path, {}, {}) is None


@pytest.mark.parametrize(
    ("parts", "right"),
    [
        ([(9, crc32c(b"as it was"))], True),
        ([(2, crc32c(b"as")), (0, 0), (7, crc32c(b" it was"))], True),
        ([(2, crc32c(b"as")), (7, crc32c(b" it wa"))], False),
        ([(2, crc32c(b"aS")), (7, crc32c(b" it was"))], False),
        ([(9, crc32c(b"as it was")), (1, crc32c(b"!"))], False),
    ],
)
def test_a_new_log_is_known_by_what_each_source_gave(
    tmp_path: Path, parts: list[tuple[int, int]], right: bool
) -> None:
    original(tmp_path)
    check = parts_check(parts)
    assert check is not None
    assert check(str(tmp_path / NAME), Tree(str(tmp_path))) is right


def test_of_parts_that_nobody_knows_nothing_is_checked() -> None:
    assert parts_check(()) is None
