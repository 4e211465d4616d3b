"""Files that the operating system cannot read are reported as such, never taken for damage, and change nothing."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from krepair.engine.items import Failed, LogItem
from krepair.errors import ExitCode
from krepair.fixes.context import place_of
from krepair.logdir.view import read_log_dir
from krepair.scan.contents import find_large_record
from tests import builders
from tests.calls import fail_to_open
from tests.corpus.bases import BASES, EPOCHS
from tests.hostile.verbs import Ran, every_verb, picture, run
from tests.ops.conftest import memory_dir
from tools.torture.scenes import build

__all__ = ["memory_dir"]

NAMES = (
    "00000000000000000000.log",
    "00000000000000000010.log",
    "00000000000000000006.index",
    "00000000000000000006.timeindex",
    "00000000000000000006.txnindex",
    "00000000000000000012.snapshot",
    EPOCHS,
)
IN_ROOT = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "meta.properties")


pytestmark = pytest.mark.usefixtures("through_os_open")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE], ids=errno.errorcode.get)
@pytest.mark.parametrize("name", NAMES)
def test_file_that_cannot_be_opened_is_no_damage_and_leaves_the_partition_alone(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    made = BASES["transactions"].write(memory_dir / "logs", "t")
    before = picture(made.log_dir)
    fail_to_open(monkeypatch, name, number)
    runs = every_verb(made.log_dir, memory_dir / "plan.krplan")
    monkeypatch.undo()
    assert picture(made.log_dir) == before
    checked = next(ran for ran in runs if ran.words[0] == "check" and "--json" not in ran.words)
    assert os.strerror(number) in checked.out or errno.errorcode[number] in checked.out
    planned = next(ran for ran in runs if ran.words[0] == "plan")
    assert "KR302" not in checked.out + planned.out
    told = next(ran for ran in runs if ran.words[0] == "check" and "--json" in ran.words)
    (line,) = json.loads(told.out)["report"]["log_dirs"][0]["forecast"]
    assert line["expected"] == "unknown"


@pytest.mark.parametrize(
    "words",
    [("verify",), ("check", "--all", "--deep", "--set", "max.decompressed.message.bytes=1000")],
    ids=" ".join,
)
@pytest.mark.parametrize("name", NAMES)
def test_file_that_can_be_read_only_the_first_times_is_told_as_well(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: tuple[str, ...]
) -> None:
    """A verb reads some files more than once; none of these readings may fail without a word."""
    made = BASES["transactions"].write(memory_dir / "logs", "t")

    def verb() -> Ran:
        return run(
            words[0], str(made.log_dir), *words[1:], "--set", "cleanup.policy=compact", "--engine", "inline"
        )

    with monkeypatch.context() as patch:
        times = fail_to_open(patch, "none", errno.EIO)
        assert verb().code in {ExitCode.DONE, ExitCode.FOUND}
    for spared in range(times[name]):
        with monkeypatch.context() as patch:
            fail_to_open(patch, name, errno.EIO, spared=spared)
            ran = verb()
        assert ran.code == ExitCode.FOUND, (spared, ran)
        said = " ".join(ran.out.split())
        assert name in said, (spared, said)
        assert os.strerror(errno.EIO) in said, (spared, said)
        assert "is missing" not in said, (spared, said)


@pytest.mark.parametrize("name", ["t-0", NAMES[0], NAMES[4]])
def test_facts_leave_out_the_replica_that_cannot_be_read_and_say_why(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whichever time it is; of a folder that cannot be listed again it was said that its broker is running."""
    made = BASES["transactions"].write(memory_dir / "logs", "t")
    (made.log_dir / "meta.properties").write_text("version=0\nbroker.id=1\n")
    other = builders.LogDir(memory_dir / "other")
    other.partition("u").segment(builders.data(100, 2), base_offset=100)
    shutil.move(other.write() / "u-0", made.log_dir)

    def facts(number: int) -> Ran:
        return run(
            "facts", str(made.log_dir), "--out", str(memory_dir / f"{number}.facts"), "--engine", "inline"
        )

    with monkeypatch.context() as patch:
        times = fail_to_open(patch, "none", errno.EIO)
        assert facts(0).code == ExitCode.DONE
    for spared in range(times[name]):
        with monkeypatch.context() as patch:
            fail_to_open(patch, name, errno.EIO, spared=spared)
            ran = facts(spared + 1)
        if ran.code == ExitCode.DONE:
            continue  # that time nothing rested on it: the access time was not left alone
        said = " ".join(ran.out.split())
        assert ran.code == ExitCode.UNREADABLE, (spared, ran)
        assert said.count("Input/output error (EIO)") == said.count("(EIO)") == 1, (spared, said)
        assert "is running" not in said, (spared, said)
        assert "Facts of broker 1 1 replica," in said, (spared, said)


def test_a_broker_whose_values_cannot_be_read_is_not_said_to_serve_nothing(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (builders.Record(b"b", value) for value in (b"old", b"new"))
    sides = []
    for broker, last in ((1, [builders.data(1, [new])]), (2, [])):
        made = builders.LogDir(memory_dir / str(broker))
        made.partition("k").segment(builders.data(0, [old]), *last, builders.data(2, 2))
        (path := made.write() / "meta.properties").write_text(f"version=0\nbroker.id={broker}\n")
        sides.append(f"{broker}={path.parent}")
    words = ("compare", *sides, "--set", "cleanup.policy=compact", "--engine", "inline")
    with monkeypatch.context() as patch:
        times = fail_to_open(patch, "none", errno.EIO)
        assert "2: 'old' (offset 0)" in run(*words).out
    with monkeypatch.context() as patch:
        fail_to_open(patch, NAMES[0], errno.EIO, spared=times[NAMES[0]] - 1)
        said = run(*words).out
    assert "1: 'new' (offset 1)" in said
    assert "nothing" not in said


def test_log_that_has_become_shorter_since_it_was_listed_is_a_reading_that_failed(memory_dir: Path) -> None:
    """It was mapped into memory, where a page that the system does not give ends the process."""
    made = BASES["large"].write(memory_dir / "logs", "t")
    view = read_log_dir(str(made.log_dir))
    log = made.file(made.bases[0], ".log")
    item = LogItem(
        place=place_of(view, view.partitions[0]),
        base_offset=made.bases[0],
        size=log.stat().st_size,
    )
    assert find_large_record(item, 1 << 30) is None
    os.truncate(log, 30)
    failed = find_large_record(item, 1 << 30)
    assert isinstance(failed, Failed)
    assert failed.why.startswith(f"t-0/{log.name}: it has become shorter")


@pytest.mark.parametrize("name", IN_ROOT)
def test_file_of_the_root_that_cannot_be_opened_ends_every_verb_with_15(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made = BASES["plain"].write(memory_dir / "logs", "t")
    fail_to_open(monkeypatch, name, errno.EIO)
    for words in (("check",), ("verify",), ("plan", "--out", str(memory_dir / "plan"))):
        ran = run(words[0], str(made.log_dir), *words[1:], "--engine", "inline")
        assert ran.code == ExitCode.UNREADABLE, ran
        assert name in ran.err


def test_a_log_end_that_verify_of_a_plan_cannot_read_is_told(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = build("markers").place(memory_dir)
    assert run("apply", str(placed.plan_file), "--engine", "inline").code == ExitCode.DONE
    partition = next(
        one
        for one in read_log_dir(str(placed.path)).partitions
        if one.folder == placed.plan.changing[0].folder
    )
    name = partition.segments[-1].log.name
    words = ("verify", str(placed.plan_file), "--engine", "inline")
    with monkeypatch.context() as patch:
        times = fail_to_open(patch, "none", errno.EIO)
        assert run(*words).code == ExitCode.DONE
    for spared in range(times[name]):
        with monkeypatch.context() as patch:
            fail_to_open(patch, name, errno.EIO, spared=spared)
            ran = run(*words)
        assert ran.code in {ExitCode.FOUND, ExitCode.VERIFY_FAILED}, (spared, ran)
        assert os.strerror(errno.EIO) in " ".join(ran.out.split()), (spared, ran)
