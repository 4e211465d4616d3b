"""A replica whose broker stopped during a cleaner's swap is refused; the others are compared."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.fixes.replicas import parse_brokers
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
LEFTOVERS = dataclasses.replace(OPTIONS, fixes=("leftovers",))
FINE = {m.BYTE_EQUAL, m.HARMLESS, m.IS_BEHIND}


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


def said(paths: dict[int, Path]) -> CompareReport:
    return compare(parse_brokers(f"{broker}={path}" for broker, path in paths.items()), OPTIONS)


@pytest.mark.parametrize(("joined", "set_aside"), [(1, 1), (2, 0), (2, 1), (2, 2)])
def test_a_replica_with_a_swap_is_missing_until_its_leftovers_are_mended_and_then_gives_no_alarm(
    joined: int, set_aside: int, tmp_path: Path
) -> None:
    tried = 0
    for broker, paths in clusters(tmp_path, 24 + MORE, joined, set_aside):
        [swap] = paths[broker].glob("*/*.log.swap")
        report = said(paths)
        [verdict] = report.partitions
        assert (verdict.verdict, report.exit_code) == (m.MISSING, ExitCode.UNREADABLE)
        [found] = [one for one in verdict.disagreements if one.kind == m.UNREADABLE]
        assert found.brokers == (broker,)
        assert f"a cleaning was interrupted here, and {swap.name} waits for the next start" in found.text
        assert f"krepair plan {paths[broker]} --fix leftovers --partition t-0 --out PLAN" in found.text
        assert all(m.VERDICT_OF[one.kind] == m.IS_BEHIND for one in verdict.disagreements if one != found)
        out = f"{paths[broker]}.facts"
        [failed] = facts([str(paths[broker])], out, OPTIONS).failed
        assert swap.name in failed

        apply(make_plan(str(paths[broker]), LEFTOVERS), LEFTOVERS)
        for sides in (paths, {**paths, broker: Path(out)}):
            facts([str(paths[broker])], out, OPTIONS)
            [verdict] = said(sides).partitions
            assert verdict.verdict in FINE, (broker, verdict)
        tried += 1
    assert tried


def test_a_replica_that_krepair_has_left_half_done_is_missing(tmp_path: Path) -> None:
    root = pending.write(tmp_path / "b1")
    plan = make_plan(str(root), pending.options())
    with pytest.raises(SimulatedCrash):
        apply(plan, pending.options(), disk=StoppingDisk(UnsyncedDisk(), 25, FILE_CHANGING))
    other = pending.write(tmp_path / "b2")
    (other / "meta.properties").write_text((root / "meta.properties").read_text().replace("id=0", "id=1"))
    report = compare(parse_brokers([f"0={root}", f"1={other}"]), Options(engine=EngineName.INLINE))
    texts = [one.text for part in report.partitions for one in part.disagreements if one.brokers == (0,)]
    assert any(
        f"of plan {plan.plan_id} is half done here: krepair apply or undo that plan first" in text
        for text in texts
    )
