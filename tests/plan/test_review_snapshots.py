"""The review of producer snapshots in a plan."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from krepair.plan.model import PartitionPlan, Plan, ReplaceFile
from krepair.plan.planfile import seal
from krepair.plan.review import review
from krepair.plan.space import with_figures
from tests.plan.plans import FOLDER, fingerprint, good_plan, partition, policy, removed_file

BASE, END, PAST = (f"{offset:020d}.snapshot" for offset in (100, 250, 900))


def removed(name: str) -> ReplaceFile:
    return removed_file(name, rule="KR502", size_before=10, reason="past the log end")


def made(name: str, **given: Any) -> ReplaceFile:
    values: dict[str, Any] = {
        "method": "regenerate",
        "rule": "KR501",
        "size_before": -1,
        "size_after": 56,
        "digest_after": "ab" * 16,
    }
    return replace(removed(name), **(values | given))


def objections(names: tuple[str, ...], *changes: ReplaceFile, fixes: tuple[str, ...] = ("snapshots",)) -> Any:
    files = [file for file in partition().files if not file.name.endswith(".snapshot")]
    files += [fingerprint(name, 10) for name in names]
    part: PartitionPlan = replace(
        partition(),
        files=tuple(sorted(files, key=lambda file: file.name)),
        changes=changes,
        log_end_offset=250,
    )
    plan: Plan = good_plan(with_figures(part, policy()))
    return {
        (objection.code, objection.where)
        for objection in review(seal(replace(plan, policy=replace(plan.policy, fixes=fixes))))
    }


def test_snapshot_at_the_log_end_may_be_made_and_others_may_go() -> None:
    assert objections((BASE, PAST), made(END), removed(PAST)) == set()
    assert objections((PAST,), made(END), removed(PAST)) == set()
    assert objections((BASE, END, PAST), made(END, size_before=10), removed(PAST)) == set()


def test_the_last_snapshot_never_goes_without_another_in_its_place() -> None:
    assert objections((BASE,), removed(BASE)) == {("RV23", FOLDER)}
    assert objections((BASE, PAST), removed(BASE), removed(PAST)) == {("RV23", FOLDER)}


@pytest.mark.parametrize(
    "change",
    [
        made(BASE, size_before=10),
        made(PAST),
        made(END, method="truncate", size_before=10, size_after=5),
        made(END, size_before=10, rule="KR401"),
        made(f"{250:020d}.log"),
        made("250.snapshot"),
    ],
)
def test_no_other_snapshot_and_no_log_may_be_made(change: ReplaceFile) -> None:
    assert ("RV25", change.change_id) in objections((BASE, END), change)


def test_only_a_file_that_is_there_may_go() -> None:
    """One that is to be made, and by a word goes, would be called gone already: apply would end with 0 without it."""
    wrong = made(END, method="remove")
    assert ("RV25", wrong.change_id) in objections((BASE,), wrong)


def test_snapshots_change_only_by_their_own_fix() -> None:
    assert ("RV25", f"{FOLDER}/{END}") in objections((BASE,), made(END), fixes=("index",))
    assert ("RV25", f"{FOLDER}/{PAST}") in objections((BASE, PAST), removed(PAST), fixes=("leftovers",))


def test_snapshot_in_which_a_transaction_is_ended_is_one_that_is_there() -> None:
    closed = made(BASE, rule="KR505", size_before=10, size_after=10)
    assert objections((BASE, END), closed) == set()
    for wrong in (
        made(PAST, rule="KR505"),
        replace(closed, method="truncate"),
    ):
        assert ("RV25", wrong.change_id) in objections((BASE, END), wrong)
    assert ("RV25", closed.change_id) in objections((BASE, END), closed, fixes=("recovery",))
