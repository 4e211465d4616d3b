"""Replicas whose leader epochs contradict each other: one will cut its log, and nothing goes by its tail."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.plan.model import Plan
from tests.builders import NOW_MS, Batch, LogDir, Record, data
from tests.ops.replica_scenes import OLD, left_in, watermark
from tests.ops.replicas_read import FIXES, evidence, part, sides, verbs

pytestmark = pytest.mark.replicas
FORK = 3
KEYS = ("gone", "a", "b", "gone", "b", "end")
THEIRS = ("gone", "a", "b", "c", "d", "end")


def history(
    root: Path, number: int, keys: tuple[str, ...], *, epoch_of_tail: int, high_watermark: int = 8
) -> Path:
    """A log whose batches have epoch 0 below ``FORK``, and another one from there on."""

    def batch(offset: int, key: str) -> Batch:
        epoch = epoch_of_tail if offset >= FORK else 0
        return data(offset, [Record(key.encode(), b"%d" % offset)], timestamp=OLD, leader_epoch=epoch)

    made = LogDir(root / f"b{number}")
    partition = made.partition("t", index_interval_bytes=200)
    partition.segment(*(batch(offset, key) for offset, key in enumerate(keys)), base_offset=0, mtime_ms=OLD)
    partition.segment(batch(6, "late"), mtime_ms=NOW_MS - 1000)
    partition.segment(batch(7, "active"))
    made.write()
    (root / f"b{number}" / "meta.properties").write_text(f"version=0\nbroker.id={number}\ncluster.id=c\n")
    watermark(root / f"b{number}", high_watermark)
    return root / f"b{number}"


def check_left_alone(plan: Plan) -> None:
    one = part(plan)
    assert (one.status, one.code, one.changes) == ("left alone", "forked", ()), one.why
    assert f"offset {FORK}" in one.why
    assert "b2" in one.why
    assert str(one.next_command).startswith("krepair compare ")


@pytest.mark.parametrize("fix", FIXES)
@pytest.mark.parametrize("behind", ["this one", "the other one"])
def test_partition_whose_histories_part_below_the_high_watermark_is_left_alone(
    fix: str, behind: str, tmp_path: Path
) -> None:
    """Offset 3 supersedes offset 0 here. This log will be cut at 3, and the other one has the record at 0 still."""
    mine, theirs = (0, 1) if behind == "this one" else (1, 0)
    history(tmp_path, 1, KEYS, epoch_of_tail=mine)
    history(tmp_path, 2, THEIRS, epoch_of_tail=theirs)
    plan = verbs(tmp_path, fix, *sides(tmp_path, 2), replicas="1,2").plan()
    check_left_alone(plan)


@pytest.mark.parametrize("fix", FIXES)
def test_checkpoint_shows_where_the_later_epoch_began_after_its_first_batches_were_cleaned(
    fix: str, tmp_path: Path
) -> None:
    """The other log has no batch from 3 to 6 any more. The first batch of its epoch lies at the high watermark here."""
    history(tmp_path, 1, KEYS, epoch_of_tail=0, high_watermark=6)
    log_dir = history(tmp_path, 2, THEIRS[:3], epoch_of_tail=1)
    verbs_of = verbs(tmp_path, fix, *sides(tmp_path, 2), replicas="1,2")
    assert evidence(verbs_of.plan()).kind == "replicas"
    (log_dir / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 3\n")
    check_left_alone(verbs_of.plan())


@pytest.mark.parametrize("fix", FIXES)
def test_tail_that_was_never_replicated_keeps_nothing_back(fix: str, tmp_path: Path) -> None:
    """The histories part at the high watermark: nothing from there on is looked at by a cleaner."""
    history(tmp_path, 1, KEYS, epoch_of_tail=0, high_watermark=FORK)
    history(tmp_path, 2, THEIRS, epoch_of_tail=1)
    plan = verbs(tmp_path, fix, *sides(tmp_path, 2), replicas="1,2").plan()
    assert evidence(plan).kind == "replicas"


@pytest.mark.parametrize("fix", FIXES)
def test_replicas_of_one_history_keep_nothing_back(fix: str, tmp_path: Path) -> None:
    history(tmp_path, 1, KEYS, epoch_of_tail=1)
    history(tmp_path, 2, KEYS, epoch_of_tail=1)
    run = verbs(tmp_path, fix, *sides(tmp_path, 2), replicas="1,2")
    plan = run.plan()
    assert evidence(plan).kind == "replicas"
    if part(plan).changes:
        assert run.apply(plan).exit_code is ExitCode.DONE
    assert left_in(tmp_path / "b1" / "t-0") is not None
