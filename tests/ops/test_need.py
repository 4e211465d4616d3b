"""How long the plans of parts of a plan are, and what they need: reckoned from the lengths of what they hold."""

from __future__ import annotations

from itertools import combinations

import pytest
from msgspec.structs import replace

from krepair.journal.root import as_partition
from krepair.ops import need as need_module
from krepair.ops import way_out as way_out_module
from krepair.ops.need import PartLengths, PartNeeds, need_of_part, part_of
from krepair.plan import figures as figures_module
from krepair.plan.model import Asked, ChangeLines, KeepOriginal, Plan, RootPlan, Setting
from krepair.plan.planfile import dumps
from krepair.rules.checkpoint_lines import ChangedLine
from tests.ops.scene import BLOAT, scene

ROWS = tuple(Setting(key=key, value="1", source="default") for key in ("segment.bytes", "cleanup.policy"))
SETTINGS: tuple[dict[str, tuple[Setting, ...]], ...] = (
    {},
    {"": ()},
    {"t1": ROWS},
    {"": ROWS[:1], "t0": (), "t1": ROWS, "t\N{SNOWMAN}": ROWS, "other": ROWS},
)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return scene(tmp_path_factory.mktemp("scene"), BLOAT).plan()


def several(planned: Plan, count: int, *, lines: int = 0) -> Plan:
    """The plan with so many partitions; the names of all of them were typed, and the root changes so many lines."""
    one = planned.changing[0]
    rows = [
        replace(
            one, topic=topic, folder=f"{topic}-{10**number}", partition=10**number, notes=("note",) * number
        )
        for number, topic in enumerate(("t0", "t1", "t1", "t\N{SNOWMAN}") * (count // 4 + 1))
    ]
    change = ChangeLines(
        change_id="./recovery-point-offset-checkpoint",
        name="recovery-point-offset-checkpoint",
        rule="KR201",
        lines=tuple(ChangedLine(topic="t0", partition=number, old=1, new=2) for number in range(lines)),
        size_before=10,
        reason="text",
        undo=KeepOriginal(),
    )
    return replace(
        planned,
        partitions=tuple(rows[:count]),
        root=RootPlan(keeper=rows[0].folder, files=(), changes=(change,)) if lines else None,
        asked=Asked(topics=(), partitions=tuple((row.topic, row.partition) for row in rows)),
    )


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("lines", [0, 3])
def test_a_part_is_as_long_as_it_is_written_out(
    planned: Plan, settings: dict[str, tuple[Setting, ...]], lines: int
) -> None:
    plan = several(planned, 4, lines=lines)
    plan = replace(plan, policy=replace(plan.policy, settings=settings))
    root = [] if plan.root is None else [as_partition(plan.root)]
    lengths, needs = PartLengths(plan), PartNeeds(plan)
    for count in range(5):
        for some in combinations(plan.partitions, count):
            targets = [*root, *some]
            assert lengths.length(targets) == len(dumps(part_of(plan, targets)))
            assert needs.need(targets) == need_of_part(plan, targets)


def test_of_many_partitions_each_is_written_out_alone(planned: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0

    def counting(plan: Plan) -> bytes:
        nonlocal written
        data = dumps(plan)
        written += len(data)
        return data

    for module in (need_module, figures_module):
        monkeypatch.setattr(module, "dumps", counting)

    def cost(lines: int) -> int:
        nonlocal written
        plan = several(planned, 12, lines=lines)
        written = 0
        way_out_module._first_groups(plan, plan.partitions)
        return written

    def of_root(lines: int) -> int:
        return len(dumps(replace(several(planned, 12, lines=lines), partitions=())))

    more = cost(300) - cost(100)
    assert more <= 4 * (of_root(300) - of_root(100)), (
        "what belongs to no partition is written a few times, not per partition"
    )
