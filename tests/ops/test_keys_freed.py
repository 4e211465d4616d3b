"""``--fix compact`` where apply frees the originals itself: what goes by key is proven with all groups together."""

from __future__ import annotations

from pathlib import Path

from krepair.errors import ExitCode
from krepair.plan.review import review
from tests.compaction.cases import small
from tests.compaction.directories import Verbs, groups_of, logs, options


def test_groups_of_keys_are_freed_together_once_all_of_them_are_proven(tmp_path: Path) -> None:
    log_dir = small(tmp_path)
    several = {"segment.bytes": "150"}
    verbs = Verbs(log_dir, options(tmp_path, settings=several, keep="until-verified"))
    before = logs(log_dir / "t-0")
    plan = verbs.plan()
    assert len(groups_of(plan.partitions[0])) > 1
    assert review(plan) == []
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert not list((log_dir / "t-0").glob("krepair~*/keep/*.log"))
    assert verbs.verify(plan).problems == ()
    assert Verbs(log_dir, options(tmp_path, settings=several)).plan().partitions[0].changes == ()
    assert verbs.undo(plan).exit_code is not ExitCode.DONE
    assert logs(log_dir / "t-0") != before
