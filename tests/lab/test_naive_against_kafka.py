"""The slow twin agrees with Kafka's own classes on random histories and on the real bloat."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests import naive
from tests.builders import NOW_MS, LogDir, abort, commit, data, emptied
from tests.lab.cleaned import (
    DAY_MS,
    REASONS_WITHIN,
    aborted_transactions,
    across_segments,
    batches_below,
    difference,
    shown,
    within_segments,
)
from tests.lab.jars import LOADER_VERSIONS
from tests.lab.judge import Judge
from tests.rules.many import SETTINGS
from tests.strategies import History, Shape, history

pytestmark = pytest.mark.broker

UNLIMITED = 2**60
EVERY = os.environ.get("KREPAIR_EVERY_BROKER") == "1"
MANY = 300 if os.environ.get("KREPAIR_EVERY_STATE") == "1" else 100
"""How many histories; these still meet every reason."""


@dataclass(frozen=True)
class Way:
    """How one version is brought to its fixpoint. ``first`` and ``later``: its horizon argument."""

    version: str
    first: int
    later: int
    expiration_ms: int


LITERAL = Way("2.2.1", 0, UNLIMITED, 7 * DAY_MS)
LATER = Way("3.9.2", 1, NOW_MS + 10**10, DAY_MS)


def rules(way: Way, shape: Shape) -> naive.Rules:
    # stamps are judged by the cleaner's clock, activity by the harness's: one clock serves both when
    # the expiry grows by as much as the cleaner's is ahead
    ahead = way.later - shape.now_ms if way is LATER else 0
    return naive.Rules(
        now_ms=shape.now_ms + ahead,
        horizon_ms=UNLIMITED,
        segment_bytes=SETTINGS["segment.bytes"],
        segment_index_bytes=SETTINGS["segment.index.bytes"],
        index_interval_bytes=SETTINGS["index.interval.bytes"],
        expiration_ms=way.expiration_ms + ahead,
    )


def compare(
    ours: naive.Outcome, theirs: dict[int, tuple[int, naive.Batch]]
) -> tuple[Counter[str], list[str]]:
    """(allowed differences by name, other differences)."""
    seen: Counter[str] = Counter()
    left = {offset: batch for offset, (_, batch) in theirs.items()}
    for decision in ours.decisions:
        batch, other = decision.batch, left.pop(decision.batch.base_offset, None)
        mine = {naive.DROP: None, naive.EMPTY: replace(batch, control_type=None)}.get(decision.verdict, batch)
        if shown(mine) != shown(other):
            of_epoch, last = decision.reason == "K05", decision.reason in {"E01", "K08"}
            seen[difference(batch, mine, other, of_epoch=of_epoch, last=last)] += 1
    wrong = [name for name in seen if name.startswith("WRONG")]
    allowed = Counter({name: count for name, count in seen.items() if name not in wrong})
    return allowed, wrong + [f"only Kafka keeps {shown(batch)}" for batch in left.values()]


def written(outcome: naive.Outcome, source: Path, target: Path) -> Path:
    """The folder as the twin's outcome would leave it, indexes to be recovered."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.suffix == ".snapshot" or path.name == "leader-epoch-checkpoint":
            shutil.copy(path, target)
    for base, log in outcome.logs.items():
        (target / f"{base:020d}.log").write_bytes(log)
    return target


def try_history(
    judge: Judge, way: Way, each: History, root: Path, *, first_pass: bool
) -> tuple[Counter[str], list[str]]:
    now = each.shape.now_ms
    folder = each.fill(LogDir(root).partition("t", index_interval_bytes=200)).write()
    before = judge.load(folder, settings=SETTINGS, now_ms=now)
    assert before.complaints == ()
    common = {"settings": SETTINGS, "now_ms": now, "expire_producers": True}
    if first_pass:
        judge.clean(folder, first_dirty=0, horizon=way.first, **common)
    once = judge.load(folder, settings=SETTINGS, now_ms=now)
    segments, snapshots = naive.read_partition(folder)
    ours = naive.compact(segments, rules(way, each.shape), snapshots)
    mine = written(ours, folder, root / "mine" / "t-0")
    after = judge.load(mine, clean=False, recovery_point=0, settings=SETTINGS, now_ms=now)
    reached = judge.fixpoint(folder, horizon=way.later, end=ours.span_end, **common)
    assert reached.reached
    allowed, wrong = compare(ours, batches_below(folder, ours.span_end))
    ours_aborted = b"".join(group.txnindex for group in ours.groups)
    theirs_aborted = b"".join(
        s.txnindex for s in naive.read_partition(folder)[0] if s.base_offset < ours.span_end
    )
    if ours_aborted != theirs_aborted:
        wrong.append(
            f".txnindex: ours {aborted_transactions(ours_aborted)}, Kafka's {aborted_transactions(theirs_aborted)}"
        )
    allowed["entries of .txnindex carried over"] += len(ours_aborted) // 34
    if (
        after.served != once.served
        or after.stable_offset != once.stable_offset
        or after.log_end != once.log_end
    ):
        wrong.append(f"served differently: {once} and {after}")
    again = naive.compact(
        [naive.Segment(b, x, now) for b, x in sorted(ours.logs.items())], rules(way, each.shape), snapshots
    )
    if again.changes:
        wrong.append(f"a second compaction is not empty: {again.tally()}")
    allowed["histories"] += 1
    allowed["histories with changes"] += ours.changes
    for reason, count in ours.tally().items():
        allowed[f"reason {reason}"] += count
    return allowed, wrong


def run(
    judge: Judge,
    way: Way,
    shape_of: Callable[[int], Shape],
    seeds: range,
    tmp_path: Path,
    *,
    first_pass: bool = True,
) -> Counter[str]:
    seen: Counter[str] = Counter()
    failures = []
    for seed in seeds:
        root = tmp_path / str(seed)
        allowed, wrong = try_history(judge, way, history(seed, shape_of(seed)), root, first_pass=first_pass)
        seen += allowed
        failures += [f"seed {seed}: {line}" for line in wrong]
        shutil.rmtree(root)
    print(f"\nKafka {way.version}: " + ", ".join(f"{name}: {count}" for name, count in sorted(seen.items())))
    assert failures == []
    return seen


def test_twin_and_2_2_1_reach_the_same_fixpoint_where_transactions_stay_within_a_segment(
    judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    seen = run(judge("2.2.1"), LITERAL, within_segments, range(MANY), tmp_path)
    for reason in REASONS_WITHIN:
        assert seen[f"reason {reason}"] > 0, f"no history met {reason}"


def test_twin_and_3_9_2_reach_the_same_fixpoint_where_transactions_run_over_segments(
    judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    seen = run(judge("3.9.2"), LATER, across_segments, range(MANY), tmp_path)
    for reason in (*REASONS_WITHIN, "D04"):
        assert seen[f"reason {reason}"] > 0, f"no history met {reason}"


@pytest.mark.parametrize(("way", "shape_of"), [(LITERAL, within_segments), (LATER, across_segments)])
def test_twin_and_kafka_agree_on_logs_full_of_emptied_batches_that_no_pass_has_seen(
    judge: Callable[[str], Judge], tmp_path: Path, way: Way, shape_of: Callable[[int], Shape]
) -> None:
    def shape(seed: int) -> Shape:
        return replace(shape_of(seed), emptied=True, unique_keys=True, aborted_data=False)

    seen = run(judge(way.version), way, shape, range(1000, 1000 + MANY // 2), tmp_path, first_pass=False)
    for reason in (*REASONS_WITHIN, "D01", "D02"):
        assert seen[f"reason {reason}"] > 0, f"no history met {reason}"


@pytest.mark.parametrize("version", LOADER_VERSIONS if EVERY else ["2.2.1", "3.9.2"])
def test_cleaner_empties_a_marker_of_a_living_producer_without_data_and_its_epoch_is_lost_with_the_snapshots(
    judge: Callable[[str], Judge], tmp_path: Path, version: str
) -> None:
    """Producer 7 was fenced, 8 committed in its epoch, 9 has markers alone. 2.2.1 knows no time of 7 and 9."""
    made = LogDir(tmp_path).partition("t", index_interval_bytes=200)
    made.segment(
        *(emptied(0, pid=7), abort(1, pid=7, epoch=1)),
        *(emptied(2, pid=8), commit(3, pid=8)),
        *(commit(4, pid=9, epoch=3), commit(5, pid=9, epoch=3)),
        *(data(6), data(7)),
    )
    made.segment(data(8))
    folder = made.write()
    now, horizon = NOW_MS + 60_000, UNLIMITED if version == "2.2.1" else NOW_MS + 10**10
    segments, _ = naive.read_partition(folder)
    twin = naive.compact(segments, replace(rules(LITERAL, Shape(now_ms=now)), now_ms=now))
    assert {d.batch.base_offset for d in twin.decisions if d.reason == "K05"} == {1, 4, 5}
    mine = written(twin, folder, tmp_path / "mine" / "t-0")
    reached = judge(version).fixpoint(folder, horizon=horizon, end=8, settings=SETTINGS, now_ms=now)
    assert reached.reached
    left = {
        offset: batch
        for offset, (_, batch) in batches_below(folder, 8).items()
        if batch.producer_id in (7, 9)
    }
    headers_alone = {offset for offset, batch in left.items() if batch.control_type is None}
    assert headers_alone == set(left) == (set() if version == "2.2.1" else {1, 4, 5})
    for path in (folder, mine):
        for snapshot in path.glob("*.snapshot"):
            snapshot.unlink()
    epochs = [
        {
            one.producer_id: one.epoch
            for one in judge(version).load(path, clean=False, settings=SETTINGS, now_ms=now).producers
        }
        for path in (folder, mine)
    ]
    assert epochs == [{8: 0}, {8: 0} if version == "2.2.1" else {7: 1, 8: 0, 9: 3}]


def test_segments_kept_apart_serve_the_same_and_hold_no_endless_transaction(
    judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    held = 0
    for seed in range(2000, 2040):
        root = tmp_path / str(seed)
        shape = replace(across_segments(seed), steps=3, emptied=True, aborted_data=False, stamps=False)
        folder = history(seed, shape).fill(LogDir(root).partition("t", index_interval_bytes=200)).write()
        now = shape.now_ms + 30 * DAY_MS
        once = judge("3.9.2").load(folder, settings=SETTINGS, now_ms=now)
        segments, snapshots = naive.read_partition(folder)
        apart = naive.Rules(now_ms=now, horizon_ms=UNLIMITED, merge=False)
        ours = naive.compact(segments, apart, snapshots)
        mine = written(ours, folder, root / "mine" / "t-0")
        after = judge("3.9.2").load(mine, clean=False, recovery_point=0, settings=SETTINGS, now_ms=now)
        assert after.served == once.served, f"seed {seed}"
        assert (after.stable_offset, after.log_end) == (once.stable_offset, once.log_end), f"seed {seed}"
        assert [len(group.sources) for group in ours.groups] == [1] * len(ours.groups)
        held += sum(d.reason == "K08" for d in ours.decisions)
        again = [naive.Segment(base, log, now) for base, log in sorted(ours.logs.items())]
        assert not naive.compact(again, apart, snapshots).changes, f"seed {seed}"
    assert held > 0, "no emptied batch held the place of its segment"


@pytest.mark.parametrize(("partition", "bytes_left", "markers_left"), [(0, 75_800, 307), (1, 49_470, 211)])
def test_twin_takes_the_real_bloat_to_the_very_bytes_of_2_2_1s_fixpoint(
    judge: Callable[[str], Judge],
    log_dir_of: Callable[[str], Path],
    partition: int,
    bytes_left: int,
    markers_left: int,
) -> None:
    folder = log_dir_of("offsets-bloat-2.2.0-clean") / f"__consumer_offsets-{partition}"
    segments, snapshots = naive.read_partition(folder)
    now = max(s.mtime_ms for s in segments)
    ours = naive.compact(
        segments, naive.Rules(now_ms=now, horizon_ms=UNLIMITED, segment_bytes=100_000), snapshots
    )
    log = b"".join(x for _, x in sorted(ours.logs.items()))
    judge("2.2.1").fixpoint(folder, horizon=UNLIMITED, settings={"segment.bytes": 100_000}, now_ms=now)
    theirs = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    assert (len(log), sum(b.ends_transaction for b in naive.parse(log))) == (bytes_left, markers_left)
    assert log == theirs
