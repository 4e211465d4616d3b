"""Every system call fails once: each verb ends with a documented code that is no bug, and says where.

The codes that promise that nothing was changed keep the promise. All calls in turn: ``KREPAIR_EVERY_CALL=1``.
"""

from __future__ import annotations

import errno
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from krepair.cli.outcome import NO_FILE
from krepair.errors import ExitCode
from tests.hostile import small
from tests.hostile.verbs import assert_tame, picture
from tests.ops.conftest import memory_dir

__all__ = ["memory_dir"]

NUMBERS = (
    errno.EIO,
    errno.EACCES,
    errno.ENOSPC,
    errno.EROFS,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ESTALE,
)
OF_PATHS = ("open", "stat", "lstat", "mkdir", "rmdir", "rename", "link", "unlink", "readlink")
OF_DESCRIPTORS = (
    *("fstat", "listdir", "scandir", "statvfs", "read", "pread", "preadv", "lseek", "listxattr", "getxattr"),
    *("pwritev", "fsync", "ftruncate", "fchown", "fchmod", "utime", "setxattr", "copy_file_range"),
)
NOTHING_WAS_CHANGED = {
    ExitCode.NOT_A_LOG_DIR,
    ExitCode.LOCKED,
    ExitCode.STALE_PLAN,
    ExitCode.REFUSED,
    ExitCode.UNREADABLE,
}
READS_ONLY = ("check", "plan", "show", "verify", "explain")
SAMPLE = 14
EVERY_CALL = os.environ.get("KREPAIR_EVERY_CALL") == "1"


@dataclass
class Failing:
    """Replaces the calls of ``os``; the one with the number ``at``, counted from 0, fails.

    Only calls that krepair makes itself are counted: not those of imports, of the test and of the terminal.
    """

    patch: pytest.MonkeyPatch
    at: int = -1
    number: int = errno.EIO
    count: int = 0
    failed: list[str] = field(default_factory=list)

    def __enter__(self) -> Failing:
        for name in (*OF_PATHS, *OF_DESCRIPTORS):
            self.patch.setattr(os, name, self._fake(name, getattr(os, name)))
        return self

    def __exit__(self, *_: object) -> None:
        self.patch.undo()

    def _fake(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def fake(*given: Any, **more: Any) -> Any:
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if caller.startswith("krepair.") and given[:1] != ("/proc",):
                self.count += 1
                if self.count - 1 == self.at:
                    self.failed.append(f"{name}{given}")
                    names = given[:1] if name in OF_PATHS else ()
                    raise OSError(self.number, os.strerror(self.number), *names)
            return real(*given, **more)

        return fake


class Scene(small.Scene):
    """Made up to where a verb begins."""

    def make(self, verb: str) -> None:
        """Make all anew, up to where the verb begins."""
        self.anew()
        before = {
            "show": ("plan",),
            "apply": ("plan",),
            "verify": ("plan", "apply"),
            "undo": ("plan", "apply"),
            "purge": ("plan", "apply"),
        }
        for earlier in before.get(verb, ()):
            assert self.run(earlier).code in {ExitCode.DONE, ExitCode.FOUND}

    def names(self) -> Iterator[str]:
        """What a message may name."""
        yield from (str(self.log_dir), *small.PARTITIONS, self.plan.name)


def compared(log_dir: Path) -> dict[bytes, tuple[object, ...]]:
    """The directory but for ``.lock``: one that was made and could not be locked stays, since a broker may hold it.

    A journal is written anew before anything is done on what it says: its time is no change.
    """
    return {
        name: row[:6] + row[7:] if name.endswith(b"/journal") else row
        for name, row in picture(log_dir).items()
        if name != b".lock"
    }


def fail_at(scene: Scene, patch: pytest.MonkeyPatch, verb: str, at: int, number: int) -> str:
    """Let one call of a verb fail; returns what is wrong with how it ends, or empty."""
    scene.make(verb)
    before = compared(scene.log_dir)
    patch.setattr("krepair.durable.tree._has_openat2", lambda: False)
    with Failing(patch, at, number) as failing:
        ran = scene.run(verb)
    what = f"{verb}, call {at} {failing.failed} {errno.errorcode[number]}: ended with {ran.code}: {ran.err[-400:]}"
    try:
        assert_tame(ran)
    except AssertionError as error:
        return f"{what}; {error}"
    said = ran.out + ran.err
    if ran.code not in {ExitCode.DONE, ExitCode.FOUND, ExitCode.PERSON_DECIDES} and (
        NO_FILE in said or not any(name in said for name in scene.names())
    ):
        return f"{what}; no file is named"
    if (verb in READS_ONLY or ran.code in NOTHING_WAS_CHANGED) and compared(scene.log_dir) != before:
        return f"{what}; but the directory was changed"
    return ""


def count_of(scene: Scene, patch: pytest.MonkeyPatch, verb: str) -> int:
    """How many calls a verb makes when none fails."""
    scene.make(verb)
    patch.setattr("krepair.durable.tree._has_openat2", lambda: False)
    with Failing(patch) as counting:
        ran = scene.run(verb)
    assert ran.code in {ExitCode.DONE, ExitCode.FOUND}, ran
    return counting.count


@pytest.mark.parametrize(
    "verb",
    [
        "purge",
        *(
            pytest.param(verb, marks=pytest.mark.slow)
            for verb in ("check", "plan", "show", "apply", "verify", "undo", "explain")
        ),
    ],
)
def test_no_failing_call_is_an_error_of_krepair(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    scene = Scene(memory_dir)
    calls = range(count_of(scene, monkeypatch, verb))
    seeded = random.Random(verb)
    chosen = calls if EVERY_CALL else sorted(seeded.sample(calls, min(SAMPLE, len(calls))))
    wrong = [fail_at(scene, monkeypatch, verb, at, seeded.choice(NUMBERS)) for at in chosen]
    assert not [text for text in wrong if text], "\n".join(filter(None, wrong))
    assert calls or verb == "explain"
