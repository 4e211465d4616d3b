"""Where a verb of a plan ends before it begins, the next command leads on."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from krepair.cli.outcome import guarded
from krepair.errors import ExitCode, UnreadableError
from krepair.logdir.reading import why
from krepair.ops import ready
from tests.hostile.verbs import Ran, run
from tests.ops.conftest import memory_dir
from tools.torture.runs import inline
from tools.torture.scenes import Placed, build

__all__ = ["memory_dir"]

VERBS = ("apply", "verify", "undo", "purge")


@pytest.fixture
def site(memory_dir: Path) -> Placed:
    return build("markers").place(memory_dir)


def typed(verb: str, plan: object, *more: str) -> Ran:
    return run(verb, str(plan), *inline(verb), *more)


def next_of(ran: Ran) -> str:
    return (ran.err or ran.out).rstrip().rpartition("next: ")[2]


@pytest.mark.parametrize("verb", ["undo", "purge", "verify"])
@pytest.mark.parametrize("data", [None, b"", b'{"plan": 1}'], ids=["missing", "empty", "no plan"])
def test_without_a_plan_file_the_list_of_what_is_kept_comes_next(
    verb: str, data: bytes | None, tmp_path: Path
) -> None:
    if data is not None:
        (tmp_path / "x.krplan").write_bytes(data)
    ran = typed(verb, tmp_path / "x.krplan")
    assert ran.code == 64
    assert next_of(ran) == "krepair undo LOGDIR"
    assert "docs/runbooks/kept-originals.md" in ran.err


def test_apply_without_a_plan_file_makes_one(tmp_path: Path) -> None:
    assert next_of(typed("apply", tmp_path / "x.krplan")) == "krepair plan LOGDIR --out PLAN"


@contextmanager
def broker(log_dir: Path) -> Iterator[None]:
    """The lock of a broker that runs."""
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    with (log_dir / ".lock").open("ab") as lock:
        fcntl.fcntl(lock, fcntl.F_OFD_SETLK, whole)
        yield


@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_under_a_lock_the_same_verb_comes_next(verb: str, site: Placed) -> None:
    with broker(site.path):
        ran = typed(verb, site.plan_file)
    assert ran.code == 11
    assert next_of(ran) == f"krepair {verb} {site.plan_file}   # when the lock is free"


def test_under_a_lock_undo_by_id_comes_next(site: Placed) -> None:
    assert typed("apply", site.plan_file).code == 0
    by_id = ("--plan-id", site.plan.plan_id)
    with broker(site.path):
        ran = typed("undo", site.path, *by_id)
    assert ran.code == 11
    assert next_of(ran) == f"krepair undo {site.path} {' '.join(by_id)}   # when the lock is free"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is here for anybody's files")
@pytest.mark.parametrize("verb", ["apply", "undo", "purge"])
def test_a_wrong_user_types_it_again_as_the_right_one(
    verb: str, site: Placed, monkeypatch: pytest.MonkeyPatch
) -> None:
    if verb != "apply":
        assert typed("apply", site.plan_file).code == 0
    monkeypatch.setattr(ready.os, "geteuid", lambda: 12345)
    ran = typed(verb, site.plan_file)
    assert ran.code == 13
    assert next_of(ran) == f"krepair {verb} {site.plan_file}   # as that user, or as root"


@pytest.mark.parametrize("name", ["EACCES", "EPERM", "EIO"])
def test_an_input_that_only_the_permissions_hide_names_who_may_read_it(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = OSError(getattr(errno, name), "no")

    def fail() -> None:
        raise UnreadableError(f"/kafka/replication-offset-checkpoint: could not be read: {why(error)}")

    assert guarded(fail, ["check", "/kafka"]) == ExitCode.UNREADABLE
    told = capsys.readouterr().err
    assert ("run krepair as root, or as the user of the broker" in told) == (name != "EIO")
