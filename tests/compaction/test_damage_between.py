"""Damage that appears after a log was read once is found before anything is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from krepair.engine.engine import InlineEngine
from krepair.errors import ExitCode
from krepair.rewrite.compaction import headers, log
from tests.builders import LogDir, data
from tests.compaction.cases import OLD, rec
from tests.compaction.directories import Verbs, keys_of, options, without_stays
from tests.flips import flip
from tools.torture.scenes import look, visible

LOG = f"{0:020d}.log"
# three records a batch: none stays, the second one stays, all stay
KEYS = (("a", "b", "c"), ("a", "x", "c"), ("p", "q", "r"), ("a", "b", "c"))
GONE, REWRITTEN, WHOLE = range(3)


def made(root: Path) -> Verbs:
    """A segment with a batch of each kind, and an active one."""
    directory = LogDir(root / "logs")
    partition = directory.partition("t", index_interval_bytes=200)
    batches = [
        data(3 * number, [rec(key, key * 40) for key in keys], timestamp=OLD)
        for number, keys in enumerate(KEYS)
    ]
    partition.segment(*batches, mtime_ms=OLD)
    partition.segment(data(3 * len(KEYS), [rec("active")], timestamp=OLD))
    directory.write()
    return Verbs(root / "logs", options(root))


def place_of(path: Path, number: int) -> int:
    """Where a batch begins."""
    raw, place = path.read_bytes(), 0
    for _ in range(number):
        place += int.from_bytes(raw[place + 8 : place + 12], "big") + 12
    return place


def flip_value(log_dir: Path, number: int) -> None:
    """Another letter in the value of the second record of a batch; the file has the times that it had."""
    _flip(log_dir, number, 20)


def flip_key(log_dir: Path, number: int) -> None:
    """Another key of the second record of a batch, which no other record has."""
    _flip(log_dir, number, -2)


def _flip(log_dir: Path, number: int, behind: int) -> None:
    path = log_dir / "t-0" / LOG
    letter = KEYS[number][1].encode()
    place = path.read_bytes().index(letter * 40, place_of(path, number)) + behind
    flip(path, place, bits=0x40)


@pytest.fixture(params=["headers noted", "all read"], autouse=True)
def noted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the first reading notes the headers, so that a batch of which nothing stays is not read again."""
    noted: bool = request.param == "headers noted"
    monkeypatch.setattr(headers, "LEAST_MEAN_BYTES", 1 if noted else 1 << 30)
    monkeypatch.setattr(log, "GAP_BYTES", 0)
    return noted


@pytest.fixture
def after_task(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Callable[[], None]]]:
    """What to do once, when a task has run for all its items."""
    todo: dict[str, Callable[[], None]] = {}
    run = InlineEngine.map

    def running(self: InlineEngine, function: Any, items: Sequence[Any]) -> Iterator[Any]:
        yield from run(self, function, items)
        todo.pop(function.__name__, lambda: None)()

    monkeypatch.setattr(InlineEngine, "map", running)
    yield todo
    assert not todo


def test_the_batches_are_what_the_tests_below_say(tmp_path: Path) -> None:
    keys = keys_of(made(tmp_path).plan().partitions[0])
    assert (keys.emptied, keys.rewritten, keys.kept) == (1, 1, 7)


@pytest.mark.parametrize("number", [GONE, REWRITTEN, WHOLE])
def test_damage_in_any_batch_leaves_the_partition_alone_when_it_is_planned(
    number: int, tmp_path: Path
) -> None:
    verbs = made(tmp_path)
    flip_value(verbs.log_dir, number)
    part = verbs.plan().partitions[0]
    assert part.changes == ()
    assert f"position {place_of(verbs.log_dir / 't-0' / LOG, number)}" in str(part.why)


@pytest.mark.parametrize("task", ["by plan", "find_keys"])
@pytest.mark.parametrize("number", [GONE, REWRITTEN, WHOLE])
def test_damage_in_any_batch_that_comes_while_apply_reads_stops_it_before_the_commit(
    number: int, task: str, tmp_path: Path, after_task: dict[str, Callable[[], None]]
) -> None:
    verbs = made(tmp_path)
    plan = verbs.plan()
    size = (verbs.log_dir / "t-0" / LOG).stat().st_size
    if task == "by plan":
        after_task["scan"] = lambda: flip_value(verbs.log_dir, number)
    else:
        plan = without_stays(plan)
        after_task[task] = lambda: flip_value(verbs.log_dir, number)
    names = set(visible(look(verbs.log_dir)))
    assert verbs.apply(plan).exit_code in (ExitCode.STALE_PLAN, ExitCode.VERIFY_FAILED)
    assert set(visible(look(verbs.log_dir))) == names
    assert (verbs.log_dir / "t-0" / LOG).stat().st_size == size


@pytest.mark.parametrize("number", [GONE, REWRITTEN, WHOLE])
def test_damage_in_any_batch_that_comes_after_the_plan_stops_apply_and_is_named(
    number: int, tmp_path: Path
) -> None:
    verbs = made(tmp_path)
    plan = verbs.plan()
    flip_value(verbs.log_dir, number)
    before = visible(look(verbs.log_dir))
    report = verbs.apply(plan)
    assert report.exit_code is ExitCode.STALE_PLAN
    place = place_of(verbs.log_dir / "t-0" / LOG, number)
    assert f"{LOG}, position {place}: the batch's CRC-32C" in report.results[0].why
    assert visible(look(verbs.log_dir)) == before


@pytest.mark.parametrize("number", [REWRITTEN, WHOLE])
def test_damage_in_a_batch_of_which_something_stays_that_comes_while_plan_reads_stops_apply(
    number: int, tmp_path: Path, after_task: dict[str, Callable[[], None]]
) -> None:
    verbs = made(tmp_path)
    after_task["find_keys"] = lambda: flip_value(verbs.log_dir, number)
    plan = verbs.plan()
    assert plan.partitions[0].changes
    names = set(visible(look(verbs.log_dir)))
    assert verbs.apply(plan).exit_code in (ExitCode.STALE_PLAN, ExitCode.VERIFY_FAILED)
    assert set(visible(look(verbs.log_dir))) == names


@pytest.mark.parametrize("number", [GONE, REWRITTEN, WHOLE])
def test_damage_in_a_source_that_comes_after_it_was_written_and_proven_changes_nothing_of_the_new_log(
    number: int, tmp_path: Path, after_task: dict[str, Callable[[], None]]
) -> None:
    verbs, other = made(tmp_path), made(tmp_path / "other")
    plan = verbs.plan()
    after_task["stage_compacted"] = lambda: flip_value(verbs.log_dir, number)
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert other.apply(other.plan()).exit_code is ExitCode.DONE
    assert (verbs.log_dir / "t-0" / LOG).read_bytes() == (other.log_dir / "t-0" / LOG).read_bytes()


@pytest.mark.parametrize("task", ["", "scan", "find_keys"])
def test_another_key_in_a_batch_of_which_nothing_stays_stops_apply_before_the_commit(
    task: str, tmp_path: Path, after_task: dict[str, Callable[[], None]]
) -> None:
    verbs = made(tmp_path)
    plan = verbs.plan()
    if task == "find_keys":
        plan = without_stays(plan)
    if task:
        after_task[task] = lambda: flip_key(verbs.log_dir, GONE)
    else:
        flip_key(verbs.log_dir, GONE)
    names = set(visible(look(verbs.log_dir)))
    assert verbs.apply(plan).exit_code in (ExitCode.STALE_PLAN, ExitCode.VERIFY_FAILED)
    assert set(visible(look(verbs.log_dir))) == names
