"""A file that the system cannot read is named, once, whichever reader met it."""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from krepair.durable.tree import Tree
from krepair.logdir import view
from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.builders import NOW_MS
from tests.ops.snapshots import checked, made

WAY = "; run krepair as root, or as the user of the broker"


@pytest.mark.parametrize(
    ("code", "more"),
    [(errno.EIO, ""), (errno.EACCES, WAY), (errno.EPERM, WAY)],
    ids=["EIO", "EACCES", "EPERM"],
)
@pytest.mark.parametrize("name", ["00000000000000000006.txnindex", "00000000000000000006.log"])
def test_file_that_cannot_be_read_is_named_once_with_what_to_do(
    name: str, code: int, more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = made(tmp_path)
    inode = (log_dir / "t-0" / name).stat().st_ino
    preadv, pread = os.preadv, os.pread

    def refuse(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == inode:
            raise OSError(code, os.strerror(code))

    def failing_preadv(descriptor: int, buffers: list[memoryview], position: int) -> int:
        refuse(descriptor)
        return preadv(descriptor, buffers, position)

    def failing_pread(descriptor: int, size: int, position: int) -> bytes:
        refuse(descriptor)
        return pread(descriptor, size, position)

    monkeypatch.setattr(os, "preadv", failing_preadv)
    monkeypatch.setattr(os, "pread", failing_pread)
    found = [one for one in checked(log_dir).findings if one.rule == "KR308"]
    assert [one.evidence for one in found] == [
        f"t-0/{name}: {os.strerror(code)} ({errno.errorcode[code]}){more}"
    ]
    assert not [one for one in found if one.file not in {"", name}]


def test_folder_that_this_user_may_not_list_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = made(tmp_path)
    listed = view.opened_folder

    def refusing(name: str, within: Tree | int | None = None) -> AbstractContextManager[int]:
        if name.endswith("t-0"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return listed(name, within)

    monkeypatch.setattr(view, "opened_folder", refusing)
    (found,) = [one for one in checked(log_dir).findings if one.rule == "KR308"]
    assert found.evidence.endswith(f"t-0: could not be read: Permission denied (EACCES){WAY}")
    report = check([str(log_dir)], Options(now_ms=NOW_MS, engine=EngineName.INLINE))
    assert str(report.next_command) == f"krepair check {log_dir}   # as root, or as the user of the broker"
