"""A plan that has the batch that stays as the last one at a place where none begins is stale, and nothing changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.errors import ExitCode
from krepair.plan.model import RewriteSegments
from krepair.plan.planfile import seal
from krepair.plan.review import review
from tests.builders import LogDir, commit, data
from tests.compaction.cases import OLD, rec
from tests.compaction.directories import Verbs, logs, options

EXPIRY = ("producer.id.expiration.ms", "transactional.id.expiration.ms")


@pytest.mark.parametrize("moved", [-61, -5, 3, 40, 61])
def test_no_batch_begins_where_the_plan_has_the_last_one(moved: int, tmp_path: Path) -> None:
    directory = LogDir(tmp_path / "logs")
    partition = directory.partition("t")
    markers = [commit(1 + number, pid=7, timestamp=OLD) for number in range(5)]
    partition.segment(data(0, [rec("a")], timestamp=OLD), *markers, mtime_ms=OLD)
    partition.segment(data(6, [rec("active")], timestamp=OLD))
    directory.write()
    given = options(
        tmp_path,
        fixes=("markers",),
        settings_given=tuple((key, "1") for key in EXPIRY),
        only_replica=("*",),
    )
    verbs = Verbs(tmp_path / "logs", given)
    plan = verbs.plan()
    part = plan.partitions[0]
    (group,) = (change for change in part.changes if isinstance(change, RewriteSegments))
    source = replace(group.sources[0], last_position=group.sources[0].last_position + moved)
    other = replace(group, sources=(source,))
    changes = tuple(other if change is group else change for change in part.changes)
    wrong = seal(replace(plan, partitions=(replace(part, changes=changes),)))
    assert not review(wrong)
    before = logs(verbs.log_dir / "t-0")
    report = verbs.apply(wrong)
    assert report.exit_code is ExitCode.STALE_PLAN
    assert f"t-0/{0:020d}.log" in report.results[0].why
    assert logs(verbs.log_dir / "t-0") == before
    assert verbs.apply(plan).exit_code is ExitCode.DONE
