"""Files that the operating system does not give: told as such, never taken for damage, and nothing is changed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from tests.calls import fail_to_open
from tests.corpus.bases import BASES, EPOCHS
from tests.hostile.verbs import every_verb, picture, run
from tests.ops.conftest import memory_dir

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
