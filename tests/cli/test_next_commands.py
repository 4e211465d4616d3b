"""If a verb of a plan ends before it begins, its next command leads on."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shlex
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.cli.outcome import guarded
from krepair.commit import ready
from krepair.errors import ExitCode, UnreadableError
from krepair.logdir.reading import why
from krepair.plan.planfile import dumps, seal
from tests.calls import fail_to_open
from tests.corpus.cases import CASES
from tests.corpus.harness import made
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
    assert ("no such plan file, and no such log directory. " in ran.err) is (data is None)


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


@pytest.mark.parametrize("verb", ["check", "plan", "transactions", "facts", "compare"])
def test_where_no_log_directory_is_the_configuration_that_was_typed_is_asked(
    verb: str, tmp_path: Path
) -> None:
    wrong, config = str(tmp_path / "none"), tmp_path / "broker 1.conf"
    config.write_text(f"broker.id=1\nlog.dirs={wrong}\n")
    words = {"facts": [wrong, "--out", str(tmp_path / "f")], "compare": [f"1={wrong}", f"2={tmp_path}"]}
    ran = run(verb, *words.get(verb, [wrong]), "--config", str(config))
    assert ran.code == ExitCode.NOT_A_LOG_DIR
    assert next_of(ran) == f"krepair check --config '{config}'"
    again = run(*shlex.split(next_of(ran))[1:])
    assert (again.code, "next:" in again.err) == (ExitCode.NOT_A_LOG_DIR, False)


def test_consents_of_two_fixes_lead_to_a_plan_of_one(tmp_path: Path) -> None:
    consents = [f"--accept-data-loss={one}" for one in ("KR302:t-0:1", "KR312:t-0:2")]
    ran = run("plan", str(tmp_path), *consents)
    assert next_of(ran) == f"krepair plan {tmp_path} --fix tail --accept-data-loss KR302:t-0:1 --out PLAN"


def test_transactions_of_a_damaged_log_lead_to_a_check_of_the_same(memory_dir: Path) -> None:
    log_dir = made(next(one for one in CASES if one.name == "middle-zeros"), memory_dir / "logs").log_dir
    ran = run("transactions", str(log_dir), "--set", "segment.bytes=4096", "--topic", "middle-zeros")
    assert ran.out.rstrip().endswith(f"krepair check {log_dir} --set segment.bytes=4096 --topic middle-zeros")


def test_what_does_not_fit_the_ends_that_were_recorded_leads_to_a_plan_with_the_same_settings(
    memory_dir: Path,
) -> None:
    case = next(one for one in CASES if one.name == "replication-past-the-end")
    log_dir = made(case, memory_dir / "logs").log_dir
    ran = run("plan", str(log_dir), "--fix", "checkpoints", "--set", "segment.bytes=4096")
    (command,) = (line.strip() for line in ran.out.splitlines() if "--accept-data-loss KR312" in line)
    assert command.endswith(":30 --set segment.bytes=4096 --out PLAN")


@pytest.mark.parametrize(
    "name", ["-y.krplan", "a\nb.krplan", "a\x1b[31mb.krplan", "a\udcffb.krplan", "a b'c.krplan"], ids=ascii
)
def test_every_command_of_a_plans_page_finds_the_plan_file_whatever_its_name(
    site: Placed, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = site.plan_file.parent
    monkeypatch.chdir(folder)
    site.plan_file.rename(folder / name)
    page = run("show", "--", name).out
    commands = re.findall(r"krepair (?:show|apply|verify|undo|purge) .*?\.krplan'?", page)
    assert {command.split()[1] for command in commands} == {"show", "apply", "verify", "undo", "purge"}
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", f'krepair() {{ printf %s "$2"; }}; {command}'], capture_output=True, check=True
        )
        assert (folder / os.fsdecode(done.stdout)).is_file(), command


@pytest.mark.parametrize("verb", VERBS)
def test_where_the_directory_is_not_here_the_same_verb_comes_next(site: Placed, verb: str) -> None:
    """A new plan cannot be made of it either, and is no way on for what was applied."""
    site.path.rename(site.path.with_name("moved"))
    ran = typed(verb, site.plan_file)
    assert ran.code == ExitCode.STALE_PLAN
    assert next_of(ran).startswith(f"krepair {verb} {site.plan_file}")
    assert next_of(ran).endswith("# when its disk is mounted")


@pytest.mark.usefixtures("through_os_open")
@pytest.mark.parametrize("verb", VERBS)
def test_a_meta_properties_that_cannot_be_read_is_not_said_to_lack_an_id(
    site: Placed, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    fail_to_open(monkeypatch, "meta.properties", errno.EIO)
    ran = typed(verb, site.plan_file)
    assert ran.code == ExitCode.UNREADABLE
    assert f"{site.path}/meta.properties: could not be read: Input/output error" in ran.err


@pytest.mark.parametrize("verb", ["show", *VERBS])
def test_words_that_are_not_those_of_a_plan_are_told_as_the_plans(site: Placed, verb: str) -> None:
    """It was said that they were typed, and the help of the verb came next."""
    site.plan_file.write_bytes(dumps(seal(replace(site.plan, asked=("--later", "x")))))
    ran = run(verb, str(site.plan_file))
    assert ran.code == ExitCode.STALE_PLAN
    assert "'--later': expected an option of krepair plan" in ran.err
    assert "another krepair made it" in ran.err
    assert next_of(ran) == f"krepair plan {site.plan.log_dir} --out PLAN"
