"""Progress of apply: one task for all partitions, which moves while each of them is committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from krepair.ops.apply import apply
from tests.ops.journeys import built


@dataclass
class BatchNotes:
    """What was begun, and how often each moved."""

    tasks: list[str] = field(default_factory=list)
    total: int = 0
    moves: dict[str, list[int]] = field(default_factory=dict)

    def start(self, task: str, total_bytes: int) -> None:
        assert total_bytes >= 0
        self.tasks.append(task)
        self.total = total_bytes

    def advance(self, done_bytes: int) -> None:
        self.moves.setdefault(self.tasks[-1], []).append(done_bytes)

    def finish(self) -> None:
        return


@pytest.mark.parametrize("name", ["partitions", "partitions~until-verified"])
def test_all_partitions_are_one_task(name: str, memory_dir: Path) -> None:
    scene = built(name)
    placed = scene.place(memory_dir)
    changing = [one for one in placed.plan.partitions if one.changes]
    assert len(changing) > 1
    noted = BatchNotes()
    apply(placed.plan, scene.options, noted)
    assert noted.tasks.count("apply") == 1
    assert noted.tasks[-1] == "apply"
    assert len(noted.moves["apply"]) >= len(changing)
    assert sum(noted.moves["apply"]) == noted.total > 0
    if name != "partitions":
        assert noted.tasks == ["apply"]
