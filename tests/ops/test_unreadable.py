"""A file that the system cannot read is named, once, whichever reader met it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.ops.test_snapshots import checked, made


@pytest.mark.parametrize("name", ["00000000000000000006.txnindex", "00000000000000000006.log"])
def test_file_that_gives_an_io_error_is_named_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = made(tmp_path)
    inode = (log_dir / "t-0" / name).stat().st_ino
    preadv, pread = os.preadv, os.pread

    def refuse(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == inode:
            raise OSError(errno.EIO, "Input/output error")

    def failing_preadv(descriptor: int, buffers: list[memoryview], position: int) -> int:
        refuse(descriptor)
        return preadv(descriptor, buffers, position)

    def failing_pread(descriptor: int, size: int, position: int) -> bytes:
        refuse(descriptor)
        return pread(descriptor, size, position)

    monkeypatch.setattr(os, "preadv", failing_preadv)
    monkeypatch.setattr(os, "pread", failing_pread)
    found = [one for one in checked(log_dir).findings if one.rule == "KR308"]
    assert [one.evidence for one in found] == [f"t-0/{name}: Input/output error (EIO)"]
    assert not [one for one in found if one.file not in {"", name}]
