"""The review of a new empty segment: it begins at the log end, no file has its names, and it is the last change."""

from __future__ import annotations

from typing import Any

import pytest

from krepair.formats.filenames import MAX_OFFSET
from krepair.plan.build import build_plan
from krepair.plan.model import KeepOriginal, Plan, RollSegment
from krepair.plan.review import review
from tests.plan.plans import COMMIT, FACTS, fingerprint, policy
from tests.plan.reviewed_loss import FILES, FOLDER, partition_with, replaced

INDEX = f"{0:020d}.index"


def roll(base: int = 300, **fields: Any) -> RollSegment:
    values: dict[str, Any] = {
        "change_id": f"{FOLDER}/{base:020d}",
        "base_offset": base,
        "rule": "KR801",
        "reason": "a start reads the active segment",
        "undo": KeepOriginal(),
    }
    return RollSegment(**(values | fields))


def plan(*changes: Any, fixes: tuple[str, ...] = ("recovery",), **fields: Any) -> Plan:
    part = partition_with(*changes, **fields)
    return build_plan(FACTS, policy(fixes=fixes, settings={}), [part], COMMIT)


def told(made: Plan) -> list[str]:
    return [f"{one.code} {one.where}: {one.text}" for one in review(made)]


FINE: list[tuple[str, Plan]] = [
    ("at the log end", plan(roll())),
    ("after another change", plan(replaced(INDEX), roll(), fixes=("index", "recovery"))),
    ("at the last offset that there is", plan(roll(MAX_OFFSET), log_end_offset=MAX_OFFSET)),
    ("right above the base of the last segment", plan(roll(201), log_end_offset=201)),
    ("at offset 0 of a log without a segment", plan(roll(0), log_end_offset=0, files=(), log_bytes_before=0)),
    ("at offset 1 of a log without a segment", plan(roll(1), log_end_offset=1, files=(), log_bytes_before=0)),
]


@pytest.mark.parametrize("made", [row[1] for row in FINE], ids=[row[0] for row in FINE])
def test_segment_that_begins_at_the_log_end_passes(made: Plan) -> None:
    assert told(made) == []


def at(base: int) -> str:
    return f"{FOLDER}/{base:020d}"


ELSEWHERE = "RV30 {}: the log ends at offset {}, a segment cannot begin elsewhere"
NOT_LAST = f"RV30 {FOLDER}: a new segment is not the last change"
BROKEN: list[tuple[str, Plan, list[str]]] = [
    ("below the log end", plan(roll(299)), [ELSEWHERE.format(at(299), 300)]),
    ("above the log end", plan(roll(301)), [ELSEWHERE.format(at(301), 300)]),
    (
        "at the base of the last segment",
        plan(roll(200), log_end_offset=200),
        [
            ELSEWHERE.format(at(200), 200),
            *(
                f"RV30 {at(200)}: {200:020d}{suffix} is there already"
                for suffix in (".index", ".timeindex", ".log")
            ),
        ],
    ),
    ("below the last segment", plan(roll(150), log_end_offset=150), [ELSEWHERE.format(at(150), 150)]),
    (
        "below offset 0 of a log without a segment",
        plan(roll(-1), log_end_offset=-1, files=(), log_bytes_before=0),
        [ELSEWHERE.format(at(-1), -1)],
    ),
    (
        "past the last offset that there is",
        plan(roll(MAX_OFFSET + 1), log_end_offset=MAX_OFFSET + 1),
        [ELSEWHERE.format(at(MAX_OFFSET + 1), MAX_OFFSET + 1)],
    ),
    (
        "an index of it is there",
        plan(
            roll(),
            files=tuple(
                sorted([*FILES, fingerprint(f"{300:020d}.timeindex", 0)], key=lambda file: file.name)
            ),
        ),
        [f"RV30 {at(300)}: {300:020d}.timeindex is there already"],
    ),
    (
        "a rule that is no rule",
        plan(roll(rule="KR999")),
        [f"RV25 {at(300)}: 'KR999' is not a rule that the chosen fixes mend"],
    ),
    (
        "a fix that was not chosen",
        plan(roll(), fixes=("index",)),
        [f"RV25 {at(300)}: 'KR801' is not a rule that the chosen fixes mend"],
    ),
    (
        "with another id",
        plan(roll(change_id=f"{FOLDER}/x")),
        [f"RV09 {FOLDER}/x: is not segment 300 of this folder"],
    ),
    (
        "before another change",
        plan(roll(), replaced(INDEX), fixes=("index", "recovery")),
        [NOT_LAST],
    ),
    (
        "two of them",
        plan(roll(), roll(301)),
        [NOT_LAST, ELSEWHERE.format(at(301), 300)],
    ),
]


@pytest.mark.parametrize(("made", "words"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_segment_that_is_not_a_new_last_one_is_objected_to(made: Plan, words: list[str]) -> None:
    assert told(made) == words
