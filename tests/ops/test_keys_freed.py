"""``--fix compact`` where apply frees the originals itself: what goes by key is proven with all groups together."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.plan.review import review
from tests.compaction.directories import Verbs, groups_of, logs, options
from tests.compaction.test_verbs import small


@pytest.mark.parametrize("elsewhere", [False, True])
def test_groups_of_keys_are_freed_together_once_all_of_them_are_proven(
    elsewhere: bool, tmp_path: Path, memory_dir: Path
) -> None:
    log_dir = small(tmp_path)
    copies = memory_dir / "copies"
    copies.mkdir()
    if copies.stat().st_dev == log_dir.stat().st_dev:
        pytest.skip("there is one file system only")
    keep = str(copies) if elsewhere else "until-verified"
    several = {"segment.bytes": "150"}
    verbs = Verbs(log_dir, options(tmp_path, settings=several, keep=keep))
    before = logs(log_dir / "t-0")
    plan = verbs.plan()
    assert len(groups_of(plan.partitions[0])) > 1
    assert review(plan) == []
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert not list((log_dir / "t-0").glob("krepair~*/keep/*.log"))
    assert verbs.verify(plan).problems == ()
    assert Verbs(log_dir, options(tmp_path, settings=several)).plan().partitions[0].changes == ()
    undone = verbs.undo(plan)
    if elsewhere:
        assert undone.exit_code is ExitCode.DONE
        assert logs(log_dir / "t-0") == before
    else:
        assert undone.exit_code is not ExitCode.DONE
        assert logs(log_dir / "t-0") != before
