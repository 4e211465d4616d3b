"""A replica whose broker stopped while its cleaner put a segment in place is compared as its next start leaves it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.fixes.replicas import parse_sides
from krepair.ops.apply import apply
from krepair.ops.compare import CompareReport, compare
from krepair.ops.facts import facts
from krepair.ops.plan import make_plan
from krepair.options import EngineName, Options
from krepair.rules.replicas import model as m
from tests.commit.scene import UnsyncedDisk
from tests.durable.disks import FILE_CHANGING, SimulatedCrash, StoppingDisk
from tests.ops import pending
from tests.replicas.directories import SETTINGS, written
from tests.replicas.model import healthy_clusters

MORE = int(os.environ.get("KREPAIR_REPLICA_HISTORIES", "0"))
OPTIONS = Options(engine=EngineName.INLINE, settings=tuple(SETTINGS.items()))
FINE = {m.BYTE_EQUAL, m.EQUAL, m.HARMLESS, m.IS_BEHIND}


def interrupted(folder: Path, *, joined: int, set_aside: int) -> bool:
    """Leave of the first segments a swap, and of what it replaces only the files that were not set aside yet.

    This is how ``Log.replaceSegments`` of 2.2.1 leaves a folder when the scheduler has stopped already.

    Returns:
        False if there are too few segments.
    """
    logs = sorted(folder.glob("*.log"))[1:-1]  # where the first segment is gone, the log only begins later
    if len(logs) < joined or not all(log.stat().st_size for log in logs[:joined]):
        return False
    swap = folder / f"{logs[0].name}.swap"
    swap.write_bytes(b"".join(log.read_bytes() for log in logs[:joined]))
    entries = [log.with_suffix(".txnindex") for log in logs[:joined]]
    aborted = b"".join(one.read_bytes() for one in entries if one.exists())
    if aborted:
        (folder / f"{logs[0].stem}.txnindex.swap").write_bytes(aborted)
    for log in logs[:set_aside]:
        for file in list(folder.glob(f"{log.stem}.*")):
            if file.suffix in {".log", ".index", ".timeindex", ".txnindex"}:
                file.rename(f"{file}.deleted")
    return True


def clusters(root: Path, count: int, joined: int, set_aside: int) -> Iterator[tuple[int, dict[int, Path]]]:
    """(the broker that was interrupted, the log directories)."""
    for number, cluster in enumerate(healthy_clusters(count, 40, compacted=True)):
        cluster.stop_all()
        paths = written(cluster, root / str(number))
        broker = sorted(paths)[number % len(paths)]
        if interrupted(paths[broker] / "t-0", joined=joined, set_aside=set_aside):
            yield broker, paths


def said(paths: dict[int, Path], facts_of: int = 0) -> CompareReport:
    sides = [f"{broker}={path}" for broker, path in paths.items()]
    if facts_of:
        out = str(paths[facts_of]) + ".facts"
        facts([str(paths[facts_of])], out, OPTIONS)
        sides = [f"{facts_of}={out}" if side.startswith(f"{facts_of}=") else side for side in sides]
    return compare(parse_sides(sides), OPTIONS)


@pytest.mark.parametrize(("joined", "set_aside"), [(1, 1), (2, 0), (2, 1), (2, 2)])
def test_an_interrupted_cleaning_of_a_healthy_replica_gives_no_alarm(
    joined: int, set_aside: int, tmp_path: Path
) -> None:
    tried = 0
    for broker, paths in clusters(tmp_path, 24 + MORE, joined, set_aside):
        for report in (said(paths), said(paths, facts_of=broker)):
            [verdict] = report.partitions
            assert verdict.verdict in FINE, (broker, verdict)
        tried += 1
    assert tried


def test_a_swap_of_which_no_start_is_certain_makes_the_replica_missing(tmp_path: Path) -> None:
    [(broker, paths), *_] = clusters(tmp_path, 24, 2, 2)
    [swap] = paths[broker].glob("*/*.log.swap")
    swap.write_bytes(swap.read_bytes()[:-5])
    report = said(paths)
    [verdict] = report.partitions
    assert (verdict.verdict, report.exit_code) == (m.MISSING, ExitCode.UNREADABLE)
    [found] = [one for one in verdict.disagreements if one.kind == m.UNREADABLE]
    assert found.brokers == (broker,)
    assert "a cleaning was interrupted here" in found.text
    assert swap.name in found.text


def test_a_segment_that_is_gone_beside_a_swap_is_still_missed(tmp_path: Path) -> None:
    lost = 0
    for broker, paths in clusters(tmp_path, 20 + MORE, 1, 1):
        sorted((paths[broker] / "t-0").glob("*.log"))[1].unlink()
        [verdict] = said(paths).partitions
        bad = [one for one in verdict.disagreements if m.VERDICT_OF[one.kind] in {m.DIVERGED, m.CANNOT_TELL}]
        assert all(broker in one.brokers for one in bad), verdict
        lost += bool(bad)
    assert lost


def test_a_replica_that_krepair_has_left_half_done_is_missing(tmp_path: Path) -> None:
    root = pending.write(tmp_path / "b1")
    plan = make_plan(str(root), pending.options())
    with pytest.raises(SimulatedCrash):
        apply(plan, pending.options(), disk=StoppingDisk(UnsyncedDisk(), 25, FILE_CHANGING))
    other = pending.write(tmp_path / "b2")
    (other / "meta.properties").write_text((root / "meta.properties").read_text().replace("id=0", "id=1"))
    report = compare(parse_sides([f"0={root}", f"1={other}"]), Options(engine=EngineName.INLINE))
    [found] = [one for part in report.partitions for one in part.disagreements if one.kind == m.UNREADABLE]
    assert found.brokers == (0,)
    assert f"of plan {plan.plan_id} is half done here: krepair apply or undo that plan first" in found.text
