"""Fingerprints tell whether a file is still the one in the plan."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from krepair.logdir.fingerprint import digest_bytes, digest_content, digest_file
from krepair.logdir.space import read_space


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(b"abc")
    return path


def test_the_digest_is_blake2b_of_128_bits_over_all_bytes(tmp_path: Path) -> None:
    data = os.urandom((1 << 20) + 17)
    (tmp_path / "f").write_bytes(data)
    expected = hashlib.blake2b(data, digest_size=16).hexdigest()
    assert (digest_file(str(tmp_path / "f")), digest_bytes(data)) == (expected, expected)


def test_neither_symlink_nor_fifo_is_digested(tmp_path: Path, file: Path) -> None:
    (tmp_path / "s").symlink_to(file)
    os.mkfifo(tmp_path / "p")
    for name in ("s", "p"):
        with pytest.raises(OSError):
            digest_file(str(tmp_path / name))


def test_space_is_what_a_user_who_is_not_root_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = read_space(str(tmp_path))
    assert space.free_bytes > 0
    assert space.free_bytes % space.block_bytes == 0
    assert not space.mounted_read_only
    # f_bsize, f_frsize, f_blocks, f_bfree, f_bavail, f_files, f_ffree, f_favail, f_flag, f_namemax
    state = os.statvfs_result((65536, 4096, 1000, 500, 300, 0, 0, 0, os.ST_RDONLY, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: state)
    assert read_space(str(tmp_path))[:4] == (300 * 4096, -1, 4096, True)


def test_the_digest_of_the_content_is_the_same_with_and_without_holes_and_tells_any_other_byte(
    tmp_path: Path,
) -> None:
    size = 5 * 65536 + 77
    whole = bytearray(size)
    whole[70_000:70_010] = b"ten bytes."
    whole[-3:] = b"end"
    dense, sparse = tmp_path / "dense", tmp_path / "sparse"
    dense.write_bytes(whole)
    with sparse.open("wb") as file:
        file.truncate(size)
        file.seek(70_000)
        file.write(b"ten bytes.")
        file.seek(size - 3)
        file.write(b"end")
    expected = digest_content(str(dense))
    assert digest_content(str(sparse)) == expected
    for position in (0, 65535, 65536, 70_009, 200_000, size - 1):
        other = bytearray(whole)
        other[position] ^= 1
        dense.write_bytes(other)
        assert digest_content(str(dense)) != expected, position
    for length in (size - 1, size + 1):
        dense.write_bytes(whole[:length].ljust(length, b"\0"))
        assert digest_content(str(dense)) != expected


def test_a_preallocated_index_is_not_read_where_it_is_a_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "00000000000000000000.timeindex"
    with path.open("wb") as file:
        file.write(b"entry")
        file.truncate(10 << 20)
    read = []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda *call: read.append(call) or real(*call))
    digest_content(str(path))
    assert len(read) <= 2


def test_empty_files_have_a_digest(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "b").write_bytes(b"\0")
    assert digest_content(str(tmp_path / "a")) != digest_content(str(tmp_path / "b"))
