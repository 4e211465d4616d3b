"""One partition's trouble is its own: it is named and counted, and the others go on (KIP-346)."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from krepair.commit.reports import ApplyReport
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, RefusedError
from krepair.formats.filenames import log_name
from krepair.kernels.classes import RECORDS
from krepair.ops.apply import apply
from krepair.plan.changes import RewriteSegments
from krepair.rewrite.segments import stage
from tests.durable.disks import FailingDisk
from tests.flips import flip
from tests.ops.full_disks import file_system, fill
from tests.ops.scene import TV2, Scene, markers, outcomes, part, scene, tree, whole_log

FIRST, SECOND = "__consumer_offsets-0", "__consumer_offsets-1"


@pytest.fixture
def bloat(memory_dir: Path) -> Scene:
    return scene(memory_dir)


def logs(one: Scene, folder: str) -> list[Path]:
    return sorted((one.path / folder).glob("*.log"))


def failures(report: ApplyReport) -> dict[str, tuple[int, str]]:
    return {r.partition: (r.exit_code, r.why) for r in report.results if r.outcome == "failed"}


def test_file_that_changed_since_the_plan_refuses_its_partition_and_names_the_file(bloat: Scene) -> None:
    plan = bloat.plan()
    changed = logs(bloat, FIRST)[3]
    os.utime(changed)
    before = tree(bloat.path / FIRST)
    report = bloat.apply(plan)
    assert report.exit_code == ExitCode.PARTLY
    assert failures(report).keys() == {FIRST}
    code, why = failures(report)[FIRST]
    assert code == ExitCode.STALE_PLAN
    assert str(changed) in why
    assert tree(bloat.path / FIRST) == before
    assert {key: value for key, value in outcomes(report).items() if key != FIRST} == {
        each.folder: {"committed"} for each in plan.partitions if each.folder != FIRST
    }
    assert (report.uncleanable_partitions, report.uncleanable_bytes) == (0, 0)


def test_bad_crc_in_a_middle_segment_leaves_the_partition_alone_and_counts_it(bloat: Scene) -> None:
    damaged = logs(bloat, FIRST)[7]
    flip(damaged, 3_000)
    plan = bloat.plan()
    left = part(plan, FIRST)
    assert (left.status, left.code, left.changes) == ("left alone", "damage", ())
    assert damaged.name in left.why
    assert "CRC" in left.why
    assert (plan.uncleanable_partitions, plan.uncleanable_bytes) == (1, 1_308_238)
    before = tree(bloat.path / FIRST)
    report = bloat.apply(plan)
    assert (report.exit_code, FIRST in outcomes(report)) == (ExitCode.DONE, False)
    assert (report.uncleanable_partitions, report.uncleanable_bytes) == (1, 1_308_238)
    assert tree(bloat.path / FIRST) == before
    assert markers(whole_log(bloat.path / SECOND)) == 211


@pytest.mark.parametrize("damage", ["truncated", "zeros", "absurd length", "empty name", "not sorted"])
def test_other_damage_in_a_middle_segment_is_that_partitions_alone(bloat: Scene, damage: str) -> None:
    target = logs(bloat, FIRST)[4]
    data = target.read_bytes()
    broken = {
        "truncated": data[:-20],
        "zeros": data[:1000] + bytes(len(data) - 1000),
        "absurd length": data[:8] + struct.pack(">i", 2**31 - 1) + data[12:],
        "empty name": data,
        "not sorted": data + data,
    }[damage]
    target.write_bytes(broken)
    if damage == "empty name":
        (target.parent / ".log").write_bytes(b"")
        (target.parent / "99999999999999999999999.log").write_bytes(b"x")
    plan = bloat.plan()
    assert {each.folder for each in plan.partitions} >= {FIRST, SECOND}
    if damage != "empty name":
        assert part(plan, FIRST).status == "left alone"
        assert target.name in part(plan, FIRST).why
    assert part(plan, SECOND).status == "change"
    assert SECOND in outcomes(bloat.apply(plan))
    assert markers(whole_log(bloat.path / SECOND)) == 211


def test_torn_tail_of_the_active_segment_ends_the_log_and_refuses_nothing(bloat: Scene) -> None:
    active = logs(bloat, FIRST)[-1]
    active.write_bytes(active.read_bytes()[:-5])
    plan = bloat.plan()
    assert (plan.commit.order, plan.commit.fence) == (
        "P1",
        True,
    )  # a recovery would cut only what nobody can read
    assert part(plan, FIRST).status == "change"
    assert any("active segment ends at position" in note for note in part(plan, FIRST).notes)
    torn = active.read_bytes()
    assert bloat.apply(plan).exit_code == ExitCode.DONE
    assert active.read_bytes() == torn


@pytest.mark.parametrize("kinds", [{"reserve"}, {"make_dir"}], ids=str)
def test_disk_that_is_full_from_the_start_changes_nothing_and_says_so(bloat: Scene, kinds: set[str]) -> None:
    plan = bloat.plan()
    before = tree(bloat.path, private=False)
    report = bloat.apply(plan, FailingDisk(RealDisk(), 1, errno.ENOSPC, forever=True, kinds=kinds))
    assert report.exit_code == ExitCode.REFUSED
    assert all("No space left" in why for _, why in failures(report).values())
    assert tree(bloat.path, private=False) == before
    assert bloat.apply(plan).exit_code == ExitCode.DONE


def test_small_file_system_that_cannot_hold_the_new_files_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    with file_system("tmpfs", tmp_path, 6 << 20) as small:
        one = scene(small)
        plan = one.plan()
        before = tree(one.path)
        fill(small, 40_960)
        with pytest.raises(RefusedError, match=r"needs [\d,]+ bytes \(.*\) on top"):
            one.apply(plan)
        assert tree(one.path) == before
        (small / "filler").unlink()
        assert one.apply(plan).exit_code == ExitCode.DONE


# -- What is copied is read again from the file before it is swapped in: no byte can be another or elsewhere.

Bend = Callable[[int, bytearray], tuple[int, bytearray]]


def flipped(place: int) -> Bend:
    def bend(position: int, data: bytearray) -> tuple[int, bytearray]:
        data[place] ^= 1
        return position, data

    return bend


BENDS: dict[str, Bend] = {
    "base offset": flipped(7),
    "leader epoch, which no CRC of a batch covers": flipped(15),
    "magic": flipped(16),
    "attributes": flipped(22),
    "last byte": flipped(-1),
    "one byte later": lambda position, data: (position + 1, data),
    "the end is missing": lambda position, data: (position, data[:-60]),
    "zeros": lambda position, data: (position, bytearray(len(data))),
}


@pytest.mark.parametrize("bend", BENDS)
def test_what_a_disk_keeps_otherwise_than_it_was_copied_is_never_swapped_in(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch, bend: str
) -> None:
    one = scene(memory_dir, TV2)
    plan = one.plan()
    before = tree(one.path)
    bent: list[str] = []
    write_at = RealDisk.write_at

    def write(self: RealDisk, path: str, position: int, pieces: list[memoryview]) -> int:
        data = bytearray(b"".join(pieces))
        if bent or not path.endswith(".log"):
            return write_at(self, path, position, pieces)
        bent.append(path)
        at, kept = BENDS[bend](position, data)
        write_at(self, path, at, [memoryview(kept)])
        return len(data)

    monkeypatch.setattr(RealDisk, "write_at", write)
    report = apply(plan, one.options())
    assert bent
    folder = bent[0].removeprefix(f"{one.path}/").partition("/")[0]
    (failed,) = [result for result in report.results if result.outcome == "failed"]
    assert (failed.partition, failed.exit_code) == (folder, ExitCode.VERIFY_FAILED)
    now = tree(one.path)
    mine = {name for name in before if name.startswith(f"{folder}/") and "krepair~" not in name}
    assert {name: now[name] for name in mine} == {name: before[name] for name in mine}
    monkeypatch.undo()
    assert apply(plan, one.options()).exit_code == ExitCode.DONE


def test_writes_end_at_multiples_of_the_piece_and_the_outcome_is_the_same(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several sources go into one new log; what is past the last multiple is held back for the next write."""
    in_one = scene(memory_dir / "one", TV2)
    assert apply(in_one.plan(), in_one.options()).exit_code == ExitCode.DONE
    pieces = scene(memory_dir / "pieces", TV2)
    monkeypatch.setattr(stage, "_AT_ONCE_BYTES", 1000)
    ends: list[int] = []
    write_at = RealDisk.write_at

    def write(self: RealDisk, path: str, position: int, views: list[memoryview]) -> int:
        ends.append(position + sum(map(len, views)))
        return write_at(self, path, position, views)

    monkeypatch.setattr(RealDisk, "write_at", write)
    assert apply(pieces.plan(), pieces.options()).exit_code == ExitCode.DONE
    assert 0 < sum(end % 1000 == 0 for end in ends) < len(ends)
    logs = [path.relative_to(in_one.path) for path in in_one.path.glob("*/*.log")]
    assert logs
    for name in logs:
        assert (in_one.path / name).read_bytes() == (pieces.path / name).read_bytes(), name


Gathered = np.ndarray[Any, np.dtype[np.uint8]]
Gather = Callable[[Gathered, int, int], int]
"""Changes (what was gathered, its bytes, bytes of its first batch); gives how many bytes it says there are."""


def changed(place: int) -> Gather:
    def change(out: Gathered, count: int, first: int) -> int:
        out[place if place >= 0 else first + place] ^= 1
        return count

    return change


def left_out(out: Gathered, count: int, first: int) -> int:
    out[: count - first] = out[first:count].copy()
    return count - first


def in_other_order(out: Gathered, count: int, first: int) -> int:
    out[:count] = np.roll(out[:count], first)
    return count


WRONG_GATHERERS: dict[str, Gather] = {
    "an offset": changed(7),
    "a length": changed(11),
    "a leader epoch": changed(15),
    "a CRC": changed(20),
    "a producer": changed(50),
    "the last byte of a batch": changed(-1),
    "a batch is left out": left_out,
    "batches in another order": in_other_order,
}


@pytest.mark.parametrize("wrong", WRONG_GATHERERS)
def test_a_copy_that_is_not_what_stays_is_found(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """The sums are of what is written. So a wrong copy is found by the audit, or by the CRCs of its batches."""
    gather = stage.gather_kept

    def gathered(window: Any, starts: Any, end: int, kept: Any, out: Gathered) -> int:
        count = gather(window, starts, end, kept, out)
        edges = [*starts.tolist(), end]
        first = int(np.flatnonzero(kept)[0])
        return WRONG_GATHERERS[wrong](out, count, edges[first + 1] - edges[first])

    ends_unchanged(memory_dir, monkeypatch, "gather_kept", gathered)


def test_a_stage_that_leaves_out_records_is_found(memory_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit of a window says so, while it is copied; counts and sums would say it of the new log."""
    said = ends_unchanged(memory_dir, monkeypatch, "stays", lambda number, **_: number != RECORDS)
    assert all("has records and would go" in text for text in said), said


def test_a_source_with_another_header_of_the_same_size_and_time_is_not_rewritten(memory_dir: Path) -> None:
    """No CRC covers the leader epoch of a batch: only the digest of headers tells that the log is another one."""
    one = scene(memory_dir, TV2)
    plan = one.plan()
    partition = next(part for part in plan.partitions if part.changes)
    change = next(change for change in partition.changes if isinstance(change, RewriteSegments))
    path = one.path / partition.folder / log_name(change.sources[0].base_offset)
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[15] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    before = tree(one.path)
    report = apply(plan, one.options())
    failed = [result for result in report.results if result.failed and result.partition == partition.folder]
    assert {result.exit_code for result in failed} == {ExitCode.STALE_PLAN}
    now = tree(one.path)
    mine = {name for name in before if name.startswith(f"{partition.folder}/")}
    assert {name: now[name] for name in mine} == {name: before[name] for name in mine}


def ends_unchanged(root: Path, monkeypatch: pytest.MonkeyPatch, name: str, mutant: Any) -> list[str]:
    """An apply with a mutant of the stage fails its verification, and every file is what it was; what was said."""
    one = scene(root, TV2)
    plan = one.plan()
    before = tree(one.path)
    monkeypatch.setattr(stage, name, mutant)
    report = apply(plan, one.options())
    assert {result.exit_code for result in report.results if result.outcome == "failed"} == {
        ExitCode.VERIFY_FAILED
    }
    now = tree(one.path)
    mine = {name for name in before if "krepair~" not in name}
    assert {name: now[name] for name in mine} == {name: before[name] for name in mine}
    monkeypatch.undo()
    assert apply(plan, one.options()).exit_code == ExitCode.DONE
    return [result.why for result in report.results if result.outcome == "failed"]
