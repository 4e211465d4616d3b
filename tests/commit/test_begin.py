"""What a change begins with says all that it needs to go on; and what becomes of changes while they are purged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.commit.begin import StagedGroup, Target, begin
from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import Done, FileState, Intent, Order, Purge
from krepair.commit.status import ChangeState, status_in
from krepair.logdir.fingerprint import digest_bytes, digest_file
from krepair.plan.model import CompleteSwap, FileFingerprint, KeepOriginal, NewFile, PartitionPlan
from tests.commit.scene import PLAN_ID, Scene, UnsyncedDisk, name, put

LOG, INDEX, OTHER = name(100), name(100, ".index"), name(150)
GOES = (INDEX, LOG, OTHER)


def swap(copied: tuple[int, ...]) -> CompleteSwap:
    return CompleteSwap(
        change_id=f"t-0/{LOG}.swap",
        base_offset=100,
        rule="KR601",
        log_bytes=8,
        last_offset=180,
        batches=1,
        replaces=(100, 150),
        goes=GOES,
        copied=copied,
        makes=(NewFile(name=INDEX, size=9, digest=digest_bytes(b"new index")),),
        reason="",
        undo=KeepOriginal(),
    )


@pytest.mark.parametrize("order", ["P1", "P2"])
@pytest.mark.parametrize(("copied", "names"), [((), ()), ((100,), (INDEX, LOG)), ((150,), (OTHER,))])
def test_a_completed_swap_begins_in_the_plans_order_and_copies_what_is_damaged(
    memory_dir: Path, order: Order, copied: tuple[int, ...], names: tuple[str, ...]
) -> None:
    path = memory_dir / "t-0"
    for place in ("stage", "keep", "out"):
        (path / f"krepair~{PLAN_ID}" / place).mkdir(parents=True)
    for file in (*GOES, f"{LOG}.swap"):
        put(path / file, b"original", 1_000)
    put(path / f"krepair~{PLAN_ID}" / "stage" / INDEX, b"new index", 2_000)
    status = os.stat(path / LOG)
    files = tuple(
        FileFingerprint(name=file, size=8, mtime_ns=status.st_mtime_ns, digest="")
        for file in (*GOES, f"{LOG}.swap")
    )
    change = swap(copied)
    plan = PartitionPlan(
        topic="t", partition=0, folder="t-0", status="change", files=files, changes=(change,)
    )
    intent = begin(
        Target(PartitionFolder(UnsyncedDisk(), str(memory_dir), "t-0", PLAN_ID), plan, order), change
    )
    assert (intent.executor, intent.order, intent.copied) == ("swap", order, names)
    assert [state.name for state in intent.made] == [LOG, INDEX]


@pytest.mark.parametrize("order", ["P1", "P2"])
def test_a_rewritten_group_begins_with_how_its_new_files_are_known(memory_dir: Path, order: Order) -> None:
    scene = Scene(memory_dir / "logs", index_change=False)
    change = scene.partition.changes[0]
    scene.stage(change)
    folder = scene.folder()
    index = folder.names.stage(name(100, ".index"))
    staged = StagedGroup(((8, 1), (9, 2)), {name(100, ".index"): digest_file(folder.at(index))})
    intent = begin(Target(folder, scene.partition, order, {change.change_id: staged}), change)
    assert (intent.executor, intent.order) == ("segments", order)
    assert (intent.parts, intent.digests) == (staged.parts, staged.made)


def test_while_a_purge_is_half_done_only_what_was_applied_counts_as_purged(memory_dir: Path) -> None:
    scene = Scene(memory_dir / "logs", index_change=False)
    first, second, *_ = (change.change_id for change in scene.partition.changes)
    new = FileState(name=name(100), size=1, mtime_ns=1)
    folder = scene.folder()
    folder.make_private_folders()
    journal = folder.journal(to_write=True)
    journal.append(*(Intent(change_id=one, executor="segments", made=(new,)) for one in (first, second)))
    journal.append(Done(change_id=first, state="committed"), Done(change_id=second, state="rolled back"))
    journal.append(Purge())
    states = status_in(scene.folder(), scene.partition)
    assert (states[first], states[second]) == (ChangeState.PURGED, ChangeState.PLANNED)
