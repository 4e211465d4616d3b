"""Pre-recovery under each ``--keep``: applied, undone as far as originals are kept, applied again, purged."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.plan.review import review
from tests.ops.by_hand import take_back_by_hand
from tests.ops.scene import tree
from tests.recovery.scene import planned, points_of

RAISED = {"t": 450, "o": 3}


def of_the_broker(path: Path) -> dict[str, object]:
    """The files of a directory but for those of krepair's own folders."""
    return {name: found for name, found in tree(path).items() if "krepair~" not in str(name)}


def test_until_verified_the_points_and_the_new_segments_are_taken_back_and_undo_names_what_stays(
    tmp_path: Path,
) -> None:
    path, verbs, plan = planned(tmp_path / "logs", keep="until-verified")
    before = of_the_broker(path)
    assert review(plan) == []
    verbs.apply(plan)
    after = of_the_broker(path)
    assert points_of(path) == RAISED
    assert verbs.wrong(plan) == []
    report = undo(plan, verbs.options())
    assert report.exit_code == ExitCode.PARTLY
    assert points_of(path) == {"t": 250, "o": 0}
    assert not (path / "t-0" / f"{450:020d}.log").exists()
    assert not (path / "o-0" / f"{3:020d}.log").exists()
    failed = {one.partition: one.why for one in report.results if one.outcome == "failed"}
    assert set(failed) == {"t-0", "o-0"}
    assert all("were freed as soon as the new files were verified" in why for why in failed.values())
    logs = {name: found for name, found in before.items() if str(name).endswith(".log")}
    now = of_the_broker(path)
    assert {name: now.get(name) for name in logs} == logs
    verbs.apply(plan)
    assert points_of(path) == RAISED
    assert of_the_broker(path).keys() == after.keys()


@pytest.mark.parametrize("keep", ["inplace", "until-verified"])
def test_under_each_keep_purge_leaves_nothing_of_krepair_and_the_points_raised(
    keep: str, tmp_path: Path
) -> None:
    path, verbs, plan = planned(tmp_path / "logs", keep=keep)
    verbs.apply(plan)
    assert purge(plan, verbs.options()).exit_code == ExitCode.DONE
    assert tree(path) == of_the_broker(path)
    assert points_of(path) == RAISED
    assert apply(plan, verbs.options()).exit_code == ExitCode.DONE
    assert undo(plan, verbs.options()).exit_code == ExitCode.REFUSED
    assert points_of(path) == RAISED


def test_while_one_journal_has_lost_its_records_the_old_recovery_points_are_kept_for_its_undo(
    tmp_path: Path,
) -> None:
    path, verbs, plan = planned(tmp_path / "logs")
    before = tree(path / "t-0")
    verbs.apply(plan)
    journal = path / "t-0" / f"krepair~{plan.plan_id}" / "journal"
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
    other = journal.parent / "keep" / "00000000000000000999.snapshot"
    other.write_bytes(b"only here")
    report = purge(plan, verbs.options())
    assert report.exit_code == ExitCode.PARTLY
    assert {one.partition: one.outcome for one in report.results} == {
        "t-0": "failed",
        "o-0": "purged",
        ".": "failed",
    }
    assert "stays, because t-0 still has backups" in report.results[-1].why
    assert str(report.next_command) == f"krepair undo {path} --plan-id {plan.plan_id}"
    other.unlink()
    taken_back = take_back_by_hand(plan, verbs.options())
    assert {one.partition for one in taken_back.results if one.outcome == "failed"} == {"o-0"}
    assert tree(path / "t-0") == before
    assert points_of(path) == {"t": 250, "o": 0}
