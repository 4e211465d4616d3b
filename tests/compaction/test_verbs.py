"""``--fix compact`` through plan, apply, verify, undo and purge."""

from __future__ import annotations

from pathlib import Path

from krepair.errors import ExitCode
from krepair.ops.preview import make_preview, plan_from
from krepair.plan.review import review
from tests.builders import LogDir
from tests.compaction.directories import Verbs, groups_of, keys_of, logs, options
from tests.compaction.test_cases import OLD, batch
from tools.torture.scenes import look, visible


def small(root: Path) -> Path:
    """Three segments with the same keys, and an active one."""
    directory = LogDir(root / "logs")
    partition = directory.partition("t", index_interval_bytes=200)
    partition.segment(batch(0, "a", "b", "c"), batch(3, "a", "d-"), mtime_ms=OLD)
    partition.segment(batch(5, "b", "e", codec=4), batch(7, "a"), mtime_ms=OLD)
    partition.segment(batch(8, "c", "f-"), mtime_ms=OLD)
    partition.segment(batch(10, "active"))
    directory.write()
    return root / "logs"


def test_a_partition_is_compacted_verified_and_taken_back_byte_for_byte(tmp_path: Path) -> None:
    log_dir = small(tmp_path)
    verbs = Verbs(log_dir, options(tmp_path))
    before = look(log_dir)
    plan = verbs.plan()
    assert review(plan) == []
    part = plan.partitions[0]
    keys = keys_of(part)
    assert (keys.records, keys.kept, keys.superseded, keys.tombstones_dropped, keys.keys) == (10, 4, 4, 2, 6)
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert len(logs(log_dir / "t-0")) == 2
    assert len(logs(log_dir / "t-0")[0]) == groups_of(part)[0].log_bytes
    assert verbs.verify(plan).problems == ()
    again = verbs.plan()
    assert again.partitions[0].changes == ()
    assert verbs.undo(plan).exit_code is ExitCode.DONE
    assert visible(look(log_dir)) == visible(before)


def test_a_preview_beside_a_broker_decides_as_the_plan_after_the_stop(tmp_path: Path) -> None:
    log_dir = small(tmp_path)
    given = options(tmp_path)
    preview = make_preview(str(log_dir), given)
    made = plan_from(preview, given)
    assert keys_of(preview.partitions[0]) == keys_of(made.plan.partitions[0])
    assert preview.partitions[0].changes == made.plan.partitions[0].changes != ()
    assert Verbs(log_dir, given).apply(made.plan).exit_code is ExitCode.DONE
