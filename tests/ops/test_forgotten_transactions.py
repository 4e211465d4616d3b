"""Transactions that a snapshot keeps open and the log has forgotten: told, ended, verified, taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.undo import undo
from krepair.ops.verify import verify_log_dir, verify_plan
from krepair.plan.model import Plan, ReplaceFile
from tests import encoders
from tests.builders import NOW_MS
from tests.forgotten import (
    CASES,
    FORGOTTEN,
    OPEN,
    Case,
    made,
    snapshot_of,
)
from tests.lab.jars import LOADER_VERSIONS
from tests.ops.inline import Inline, there_and_back
from tests.ops.scene import tree

VERBS = Inline(now_ms=NOW_MS + 60_000, fixes=("snapshots",))
options, checked, planned = VERBS.options, VERBS.checked, VERBS.planned


def found(log_dir: Path, **given: object) -> list[str]:
    """The files of which KR505 is told."""
    return [one.file for one in checked(log_dir, **given).findings if one.rule == "KR505"]


def closed(plan: Plan) -> list[str]:
    return [
        change.name
        for part in plan.partitions
        for change in part.changes
        if isinstance(change, ReplaceFile) and change.rule == "KR505"
    ]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_told_and_ended_where_the_log_has_forgotten_it_and_nowhere_else(
    tmp_path: Path, case: Case
) -> None:
    log_dir = made(tmp_path / "logs", case)
    before = tree(log_dir)
    expected = [f"{case.snapshot:020d}.snapshot"] if case.told else []
    assert found(log_dir) == expected
    assert tree(log_dir) == before
    plan = planned(log_dir)
    assert closed(plan) == expected
    if not case.told:
        return
    path = log_dir / "t-0" / expected[0]
    old = snapshot_of(path)
    with there_and_back(log_dir, plan, options()):
        ended = {one for one in old if one.producer_id in case.ended}
        assert set(snapshot_of(path)) == {
            one._replace(current_txn_first_offset=-1) if one in ended else one for one in old
        }
        assert [one.producer_id for one in snapshot_of(path)] == [one.producer_id for one in old]
        assert verify_log_dir(str(log_dir), options()).problems == () or case.name == "a torn tail"
        assert found(log_dir) == []
        assert closed(planned(log_dir)) == []


@pytest.mark.parametrize("version", ["", *LOADER_VERSIONS])
def test_it_is_told_for_each_version(tmp_path: Path, version: str) -> None:
    log_dir = made(tmp_path / "logs", CASES[0])
    report = check([str(log_dir)], options(broker_version=version))
    (one,) = [each for each in report.log_dirs[0].findings if each.rule == "KR505"]
    assert one.evidence == (
        f"1 transaction is open here, but the log has no batch of it and no end of it: of producer {FORGOTTEN}, "
        "epoch 0, from offset 7 on; the next start begins with this snapshot"
    )
    assert "--fix snapshots" in str(report.next_command)


def test_before_2_4_the_start_fails_until_it_is_ended(tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs", CASES[0])
    told = [one.rule for one in checked(log_dir, broker_version="2.2.1").findings]
    assert set(told) >= {"KR505", "KR803"}
    apply(planned(log_dir), options())
    assert not {"KR505", "KR803"} & {one.rule for one in checked(log_dir, broker_version="2.2.1").findings}


@pytest.mark.parametrize("field", ["timestamp", "current_txn_first_offset", "producer_epoch"])
def test_verify_holds_the_new_snapshot_against_its_original(tmp_path: Path, field: str) -> None:
    """A plan whose digest is right for wrong bytes: the second reading says so, entry by entry."""
    log_dir = made(tmp_path / "logs", CASES[0])
    plan = planned(log_dir)
    apply(plan, options())
    path = log_dir / "t-0" / closed(plan)[0]
    entries = snapshot_of(path)
    wrong = [entries[0]._replace(**{field: 3}), *entries[1:]]
    path.write_bytes(encoders.encode_snapshot(wrong))
    assert verify_plan(plan, options()).problems != ()


def test_recovery_alone_carries_it_on_and_with_snapshots_it_is_ended_at_the_log_end(tmp_path: Path) -> None:
    for fixes, still in ((("recovery",), {OPEN, FORGOTTEN}), (("snapshots", "recovery"), {OPEN})):
        log_dir = made(tmp_path / "-".join(fixes), CASES[1])
        before = tree(log_dir)
        plan = planned(log_dir, fixes=fixes)
        assert apply(plan, options()).exit_code == ExitCode.DONE
        assert verify_plan(plan, options()).problems == ()
        end = max((log_dir / "t-0").glob("*.snapshot"))
        assert {one.producer_id for one in snapshot_of(end) if one.has_open_txn} == still
        assert found(log_dir) == ([end.name] if FORGOTTEN in still else [])
        assert undo(plan, options()).exit_code == ExitCode.DONE
        assert tree(log_dir) == before
