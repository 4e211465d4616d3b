"""Number of bytes that items declare: compared with what their tasks read, and reported to a progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from krepair.engine.engine import InlineEngine
from krepair.engine.items import arguments_of, bytes_to_read
from krepair.engine.progress import Progress, shown_as
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.groups import groups
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_log_dir, verify_plan
from krepair.options import EngineName, Options
from tests.compaction import directories
from tests.ops import pending
from tests.ops.scene import scene
from tests.recovery import scene as unclean

READ_AT_MOST = 2
"""How many times as much as it says a task may read: batches are looked at again where one is not the usual one."""
SMALL = 4096
"""Reading ends of logs again and again costs something, whatever there is to read."""


class Reads:
    """Bytes of logs that each task read, and what its items said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: dict[str, int] = {}
        self.read: dict[str, int] = {}
        self._task = ""
        monkeypatch.setattr(InlineEngine, "_results", self._results)
        for call in ("read", "pread", "preadv"):
            monkeypatch.setattr(os, call, self._watching(getattr(os, call)))

    def _watching(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(descriptor: int, *rest: Any) -> Any:
            got = real(descriptor, *rest)
            if self._task and ".log" in os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")):
                count = got if isinstance(got, int) else len(got)
                self.read[self._task] = self.read.get(self._task, 0) + count
            return got

        return call

    def _results(self, function: Callable[..., Any], items: list[Any]) -> Iterator[tuple[int, Any]]:
        name = function.__name__
        self.said[name] = self.said.get(name, 0) + sum(map(bytes_to_read, items))
        for index, item in enumerate(items):
            self._task = name
            try:
                result = function(*arguments_of(item))
            finally:
                self._task = ""
            yield index, result


def _markers(root: Path) -> None:
    bloat = scene(root)
    plan = bloat.plan()
    bloat.apply(plan)
    assert verify_plan(plan, bloat.options(originals=True)).problems == ()


def _keys(root: Path) -> None:
    path = directories.dead_cleaner(root)
    names = ("__consumer_offsets", "changelog", "by-time")
    verbs = directories.Verbs(path, directories.options(root, *names))
    plan = verbs.plan()
    assert verbs.apply(plan).exit_code == ExitCode.DONE
    assert verbs.verify(plan).problems == ()


def _recovery(root: Path) -> None:
    path = unclean.write_unclean(root)
    verbs = unclean.Verbs(path)
    plan = verbs.plan()
    verbs.apply(plan)
    assert verbs.wrong(plan) == []


def _swap(root: Path) -> None:
    path = pending.write(root)
    check([str(path)], pending.options())
    plan = make_plan(str(path), pending.options())
    assert apply(plan, pending.options()).exit_code == ExitCode.DONE
    assert not verify_plan(plan, pending.options()).problems


def _readers(root: Path) -> None:
    path = directories.dead_cleaner(root)
    given = Options(engine=EngineName.INLINE, deep=True)
    check([str(path)], given)
    verify_log_dir(str(path), given)
    groups(str(path), given)


@pytest.mark.parametrize("use", [_markers, _keys, _recovery, _swap, _readers])
def test_what_the_items_of_a_task_say_is_what_the_task_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Path], None]
) -> None:
    reads = Reads(monkeypatch)
    use(tmp_path / "logs")
    for name, said in reads.said.items():
        read = reads.read.get(name, 0)
        assert read <= READ_AT_MOST * said + SMALL, name
        assert read == 0 or said, name


class Told(Progress):
    """What a progress is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []

    def start(self, task: str, total_bytes: int) -> None:
        self.lines.append((task, total_bytes))

    def advance(self, done_bytes: int) -> None:
        self.lines.append((done_bytes,))

    def finish(self) -> None:
        self.lines.append(())


@shown_as("two words")
def size_of(item: Sized) -> int:
    """What an engine maps."""
    return item.bytes_to_read


class Sized:
    """An item of so many bytes."""

    def __init__(self, size: int) -> None:
        self.bytes_to_read = size


def test_an_engine_tells_of_each_job_by_the_bytes_of_its_items() -> None:
    told = Told()
    engine = InlineEngine("test", told)
    assert list(engine.map(size_of, [Sized(3), Sized(5)])) == [(0, 3), (1, 5)]
    assert told.lines == [("two words", 8), (3,), (5,), ()]
    assert list(engine.map(size_of, [])) == []
    assert len(told.lines) == 4


def test_a_job_that_is_left_before_its_end_leaves_no_bar_behind() -> None:
    told = Told()
    results = InlineEngine("test", told).map(size_of, [Sized(3), Sized(5)])
    assert next(results) == (0, 3)
    results.close()
    assert told.lines == [("two words", 8), (3,), ()]
