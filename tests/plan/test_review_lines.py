"""The review of checkpoint lines: a recovery point rises only for recovery, and only to the log end."""

from __future__ import annotations

from typing import Any

import pytest

from krepair.plan.build import build_plan
from krepair.plan.model import ChangeLines, KeepOriginal, NotReversible, Plan, RootPlan
from krepair.plan.review import review
from krepair.rules.changed_entries import ChangedLine
from tests.plan.plans import COMMIT, FACTS, check_begins, fingerprint, policy
from tests.plan.reviewed_loss import FILES, FOLDER, partition_with

NAME = "recovery-point-offset-checkpoint"
RISES = ChangedLine("t", 0, 100, 300)


def lines(*changed: ChangedLine, **fields: Any) -> ChangeLines:
    values: dict[str, Any] = {
        "change_id": f"./{NAME}",
        "name": NAME,
        "rule": "KR801",
        "lines": changed,
        "size_before": 20,
        "reason": "everything was read",
        "undo": KeepOriginal(),
    }
    return ChangeLines(**(values | fields))


def plan(
    change: ChangeLines,
    *,
    fixes: tuple[str, ...] = ("recovery",),
    root: dict[str, Any] | None = None,
    **part: Any,
) -> Plan:
    files = (fingerprint(change.name, 20),) if change.size_before >= 0 else ()
    made = RootPlan(**({"keeper": FOLDER, "files": files, "changes": (change,)} | (root or {})))
    chosen = policy(fixes=fixes, settings={})
    return build_plan(FACTS, chosen, [partition_with(**part)], COMMIT, root=made)


def told(made: Plan) -> list[str]:
    return [f"{one.code} {one.text}" for one in review(made)]


FINE: list[tuple[str, Plan]] = [
    ("a recovery point that rises to the log end", plan(lines(RISES))),
    ("a new line", plan(lines(ChangedLine("t", 0, None, 300)))),
    ("a new file", plan(lines(ChangedLine("t", 0, None, 300), size_before=-1))),
    (
        "a recovery point of an empty log",
        plan(lines(ChangedLine("t", 0, None, 0)), log_end_offset=0, files=(), log_bytes_before=0),
    ),
    (
        "a recovery point that sinks",
        plan(lines(ChangedLine("t", 0, 400, 100), rule="KR403"), fixes=("checkpoints",)),
    ),
    (
        "a line of a partition that is not there goes",
        plan(lines(ChangedLine("u", 0, 7, None), rule="KR403"), fixes=("checkpoints",)),
    ),
    (
        "another checkpoint that rises",
        plan(
            lines(
                ChangedLine("t", 0, 1, 2),
                rule="KR404",
                name="replication-offset-checkpoint",
                change_id="./replication-offset-checkpoint",
            ),
            fixes=("checkpoints",),
        ),
    ),
]


@pytest.mark.parametrize("made", [row[1] for row in FINE], ids=[row[0] for row in FINE])
def test_lines_that_may_change_pass(made: Plan) -> None:
    assert told(made) == []


NOT_ITS_END = "RV28 t-0: its recovery point would rise to {}, which is not its log end"
NO_TRUST = "RV28 {} does not let a start read less than before"
BROKEN: list[tuple[str, Plan, list[str]]] = [
    (
        "a recovery point below the log end",
        plan(lines(ChangedLine("t", 0, 100, 299))),
        [NOT_ITS_END.format(299)],
    ),
    (
        "a recovery point above the log end",
        plan(lines(ChangedLine("t", 0, 100, 301))),
        [NOT_ITS_END.format(301)],
    ),
    (
        "of a partition that is left alone",
        plan(
            lines(RISES),
            status="left alone",
            code="damage",
            why="CRC",
        ),
        [NOT_ITS_END.format(300)],
    ),
    (
        "of a partition that is not in the plan",
        plan(lines(ChangedLine("t", 1, 100, 300))),
        ["RV28 t-1: its recovery point would rise to 300, which is not its log end"],
    ),
    (
        "of a topic that is never changed",
        plan(
            lines(ChangedLine("__cluster_metadata", 0, 100, 300)),
            topic="__cluster_metadata",
            folder="__cluster_metadata-0",
        ),
        ["RV28 __cluster_metadata-0: its recovery point would rise to 300, which is not its log end"],
    ),
    (
        "one of two",
        plan(lines(RISES, ChangedLine("u", 0, None, 5))),
        ["RV28 u-0: its recovery point would rise to 5, which is not its log end"],
    ),
    (
        "a recovery point that rises for the rule of its damage",
        plan(lines(RISES, rule="KR403"), fixes=("checkpoints",)),
        [NO_TRUST.format("KR403")],
    ),
    (
        "a fix that was not chosen",
        plan(lines(RISES), fixes=("checkpoints",)),
        [NO_TRUST.format("KR801")],
    ),
    ("a rule that is no rule", plan(lines(RISES, rule="KR999")), [NO_TRUST.format("KR999")]),
    ("no line", plan(lines(rule="KR403"), fixes=("checkpoints",)), ["RV28 no line changes"]),
    (
        "a line twice",
        plan(lines(ChangedLine("t", 0, 100, 300), ChangedLine("t", 0, 200, 300))),
        ["RV28 two lines of one partition stay"],
    ),
    (
        "another size",
        plan(lines(RISES, size_before=19)),
        ["RV28 size_before is 19, the file has 20"],
    ),
    (
        "a new file of some bytes",
        plan(lines(RISES, size_before=0), root={"files": ()}),
        ["RV28 changes and fingerprints", "RV28 the file has no fingerprint"],
    ),
    (
        "a new file for another rule",
        plan(lines(ChangedLine("t", 0, 7, None), rule="KR403", size_before=-1), fixes=("checkpoints",)),
        ["RV28 the file has no fingerprint"],
    ),
    (
        "not kept",
        plan(lines(RISES, undo=NotReversible(why="x"))),
        ["RV28 the original would not be kept"],
    ),
    (
        "a recovery point that sinks for recovery",
        plan(lines(ChangedLine("t", 0, 400, 300))),
        ["RV28 files of the root change, but", f"RV28 {NAME!r} is no checkpoint of the root that KR801"],
    ),
]


@pytest.mark.parametrize(("made", "words"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_lines_that_must_not_change_are_objected_to(made: Plan, words: list[str]) -> None:
    check_begins(told(made), words)


def test_only_a_recovery_point_that_rises_lets_a_start_read_less() -> None:
    sinks, goes, added = (
        ChangedLine("u", 1, 9, 8),
        ChangedLine("v", 2, 9, None),
        ChangedLine("w", 3, None, 0),
    )
    assert set(lines(RISES, sinks, goes, added).trusts) == {("t", 0), ("w", 3)}
    assert lines(ChangedLine("t", 0, 9, 10)).trusts == {("t", 0): 10}
    for name in ("replication-offset-checkpoint", "log-start-offset-checkpoint"):
        assert lines(RISES, added, name=name).trusts == {}


def test_lines_in_a_partition_are_objected_to() -> None:
    part = partition_with(lines(RISES), files=tuple(FILES))
    made = build_plan(FACTS, policy(fixes=("recovery",), settings={}), [part], COMMIT)
    assert "RV28 lines of a checkpoint change, in a partition" in told(made)
