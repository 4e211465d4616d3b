"""How often a disk is waited for: one fsync for each new file, and a number per partition that does not grow."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.options import Options
from tests.ops.written import padded


class Syncs:
    """Counts every fsync of this process, by the kind of what is synced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: Counter[int] = Counter()
        self.folders = 0
        real = os.fsync

        def counting(descriptor: int) -> None:
            found = os.fstat(descriptor)
            if os.path.isdir(f"/proc/self/fd/{descriptor}"):
                self.folders += 1
            else:
                self.files[found.st_ino] += 1
            real(descriptor)

        monkeypatch.setattr(os, "fsync", counting)

    def take(self) -> tuple[int, int]:
        """(of files, of folders) since the last time."""
        taken = sum(self.files.values()), self.folders
        self.files.clear()
        self.folders = 0
        return taken


@pytest.mark.parametrize("verb", ["replaced", "removed"])
def test_each_new_file_is_synced_once_and_a_partition_so_often_whatever_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    figures = []
    for segments in (5, 45):
        root = padded(tmp_path / f"{segments}", segments)
        fixes = ("index",)
        if verb == "removed":
            fixes = ("leftovers",)
            for number in range(segments):
                (root / "t-0" / f"{number * 10:020d}.log.deleted").write_bytes(b"set aside")
        options = Options(fixes=fixes, now_ms=1_700_000_000_000)
        plan = make_plan(str(root), options)
        changes = sum(len(partition.changes) for partition in plan.partitions)
        syncs = Syncs(monkeypatch)
        assert apply(plan, options).exit_code == ExitCode.DONE
        applied = syncs.take()
        assert undo(plan, options).exit_code == ExitCode.DONE
        figures.append((changes, applied, syncs.take()))
        monkeypatch.undo()
    (few, applied_few, undone_few), (many, applied_many, undone_many) = figures
    assert many > few * 8
    new_files = 0 if verb == "removed" else many - few
    assert applied_many[0] - applied_few[0] == new_files
    assert applied_many[1] == applied_few[1]
    assert undone_many == undone_few
    assert applied_few[1] < 20
    assert sum(undone_few) < 20
