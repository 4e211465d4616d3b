"""The files of a partition are gone through once for all of its changes, not once for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from krepair.commit.begin import Target
from krepair.commit.executor import KeptFile
from krepair.commit.folder import ROOT
from krepair.commit.journal import FileState
from krepair.fixes import second_readings
from krepair.fixes.staging import Staging
from krepair.ops import purge
from krepair.ops.undo import KeptOriginal, bad_copies
from krepair.plan.model import FileFingerprint, PartitionPlan, ReplaceFile
from krepair.plan.space import verify_seconds
from tests.plan.plans import fingerprint, good_plan, nothing, replaced_file

FEW, MANY = 2, 6


class Files(tuple[FileFingerprint, ...]):
    """Counts how often somebody goes through it."""

    times = 0

    def __iter__(self) -> Iterator[FileFingerprint]:
        Files.times += 1
        return super().__iter__()


def changing(number: int) -> PartitionPlan:
    """A partition with so many changes; its files are counted."""
    names = [f"{base:020d}.index" for base in range(number)]
    changes = tuple(replaced_file(name) for name in names)
    files = Files(fingerprint(name, 8) for name in names)
    return replace(nothing(), status="change", files=files, changes=changes)


def names_of(partition: PartitionPlan) -> list[str]:
    return [change.name for change in partition.changes if isinstance(change, ReplaceFile)]


def verified(partition: PartitionPlan) -> None:
    assert verify_seconds(replace(good_plan(), partitions=(partition,))) > 0


def carried_out(partition: PartitionPlan) -> None:
    folder: Any = None
    target = Target(folder, partition, "P1")
    assert all(name in target.planned for name in names_of(partition))


def read_again(partition: PartitionPlan) -> None:
    tree = SimpleNamespace(is_folder=lambda path: True, is_there=lambda path: False, status=lambda path: None)
    folder: Any = SimpleNamespace(private="/private", at=lambda name: name, tree=tree)
    staging = Staging(partition, None, folder, partition.changes)
    for change, name in zip(partition.changes, names_of(partition), strict=True):
        assert second_readings.gone(staging, change, (name,)).files == 1


def kept(partition: PartitionPlan) -> None:
    folder: Any = SimpleNamespace(
        state=lambda path: "there", at=lambda path: path, names=SimpleNamespace(keep=lambda: "keep")
    )
    files = [
        KeptOriginal(
            partition,
            folder,
            str(base),
            KeptFile("p", FileState(name=f"{base:020d}.log", size=1, mtime_ns=1)),
        )
        for base in range(len(partition.changes))
    ]
    engine: Any = SimpleNamespace(map=lambda function, items: iter(()))
    bad_copies(good_plan(), files, engine)


@pytest.mark.parametrize("work", [verified, carried_out, read_again, kept])
def test_files_of_a_partition_are_gone_through_as_often_for_many_changes_as_for_few(
    work: Callable[[PartitionPlan], None],
) -> None:
    times = []
    for number in (FEW, MANY):
        Files.times = 0
        work(changing(number))
        times.append(Files.times)
    assert times == [1, 1]


@pytest.mark.parametrize("number", [FEW, MANY])
def test_what_was_purged_before_is_gone_through_for_the_root_alone(number: int) -> None:
    class Results(list[Any]):
        times = 0

        def __iter__(self) -> Iterator[Any]:
            Results.times += 1
            return super().__iter__()

    failed = Results([SimpleNamespace(failed=True, partition="t-0")])
    tree = SimpleNamespace(is_folder=lambda path: True)
    for name in [*(f"t-{one}" for one in range(number)), ROOT]:
        folder: Any = SimpleNamespace(folder=name, tree=tree, private="/private")
        assert (purge._why_root_stays(folder, failed) is not None) == (name == ROOT)
    assert Results.times == 1
