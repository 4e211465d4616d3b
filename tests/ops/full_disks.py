"""Small file systems of their own, filled to the last block but for what is said."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

BLOCK = 4096
SMALLEST_XFS = 300 << 20
"""Bytes; mkfs.xfs makes no smaller one."""
IN_CI = os.environ.get("CI") == "true"


def not_here(reason: str) -> None:
    """Skip where this machine cannot do it; where tests decide about a change, that is a failure."""
    if IN_CI:
        pytest.fail(f"must not be left out in CI: {reason}")
    pytest.skip(reason)


@contextlib.contextmanager
def file_system(
    kind: str, folder: Path, size: int, reserved_percent: int = 0, files: int = 12_000
) -> Iterator[Path]:
    """A new file system, mounted.

    Args:
        kind: ``ext4`` or ``xfs`` (in a file), or ``tmpfs``.
        folder: for the file and the mount point.
        size: bytes.
        reserved_percent: of ext4: what only root may take.
        files: of ext4: how many there may be.
    """
    if os.geteuid() != 0:
        not_here("only root mounts file systems")
    mount, image = folder / "disk", folder / "image"
    mount.mkdir()
    if kind == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "none", str(mount)]
    else:
        if shutil.which(f"mkfs.{kind}") is None:
            not_here(f"mkfs.{kind} is not installed")
        with image.open("wb") as file:
            file.truncate(max(size, SMALLEST_XFS) if kind == "xfs" else size)
        make = [
            "mkfs.ext4",
            "-q",
            "-b",
            str(BLOCK),
            "-m",
            str(reserved_percent),
            "-N",
            str(files),
            str(image),
        ]
        if kind == "xfs":
            make = ["mkfs.xfs", "-q", str(image)]
        subprocess.run(make, check=True, capture_output=True)
        command = ["mount", "-o", "loop", str(image), str(mount)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        not_here(f"mounting is not possible here: {done.stderr.strip()}")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def free_of(mount: Path) -> int:
    """Bytes that a user who is not root may take."""
    free = -1
    for _ in range(20):
        os.sync()
        state = os.statvfs(mount)
        if free == (free := state.f_bavail * state.f_frsize):
            break
        time.sleep(0.3)  # XFS gives back in the background what was removed
    return free


def fill(mount: Path, left: int, name: str = "filler") -> None:
    """Take everything but so many bytes."""
    path = mount / name
    path.touch()
    for _ in range(8):
        more = (free_of(mount) - left) // BLOCK * BLOCK
        if more == 0:
            return
        with path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if more > 0:
                os.posix_fallocate(file.fileno(), size, more)
            else:
                os.ftruncate(file.fileno(), size + more)


def fill_up(mount: Path, name: str = "filler") -> None:
    """Take every byte that a write gets: root takes its reserve, too, and XFS gives more than ``fill`` can count."""
    fd = os.open(mount / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    size = 1 << 20
    try:
        while size >= BLOCK:
            try:
                os.write(fd, bytes(size))
                os.fsync(fd)
            except OSError:
                size //= 2
    finally:
        os.close(fd)
