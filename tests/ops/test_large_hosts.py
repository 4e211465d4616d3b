"""How often a verb does what is dear: once for each partition or group, never for all of one times all of another."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from krepair.commit import begin
from krepair.commit.folder import PartitionFolder
from krepair.durable.real_disk import RealDisk
from krepair.durable.scratch import Scratch
from krepair.engine.engine import InlineEngine
from krepair.engine.items import ScanResult
from krepair.errors import ExitCode, StalePlanError
from krepair.fixes import evidence as evidence_module
from krepair.fixes.carry_out import stage_all
from krepair.fixes.context import Context
from krepair.fixes.evidence import Folders, folders_of_others
from krepair.fixes.markers import decide, make
from krepair.fixes.staging import Staging, Work
from krepair.kernels.scan import ScanInputs, SegmentSummary, scan_segment
from krepair.logdir import view as listings
from krepair.logdir.values import LogDir as Listed
from krepair.logdir.view import LockedDirs, read_log_dir
from krepair.ops import apply as apply_module
from krepair.plan.model import Plan, RewriteSegments
from krepair.rewrite.segments.stage import stage
from tests.builders import NOW_MS, Batch, LogDir, commit, reading
from tests.compaction.directories import Verbs, options
from tests.ops.replica_scenes import EXPIRED, OLD, left_in
from tests.ops.replicas_read import (
    LINE,
    broker,
    cleaned,
    describe,
    evidence,
    forgotten,
    in_txn,
    value,
    verbs,
    whole,
)

pytestmark = pytest.mark.replicas


def write_broker(root: Path, number: int, partitions: int) -> Path:
    """The log directory of one broker: partitions with a closed segment whose markers may go, and an active one."""
    log_dir = root / f"b{number}"
    made = LogDir(log_dir)
    for partition in range(partitions):
        one = made.partition("t", partition, index_interval_bytes=200)
        one.segment(*cleaned(), base_offset=0, mtime_ms=OLD)
        one.segment(value(8, "late"), mtime_ms=NOW_MS - 1000)
        one.segment(value(9, "active"))
    made.write()
    (log_dir / "meta.properties").write_text(f"version=0\nbroker.id={number}\ncluster.id=c\n")
    return log_dir


def planned(root: Path, fix: str, partitions: int) -> tuple[Verbs, Plan]:
    """A plan of one of two brokers, which rests on the logs of the other one."""
    for number in (1, 2):
        write_broker(root, number, partitions)
    line = LINE.format(replicas="1,2", isr="1,2")
    lines = [line.replace("Partition: 0", f"Partition: {number}") for number in range(partitions)]
    given = options(
        root,
        delete_horizon=str(NOW_MS),
        assume_high_watermark="",
        settings_given=EXPIRED,
        fixes=(fix,),
        cluster=describe(root, *lines, factor=2),
        replicas=(f"2={root}/b2",),
    )
    run = Verbs(root / "b1", given)
    plan = run.plan()
    assert [len(one.changes) for one in plan.partitions] == [1] * partitions
    assert evidence(plan).kind == "replicas", evidence(plan).why
    return run, plan


@pytest.mark.parametrize("fix", ["markers", "compact"])
def test_apply_lists_the_log_directory_of_another_replica_once_however_many_partitions_there_are(
    fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: Counter[str] = Counter()

    def counting(path: str) -> Listed:
        listed[Path(path).name] += 1
        return read_log_dir(path)

    for partitions in (2, 6):
        root = tmp_path / str(partitions)
        root.mkdir()
        run, plan = planned(root, fix, partitions)
        listed.clear()
        with monkeypatch.context() as patch:
            patch.setattr(listings, "read_log_dir", counting)
            report = run.apply(plan)
        assert report.exit_code is ExitCode.DONE, report.results
        assert listed == {"b2": 1}


# -- groups of one partition


def planned_groups(
    root: Path,
    segments: int,
    *,
    merge: bool = False,
    keep: str = "inplace",
    needed: Sequence[int] | None = None,
) -> tuple[Verbs, Plan]:
    """A plan of one partition: of each closed segment a marker stays for another replica, and one goes.

    Each is a group of its own, or two neighbours are merged. ``needed``: those with a marker that stays.
    """
    for number in (1, 2):
        made = LogDir(root / f"b{number}")
        partition = made.partition("t", index_interval_bytes=200)
        for first in range(0, 10 * segments, 10):
            held, gone = 100 + first, 101 + first
            has_data = number == 2 and (needed is None or first in needed)
            batches = [in_txn(first, f"k{first}", held)] if has_data else []
            batches += [
                commit(first + 1, pid=held, timestamp=OLD),
                commit(first + 3, pid=gone, timestamp=OLD),
            ]
            partition.segment(*batches, value(first + 4, "v"), base_offset=first, mtime_ms=OLD)
        partition.segment(value(10 * segments, "late"), mtime_ms=NOW_MS - 1000)
        partition.segment(value(10 * segments + 1, "active"))
        made.write()
        properties = f"version=0\nbroker.id={number}\ncluster.id=c\n"
        (root / f"b{number}" / "meta.properties").write_text(properties)
    settings = {"segment.bytes": "320"} if merge else {}
    run = verbs(root, "markers", f"2={root}/b2", replicas="1,2", merge=merge, keep=keep, settings=settings)
    plan = run.plan()
    assert evidence(plan).kind == "replicas", evidence(plan).why
    assert len(plan.partitions[0].changes) == (segments // 2 if merge else segments)
    return run, plan


class Calls:
    """How often functions are called, by name, for each size that is tried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, *names: str) -> None:
        self.of: Counter[tuple[str, int]] = Counter()
        self._size = 0
        for name in names:
            monkeypatch.setattr(module, name, self._counting(name, getattr(module, name)))

    def _counting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            self.of[name, self._size] += 1
            return real(*given)

        return call

    def while_doing(self, work: Callable[[Path, int], object], root: Path) -> dict[tuple[str, int], int]:
        """Counts for two sizes."""
        for self._size in (2, 6):
            (root / str(self._size)).mkdir()
            work(root / str(self._size), self._size)
        return self.of


def test_plan_asks_once_or_twice_for_each_segment_which_of_its_markers_stay_for_other_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch, decide, "held_between")
    # once to find the segments that have such markers, once to scan these again
    expected = {("held_between", 2): 2 * (2 + 2), ("held_between", 6): 2 * (6 + 2)}
    assert calls.while_doing(planned_groups, tmp_path) == expected


@pytest.mark.parametrize("merge", [False, True])
def test_every_group_is_applied_where_each_is_freed_before_the_next_and_logs_of_other_replicas_were_read(
    merge: bool, tmp_path: Path
) -> None:
    run, plan = planned_groups(tmp_path, 4, merge=merge, keep="until-verified")
    report = run.apply(plan)
    assert [(one.outcome, one.why) for one in report.results] == [("committed", "")] * len(report.results)
    assert left_in(tmp_path / "b1" / "t-0").markers == (1, 11, 21, 31)
    assert run.verify(plan).problems == ()


def test_the_logs_of_other_replicas_are_read_once_to_decide_however_many_groups_are_staged_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def applied(root: Path, groups: int) -> None:
        run, plan = planned_groups(root, groups, keep="until-verified")
        assert run.apply(plan).exit_code is ExitCode.DONE

    calls = Calls(monkeypatch, make, "read_others")
    assert calls.while_doing(applied, tmp_path) == {("read_others", 2): 1, ("read_others", 6): 1}


def test_facts_of_a_segment_are_put_to_it_without_a_look_at_all_others(tmp_path: Path) -> None:
    run, plan = planned_alone(tmp_path, 6)
    view = read_log_dir(str(run.log_dir))
    (partition,) = view.partitions
    bases = [one.base_offset for one in partition.segments]
    listed = partition._replace(segments=NoneLeft(partition.segments))
    folder = PartitionFolder(RealDisk(), str(run.log_dir), "t-0", plan.plan_id)
    staging = Staging(plan.partitions[0], listed, folder, ())
    work = Work(plan, view, InlineEngine("for a test"), RealDisk(), Scratch("", ()))
    result = ScanResult(summary=scan(value(0, "a")))
    for base in bases:
        work.take_facts(staging, base, result, with_txn_index=True)
    assert [one.base_offset for one in staging.facts.values()] == bases


def planned_alone(root: Path, groups: int) -> tuple[Verbs, Plan]:
    """A plan of one partition without other replicas: a marker goes from each closed segment."""
    made = LogDir(root / "b1")
    partition = made.partition("t", index_interval_bytes=200)
    for first in range(0, 10 * groups, 10):
        batches = [commit(first + 1, pid=100 + first, timestamp=OLD), value(first + 4, "v")]
        partition.segment(*batches, base_offset=first, mtime_ms=OLD)
    partition.segment(value(10 * groups, "late"), mtime_ms=NOW_MS - 1000)
    partition.segment(value(10 * groups + 1, "active"))
    made.write()
    given = options(
        root,
        delete_horizon=str(NOW_MS),
        settings_given=EXPIRED,
        fixes=("markers",),
        only_replica=("t",),
        merge=False,
        keep="until-verified",
    )
    run = Verbs(root / "b1", given)
    plan = run.plan()
    assert len(plan.partitions[0].changes) == groups
    return run, plan


def test_a_partition_is_decided_once_for_all_groups_that_are_staged_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def applied(root: Path, groups: int) -> None:
        run, plan = planned_alone(root, groups)
        assert run.apply(plan).exit_code is ExitCode.DONE
        assert left_in(root / "b1" / "t-0").markers == ()

    names = ("stage_inputs", "why_undecided")
    calls = Calls(monkeypatch, make, *names)
    assert calls.while_doing(applied, tmp_path) == {(name, size): 1 for name in names for size in (2, 6)}


def test_all_changes_are_not_looked_through_for_each_group_where_no_active_segment_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(begin, "bases_touched", lambda changes: pytest.fail("asked of all changes"))
    run, plan = planned_alone(tmp_path, 3)
    assert run.apply(plan).exit_code is ExitCode.DONE


@pytest.mark.parametrize("touched", [False, True])
def test_an_active_segment_may_have_grown_where_no_change_touches_it(touched: bool, tmp_path: Path) -> None:
    _, plan = planned_alone(tmp_path, 2)
    part = plan.partitions[0]
    active = max(file.name for file in part.files if file.name.endswith(".log"))
    with (tmp_path / "b1" / "t-0" / active).open("ab") as log:
        log.write(value(22, "more").raw)
    group = part.changes[0]
    assert isinstance(group, RewriteSegments)
    if touched:
        last = structs.replace(group.sources[0], base_offset=21)
        part = structs.replace(
            part, changes=(*part.changes, structs.replace(group, base_offset=21, sources=(last,)))
        )
    folder = PartitionFolder(RealDisk(), str(tmp_path / "b1"), "t-0", plan.plan_id)
    if touched:
        with pytest.raises(StalePlanError, match=rf"{active}: changed since the plan was made"):
            begin.check_fresh(folder, part, group)
    else:
        assert begin.check_fresh(folder, part, group)


def test_the_work_item_of_a_source_does_not_carry_the_other_sources_of_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources: list[list[int]] = []
    real = InlineEngine._results

    def running(engine: InlineEngine, function: Callable[[Any], Any], items: Sequence[Any]) -> Any:
        if function is stage:
            assert all(item.source == 0 for item in items)
            sources.extend([one.base_offset for one in item.change.sources] for item in items)
        return real(engine, function, items)

    monkeypatch.setattr(InlineEngine, "_results", running)
    run, plan = planned_groups(tmp_path, 4, merge=True)
    assert run.apply(plan).exit_code is ExitCode.DONE
    assert sources == [[0], [10], [20], [30]]
    assert left_in(tmp_path / "b1" / "t-0").markers == (1, 11, 21, 31)


def scan(*batches: Batch) -> SegmentSummary:
    """The scan of a segment."""
    raw = b"".join(batch.raw for batch in batches)
    inputs = ScanInputs(
        base_offset=batches[0].base_offset, file_size=len(raw), now_ms=NOW_MS, high_watermark=100
    )
    return scan_segment(inputs, reading(raw))


def before_the_second_group(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """Something else changes a file after the first group of an apply was committed, and before the next is staged."""
    staged: list[str] = []

    def staging(work: Work, stagings: Sequence[Staging]) -> None:
        changes = [one.change_id for staging in stagings for one in staging.changes]
        if staged and staged[-1:] != changes:
            change()
        staged.extend(changes)
        stage_all(work, stagings)

    monkeypatch.setattr(apply_module, "stage_all", staging)


def test_another_replica_that_changes_between_two_groups_stops_the_second_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, plan = planned_groups(tmp_path, 3, keep="until-verified")
    logs = logs_of(tmp_path)
    before_the_second_group(monkeypatch, lambda: touch_log(tmp_path / "b2"))
    report = run.apply(plan)
    assert [one.outcome for one in report.results] == ["committed", "failed", "skipped"]
    assert "has changed since the plan was made" in report.results[1].why
    assert report.results[1].exit_code == ExitCode.STALE_PLAN
    now = logs_of(tmp_path)
    assert [name for name in logs if logs[name] != now[name]] == [f"{0:020d}.log"]


def test_the_third_reading_misses_a_marker_of_the_last_group_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten(monkeypatch)
    run, plan = planned_groups(tmp_path, 3, keep="until-verified", needed=(20,))
    logs = logs_of(tmp_path)
    report = run.apply(plan)
    assert [one.outcome for one in report.results] == ["committed", "committed", "failed"]
    assert report.results[2].exit_code == ExitCode.VERIFY_FAILED
    assert "the marker at offset 21 is gone, but a batch of its transaction" in report.results[2].why
    assert logs_of(tmp_path)[f"{20:020d}.log"] == logs[f"{20:020d}.log"]


def logs_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "b1" / "t-0").glob("*.log")}


# -- log directories of other replicas


@pytest.mark.parametrize("fix", ["markers", "compact"])
def test_plan_goes_through_the_partitions_of_other_brokers_once_however_many_partitions_are_asked_for(
    fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone_through: Counter[int] = Counter()

    def counting(context: Context) -> Folders:
        gone_through[partitions] += 1
        found = folders_of_others(context)
        for views in context.other_brokers.values():  # from here on nobody may go through them
            assert all(view.partitions for view in views)
        context.other_brokers = {
            broker: tuple(view._replace(partitions=NoneLeft()) for view in views)
            for broker, views in context.other_brokers.items()
        }
        return found

    monkeypatch.setattr(evidence_module, "folders_of_others", counting)
    for partitions in (2, 6):
        root = tmp_path / str(partitions)
        root.mkdir()
        planned(root, fix, partitions)
    assert gone_through == {2: 1, 6: 1}


class NoneLeft(tuple[Any, ...]):
    """Values that nobody goes through."""

    def __iter__(self) -> Iterator[Any]:
        pytest.fail("gone through once more")


def touch_log(log_dir: Path) -> None:
    os.utime(log_dir / "t-0" / f"{0:020d}.log", ns=(1, 1))


def remove_folder(log_dir: Path) -> None:
    shutil.rmtree(log_dir / "t-0")


def make_link(log_dir: Path) -> None:
    (log_dir / "t-0").rename(log_dir.parent / "t-0")
    (log_dir / "t-0").symlink_to(log_dir.parent / "t-0")


def make_file(log_dir: Path) -> None:
    remove_folder(log_dir)
    (log_dir / "t-0").write_bytes(b"")


def bring_leftover(log_dir: Path) -> None:
    (log_dir / "t-0" / f"{0:020d}.log.swap").write_bytes(b"")


@pytest.mark.parametrize(
    "change", [touch_log, remove_folder, make_link, make_file, bring_leftover], ids=lambda one: one.__name__
)
def test_a_folder_of_another_directory_is_told_as_it_is_whatever_has_changed_since(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    log_dir = broker(tmp_path, 2, whole())
    made = LockedDirs()
    before = made.look(str(log_dir), "t-0")
    assert made.look(str(log_dir), "t-0") == before
    change(log_dir)
    assert made.look(str(log_dir), "t-0") != before


def test_a_directory_that_is_gone_since_it_was_listed_has_no_folder(tmp_path: Path) -> None:
    log_dir = broker(tmp_path, 2, whole())
    made = LockedDirs()
    assert made.look(str(log_dir), "t-0")[1] is not None
    shutil.rmtree(log_dir)
    assert made.look(str(log_dir), "t-0")[1] is None


def test_a_folder_that_no_listing_had_is_not_there(tmp_path: Path) -> None:
    log_dir = broker(tmp_path, 2, whole())
    made = LockedDirs()
    assert made.look(str(log_dir), "t-0")[1] is not None
    assert made.look(str(log_dir), "t-1")[1] is None
    assert made.look(str(log_dir), "../b2/t-0")[1] is None
