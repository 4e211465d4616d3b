"""A host with a full disk, and its operator."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from krepair.options import Options
from tests.ops.scene import BLOAT, Scene, scene
from tools.torture.runs import installed_command

ROOT = Path(__file__).resolve().parents[2]
BROKER = (4242, 4343)
FOLDER = "__consumer_offsets-0"
MIB = 1 << 20


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A folder that other users may look into."""
    with tempfile.TemporaryDirectory(prefix="krepair-disk-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


class Host:
    """A stopped broker's log directory on a disk of its own, and somebody who types commands.

    Args:
        mount: of the disk.
        work: a folder elsewhere, for plan files.
        user: who owns the log directory and types, None: root.
    """

    def __init__(self, mount: Path, work: Path, partitions: int, user: tuple[int, int] | None) -> None:
        self.mount, self.work, self.user = mount, work, user
        one = scene(work / "fixture", BLOAT)
        self.path = mount / "kafka"
        self.settings = one.settings
        self.now_ms = one.now_ms
        copies_of(one, self.path, partitions)
        for name in ("home", "tmp"):
            (mount / name).mkdir()
        if user is not None:
            for place in [work, mount, *mount.rglob("*")]:
                os.chown(place, *user)

    def words(self) -> list[str]:
        """What chooses, of ``plan``."""
        settings = [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]
        chosen = ["--topic", "__consumer_offsets", "--only-replica", "*"]
        return [str(self.path), *chosen, "--now", str(self.now_ms), *settings]

    def options(self, keep: str) -> Options:
        """The same as a value."""
        return Options(
            settings=tuple(self.settings.items()),
            now_ms=self.now_ms,
            topics=("__consumer_offsets",),
            keep=keep,
        )

    def type(self, *words: str) -> tuple[int, str]:
        """Run the command, with a home and a temporary folder on the full disk; its exit code and what it said."""
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.mount / "home"),
            "TMPDIR": str(self.mount / "tmp"),
            "COLUMNS": "300",
        }
        done = subprocess.run(
            [*as_user(self.user), *installed_command(), *words],
            cwd=self.work,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


def as_user(user: tuple[int, int] | None) -> list[str]:
    """Words that run a command as a user, who may look into closed folders: the interpreter may lie in root's home."""
    if user is None:
        return []
    looks = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    return ["setpriv", "--reuid", str(user[0]), "--regid", str(user[1]), "--clear-groups", *looks]


def copies_of(one: Scene, target: Path, partitions: int) -> None:
    """The log directory of a fixture with one of its partitions many times, and no other one."""
    target.mkdir()
    for number in range(partitions):
        shutil.copytree(one.path / FOLDER, target / f"__consumer_offsets-{number}")
    for name in ("meta.properties", ".kafka_cleanshutdown", "cleaner-offset-checkpoint"):
        if (one.path / name).exists():
            shutil.copy2(one.path / name, target / name)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        lines = (one.path / name).read_text().splitlines()
        point = next(line.split()[2] for line in lines if line.startswith("__consumer_offsets 0 "))
        rows = [f"__consumer_offsets {number} {point}" for number in range(partitions)]
        (target / name).write_text("\n".join(["0", str(partitions), *rows]) + "\n")


def commands_in(said: str) -> list[str]:
    return re.findall(r"^  (krepair .*?)(?: +#.*)?$", said, re.MULTILINE)


def no_inode_left(kind: str, mount: Path) -> None:
    """Take every inode. XFS makes them as long as there are blocks, so it has no such state of its own."""
    if kind == "tmpfs":
        used = os.statvfs(mount)
        count = used.f_files - used.f_ffree
        subprocess.run(["mount", "-o", f"remount,nr_inodes={count}", str(mount)], check=True)
    else:
        folder = mount / "many"
        folder.mkdir()
        for number in range(os.statvfs(mount).f_ffree):
            os.mknod(folder / str(number))
    assert os.statvfs(mount).f_favail == 0
