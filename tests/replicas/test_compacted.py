"""A topic that only krepair has compacted is known by its log and by krepair's plan; what is lost stays lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from krepair.fixes.replicas import parse_sides
from krepair.ops.compare import compare
from krepair.ops.facts import facts
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from krepair.rules.replicas import model as m
from tests.builders import NOW_MS, LogDir, Record, data
from tests.compaction.directories import Verbs, options

TOPIC = "changelog"
SEGMENTS = 8
DAY_MS = 86_400_000
OPTIONS = Options(engine=EngineName.INLINE)


def three(root: Path, *, whole: bool) -> dict[int, Path]:
    """Three brokers whose cleaners never ran, with the same log.

    Args:
        root: gets their log directories.
        whole: whether batches are superseded whole or not at all; else some of their records are.
    """
    directory = LogDir(root / "1")
    partition = directory.partition(TOPIC)
    for number in range(SEGMENTS):
        own = [Record(b"only-%d" % number, b"once")]
        records = [Record(b"key-%d" % key, b"%d" % number * 50) for key in range(9)]
        time = NOW_MS - (SEGMENTS + 1 - number) * DAY_MS
        batches = [records, own] if whole else [own + records]
        base = 10 * number
        made = []
        for batch in batches:
            made.append(data(base, batch, timestamp=time))
            base += len(batch)
        partition.segment(*made, mtime_ms=time)
    partition.segment(data(10 * SEGMENTS, 2))
    paths = {1: directory.write()}
    for broker in (2, 3):
        paths[broker] = root / str(broker)
        shutil.copytree(paths[1], paths[broker])
    for broker, path in paths.items():
        meta = path / "meta.properties"
        meta.write_text(meta.read_text().replace("broker.id=0", f"broker.id={broker}"))
    return paths


def compacted(root: Path, log_dir: Path) -> tuple[Verbs, Plan]:
    verbs = Verbs(log_dir, options(root, TOPIC, settings={"segment.bytes": "400"}, partitions=((TOPIC, 0),)))
    plan = verbs.plan()
    verbs.apply(plan)
    return verbs, plan


def said(paths: dict[int, Path], facts_of: int = 0) -> m.PartitionVerdict:
    sides = [f"{broker}={path}" for broker, path in paths.items()]
    if facts_of:
        out = f"{paths[facts_of]}.facts"
        facts([str(paths[facts_of])], out, OPTIONS)
        sides = [f"{facts_of}={out}" if side.startswith(f"{facts_of}=") else side for side in sides]
    [verdict] = compare(parse_sides(sides), OPTIONS).partitions
    return verdict


@pytest.mark.parametrize("brokers", [(1,), (1, 3)])
def test_batches_with_fewer_records_than_offsets_show_that_krepair_compacted(
    brokers: tuple[int, ...], tmp_path: Path
) -> None:
    paths = three(tmp_path, whole=False)
    for broker in brokers:
        verbs, plan = compacted(tmp_path, paths[broker])
        verbs.purge(plan)
    for facts_of in (0, 1, 2):
        verdict = said(paths, facts_of)
        assert (verdict.verdict, verdict.disagreements) == (m.HARMLESS, ())
        assert "cleaned-further" in verdict.harmless


def test_the_plan_that_is_kept_shows_that_krepair_compacted(tmp_path: Path) -> None:
    paths = three(tmp_path, whole=True)
    verbs, plan = compacted(tmp_path, paths[1])
    assert said(paths).verdict == m.HARMLESS
    verbs.purge(plan)
    after = said(paths)
    assert after.verdict == m.DIVERGED  # batches that are gone whole may as well be lost
    assert "--topic-config" in after.disagreements[0].text


def test_a_segment_that_is_lost_where_krepair_compacted_is_never_called_harmless(tmp_path: Path) -> None:
    """Each segment holds the only record of a key."""
    paths = three(tmp_path, whole=False)
    verbs, plan = compacted(tmp_path, paths[1])
    verbs.purge(plan)
    logs = sorted((paths[1] / f"{TOPIC}-0").glob("*.log"))
    assert len(logs) > 3
    for log in logs[1:-1]:
        kept = {file: file.read_bytes() for file in log.parent.glob(f"{log.stem}.*")}
        for file in kept:
            file.unlink()
        verdict = said(paths)
        for file, content in kept.items():
            file.write_bytes(content)
        assert verdict.verdict in {m.DIVERGED, m.CANNOT_TELL}, verdict
        assert {one.brokers for one in verdict.disagreements} == {(1,)}, verdict
        assert 1 not in verdict.right
