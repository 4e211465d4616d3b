"""The exact rule: with the logs of all other replicas a marker or tombstone goes only if none of them needs it."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import ExitCode, KrepairError, LockedError, RefusedError, StalePlanError
from krepair.fixes.compact import decide as compact
from krepair.fixes.compact import make as compact_staging
from krepair.fixes.replicas import parse_brokers
from krepair.formats import txn_index
from krepair.formats.txn_index import AbortedTxn
from krepair.logdir.lock import hold_lock
from krepair.ops.compare import compare
from krepair.ops.diff import diff_plans
from krepair.ops.plan import make_preview
from krepair.ops.show import show_view
from krepair.options import Options
from krepair.plan.model import Plan
from krepair.replicas.evidence_check import _Intervals, _with_previous
from krepair.rules.reasons import Reason
from tests.builders import NOW_MS, Batch, LogDir, Record, abort, commit, data, emptied
from tests.compaction.directories import Verbs, keys_of, logs, options
from tests.flips import flip
from tests.ops.replica_scenes import EXPIRED, OLD, left_in, watermark
from tests.ops.replicas_read import (
    FIXES,
    LINE,
    applied,
    broker,
    cleaned,
    describe,
    evidence,
    forgotten,
    future,
    in_txn,
    left_here,
    of_two,
    part,
    sides,
    value,
    verbs,
    whole,
)
from tests.ops.replicas_read import verbs as of_replicas
from tests.pages import titled

pytestmark = pytest.mark.replicas


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("fix", FIXES)
def test_what_another_replica_still_needs_stays_and_the_rest_goes(
    fix: str, merge: bool, tmp_path: Path
) -> None:
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, cleaned())
    behind = [batch for batch in whole() if batch.base_offset in {0, 1, 2, 3, 5, 6, 7}]
    broker(tmp_path, 3, behind)
    plan = applied(verbs(tmp_path, fix, *sides(tmp_path, 2, 3), merge=merge))
    assert evidence(plan).kind == "replicas", evidence(plan).why
    left = left_here(tmp_path)
    assert left.markers == (2,)  # replica 3 has the data of producer 7, nobody has those of producer 8
    assert left.tombstones == 1  # replica 3 has an older value


@pytest.mark.parametrize("fix", FIXES)
def test_what_nobody_needs_any_more_goes(fix: str, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        broker(tmp_path, number, cleaned())
    plan = applied(verbs(tmp_path, fix, *sides(tmp_path, 2, 3)))
    left = left_here(tmp_path)
    assert left.markers == ()
    assert left.tombstones == (0 if fix == "compact" else 1)
    assert evidence(plan).kind == "replicas"


HELD: dict[str, tuple[list[Batch], tuple[str, ...], str, object]] = {
    # what the other replica has beside the same cleaned log -> fixes, and what stays here for it
    "an emptied batch": ([emptied(1, pid=7, timestamp=OLD)], FIXES, "markers", (2,)),
    "an aborted record": (
        [in_txn(0, "gone", 5), abort(1, pid=5, timestamp=OLD)],
        ("compact",),
        "tombstones",
        0,
    ),
    "a record of an open transaction": ([in_txn(0, "gone", 5)], ("compact",), "tombstones", 1),
}


@pytest.mark.parametrize(("has", "fix"), [(has, fix) for has, row in HELD.items() for fix in row[1]])
def test_what_another_replica_has_holds_its_own_marker_and_tombstone(
    has: str, fix: str, tmp_path: Path
) -> None:
    theirs, _, what, stays = HELD[has]
    applied(of_two(tmp_path, fix, theirs=[*theirs, *cleaned()]))
    assert getattr(left_here(tmp_path), what) == stays


@pytest.mark.parametrize(("begins", "stays"), [(2, 1), (0, 0)])
def test_a_record_whose_commit_marker_a_cleaner_has_removed_holds_its_tombstone_if_the_index_says_so(
    begins: int, stays: int, tmp_path: Path
) -> None:
    """The marker at offset 1 is gone (KAFKA-8351): a consumer of that replica gets offset 0."""
    ends = [value(4, "gone", None), abort(5, pid=5, timestamp=OLD), value(6, "b"), value(7, "end")]
    run = of_two(tmp_path, "compact", mine=ends, theirs=[in_txn(0, "gone", 5), in_txn(2, "y", 5), *ends])
    index = tmp_path / "b2" / "t-0" / f"{0:020d}.txnindex"
    index.write_bytes(txn_index.encode([AbortedTxn(0, 5, begins, 5, 6)]))
    applied(run)
    assert left_here(tmp_path).tombstones == stays


def test_two_rounds_free_what_one_does_not(tmp_path: Path) -> None:
    """All three have the same bloat: first each loses what is superseded; then, with new readings, markers go."""
    for number in (1, 2, 3):
        broker(tmp_path, number, whole())
    rounds = []
    for number in (1, 2, 3, 1, 2):
        run = verbs(tmp_path, "compact", *sides(tmp_path, *({1, 2, 3} - {number})))
        run.log_dir = tmp_path / f"b{number}"
        plan = applied(run)
        assert evidence(plan).kind == "replicas", evidence(plan).why
        run.purge(plan)
        rounds.append(
            [
                line.split()[0]
                for line in titled(show_view(plan, "P"), "Other replicas").lines
                if " round" in line
            ]
        )
    # when the third is planned, the first two hold nothing older any more
    assert rounds == [["First"], ["First"], ["Last"], ["Last"], ["Last"]]
    left = [left_in(tmp_path / f"b{number}" / "t-0") for number in (1, 2, 3)]
    assert [(one.markers, one.tombstones) for one in left] == [((), 0)] * 3


# -- what is missing
LOG = f"t-0/{0:020d}.log"
ID, OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "BBBBBBBBBBBBBBBBBBBBBQ"
HARMS: dict[str, Callable[[Path], object]] = {
    # what became of the log directory of broker 2
    "is damaged": lambda b2: flip(b2 / LOG, -1),
    "was cut": lambda b2: watermark(b2, 11),
    "has another topic id": lambda b2: set_topic_id(b2, OTHER_ID),
    "has a leftover": lambda b2: (b2 / f"{LOG}.swap").write_bytes(b""),
    "keeps originals": lambda b2: (b2 / "t-0" / "krepair~0123abcd").mkdir(),
    "has no log": lambda b2: [path.unlink() for path in (b2 / "t-0").glob("*.log")],
    "may be a copy of this one": lambda b2: say_nothing_of_the_broker(b2),
}


def say_nothing_of_the_broker(log_dir: Path) -> None:
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 10\n")
    (log_dir / "meta.properties").unlink()


def set_topic_id(log_dir: Path, topic_id: str) -> None:
    (log_dir / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")


@pytest.mark.parametrize("fix", FIXES)
@pytest.mark.parametrize("harm", HARMS)
def test_a_replica_that_is_damaged_cut_or_of_another_life_holds_everything_back(
    harm: str, fix: str, tmp_path: Path
) -> None:
    run = of_two(tmp_path, fix)
    for number in (1, 2):
        set_topic_id(tmp_path / f"b{number}", ID)
    HARMS[harm](tmp_path / "b2")
    plan = applied(run)
    assert evidence(plan).kind == "none"
    assert ("does not say whose it is" in evidence(plan).why) is ("copy" in harm)
    assert left_here(tmp_path).markers == (2, 5)


GIVEN: dict[str, tuple[tuple[int, ...], dict[str, str], str]] = {
    # brokers whose logs are given, what else, and what the plan says is missing
    "no state of the cluster": ((2, 3), {"cluster": ""}, ""),
    "one of two": ((2,), {}, "replica 3 is not given"),
    "a directory without the partition": ((2, 4), {}, "0 folders"),
    "an assignment without this broker": ((2, 3), {"replicas": "2,3"}, "broker 1 is not among"),
    "two topics of one name": ((2, 5), {}, "several topics of this name"),
}


@pytest.mark.parametrize("given", GIVEN)
def test_who_is_not_known_holds_everything_back(given: str, tmp_path: Path) -> None:
    numbers, more, why = GIVEN[given]
    for number in (1, 2, 3):
        broker(tmp_path, number, cleaned())
    if 4 in numbers:
        made = LogDir(tmp_path / "b4")
        made.partition("other").segment(value(0, "a"))
        made.write()
    if 5 in numbers:
        broker(tmp_path, 5, cleaned(), topic_id=OTHER_ID)
        set_topic_id(tmp_path / "b2", ID)
    for number in {4, 5} & {*numbers}:
        (tmp_path / f"b{number}" / "meta.properties").write_text("version=0\nbroker.id=3\ncluster.id=c\n")
    typed = [f"{min(number, 3)}={tmp_path}/b{number}" for number in numbers]
    plan = verbs(tmp_path, "compact", *typed, **more).plan()
    assert evidence(plan).kind == "none"
    assert why in evidence(plan).why
    assert {tally.reason for tally in part(plan).reasons} <= {"K01", "K09", "D01", "D02"}


@pytest.mark.parametrize(
    "where", ["this one", "another broker's", "another one, by --config", "another one, by --replicas"]
)
def test_a_folder_that_is_about_to_become_a_replica_holds_back_too(where: str, tmp_path: Path) -> None:
    more = broker(tmp_path / "more", 1, whole())
    given: dict[str, object] = {}
    if "another one" in where:
        (more / "t-0").rename(more / f"t-0.{'a' * 32}-future")
        config = tmp_path / "server.properties"
        config.write_text(f"log.dirs={tmp_path}/b1,{more}\n")
        given = {"config": str(config)} if "config" in where else {}
    run = of_two(tmp_path, "compact", **given)
    if "another one" not in where:
        future(tmp_path, tmp_path / ("b1" if where == "this one" else "b2"))
    elif not given:
        run = verbs(tmp_path, "compact", f"2={tmp_path}/b2", f"1={tmp_path}/b1,{more}", replicas="1,2")
    plan = applied(run)
    assert evidence(plan).kind == "replicas", evidence(plan).why
    left = left_here(tmp_path)
    assert (left.markers, left.tombstones) == ((2, 5), 1)


# -- apply


def test_apply_needs_the_same_logs_again_unchanged_and_nobody_at_work_there(tmp_path: Path) -> None:
    run, other = of_two(tmp_path, "compact"), tmp_path / "b2"
    plan = run.plan()
    with Tree(str(other), other.stat().st_ino) as tree, hold_lock(str(other), RealDisk(tree)):
        with pytest.raises(LockedError):
            run.plan()
        with pytest.raises(LockedError):
            run.apply(plan)
    os.utime(other / LOG, ns=(1, 1))
    report = run.apply(plan)
    assert {result.exit_code for result in report.results} == {ExitCode.STALE_PLAN}
    assert left_here(tmp_path).markers == (2, 5)
    shutil.rmtree(other)
    with pytest.raises((StalePlanError, KrepairError)):
        run.apply(plan)


def test_a_plan_is_applied_taken_back_and_applied_again(tmp_path: Path) -> None:
    run = of_two(tmp_path, "compact", theirs=whole())
    before = logs(tmp_path / "b1" / "t-0")
    plan = run.plan()
    for verb in (run.apply, run.undo, run.apply):
        assert verb(plan).exit_code is ExitCode.DONE
        assert logs(tmp_path / "b1" / "t-0") == before or verb == run.apply


@pytest.mark.parametrize(
    ("number", "ids", "told"),
    [
        (
            3,
            "version=0\nbroker.id=2\ncluster.id=c\n",
            "3=ROOT/b2: ROOT/b2 is of broker 2, not 3: correct the id before =",
        ),
        (
            2,
            "version=0\nbroker.id=2\ncluster.id=d\n",
            "ROOT/b2 is of cluster d, ROOT/b1 is of cluster c: leave out the one that does not belong here",
        ),
    ],
)
def test_a_directory_of_another_broker_or_cluster_is_refused_by_plan_and_compare_in_the_same_words(
    number: int, ids: str, told: str, tmp_path: Path
) -> None:
    mine = broker(tmp_path, 1, cleaned())
    (broker(tmp_path, 2, cleaned()) / "meta.properties").write_text(ids)
    side = f"{number}={tmp_path}/b2"
    said = []
    for run in (
        verbs(tmp_path, "compact", side).plan,
        lambda: compare(parse_brokers([f"1={mine}", side]), Options()),
    ):
        with pytest.raises(RefusedError) as refused:
            run()
        said.append(str(refused.value).replace(str(tmp_path), "ROOT"))
    assert said == [told, told]


# -- a property


def key_of(batch: Batch) -> str:
    """The key of the only record of a batch of these tests."""
    return next(f"k{number}" for number in range(5) if b"k%d" % number in batch.raw)


def is_tombstone(batch: Batch) -> bool:
    """Whether that record has no value."""
    return any(b"k%d\x01" % number in batch.raw for number in range(5))


def logs_abort(history: list[Batch], offset: int) -> bool:
    """Whether the marker at an offset is an abort."""
    return next(one.marker == 0 for one in history if one.base_offset == offset)


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 35))]
)
def test_no_marker_goes_whose_transaction_another_replica_still_has(seed: int, tmp_path: Path) -> None:
    """Random replicas of one history, each with some of what may be gone there; the rule is told again, slowly."""
    chance = random.Random(seed)
    history: list[Batch] = []
    offset, open_from = 0, dict[int, int]()
    spans: list[tuple[int, int, int]] = []  # producer, first offset, marker
    while offset < 40:
        pid = chance.choice([5, 6, 7])
        if pid in open_from and chance.random() < 0.5:
            kind = commit if chance.random() < 0.6 else abort
            history.append(kind(offset, pid=pid, timestamp=OLD))
            spans.append((pid, open_from.pop(pid), offset))
        elif chance.random() < 0.7:
            history.append(in_txn(offset, f"k{chance.randrange(5)}", pid))
            open_from.setdefault(pid, offset)
        else:
            text = None if chance.random() < 0.4 else b"v"
            history.append(value(offset, f"k{chance.randrange(5)}", text))
        offset += 1
    for pid in sorted(open_from):
        history.append(commit(offset, pid=pid, timestamp=OLD))
        spans.append((pid, open_from[pid], offset))
        offset += 1

    def replica(number: int) -> list[Batch]:
        """What a cleaner may have left: a transaction without data may have lost its marker; or any, by divergence."""
        gone = {batch.base_offset for batch in history if not batch.control and chance.random() < 0.5}
        left = [batch for batch in history if batch.base_offset not in gone]
        for pid, first, marker in spans:
            has = any(
                b.producer_id == pid and not b.control and first <= b.base_offset < marker for b in left
            )
            if (not has or seed % 2) and chance.random() < 0.3 and number != 1:
                left = [batch for batch in left if batch.base_offset != marker]
        return left

    left_on = {}
    for number in (1, 2, 3):
        left_on[number] = replica(number)
        made = LogDir(tmp_path / f"b{number}")
        partition = made.partition("t", index_interval_bytes=200)
        half = len(left_on[number]) // 2
        for batches in (left_on[number][:half], left_on[number][half:]):
            if batches:
                partition.segment(
                    *batches, base_offset=0 if batches is left_on[number][:half] else None, mtime_ms=OLD
                )
        partition.segment(value(offset, "z"), mtime_ms=NOW_MS - 1000)
        partition.segment(value(offset + 1, "active"))
        made.write()
        (tmp_path / f"b{number}" / "meta.properties").write_text(
            f"version=0\nbroker.id={number}\ncluster.id=c\n"
        )
        watermark(tmp_path / f"b{number}", offset + 2)
    plan = applied(verbs(tmp_path, "compact", *sides(tmp_path, 2, 3)))
    assert evidence(plan).kind == "replicas", evidence(plan).why
    left = set(left_here(tmp_path).markers)
    for pid, first, marker in spans:
        needed = any(
            one.producer_id == pid and not one.control and first <= one.base_offset < marker
            for number in (2, 3)
            for one in left_on[number]
        )
        if needed:
            assert marker in left
    last: dict[str, Batch] = {}
    aborted = {(pid, first, marker) for pid, first, marker in spans if logs_abort(history, marker)}
    for one in left_on[1]:
        ends = any(
            pid == one.producer_id and first <= one.base_offset < marker for pid, first, marker in aborted
        )
        if not one.control and not ends:
            last[key_of(one)] = one
    batches = left_here(tmp_path).batches
    for key, one in last.items():
        older = any(
            key_of(other) == key and other.base_offset < one.base_offset
            for number in (2, 3)
            for other in left_on[number]
            if not other.control and not other.transactional
        )
        if older or not is_tombstone(one):
            assert one.base_offset in batches
    held = {tally.reason for tally in part(plan).reasons}
    assert held <= {reason.value for reason in Reason}


# -- a preview


def test_the_real_plan_of_a_preview_asks_the_other_replicas_again_and_says_what_changed(
    tmp_path: Path,
) -> None:
    """A replica was fetched anew meanwhile, with older records: what the preview let go stays now."""
    run = of_two(tmp_path, "compact")
    preview = make_preview(str(tmp_path / "b1"), run.given)
    assert keys_of(part(preview)).tombstones_dropped == 1
    shutil.rmtree(tmp_path / "b2")
    broker(tmp_path, 2, whole())
    made = run.plan()
    assert keys_of(part(made)).tombstones_dropped == 0
    assert {tally.reason for tally in part(made).reasons} >= {"K09"}
    (changed,) = diff_plans(preview, made).partitions
    assert not changed.decisions_same
    assert any(one.what.startswith("evidence.logs") for one in changed.differences), changed.differences


# -- a replica that has lost a marker between two transactions of one producer


def one_producer() -> list[Batch]:
    """Three transactions of one producer, whose keys came again."""
    batches = [value(0, "first")]
    for number in range(3):
        offset = 1 + 2 * number
        batches += [in_txn(offset, f"k{number}", 7), commit(offset + 1, pid=7, timestamp=OLD)]
    return [*batches, value(7, "end")]


@pytest.mark.parametrize("fix", FIXES)
@pytest.mark.parametrize("lost", [(2,), (2, 4), (4,), (2, 4, 6)])
def test_a_batch_holds_its_own_marker_though_an_earlier_one_is_lost_there(
    lost: tuple[int, ...], fix: str, tmp_path: Path
) -> None:
    """The other replica has diverged: to it the batches look like one transaction."""
    mine = [batch for batch in one_producer() if batch.control or batch.base_offset in {0, 7}]
    theirs = [batch for batch in one_producer() if batch.base_offset not in lost]
    plan = applied(of_two(tmp_path, fix, mine, theirs))
    assert evidence(plan).kind == "replicas", evidence(plan).why
    assert left_here(tmp_path).markers == (2, 4, 6)


@pytest.mark.parametrize(("before_s", "said"), [(30, False), (90, True)])
@pytest.mark.parametrize("late", [1, 2], ids=["this broker", "another one"])
def test_an_assignment_from_before_the_last_write_does_not_show_who_was_assigned_since(
    tmp_path: Path, late: int, before_s: int, said: bool
) -> None:
    stopped = NOW_MS // 1000 - 86_400
    for number in (1, 2):
        log_dir = broker(tmp_path, number, cleaned())
        time_s = stopped if number == late else stopped - 3600
        os.utime(log_dir / "replication-offset-checkpoint", (time_s, time_s))
    as_of = stopped - before_s
    run = verbs(tmp_path, "compact", *sides(tmp_path, 2), replicas="1,2")
    os.utime(tmp_path / "cluster.txt", (as_of, as_of))
    found = evidence(run.plan())
    assert found.kind == "replicas", found.why
    text = "is from 90 s before the last write in the given log directories: that no replica was assigned in"
    assert (text in found.why) == said
    if said:
        lines = [line for section in show_view(run.plan(), "P").sections for line in section.lines]
        assert any("that no replica was assigned in between is your word" in line for line in lines)


# -- A decision that forgets another replica, in the plan and again in apply, is found by the third reading of
# apply.


def is_missed(run: Verbs, root: Path, why: str) -> None:
    plan = run.plan()
    before = logs(root / "b1" / "t-0")
    (result,) = run.apply(plan).results
    assert result.exit_code == ExitCode.VERIFY_FAILED, result
    assert why in result.why
    assert logs(root / "b1" / "t-0") == before


@pytest.mark.parametrize("fix", FIXES)
def test_a_marker_that_another_replica_needs_is_missed(
    fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = [batch for batch in whole() if batch.base_offset in {1, 2, 3, 5, 6, 7}]
    forgotten(monkeypatch)
    run = of_two(tmp_path, fix, theirs=behind)
    is_missed(run, tmp_path, "the marker at offset 2 is gone, but a batch of its transaction (producer 7)")


def test_a_tombstone_that_another_replica_needs_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = of_two(tmp_path, "compact", theirs=[value(0, "gone"), *cleaned(tombstone=False)])
    for module in (compact, compact_staging):
        monkeypatch.setattr(module, "rows_elsewhere", lambda *_: ())
    is_missed(run, tmp_path, "the tombstone at offset 3 is gone, but an older record of its key stays")


# -- the pieces, against a slow twin


@pytest.mark.parametrize("seed", range(30))
def test_what_is_needed_is_what_a_slow_twin_finds(seed: int) -> None:
    chance = np.random.default_rng(seed)
    markers = [(int(chance.integers(4)), offset) for offset in range(100) if chance.random() < 0.3]
    before: dict[int, int] = {}
    pieces = []
    for first in range(0, len(markers), 7):
        part = np.array(markers[first : first + 7], np.int64).reshape(-1, 2)
        pieces.append(_with_previous(part, before))
    rows = np.concatenate(pieces)
    twin = []
    for place, (producer, marker) in enumerate(markers):
        earlier = [offset for other_one, offset in markers[:place] if other_one == producer]
        twin.append((producer, max(earlier, default=-1), marker))
    assert rows.tolist() == [list(row) for row in twin]
    gone = rows[chance.random(len(rows)) < 0.5]
    if not len(gone):
        return
    for _ in range(40):
        producer, first = int(chance.integers(6)), int(chance.integers(110))
        last = first + int(chance.integers(3)) * int(chance.integers(20))
        one = [np.array([number], np.int64) for number in (producer, first, last)]
        needed = any(
            pid == producer and first < marker and last > before_it
            for pid, before_it, marker in gone.tolist()
        )
        assert bool(_Intervals(gone).needed(*one)) == needed, (producer, first, last)


# -- Replicas whose leader epochs contradict each other: one will cut its log, and nothing goes by its tail.

FORK = 3
KEYS = ("gone", "a", "b", "gone", "b", "end")
THEIRS = ("gone", "a", "b", "c", "d", "end")


def history(
    root: Path, number: int, keys: tuple[str, ...], *, epoch_of_tail: int, high_watermark: int = 8
) -> Path:
    """A log whose batches have epoch 0 below ``FORK``, and another one from there on."""

    def batch(offset: int, key: str) -> Batch:
        epoch = epoch_of_tail if offset >= FORK else 0
        return data(offset, [Record(key.encode(), b"%d" % offset)], timestamp=OLD, leader_epoch=epoch)

    made = LogDir(root / f"b{number}")
    partition = made.partition("t", index_interval_bytes=200)
    partition.segment(*(batch(offset, key) for offset, key in enumerate(keys)), base_offset=0, mtime_ms=OLD)
    partition.segment(batch(6, "late"), mtime_ms=NOW_MS - 1000)
    partition.segment(batch(7, "active"))
    made.write()
    (root / f"b{number}" / "meta.properties").write_text(f"version=0\nbroker.id={number}\ncluster.id=c\n")
    watermark(root / f"b{number}", high_watermark)
    return root / f"b{number}"


def check_left_alone(plan: Plan) -> None:
    one = part(plan)
    assert (one.status, one.code, one.changes) == ("left alone", "forked", ()), one.why
    assert f"offset {FORK}" in one.why
    assert "b2" in one.why
    assert str(one.next_command).startswith("krepair compare ")


@pytest.mark.parametrize("fix", FIXES)
@pytest.mark.parametrize("behind", ["this one", "the other one"])
def test_partition_whose_histories_part_below_the_high_watermark_is_left_alone(
    fix: str, behind: str, tmp_path: Path
) -> None:
    """Offset 3 supersedes offset 0 here. This log will be cut at 3, and the other one has the record at 0 still."""
    mine, theirs = (0, 1) if behind == "this one" else (1, 0)
    history(tmp_path, 1, KEYS, epoch_of_tail=mine)
    history(tmp_path, 2, THEIRS, epoch_of_tail=theirs)
    plan = verbs(tmp_path, fix, *sides(tmp_path, 2), replicas="1,2").plan()
    check_left_alone(plan)


@pytest.mark.parametrize("fix", FIXES)
def test_checkpoint_shows_where_the_later_epoch_began_after_its_first_batches_were_cleaned(
    fix: str, tmp_path: Path
) -> None:
    """The other log has no batch from 3 to 6 any more. The first batch of its epoch lies at the high watermark here."""
    history(tmp_path, 1, KEYS, epoch_of_tail=0, high_watermark=6)
    log_dir = history(tmp_path, 2, THEIRS[:3], epoch_of_tail=1)
    verbs_of = verbs(tmp_path, fix, *sides(tmp_path, 2), replicas="1,2")
    assert evidence(verbs_of.plan()).kind == "replicas"
    (log_dir / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 3\n")
    check_left_alone(verbs_of.plan())


@pytest.mark.parametrize("fix", FIXES)
def test_tail_that_was_never_replicated_keeps_nothing_back(fix: str, tmp_path: Path) -> None:
    """The histories part at the high watermark: nothing from there on is looked at by a cleaner."""
    history(tmp_path, 1, KEYS, epoch_of_tail=0, high_watermark=FORK)
    history(tmp_path, 2, THEIRS, epoch_of_tail=1)
    plan = verbs(tmp_path, fix, *sides(tmp_path, 2), replicas="1,2").plan()
    assert evidence(plan).kind == "replicas"


@pytest.mark.parametrize("fix", FIXES)
def test_replicas_of_one_history_keep_nothing_back(fix: str, tmp_path: Path) -> None:
    history(tmp_path, 1, KEYS, epoch_of_tail=1)
    history(tmp_path, 2, KEYS, epoch_of_tail=1)
    run = verbs(tmp_path, fix, *sides(tmp_path, 2), replicas="1,2")
    plan = run.plan()
    assert evidence(plan).kind == "replicas"
    if part(plan).changes:
        assert run.apply(plan).exit_code is ExitCode.DONE
    assert left_in(tmp_path / "b1" / "t-0") is not None


# -- A partition that the broker moves to another of its log directories: its markers and tombstones stay
# meanwhile.

KINDS: dict[str, dict[str, Any]] = {
    "only-replica": {"only_replica": ("t",)},
    "as-broker": {"as_broker": True},
    "in-sync": {},
}


def log_dirs(root: Path) -> tuple[Path, Path, Path]:
    """Two log directories of broker 1, the first with the whole log; and its configuration."""
    broker(root, 1, whole())
    broker(root, 11, [value(0, "z")])
    first, second = root / "b1", root / "b11"
    shutil.rmtree(second / "t-0")
    (second / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    (second / "replication-offset-checkpoint").write_text("0\n0\n")
    os.utime(first / "replication-offset-checkpoint", (OLD / 1000, OLD / 1000))
    config = root / "server.properties"
    config.write_text(f"broker.id=1\nlog.dirs={first},{second}\n")
    return first, second, config


def begun_to_move(root: Path, log_dir: Path) -> None:
    """The new log has the value and the records of the transaction, but not their tombstone and their marker."""
    made = LogDir(root / "copied")
    partition = made.partition("t", index_interval_bytes=200)
    partition.segment(value(0, "gone"), in_txn(1, "b", 7), base_offset=0, mtime_ms=OLD)
    shutil.copytree(made.write() / "t-0", log_dir / f"t-0.{'a' * 32}-future")


def verbs_of_mover(root: Path, first: Path, kind: str, fix: str, config: Path | None) -> Verbs:
    given = {
        "delete_horizon": "newest",
        "assume_high_watermark": "",
        "settings_given": EXPIRED,
        "fixes": (fix,),
    }
    given |= {"only_replica": ()} | KINDS[kind]
    if config is not None:
        given["config"] = str(config)
    if kind == "in-sync":
        given |= {"cluster": describe(root, LINE.format(replicas="1,2,3", isr="2,3"))}
    return Verbs(first, options(root, **given))


@pytest.mark.parametrize("fix", FIXES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("here", [True, False], ids=["the same directory", "another one"])
def test_markers_and_tombstones_stay_while_the_broker_moves_the_partition(
    tmp_path: Path, kind: str, here: bool, fix: str
) -> None:
    first, second, config = log_dirs(tmp_path)
    run = verbs_of_mover(tmp_path, first, kind, fix, config)
    before = left_in(first / "t-0")
    assert part(run.plan()).evidence.kind == kind, "it would go"
    begun_to_move(tmp_path, first if here else second)
    plan = run.plan()
    assert part(plan).evidence.kind == "none"
    assert "moves it to another log directory" in part(plan).evidence.why
    if part(plan).changes:
        assert run.apply(plan).exit_code == 0
    after = left_in(first / "t-0")
    assert (after.markers, after.tombstones) == (before.markers, before.tombstones)


@pytest.mark.parametrize("fix", FIXES)
@pytest.mark.parametrize("kind", KINDS)
def test_apply_sees_a_move_that_began_after_the_plan_was_made(tmp_path: Path, kind: str, fix: str) -> None:
    first, second, config = log_dirs(tmp_path)
    run = verbs_of_mover(tmp_path, first, kind, fix, config)
    plan = run.plan()
    assert part(plan).changes
    before = left_in(first / "t-0")
    begun_to_move(tmp_path, second)
    report = run.apply(plan)
    assert report.exit_code is ExitCode.STALE_PLAN
    assert f"{second}/t-0.{'a' * 32}-future: appeared after the plan was made" in report.results[0].why
    assert left_in(first / "t-0") == before


@pytest.mark.parametrize("fix", FIXES)
@pytest.mark.parametrize("where", ["b1", "b11", "b2", "b22"])
def test_apply_sees_a_move_in_every_directory_of_this_and_of_another_broker(
    tmp_path: Path, where: str, fix: str
) -> None:
    """Also in one that holds none of the logs that were read."""
    first, second, config = log_dirs(tmp_path)
    broker(tmp_path, 2, cleaned())
    third = tmp_path / "b22"
    shutil.copytree(second, third)
    (third / "meta.properties").write_text("version=0\nbroker.id=2\ncluster.id=c\n")
    side = f"2={tmp_path}/b2,{third}"
    run = of_replicas(tmp_path, fix, side, replicas="1,2", config=str(config), only_replica=())
    plan = run.plan()
    assert part(plan).evidence.kind == "replicas", part(plan).evidence.why
    assert part(plan).changes
    before = left_in(first / "t-0")
    begun_to_move(tmp_path, tmp_path / where)
    report = run.apply(plan)
    assert report.exit_code is ExitCode.STALE_PLAN
    assert "-future" in report.results[0].why
    assert left_in(first / "t-0") == before


@pytest.mark.parametrize("what", ["gone", "of another broker"])
def test_apply_needs_the_directories_in_which_a_move_would_be_seen(tmp_path: Path, what: str) -> None:
    first, second, config = log_dirs(tmp_path)
    run = verbs_of_mover(tmp_path, first, "only-replica", "compact", config)
    plan = run.plan()
    second.rename(tmp_path / "away")
    if what == "of another broker":
        shutil.copytree(tmp_path / "away", second)
        meta = second / "meta.properties"
        meta.write_text(re.sub(r"(broker|node)\.id=\d+", r"\1.id=77", meta.read_text()))
    with pytest.raises(StalePlanError, match=r"b11") as refused:
        run.apply(plan)
    assert str(refused.value.next_command).startswith("krepair plan ")


@pytest.mark.parametrize("fix", FIXES)
@pytest.mark.parametrize("kind", KINDS)
def test_everything_stays_where_a_configured_directory_of_this_broker_cannot_be_read(
    tmp_path: Path, kind: str, fix: str
) -> None:
    first, second, config = log_dirs(tmp_path)
    second.rename(tmp_path / "away")
    plan = verbs_of_mover(tmp_path, first, kind, fix, config).plan()
    assert part(plan).evidence.kind == "none"
    assert str(second) in part(plan).evidence.why


def test_a_configured_directory_may_be_a_link(tmp_path: Path) -> None:
    first, second, config = log_dirs(tmp_path)
    second.rename(tmp_path / "disk")
    second.symlink_to(tmp_path / "disk")
    run = verbs_of_mover(tmp_path, first, "only-replica", "compact", config)
    plan = run.plan()
    assert part(plan).changes
    assert run.apply(plan).exit_code is ExitCode.DONE
