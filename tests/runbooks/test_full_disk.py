"""The full-disk runbook, typed on full disks: every file system, user, reserve and size; a broker starts afterwards.

The gate has two cells. KREPAIR_EVERY_STATE=1 runs all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ops.full_disks import free_of
from tests.ops.test_full_disks import MIB, open_dir
from tests.runbooks.full_disk import (
    Cell,
    a_broker_serves_all,
    free_the_disk,
    free_what_is_kept,
    on_a_full_disk,
)

__all__ = ["open_dir"]
EVERY = bool(os.environ.get("KREPAIR_EVERY_STATE"))
GATE = (Cell("ext4", 5, "root", 62),)
TYPED_IN_GATE = (Cell("tmpfs", 0, "broker", 6, "inodes"), Cell("xfs", 0, "broker", 6))


def cells() -> Iterator[Cell]:
    """The whole product; XFS makes inodes as long as it has blocks."""
    for partitions in (62, 500):
        for user in ("root", "broker"):
            for kind, reserve in (("ext4", 0), ("ext4", 5), ("xfs", 0), ("tmpfs", 0)):
                yield Cell(kind, reserve, user, partitions)
            for kind in ("ext4", "tmpfs"):
                yield Cell(kind, 0, user, partitions, "inodes")


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize("cell", cells() if EVERY else GATE, ids=str)
def test_the_runbook_frees_a_full_disk_and_a_broker_serves_what_it_did(
    open_dir: Path, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with on_a_full_disk(cell, open_dir, monkeypatch) as operator:
        machine = operator.machine
        free_the_disk(operator)
        a_broker_serves_all(cell, machine.path, open_dir / "broker")
        free_what_is_kept(operator)
        assert list(machine.path.glob("*/krepair~*")) == []
        assert free_of(machine.mount) > cell.partitions * MIB // 2
        if cell.reserved_percent and cell.user == "root":
            # 18 commands and 9 decisions, before there was a sequence
            assert (len(operator.typed), len(operator.decisions)) == (4, 2), operator
        else:
            assert len(operator.typed) <= 7, operator
            assert len(operator.decisions) <= 3, operator
        print(cell, len(operator.typed), "commands", len(operator.decisions), "decisions")


@pytest.mark.slow
@pytest.mark.parametrize("cell", TYPED_IN_GATE, ids=str)
def test_the_runbook_leads_out_where_nothing_is_free_for_anybody(
    open_dir: Path, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with on_a_full_disk(cell, open_dir, monkeypatch) as operator:
        folders = sorted(path.name for path in operator.machine.path.iterdir())
        free_the_disk(operator)
        free_what_is_kept(operator)
        assert sorted(path.name for path in operator.machine.path.iterdir()) == folders
        assert (len(operator.typed), len(operator.decisions) <= 3) == (7, True), operator
