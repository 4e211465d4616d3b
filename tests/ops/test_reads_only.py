"""``check`` and ``plan`` write nothing under the log directory: no call of the interpreter, no byte, no time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from krepair.ops.check import check
from krepair.ops.verify import verify_log_dir, verify_plan
from tests.ops.scene import BLOAT, OLD_FORMAT, TV2, Scene, scene, tree

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGING = {
    "os.chmod",
    "os.chown",
    "os.link",
    "os.mkdir",
    "os.mkfifo",
    "os.remove",
    "os.removexattr",
    "os.rename",
    "os.rmdir",
    "os.setxattr",
    "os.symlink",
    "os.truncate",
    "os.utime",
    "shutil.rmtree",
    "shutil.move",
}


class Watch:
    """Audit events that would change something below a folder, while it is on. A hook cannot be taken away."""

    def __init__(self) -> None:
        self.root = ""
        self.seen: list[str] = []
        sys.addaudithook(self.hear)

    def hear(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.root or (event != "open" and event not in CHANGING):
            return
        if event == "open" and not (given[2] or 0) & WRITING:
            return
        # a name beside a directory descriptor tells no path, so none may be written to at all
        names = [os.fsdecode(word) for word in given[:2] if isinstance(word, (str, bytes))]
        if any(not name.startswith("/") or name.startswith(self.root) for name in names):
            self.seen.append(f"{event} {given}")


WATCH = Watch()


def watched(one: Scene, verb: Callable[[], object]) -> None:
    """Run the verb; nothing may have changed."""
    for path in [one.path, *one.path.rglob("*")]:
        os.utime(path, ns=(path.stat().st_mtime_ns, path.stat().st_mtime_ns))
    before = tree(one.path)
    folders = {path: path.stat().st_mtime_ns for path in [one.path, *one.path.rglob("*")] if path.is_dir()}
    WATCH.seen, WATCH.root = [], str(one.path)
    try:
        verb()
    finally:
        WATCH.root = ""
    assert WATCH.seen == []
    assert tree(one.path) == before
    assert {path: path.stat().st_mtime_ns for path in folders} == folders


def test_the_watch_hears_what_apply_does(tmp_path: Path) -> None:
    one = scene(tmp_path, TV2)
    plan = one.plan()
    WATCH.seen, WATCH.root = [], str(one.path)
    try:
        one.apply(plan)
    finally:
        WATCH.root = ""
    assert {line.split()[0] for line in WATCH.seen} >= {"open", "os.rename", "os.link", "os.mkdir"}


@pytest.mark.parametrize("fixture", [BLOAT, TV2, OLD_FORMAT])
def test_plan_writes_nothing(tmp_path: Path, fixture: str) -> None:
    one = scene(tmp_path, fixture)
    watched(one, one.plan)


@pytest.mark.parametrize("fixture", [BLOAT, TV2, OLD_FORMAT])
def test_check_writes_nothing(tmp_path: Path, fixture: str) -> None:
    one = scene(tmp_path, fixture)
    watched(one, lambda: check([str(one.path)], one.options()))


def test_verify_writes_nothing_before_and_after_apply(tmp_path: Path) -> None:
    one = scene(tmp_path, TV2)
    plan = one.plan()
    watched(one, lambda: verify_log_dir(str(one.path), one.options()))
    one.apply(plan)
    watched(one, lambda: verify_plan(plan, one.options()))
    watched(one, one.plan)


def test_plan_of_a_directory_that_cannot_be_written_is_the_same(tmp_path: Path) -> None:
    one = scene(tmp_path, TV2)
    (one.path / ".lock").unlink(missing_ok=True)
    watched(one, one.plan)
    assert not (one.path / ".lock").exists()
