"""How many calls of the operating system a verb makes for each partition: many small ones are most of its time."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from krepair.commit.journal import JOURNAL_NAME
from krepair.durable import medium, writing_error
from krepair.durable.tree import Tree
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import EngineName, Options
from krepair.plan.model import ReplaceFile, RewriteSegments
from tests import calls
from tests.builders import NOW_MS, LogDir, commit, data
from tests.ops.written import write

OPTIONS = Options(engine=EngineName.INLINE, now_ms=NOW_MS)


@pytest.mark.parametrize("clean", [True, False])
def test_check_opens_each_file_once_and_once_more_to_play_the_start(tmp_path: Path, clean: bool) -> None:
    roots = {number: write(tmp_path / str(number), number, clean=clean) for number in (2, 6)}
    found = calls.for_each(lambda number: check([str(roots[number])], OPTIONS))
    # the folder, three logs, six indexes, the epochs; clean: three snapshots; unclean: logs and time indexes again
    assert found["open"] == found["close"] == (14 if clean else 17)
    # each open file is looked at once; and the log directory, once for each of the items
    assert found["stat"] == (17 if clean else 21)


def test_apply_verify_and_undo_come_to_each_folder_of_a_partition_once_between_two_records(
    tmp_path: Path,
) -> None:
    options = Options(engine=EngineName.INLINE, now_ms=NOW_MS, fixes=("recovery",), broker_version="3.9.2")
    plans = {
        number: [
            make_plan(str(write(tmp_path / f"{name}-{number}" / "logs", number, clean=False)), options)
            for name in ("first", "second")
        ]
        for number in (2, 6)
    }
    waiting = {number: iter(some) for number, some in plans.items()}
    applied = calls.for_each(lambda number: apply(next(waiting[number]), options))
    waiting = {number: iter(some) for number, some in plans.items()}
    verified = calls.for_each(lambda number: verify_plan(next(waiting[number]), OPTIONS))
    waiting = {number: iter(some) for number, some in plans.items()}
    undone = calls.for_each(lambda number: undo(next(waiting[number]), options))
    # each staged file and original is read for its digest
    # four files are staged, and take four names; four folders of krepair's own; two changes with two records each
    most = {"open": 78, "stat": 134, "close": 76}
    assert {name: applied[name] for name in most if applied[name] > most[name]} == {}
    # and verify looks for a fence, since the next command is another one then
    most = {"open": 32, "stat": 51, "close": 28}
    assert {name: verified[name] for name in most if verified[name] > most[name]} == {}
    # undo reads each journal twice: to look at it, and to change it
    most = {"open": 54, "stat": 122, "close": 54}
    assert {name: undone[name] for name in most if undone[name] > most[name]} == {}
    assert applied["fsync"] == undone["fsync"] == 16, "what is made durable does not become less"


def test_undo_reads_each_journal_once_to_look_and_once_to_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(engine=EngineName.INLINE, now_ms=NOW_MS, fixes=("recovery",), broker_version="3.9.2")
    plan = make_plan(str(write(tmp_path / "logs", 3, clean=False)), options)
    apply(plan, options)
    read: Counter[str] = Counter()
    real = Tree.read

    def reading(tree: Tree, path: str, at_most: int) -> bytes | None:
        read[path] += 1
        return real(tree, path, at_most)

    monkeypatch.setattr(Tree, "read", reading)
    undo(plan, options)
    journals = {path: times for path, times in read.items() if path.endswith(f"/{JOURNAL_NAME}")}
    assert sorted(journals.values()) == [2, 2, 2, 2]


def test_the_table_of_mounts_is_read_by_apply_and_undo_only_where_a_call_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(engine=EngineName.INLINE, now_ms=NOW_MS, fixes=("recovery",), broker_version="3.9.2")
    plan = make_plan(str(write(tmp_path / "logs", 3, clean=False)), options)
    looked: Counter[str] = Counter()
    real = writing_error._mounts_of
    # the options of a mount over a network are looked up in the table, too
    monkeypatch.setattr(medium, "is_open_on_one_host", lambda descriptor: True)

    def looking(path: str) -> list[writing_error.FileSystem]:
        looked[verb] += 1
        return real(path)

    monkeypatch.setattr(writing_error, "_mounts_of", looking)
    verb = "apply"
    apply(plan, options)
    verb = "undo"
    undo(plan, options)
    assert looked == {}


def test_apply_and_undo_of_swaps_and_other_changes_list_the_folder_of_a_change_alone_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixes = ("index=regenerate", "markers")
    options = Options(engine=EngineName.INLINE, now_ms=NOW_MS + 10**12, fixes=fixes)
    listed: Counter[str] = Counter()
    real = Tree.entries

    def listing(tree: Tree, path: str) -> list[tuple[str, os.stat_result]]:
        listed["folders"] += path.rpartition("/")[0] == str(root)
        return real(tree, path)

    monkeypatch.setattr(Tree, "entries", listing)
    for number in (2, 6):
        made = LogDir(tmp_path / str(number))
        for one in range(number):
            partition = made.partition("__consumer_offsets", one)
            for base in (0, 12, 24):
                partition.segment(*(commit(base + at, pid=base + at) for at in range(11)), data(base + 11))
            partition.segment(data(36))
        root = made.write()
        for index in root.glob(f"*/{36:020d}.timeindex"):
            index.write_bytes(b"wrong")
        plan = make_plan(str(root), options)
        kinds = Counter(type(change) for part in plan.partitions for change in part.changes)
        assert kinds == {RewriteSegments: number, ReplaceFile: number}
        for verb, most in (("apply", 4 * number), ("undo", 4 * number)):
            listed.clear()
            assert (apply if verb == "apply" else undo)(plan, options).exit_code is ExitCode.DONE
            assert 0 < listed["folders"] <= most, verb
