"""Random transactional histories: krepair, its slow twin and Kafka's own cleaners reach the same fixpoint.

Each history first takes one pass of Kafka's cleaner at horizon 0; from there krepair plans and applies over
the real files, and Kafka's classes clean until nothing changes.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from krepair.ops.plan import make_plan
from krepair.plan.model import PartitionPlan
from tests import naive
from tests.builders import NOW_MS
from tests.lab.cleaned import (
    FORGOTTEN,
    REASONS_WITHIN,
    WHOLE,
    aborted_transactions,
    across_segments,
    batches_below,
    difference,
    shown,
    within_segments,
)
from tests.lab.judge import Judge
from tests.ops.conftest import memory_dir
from tests.rules.many import (
    DAY_MS,
    SETTINGS,
    Clock,
    copied,
    expected_files,
    files_of,
    last_batches,
    orphans,
    repaired,
    twin_of,
    write_histories,
)
from tests.strategies import Shape

__all__ = ["memory_dir"]
AHEAD_MS = 10_000_000
PER_LOG_DIR = 75
MANY = 300 if os.environ.get("KREPAIR_EVERY_STATE") == "1" else PER_LOG_DIR
"""How many histories; one log directory of them meets every reason."""

STALE = "entry without data beside its marker, in a partition with nothing to rewrite"


@dataclass(frozen=True)
class Cleaner:
    """How Kafka's cleaner of one version is brought to its fixpoint.

    Attributes:
        version: of Kafka.
        first: horizon of the first pass; before 3.1 a delete horizon, from 3.1 the cleaner's clock.
        later: of the passes to the fixpoint.
        clock: krepair's; from 3.1 stamps are judged by the cleaner's clock and activity by the harness's, so
            one clock serves both when the expiry grows by as much as the cleaner's is ahead.
    """

    version: str
    first: int
    later: int
    clock: Clock


WITHIN = Cleaner("2.2.1", 0, 2**60, Clock())
ACROSS = Cleaner("3.9.2", 1, NOW_MS + AHEAD_MS, Clock(NOW_MS + AHEAD_MS, DAY_MS + AHEAD_MS))


def compare(source: Path, ours: Path, theirs: Path, plan: PartitionPlan, twin: naive.Outcome) -> Counter[str]:
    """Differences below the end of the span, by name."""
    end = plan.span.end_offset if plan.span else 0
    mine, kafkas = batches_below(ours, end), batches_below(theirs, end)
    epochs = {d.batch.base_offset for d in twin.decisions if d.reason == "K05"}
    lasts = last_batches(plan) | {
        (d.segment, d.batch.position) for d in twin.decisions if d.reason in {"E01", "K08"}
    }
    seen: Counter[str] = Counter()
    for offset, (segment, batch) in batches_below(source, end).items():
        our = mine[offset][1] if offset in mine else None
        their = kafkas[offset][1] if offset in kafkas else None
        if shown(our) != shown(their):
            last = (segment, batch.position) in lasts
            seen[difference(batch, our, their, of_epoch=offset in epochs, last=last)] += 1
        seen[f"{batch.kind}: {'stays' if our else 'goes'}"] += 1
    our_entries, their_entries = (entries_below(folder, end) for folder in (ours, theirs))
    seen["aborted transactions carried over"] += len(their_entries)
    for entry in our_entries:
        if entry in their_entries:
            continue
        untouched = entry in entries_below(source, end) and plan.status == "nothing"
        seen[STALE if untouched and entry[2] in mine else f"WRONG: only ours has {entry}"] += 1
    seen["WRONG: an entry of .txnindex is lost"] += len(set(their_entries) - set(our_entries))
    return seen


def entries_below(folder: Path, end: int) -> list[tuple[int, ...]]:
    """Producer id, first, last and last stable offset of the entries of ``.txnindex``."""
    found = sorted(files_of(folder, ".txnindex").items())
    return aborted_transactions(b"".join(data for base, data in found if base < end))


def against_kafka(
    judge: Judge, cleaner: Cleaner, shape_of: Callable[[int], Shape], seeds: range, root: Path
) -> Counter[str]:
    """Run a log directory of histories; counts of everything met, wrongs among them."""
    seen: Counter[str] = Counter()
    common = {"settings": SETTINGS, "now_ms": NOW_MS}
    served = {}
    for folder in write_histories(root / "ours", seeds, shape_of):
        judge.clean(folder, first_dirty=0, horizon=cleaner.first, expire_producers=True, **common)
        served[folder.name] = judge.load(folder, **common)
    source, theirs = copied(root / "ours", root / "source"), copied(root / "ours", root / "theirs")
    plan = repaired(root / "ours", cleaner.clock)
    again = make_plan(str(root / "ours"), cleaner.clock.options())
    for planned, second in zip(plan.partitions, again.partitions, strict=True):
        folder = root / "ours" / planned.folder
        seen["histories"] += 1
        seen["histories with changes"] += planned.status == "change"
        seen["WRONG: second plan is not empty"] += second.status != "nothing"
        end = planned.span.end_offset if planned.span else 0
        reached = judge.fixpoint(
            theirs / planned.folder, horizon=cleaner.later, end=end, expire_producers=True, **common
        )
        seen["WRONG: Kafka found no rest"] += not reached.reached
        twin = twin_of(source / planned.folder, cleaner.clock)
        compared = compare(source / planned.folder, folder, theirs / planned.folder, planned, twin)
        for name, count in compared.items():
            seen[f"{name} ({planned.folder})" if name.startswith("WRONG") else name] += count
        logs, aborted = expected_files(twin, source / planned.folder)
        seen["WRONG: not the slow twin's"] += (files_of(folder, ".log"), files_of(folder, ".txnindex")) != (
            logs,
            aborted,
        )
        for orphan in orphans(source / planned.folder, folder):
            seen[f"WRONG: {planned.folder}: {orphan} is left"] += 1
        before, after = served[planned.folder], judge.load(folder, **common)
        if (after.served, after.log_end, after.stable_offset, after.complaints) != (
            before.served,
            before.log_end,
            before.stable_offset,
            (),
        ):
            seen[f"WRONG: {planned.folder} is served differently: {before} {after}"] += 1
        for reason in planned.reasons:
            seen[f"reason {reason.reason}"] += reason.batches
    return seen


def wrongs(seen: Counter[str]) -> list[str]:
    return sorted(name for name, count in seen.items() if name.startswith("WRONG") and count)


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(
    ("cleaner", "shape_of"), [(WITHIN, within_segments), (ACROSS, across_segments)], ids=["2.2.1", "3.9.2"]
)
def test_histories_come_to_rest_where_kafkas_cleaner_does(
    judge: Callable[[str], Judge], memory_dir: Path, cleaner: Cleaner, shape_of: Callable[[int], Shape]
) -> None:
    seen: Counter[str] = Counter()
    for first in range(0, MANY, PER_LOG_DIR):
        root = memory_dir / str(first)
        seen += against_kafka(
            judge(cleaner.version), cleaner, shape_of, range(first, first + PER_LOG_DIR), root
        )
        shutil.rmtree(root)
    print(f"\nKafka {cleaner.version}: " + ", ".join(f"{name}: {n}" for name, n in sorted(seen.items())))
    assert wrongs(seen) == []
    assert (seen["histories"], seen["histories with changes"] > MANY * 2 // 3) == (MANY, True)
    for reason in REASONS_WITHIN:
        assert seen[f"reason {reason}"] > 0, f"no history met {reason}"
    assert seen[WHOLE] + seen[FORGOTTEN] > 0
    assert seen["aborted transactions carried over"] > 0


def any_history(seed: int) -> Shape:
    return Shape(
        segments=2 + seed % 9,
        steps=4 + seed % 20,
        producers=1 + seed % 6,
        within_segments=seed % 5 == 0,
        tombstones=seed % 4 == 0,
        emptied=seed % 2 == 0,
        stamps=seed % 3 == 0,
        epoch_per_marker=seed % 7 == 0,
        open_at_end=seed % 3 == 1,
        spread_ms=3_600_000 if seed % 4 else 9 * DAY_MS,
    )


@pytest.mark.slow
def test_applied_histories_are_byte_for_byte_the_slow_twins_and_a_second_plan_is_empty(
    memory_dir: Path,
) -> None:
    clock = Clock(NOW_MS, DAY_MS)
    folders = write_histories(memory_dir / "ours", range(120), any_history)
    source = copied(memory_dir / "ours", memory_dir / "source")
    plan = repaired(memory_dir / "ours", clock)
    for folder in folders:
        logs, aborted = expected_files(twin_of(source / folder.name, clock), source / folder.name)
        assert files_of(folder, ".log") == logs, folder.name
        assert files_of(folder, ".txnindex") == aborted, folder.name
        assert orphans(source / folder.name, folder) == []
    reasons = {tally.reason for each in plan.partitions for tally in each.reasons}
    assert reasons >= {"K01", "K02", "K04", "K05", "K07", "D01", "D02", "D03", "D04"}
    assert sum(each.status == "change" for each in plan.partitions) > 90
    again = make_plan(str(memory_dir / "ours"), clock.options())
    assert {each.status for each in again.partitions} == {"nothing"}
