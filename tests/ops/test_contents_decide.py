"""Not a size and not a time, but the bytes say whether a change is done, and whether an original may come back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from tests.flips import flip
from tests.ops.scene import TV2, Scene, outcomes, scene, tree

EPOCHS = "leader-epoch-checkpoint"


def epochs_scene(root: Path) -> tuple[Scene, Path]:
    """A leader epoch checkpoint whose mended form has the same size: an offset in it is too low."""
    one = scene(root, "leader-epochs-2.2.1")
    file = one.path / "e-all-0" / EPOCHS
    lines = file.read_bytes().split(b"\n")
    last = lines[-2]
    lines[-2] = last[:-1] + (b"0" if last[-1:] != b"0" else b"1")
    file.write_bytes(b"\n".join(lines))
    return one, file


def test_a_file_that_was_only_touched_is_not_done_and_stale(memory_dir: Path) -> None:
    one, file = epochs_scene(memory_dir)
    plan = one.plan(fixes=("epochs",))
    (change,) = [change for part in plan.partitions for change in part.changes if EPOCHS in change.change_id]
    assert (change.size_before, change.size_after) == (file.stat().st_size,) * 2  # type: ignore[union-attr]
    os.utime(file)
    before = tree(one.path)
    report = apply(plan, one.options())
    assert report.exit_code == ExitCode.STALE_PLAN
    assert str(file) in " ".join(result.why for result in report.results)
    assert tree(one.path) == before
    assert str(report.next_command).startswith(f"krepair plan {one.path} --fix epochs ")
    undone = undo(plan, one.options())
    assert (undone.exit_code, outcomes(undone)[file.parent.name]) == (ExitCode.DONE, {"already"})


def test_another_file_of_the_same_size_is_not_done(memory_dir: Path) -> None:
    one, file = epochs_scene(memory_dir)
    plan = one.plan(fixes=("epochs",))
    file.write_bytes(b"x" * file.stat().st_size)
    assert apply(plan, one.options()).exit_code == ExitCode.STALE_PLAN


def test_after_a_purge_what_is_done_is_read_before_it_is_called_done(memory_dir: Path) -> None:
    one = scene(memory_dir, TV2)
    plan = one.plan()
    assert apply(plan, one.options()).exit_code == ExitCode.DONE
    assert purge(plan, one.options()).exit_code == ExitCode.DONE
    again = apply(plan, one.options())
    assert (again.exit_code, {word for words in outcomes(again).values() for word in words}) == (
        0,
        {"already"},
    )
    changed = next(part for part in plan.partitions if part.changes)
    log = one.path / changed.folder / f"{changed.changes[0].base_offset:020d}.log"  # type: ignore[union-attr]
    flip(log, log.stat().st_size // 2)
    assert apply(plan, one.options()).exit_code in {ExitCode.STALE_PLAN, ExitCode.PARTLY}


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("at", ["first byte", "leader epoch", "middle", "last byte"])
def test_a_kept_file_with_a_flipped_bit_is_named_and_not_put_back_and_the_other_partitions_are(
    memory_dir: Path, suffix: str, at: str
) -> None:
    one = scene(memory_dir, TV2)
    before = tree(one.path)
    plan = one.plan()
    assert apply(plan, one.options()).exit_code == ExitCode.DONE
    kept = [path for path in sorted(one.path.glob(f"*/krepair~*/keep/*{suffix}")) if path.stat().st_size > 15]
    if not kept:
        pytest.skip(f"no {suffix} with entries was replaced")
    bad = kept[0]
    size = bad.stat().st_size
    flip(bad, {"first byte": 0, "leader epoch": 15, "middle": size // 2, "last byte": size - 1}[at])
    applied = tree(one.path)
    folder = bad.parents[2].name
    report = undo(plan, one.options())
    (result,) = [result for result in report.results if result.outcome == "failed"]
    assert (result.partition, result.exit_code) == (folder, ExitCode.VERIFY_FAILED)
    assert str(bad) in result.why
    assert report.exit_code == ExitCode.PARTLY
    now = tree(one.path)
    for name, row in now.items():
        if name.endswith("/journal"):
            continue  # it was written anew, with the same records
        if name.startswith(f"{folder}/"):
            assert row == applied[name]
        elif name != ".lock":
            assert row == before[name]


def test_a_bit_flipped_in_a_new_log_outside_of_its_crc_is_found_by_verify(memory_dir: Path) -> None:
    one = scene(memory_dir, TV2)
    plan = one.plan()
    assert apply(plan, one.options()).exit_code == ExitCode.DONE
    assert verify_plan(plan, one.options()).problems == ()
    changed = next(part for part in plan.partitions if part.changes)
    log = one.path / changed.folder / f"{changed.changes[0].base_offset:020d}.log"  # type: ignore[union-attr]
    flip(log, 15)  # the last byte of the first batch's leader epoch
    (problem,) = verify_plan(plan, one.options()).problems
    assert "not those that were written" in problem.text
