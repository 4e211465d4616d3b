"""Indexes of new segments are byte for byte those that a broker's recovery makes of the same ``.log``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.plan.model import Plan
from tests import naive
from tests.lab.jars import SINCE_4, VERSIONS
from tests.lab.judge import Judge
from tests.ops.scene import BLOAT, TV2, Scene, part, rewrites, scene

pytestmark = pytest.mark.broker

COMPACT = "compact-2.2.1-before"


def applied(tmp_path: Path, fixture: str, merge: bool) -> tuple[Scene, Plan]:
    one = scene(tmp_path / "ours", fixture, settings={"index.interval.bytes": "1000"})
    plan = one.plan(merge=merge)
    one.apply(plan)
    return one, plan


@pytest.mark.parametrize("merge", [True, False], ids=["merged", "apart"])
@pytest.mark.parametrize("fixture", [BLOAT, TV2])
def test_indexes_are_those_that_recovery_rebuilds(
    judge: Callable[[str], Judge], tmp_path: Path, fixture: str, merge: bool
) -> None:
    one, plan = applied(tmp_path, fixture, merge)
    compared = 0
    for number in range(2):
        name = f"__consumer_offsets-{number}"
        bases = [change.base_offset for change in rewrites(part(plan, name))]
        assert bases
        for version in VERSIONS if fixture == BLOAT else SINCE_4:
            folder = Path(shutil.copytree(one.path / name, tmp_path / version / name))
            for path in folder.iterdir():
                if path.suffix in {".index", ".timeindex"}:
                    path.unlink()
            judge(version).recover(folder, one.settings, now_ms=one.now_ms)
            for base in bases:
                for suffix in (".index", ".timeindex"):
                    made = (one.path / name / f"{base:020d}{suffix}").read_bytes()
                    assert made == (folder / f"{base:020d}{suffix}").read_bytes(), (
                        name,
                        version,
                        base,
                        suffix,
                    )
                    compared += len(made)
            shutil.rmtree(tmp_path / version)
    assert compared > 100


@pytest.mark.parametrize("fixture", [BLOAT, TV2, COMPACT])
def test_every_aborted_transaction_with_a_batch_left_is_carried_over_and_no_other(
    tmp_path: Path, fixture: str
) -> None:
    """The independent twin says which: a rebuild from the log cannot give first and last stable offsets."""
    # large segments, so that those of the compacted topics are merged with their entries
    one = scene(tmp_path, fixture, settings={"segment.bytes": "100000", "cleanup.policy": "compact"})
    before = {path.name: naive.read_partition(path) for path in one.path.iterdir() if path.is_dir()}
    wanted = {} if fixture != COMPACT else {"topics": tuple(sorted({n.rpartition("-")[0] for n in before}))}
    plan = one.plan(**wanted)
    report = one.apply(plan)
    assert report.results
    carried = 0
    for each in plan.partitions:
        segments, snapshots = before[each.folder]
        twin = naive.compact(
            segments,
            naive.Rules(
                now_ms=one.now_ms,
                horizon_ms=each.horizon_ms,
                high_watermark=each.high_watermark,
                segment_bytes=int(one.settings["segment.bytes"]),
                index_interval_bytes=int(one.settings.get("index.interval.bytes", "4096")),
            ),
            snapshots,
        )
        made = {change.base_offset for change in rewrites(each)}
        for group in twin.groups:
            if group.base_offset in made:
                path = one.path / each.folder / f"{group.base_offset:020d}.txnindex"
                assert (path.read_bytes() if path.exists() else b"") == group.txnindex, path
                carried += len(group.txnindex) // 34
    assert (carried > 0) == (fixture == COMPACT)
