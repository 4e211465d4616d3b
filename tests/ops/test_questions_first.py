"""What apply asks before it begins is asked before anything half done goes on; and by undo, before a fence goes up."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from krepair.commit.journal import Journal
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, RefusedError
from krepair.ops import apply as verb
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from tests.builders import NOW_MS, LogDir, commit, data
from tests.commit.scene import UnsyncedDisk
from tests.durable.disks import FILE_CHANGING, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.flips import flip
from tests.ops.scene import tree
from tests.ops.written import write

GROUP, OTHER = "__consumer_offsets-0", "o-0"
OPTIONS = Options(engine=EngineName.INLINE, now_ms=NOW_MS)
MARKER = ".kafka_cleanshutdown"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = LogDir(tmp_path / "logs")
    partition = made.partition("__consumer_offsets", 0)
    for base in (0, 12, 24):
        partition.segment(*(commit(base + at, pid=base + at) for at in range(11)), data(base + 11))
    partition.segment(data(36))
    made.partition("o", 0).segment(*(data(offset) for offset in range(6)))
    path = made.write()
    (path / MARKER).write_bytes(b"")
    return path


def markers(root: Path) -> Plan:
    options = Options(engine=EngineName.INLINE, now_ms=NOW_MS + 10**12, fixes=("markers",))
    return make_plan(str(root), options)


def kills(root: Path, plan: Plan, run: Any) -> Iterator[int]:
    """Run a verb, killed at each of its calls in turn, in a copy that takes the place of the directory."""
    saved = root.with_name("saved")
    shutil.copytree(root, saved)
    recording = RecordingDisk(UnsyncedDisk())
    run(plan, OPTIONS, disk=recording)
    count = len([call for call in recording.calls if call.kind in FILE_CHANGING])
    for stop in range(1, count + 1):
        shutil.rmtree(root)
        shutil.copytree(saved, root)
        with contextlib.suppress(SimulatedCrash):
            run(plan, OPTIONS, disk=StoppingDisk(UnsyncedDisk(), stop, FILE_CHANGING))
        yield stop


def sizes(root: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted((root / GROUP).glob("*.log"))}


def test_another_replica_that_came_meanwhile_ends_what_has_not_passed_its_commit(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, before = markers(root), sizes(root)
    real = verb.check_evidence

    def moved(plan: Plan) -> Any:
        view, _ = real(plan)
        return view, {("__consumer_offsets", 0): "the metadata log names another replica"}

    ends = set()
    for stop in kills(root, plan, apply):
        passed = any((root / GROUP).glob("*.swap")) or sizes(root) != before
        with monkeypatch.context() as patched:
            patched.setattr(verb, "check_evidence", moved)
            report = apply(plan, OPTIONS, disk=UnsyncedDisk())
        if passed:
            assert sizes(root) != before, stop
        else:
            assert sizes(root) == before, (stop, report.results)
        ends.add(passed)
        assert undo(plan, OPTIONS, disk=UnsyncedDisk()).exit_code is ExitCode.DONE
        assert sizes(root) == before
    assert ends == {True, False}


def rotten(root: Path) -> None:
    """A broker appended to the other partition and stopped cleanly; then a batch of it rotted."""
    log = root / OTHER / f"{0:020d}.log"
    whole = log.stat().st_size
    with log.open("ab") as file:
        file.write(data(6).raw + data(7).raw)
    flip(log, whole - 5)
    os.utime(log)
    (root / MARKER).write_bytes(b"")


def test_undo_puts_no_fence_up_where_a_start_under_it_would_cut_another_partition(root: Path) -> None:
    plan = markers(root)
    assert plan.commit.fence
    apply(plan, OPTIONS)
    rotten(root)
    before = tree(root)
    with pytest.raises(RefusedError, match=rf"{OTHER}/.*is damaged.*--broker-version"):
        undo(plan, OPTIONS)
    assert tree(root) == before
    told = Options(engine=EngineName.INLINE, now_ms=NOW_MS, broker_version="3.9.2")
    recording = RecordingDisk(UnsyncedDisk())
    assert undo(plan, told, disk=recording).exit_code is ExitCode.DONE
    assert not [call for call in recording.calls if "/fence" in call.path]
    assert [call for call in recording.calls if call.path.endswith(".log.swap")]


def test_what_was_killed_before_its_commit_is_taken_back_where_the_fence_would_do_harm(root: Path) -> None:
    plan, before = markers(root), sizes(root)
    for stop in kills(root, plan, apply):
        passed = any((root / GROUP).glob("*.swap")) or sizes(root) != before
        rotten(root)
        report = apply(plan, OPTIONS, disk=UnsyncedDisk())
        if not passed:
            assert sizes(root) == before, (stop, report.results)
            assert not list(root.glob("*/krepair~*/fence")), stop


def test_purge_gives_no_fence_up_where_the_next_start_would_cut_another_partition(root: Path) -> None:
    plan, first = markers(root), (root / GROUP / f"{0:020d}.log").read_bytes()
    private = root / GROUP / f"krepair~{plan.plan_id}"
    for _ in kills(root, plan, apply):
        fence_is_up = (private / "fence" / MARKER).exists()
        if fence_is_up and not Journal(RealDisk(), str(private), plan.plan_id, GROUP).unfinished():
            break
    (root / GROUP / f"{0:020d}.log").write_bytes(first)
    for kept in list((private / "keep").iterdir()):
        shutil.move(kept, root.parent)
    rotten(root)
    (root / MARKER).unlink()
    before = tree(root)
    refused = purge(plan, OPTIONS)
    assert refused.exit_code is ExitCode.REFUSED
    assert f"{OTHER}/{0:020d}.log: is damaged at byte" in refused.results[0].why
    assert tree(root) == before
    log = root / OTHER / f"{0:020d}.log"
    os.truncate(log, log.stat().st_size - len(data(6).raw + data(7).raw))
    flip(log, log.stat().st_size - 5)
    report = purge(plan, OPTIONS)
    assert report.exit_code is ExitCode.DONE
    assert f"purge also deleted the recovery guard of {GROUP}" in report.notes[0]
    assert not private.exists()


@pytest.mark.parametrize("which", [("t-0",), ("t-0", "t-1")])
@pytest.mark.parametrize("run", [apply, verify_plan, undo])
def test_a_topic_that_was_created_again_is_named_and_left_alone(
    tmp_path: Path, which: tuple[str, ...], run: Any
) -> None:
    root = write(tmp_path / "logs", 2, clean=False)
    options = Options(engine=EngineName.INLINE, now_ms=NOW_MS, fixes=("recovery",), broker_version="3.9.2")
    plan = make_plan(str(root), options)
    changing = [one.folder for one in plan.partitions if one.changes]
    which = tuple(changing[int(name[-1])] for name in which if int(name[-1]) < len(changing))
    apply(plan, options)
    for folder in which:
        shutil.rmtree(root / folder)
        (root / folder).mkdir()
        (root / folder / f"{0:020d}.log").write_bytes(data(0).raw)
    new = {folder: (root / folder / f"{0:020d}.log").read_bytes() for folder in which}
    report = run(plan, options)
    assert report.exit_code != ExitCode.DONE or run is undo
    for folder in which:
        assert (root / folder / f"{0:020d}.log").read_bytes() == new[folder]
        assert [path.name for path in (root / folder).iterdir()] == [f"{0:020d}.log"]
