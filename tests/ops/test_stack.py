"""Plans of one partition are a stack: undo takes the newest first, purge the oldest."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from krepair.commit.kept import kept_report
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge, purge_by_id
from krepair.ops.undo import undo, undo_by_id
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from tests.builders import NOW_MS, LogDir, commit, data
from tests.ops.scene import tree

OPTIONS = Options(engine=EngineName.INLINE, now_ms=NOW_MS)
MARKERS = Options(engine=EngineName.INLINE, now_ms=NOW_MS + 10**12, fixes=("markers",))
INDEX = Options(engine=EngineName.INLINE, now_ms=NOW_MS, fixes=("index=regenerate",))
CHECKPOINTS = Options(engine=EngineName.INLINE, now_ms=NOW_MS, fixes=("checkpoints",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = LogDir(tmp_path / "logs")
    for number in range(2):
        partition = made.partition("__consumer_offsets", number)
        for base in (0, 12, 24):
            partition.segment(*(commit(base + at, pid=base + at) for at in range(11)), data(base + 11))
        partition.segment(data(36))
    path = made.write()
    (path / "__consumer_offsets-0" / f"{36:020d}.timeindex").write_bytes(b"wrong")
    return path


def two(root: Path) -> tuple[Plan, Plan]:
    """An index is mended, then markers are removed; in the second partition only they are."""
    first = make_plan(str(root), INDEX)
    assert apply(first, OPTIONS).exit_code is ExitCode.DONE
    second = make_plan(str(root), MARKERS)
    assert apply(second, OPTIONS).exit_code is ExitCode.DONE
    return first, second


def refused(report: Any, other: Plan) -> None:
    [result] = [one for one in report.results if one.failed]
    assert result.exit_code == ExitCode.STALE_PLAN
    assert other.plan_id in result.why
    assert other.plan_id in str(result.next_command)


def by_id(verb: Callable[..., Any], root: Path) -> Callable[[Plan], Any]:
    return lambda plan: verb(str(root), plan.plan_id, OPTIONS)


@pytest.mark.parametrize("way", ["plan", "id"])
def test_undo_takes_the_newest_plan_first(root: Path, way: str) -> None:
    before = tree(root)
    first, second = two(root)
    take_back = by_id(undo_by_id, root) if way == "id" else lambda plan: undo(plan, OPTIONS)
    applied = tree(root)
    refused(take_back(first), second)
    assert tree(root) == applied
    assert str(kept_report(str(root), NOW_MS).next_command).endswith(second.plan_id)
    assert take_back(second).exit_code is ExitCode.DONE
    assert take_back(first).exit_code is ExitCode.DONE
    assert tree(root) == before


@pytest.mark.parametrize("way", ["plan", "id"])
def test_purge_takes_the_oldest_plan_first(root: Path, way: str) -> None:
    first, second = two(root)
    free = by_id(purge_by_id, root) if way == "id" else lambda plan: purge(plan, OPTIONS)
    report = free(second)
    [failure] = [one for one in report.results if one.failed]
    assert (failure.partition, failure.exit_code) == ("__consumer_offsets-0", ExitCode.STALE_PLAN)
    assert first.plan_id in failure.why
    assert str(kept_report(str(root), NOW_MS, "purge").next_command).endswith(first.plan_id)
    assert free(first).exit_code is ExitCode.DONE
    assert free(second).exit_code is ExitCode.DONE
    assert not list(root.glob("*/krepair~*"))


def test_a_plan_that_keeps_nothing_any_more_does_not_count(root: Path) -> None:
    first, second = two(root)
    assert undo(second, OPTIONS).exit_code is ExitCode.DONE
    assert undo(first, OPTIONS).exit_code is ExitCode.DONE
    first, second = two(root)
    assert purge(first, OPTIONS).exit_code is ExitCode.DONE
    assert undo(second, OPTIONS).exit_code is ExitCode.DONE


def test_a_plan_that_was_taken_back_and_applied_again_is_the_newest(root: Path) -> None:
    first, second = two(root)
    assert undo(second, OPTIONS).exit_code is ExitCode.DONE
    assert undo(first, OPTIONS).exit_code is ExitCode.DONE
    assert apply(second, OPTIONS).exit_code is ExitCode.DONE
    assert apply(first, OPTIONS).exit_code is ExitCode.DONE
    refused(undo(second, OPTIONS), first)
    assert undo(first, OPTIONS).exit_code is ExitCode.DONE


BOTH = Options(engine=EngineName.INLINE, now_ms=NOW_MS + 10**12, fixes=("index=regenerate", "markers"))


@pytest.mark.parametrize("freed", [False, True], ids=["kept", "purged"])
def test_a_change_that_an_earlier_plan_has_made_is_its_own_when_the_later_one_is_undone(
    root: Path, freed: bool
) -> None:
    """Both plans were made before one was applied, so both mend the same index."""
    before = tree(root)
    first, second = make_plan(str(root), INDEX), make_plan(str(root), BOTH)
    assert apply(first, OPTIONS).exit_code is ExitCode.DONE
    if freed:
        assert purge(first, OPTIONS).exit_code is ExitCode.DONE
    between = tree(root)
    assert apply(second, OPTIONS).exit_code is ExitCode.DONE
    assert undo(second, OPTIONS).exit_code is ExitCode.DONE
    assert tree(root) == between
    if not freed:
        assert undo(first, OPTIONS).exit_code is ExitCode.DONE
        assert tree(root) == before


def test_two_plans_of_1_0_0_have_no_numbers_and_are_taken_back_in_any_order(root: Path) -> None:
    first, second = two(root)
    for journal in root.glob("*/krepair~*/journal"):
        without_number(journal)
    assert undo(first, OPTIONS).exit_code is ExitCode.DONE
    assert undo(second, OPTIONS).exit_code is ExitCode.DONE


def without_number(journal: Path) -> None:
    import zlib

    head, _, rest = journal.read_bytes().partition(b"\n")
    body = re.sub(rb',"number":\d+', b"", head[9:])
    assert body != head[9:]
    journal.write_bytes(b"%08x %b\n%b" % (zlib.crc32(body), body, rest))
