"""Symlinks, FIFOs, sockets, devices, folders and files in each other's place: found or refused, never opened."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from tests.corpus.bases import BASES, Made
from tests.hostile.verbs import assert_tame, every_verb, run
from tests.ops.conftest import memory_dir

__all__ = ["memory_dir"]

IN_FOLDER = (
    "00000000000000000000.log",
    "00000000000000000006.log",
    "00000000000000000010.log",
    "00000000000000000006.index",
    "00000000000000000006.timeindex",
    "00000000000000000006.txnindex",
    "00000000000000000012.snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
    "00000000000000000006.log.swap",
    "00000000000000000006.log.cleaned",
    "00000000000000000000.index.deleted",
    "krepair~0123abcd",
)
IN_ROOT = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "meta.properties",
    ".lock",
    ".kafka_cleanshutdown",
    "recovery-point-offset-checkpoint.tmp",
    "t-0",
    "u-0",
    "t-0.0123456789abcdef0123456789abcdef-delete",
)


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name[:90])
            if path.name[:90] != path.name:
                os.rename(path.name[:90], path.name)
    finally:
        os.chdir(here)


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_bytes(b"0\n0\n")


KINDS: dict[str, Callable[[Path], object]] = {
    "symlink": lambda path: path.symlink_to("/etc/hostname"),
    "symlink to itself": lambda path: path.symlink_to(path.name),
    "symlink to nothing": lambda path: path.symlink_to("/nonexistent/krepair"),
    "symlink to a folder": lambda path: path.symlink_to("/"),
    "FIFO": lambda path: os.mkfifo(path),
    "socket": _socket,
    "device": lambda path: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3)),
    "endless device": lambda path: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5)),
    "folder": _folder,
    "file": lambda path: path.write_bytes(b"no folder"),
}


def put(made: Made, path: Path, kind: str) -> None:
    """Replace what is there, if anything, by something of that kind."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    try:
        KINDS[kind](path)
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*IN_FOLDER, *IN_ROOT])
def test_no_verb_minds_what_is_in_the_place_of_a_file(memory_dir: Path, name: str, kind: str) -> None:
    made = BASES["transactions"].write(memory_dir / "logs", "t")
    put(made, (made.folder if name in IN_FOLDER else made.log_dir) / name, kind)
    every_verb(made.log_dir, memory_dir / "plan.krplan")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "symlink to a folder"])
def test_a_log_directory_that_is_something_else_is_none(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "logs"
    try:
        KINDS[kind](path)
    except PermissionError:
        pytest.skip("only root makes devices")
    assert run("check", str(path)).code == ExitCode.NOT_A_LOG_DIR
    assert run("plan", str(path), "--out", str(tmp_path / "plan")).code == ExitCode.NOT_A_LOG_DIR
    for verb in ("verify", "apply", "show", "undo", "purge"):
        ran = run(verb, str(path))
        assert_tame(ran)
        assert ran.code not in {ExitCode.DONE, ExitCode.FOUND}, verb
