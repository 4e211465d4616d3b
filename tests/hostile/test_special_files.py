"""Symlinks, FIFOs, sockets, devices, folders and files in wrong places: found or refused, never opened."""

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
from tests.hostile.verbs import ALL_WELL, assert_tame, carried_out, codes, every_verb, findings, found_at, run
from tests.ops.conftest import memory_dir

__all__ = ["memory_dir"]

EVERY = os.environ.get("KREPAIR_EVERY_STATE") == "1"
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


LINKS = [kind for kind in KINDS if kind.startswith("symlink")]
TOLD_AS = dict.fromkeys(LINKS, "symlink") | {
    "FIFO": "FIFO",
    "socket": "socket",
    "device": "character device",
    "endless device": "character device",
    "folder": "folder",
}
OF_NO_SENSE = {
    "00000000000000000000.log": "KR302",
    "00000000000000000006.log": "KR302",
    "00000000000000000010.log": "KR301",
    "00000000000000000006.index": "KR203",
    "00000000000000000006.timeindex": "KR201",
    "00000000000000000006.txnindex": "KR204",
    "00000000000000000012.snapshot": "KR501",
    "leader-epoch-checkpoint": "KR401",
    "partition.metadata": "KR408",
    "00000000000000000006.log.swap": "KR601",
    "00000000000000000006.log.cleaned": "KR601",
    "00000000000000000000.index.deleted": "KR601",
    "recovery-point-offset-checkpoint": "KR403",
    "replication-offset-checkpoint": "KR404",
    "log-start-offset-checkpoint": "KR405",
    "cleaner-offset-checkpoint": "KR410",
    "meta.properties": "KR407",
    "recovery-point-offset-checkpoint.tmp": "KR406",
}
"""The rule that names a regular file with bytes of no sense."""
NO_FIX = {"partition.metadata", "meta.properties", "recovery-point-offset-checkpoint.tmp"}
MARKED_FOR_DELETION = "t-0.0123456789abcdef0123456789abcdef-delete"
PARTITIONS = {"t-0", "u-0"}


def rule_of(name: str, kind: str) -> str:
    """The rule under which check names the thing; empty where it does no harm."""
    if kind == "file":
        return OF_NO_SENSE.get(name, "")
    if kind == "symlink to a folder" and name in IN_ROOT and name not in {*PARTITIONS, MARKED_FOR_DELETION}:
        return "KR602"  # A broker loads it as the folder.
    if kind == "folder" and name in IN_ROOT:
        # An empty partition is one that has no records yet, if no checkpoint says otherwise.
        empty = {"t-0": "KR312", "u-0": ""}
        return empty.get(name, "KR604" if name == MARKED_FOR_DELETION else "KR602")
    if name == "krepair~0123abcd" and kind == "folder":
        return "KR901"
    return "KR604" if name == MARKED_FOR_DELETION and kind in LINKS else "KR606"


def code_of_check(name: str, kind: str) -> int:
    harmless = rule_of(name, kind) in {"", "KR901", "KR406"}
    # The checkpoints of the root name the partition that is gone.
    return ExitCode.DONE if harmless and (name, kind) != ("t-0", "file") else ExitCode.FOUND


def codes_of_verify(name: str, kind: str) -> set[int]:
    """``verify LOGDIR`` judges logs, their indexes and snapshots."""
    if (kind in LINKS and name in PARTITIONS) or rule_of(name, kind) == "KR312":
        return {ExitCode.FOUND}
    if kind == "file":
        if name.endswith((".timeindex", ".txnindex")):
            return {ExitCode.DONE, ExitCode.FOUND}  # it and check are not of one mind yet
        return {ExitCode.FOUND if name.endswith((".log", ".index", ".snapshot")) else ExitCode.DONE}
    return {ExitCode.FOUND if name.endswith((".log", "index", ".snapshot")) else ExitCode.DONE}


def code_of_plan(name: str, kind: str) -> int:
    if kind == "file":
        return ExitCode.FOUND if name in OF_NO_SENSE.keys() - NO_FIX else ExitCode.DONE
    # The partition of a transaction index that cannot be read is left alone.
    return ExitCode.FOUND if name.endswith(".txnindex") else ExitCode.DONE


def code_of_dump(name: str, kind: str) -> int:
    if kind in {"folder", "symlink to a folder"}:
        return ExitCode.USAGE
    if name.startswith(("krepair~", "t-0", "u-0")) or (name, kind) == (".lock", "file"):
        return ExitCode.USAGE  # not the name of a file with something in it
    if kind == "file":
        return ExitCode.FOUND if name in OF_NO_SENSE else ExitCode.DONE
    return ExitCode.UNREADABLE


def places() -> list[object]:
    """Every kind in every place with ``KREPAIR_EVERY_STATE=1``, else each fourth; the quick tests: one of a place."""
    out = []
    for number, name in enumerate([*IN_FOLDER, *IN_ROOT]):
        for place, kind in enumerate(KINDS):
            quick = place == number % len(KINDS)
            if not (EVERY or quick or (place + number) % 4 == 0):
                continue
            marks = () if quick else (pytest.mark.slow,)
            out.append(pytest.param(name, kind, marks=marks, id=f"{name}-{kind}"))
    return out


@pytest.mark.parametrize(("name", "kind"), places())
def test_what_is_in_the_place_of_a_file_is_found_named_and_left_alone(
    memory_dir: Path, name: str, kind: str
) -> None:
    made = BASES["transactions"].write(memory_dir / "logs", "t")
    path = (made.folder if name in IN_FOLDER else made.log_dir) / name
    put(made, path, kind)
    if name == ".lock" and kind != "file":
        assert_nothing_without_the_lock(made, memory_dir / "plan.krplan")
        return
    runs = every_verb(made.log_dir, memory_dir / "plan.krplan", dumped=[str(path)])
    found = codes(runs)
    assert found["check"] == [code_of_check(name, kind)] * 2
    assert found["verify"][0] in codes_of_verify(name, kind)
    assert found["plan"] == [code_of_plan(name, kind)]
    assert found["groups"] == [ExitCode.DONE]
    assert carried_out(runs) == ALL_WELL
    if rule_of(name, kind):
        # What a plan keeps is told of the partition that it lies in.
        assert rule_of(name, kind) in found_at(runs, "t-0" if rule_of(name, kind) == "KR901" else name)
    else:
        assert not found_at(runs, name)
    if rule_of(name, kind) == "KR606":
        (told,) = (one for one in findings(runs) if one["rule"] == "KR606")
        assert TOLD_AS[kind] in str(told["evidence"]) or "symbolic link" in str(told["evidence"])
    assert found["dump"] == [code_of_dump(name, kind)]


def assert_nothing_without_the_lock(made: Made, plan: Path) -> None:
    """What needs the lock is refused and names it; what only reads goes on."""
    runs = every_verb(made.log_dir, plan)
    assert codes(runs) == {
        "check": [ExitCode.REFUSED] * 2,
        "verify": [ExitCode.DONE],
        "transactions": [ExitCode.DONE],
        "groups": [ExitCode.DONE],
        "plan": [ExitCode.REFUSED],
    }
    for ran in runs:
        assert ran.code == ExitCode.DONE or f"{made.log_dir}/.lock: expected a regular file" in ran.err


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
