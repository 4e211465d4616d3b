"""``--fix compact`` through plan, apply, verify, undo and purge."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.preview import make_preview, plan_from
from krepair.plan.markdown import markdown
from krepair.plan.render import plan_view
from krepair.plan.review import review
from tests.builders import LogDir, abort, emptied
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


def test_page_of_a_plan_says_what_goes_by_key_and_what_each_horizon_would_do(tmp_path: Path) -> None:
    log_dir = small(tmp_path)
    text = markdown(plan_view(Verbs(log_dir, options(tmp_path, delete_horizon="newest")).plan()))
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "| t-0 |" in line
    ]
    assert ["t-0", "6", "10", "4", "0", "2", "0", "0", "6"] in [row[:9] for row in cells]
    assert ["t-0", "unlimited", "any time", "2", "0", ""] in cells
    assert "late-readers: Records go that a later one of their key replaces" in text
    assert "every record that stays is carried over byte for byte" in text
    assert "--scratch DIR" in text


@pytest.mark.parametrize("fix", ["markers", "compact"])
def test_marker_of_a_living_producer_that_a_broker_emptied_stays_and_is_verified(
    fix: str, tmp_path: Path
) -> None:
    directory = LogDir(tmp_path / "logs")
    partition = directory.partition("t", index_interval_bytes=200)
    whole = abort(2, pid=7, epoch=1, timestamp=OLD)
    partition.segment(
        abort(0, pid=7, timestamp=OLD),
        whole,
        emptied(3, pid=7, epoch=1, control=True, timestamp=OLD),
        mtime_ms=OLD,
    )
    partition.segment(batch(4, "active"))
    directory.write()
    verbs = Verbs(tmp_path / "logs", options(tmp_path, fixes=(fix,)))
    plan = verbs.plan()
    assert groups_of(plan.partitions[0])[0].sources[0].kept_markers == 2
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert len(logs(tmp_path / "logs" / "t-0")[0]) == len(whole.raw) + 61
    assert verbs.verify(plan).problems == ()


def test_what_a_broker_appended_since_the_plan_stays_and_hides_nothing(tmp_path: Path) -> None:
    log_dir = small(tmp_path)
    verbs = Verbs(log_dir, options(tmp_path))
    plan = verbs.plan()
    active = log_dir / "t-0" / f"{10:020d}.log"
    with active.open("ab") as log:
        log.write(batch(11, "a", "c").raw)
    grown = active.read_bytes()
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert len(logs(log_dir / "t-0")[0]) == groups_of(plan.partitions[0])[0].log_bytes
    assert active.read_bytes() == grown
    assert verbs.verify(plan).problems == ()
    assert verbs.plan().partitions[0].changes == ()


def test_plan_is_stale_once_what_may_be_compacted_ends_earlier(tmp_path: Path) -> None:
    log_dir = small(tmp_path)
    verbs = Verbs(log_dir, options(tmp_path, assume_high_watermark=""))
    plan = verbs.plan()
    assert groups_of(plan.partitions[0])
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    before = visible(look(log_dir))
    assert verbs.apply(plan).exit_code is ExitCode.STALE_PLAN
    assert visible(look(log_dir)) == before
