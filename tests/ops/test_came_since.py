"""What came into a folder after the plan was made: nothing is changed beside files that the plan does not know."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.options import Options
from tests.commit.scene import UnsyncedDisk
from tests.durable.disks import RecordingDisk
from tests.ops import pending
from tests.ops.scene import TV2, scene, tree
from tests.ops.written import padded

SWAP_BASE, SWAP_LAST = 100, 399


def served(root: Path) -> dict[str, object]:
    return {name: row for name, row in tree(root, private=False).items() if not name.endswith(".lock")}


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        (f"{SWAP_BASE + 1:020d}.log", True),
        (f"{SWAP_LAST:020d}.log", True),
        (f"{SWAP_LAST + 1:020d}.index", False),
        (f"{150:020d}.index.swap", True),
        (f"{0:020d}.log.swap", True),
        (f"{SWAP_BASE:020d}.log.cleaned", True),
        (f"{0:020d}.log.cleaned", True),
        (f"{SWAP_BASE + 1:020d}.log.cleaned", False),
        (f"{150:020d}.log.deleted", False),
    ],
)
def test_swap_is_completed_only_among_the_files_that_the_plan_knows(
    memory_dir: Path, name: str, refused: bool
) -> None:
    root = pending.write(memory_dir / "logs")
    plan = make_plan(str(root), pending.options())
    (root / pending.FOLDER / name).write_bytes(b"")
    before = served(root)
    report = apply(plan, pending.options(), disk=UnsyncedDisk())
    if refused:
        assert report.exit_code == ExitCode.STALE_PLAN
        assert any(name in result.why for result in report.results)
        assert served(root) == before
    else:
        assert report.exit_code == ExitCode.DONE


@pytest.mark.parametrize("state", [".swap", ".cleaned"])
def test_file_is_not_replaced_beside_a_swap_that_came_since(memory_dir: Path, state: str) -> None:
    root = padded(memory_dir / "logs", 3)
    options = Options(fixes=("index",), now_ms=1_700_000_000_000)
    plan = make_plan(str(root), options)
    (root / "t-0" / f"{10:020d}.log{state}").write_bytes(b"half")
    before = served(root)
    report = apply(plan, options, disk=UnsyncedDisk())
    assert report.exit_code == ExitCode.STALE_PLAN
    assert served(root) == before


def test_fence_is_down_while_a_single_file_is_replaced(memory_dir: Path) -> None:
    """What such a change does to an active segment's files would else look like a broker's start."""
    one = scene(memory_dir, TV2)
    folder = next(part.folder for part in one.plan(merge=False).partitions if part.changes)
    (one.path / ".kafka_cleanshutdown").write_bytes(b"")
    checkpoint = one.path / folder / "leader-epoch-checkpoint"
    checkpoint.write_bytes(b"0\n7\n0 0\n")
    before = served(one.path)
    plan = one.plan(merge=False, fixes=("markers", "epochs"))
    kinds = {type(change).__name__ for part in plan.partitions for change in part.changes}
    assert kinds == {"RewriteSegments", "ReplaceFile"}
    for verb in (apply, undo):
        disk = RecordingDisk(UnsyncedDisk())
        assert verb(plan, one.options(), disk=disk).exit_code == ExitCode.DONE
        standing: set[str] = set()
        went_up = replaced = 0
        for call in disk.calls:
            if call.kind == "make_dir" and os.path.basename(call.path) == "fence":
                standing.add(call.path)
                went_up += 1
            if call.kind == "remove_dir":
                standing.discard(call.path)
            if call.kind == "rename" and call.target == str(checkpoint):
                replaced += 1
                assert not [place for place in standing if f"/{folder}/" in place]
        assert went_up
        assert replaced
        assert standing == set()
    assert served(one.path) == before


@pytest.mark.parametrize("what", ["swap", "touched", "gone", "grown"])
def test_group_is_not_rewritten_when_its_folder_is_not_as_it_was(memory_dir: Path, what: str) -> None:
    one = scene(memory_dir, TV2)
    plan = one.plan(merge=False)
    part = next(part for part in plan.partitions if part.changes)
    group = part.changes[-1]
    folder = one.path / part.folder
    log = folder / f"{group.change_id[-20:]}.log"
    if what == "swap":
        (folder / f"{9:020d}.index.swap").write_bytes(b"")
    elif what == "touched":
        os.utime(log, ns=(7, 7))
    elif what == "gone":
        log.with_suffix(".timeindex").unlink()
    else:
        with log.open("ab") as file:
            file.write(b"\0")
    before = {name: row for name, row in served(one.path).items() if name.startswith(part.folder)}
    report = one.apply(plan, UnsyncedDisk())
    assert any(result.partition == part.folder and result.why for result in report.results)
    assert report.exit_code == ExitCode.PARTLY
    after = {name: row for name, row in served(one.path).items() if name.startswith(part.folder)}
    if what == "swap" or len(part.changes) == 1:
        assert after == before
    assert after[f"{part.folder}/{log.name}"] == before[f"{part.folder}/{log.name}"]
