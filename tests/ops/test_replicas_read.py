"""The exact rule: with the logs of all other replicas a marker or tombstone goes only if none of them needs it."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from krepair.errors import ExitCode, KrepairError, LockedError, RefusedError, StalePlanError
from krepair.fixes.replicas import parse_sides
from krepair.ops.apply import apply
from krepair.ops.compare import compare
from krepair.ops.diff import diff_plans
from krepair.ops.plan import make_preview
from krepair.ops.show import show_view
from krepair.options import Options
from krepair.plan.model import Evidence
from krepair.rules.reasons import Reason
from tests.builders import NOW_MS, Batch, LogDir, abort, commit, emptied
from tests.compaction.directories import keys_of
from tests.flips import flip
from tests.ops.replica_scenes import OLD, left_in, watermark
from tests.ops.replicas_read import (
    FIXES,
    applied,
    broker,
    cleaned,
    evidence,
    in_txn,
    part,
    sides,
    value,
    verbs,
    whole,
)
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
    left = left_in(tmp_path / "b1" / "t-0")
    assert left.markers == (2,)  # replica 3 has the data of producer 7, nobody has those of producer 8
    assert left.tombstones == 1  # replica 3 has an older value


@pytest.mark.parametrize("fix", FIXES)
def test_what_nobody_needs_any_more_goes(fix: str, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        broker(tmp_path, number, cleaned())
    plan = applied(verbs(tmp_path, fix, *sides(tmp_path, 2, 3)))
    left = left_in(tmp_path / "b1" / "t-0")
    assert left.markers == ()
    assert left.tombstones == (0 if fix == "compact" else 1)
    assert evidence(plan).kind == "replicas"


@pytest.mark.parametrize("fix", FIXES)
def test_an_emptied_batch_of_another_replica_holds_its_marker(fix: str, tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, [emptied(1, pid=7, timestamp=OLD), *cleaned()])
    applied(verbs(tmp_path, fix, f"2={tmp_path}/b2", replicas="1,2"))
    assert left_in(tmp_path / "b1" / "t-0").markers == (2,)


def test_a_record_of_another_replica_that_is_known_as_aborted_there_holds_no_tombstone(
    tmp_path: Path,
) -> None:
    broker(tmp_path, 1, cleaned())
    other = [in_txn(0, "gone", 5), abort(1, pid=5, timestamp=OLD), *cleaned()]
    broker(tmp_path, 2, other)
    applied(verbs(tmp_path, "compact", f"2={tmp_path}/b2", replicas="1,2"))
    assert left_in(tmp_path / "b1" / "t-0").tombstones == 0


def test_a_value_of_an_open_transaction_of_another_replica_holds_the_tombstone(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, [in_txn(0, "gone", 5), *cleaned()])
    applied(verbs(tmp_path, "compact", f"2={tmp_path}/b2", replicas="1,2"))
    assert left_in(tmp_path / "b1" / "t-0").tombstones == 1


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


def test_who_is_not_known_holds_everything_back(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        broker(tmp_path, number, cleaned())
    said = {
        "without --cluster": ((*sides(tmp_path, 2, 3),), {"cluster": ""}),
        "replica 3 is not given": ((*sides(tmp_path, 2),), {}),
        "0 folders": ((*sides(tmp_path, 2), f"3={tmp_path}/empty"), {}),
        "broker 1 is not among": ((*sides(tmp_path, 2, 3),), {"replicas": "2,3"}),
    }
    empty = tmp_path / "empty"
    LogDir(empty).partition("other").segment(value(0, "a"))
    made = LogDir(empty)
    made.partition("other").segment(value(0, "a"))
    made.write()
    (empty / "meta.properties").write_text("version=0\nbroker.id=3\ncluster.id=c\n")
    for why, (given, more) in said.items():
        named = {name: more[name] for name in more if name == "replicas"}
        plan = verbs(
            tmp_path, "compact", *given, **named, **{k: v for k, v in more.items() if k == "cluster"}
        ).plan()
        assert evidence(plan).kind == "none", why
        assert why in evidence(plan).why or why == "without --cluster"
        assert {tally.reason for tally in part(plan).reasons} <= {"K01", "K09", "D01", "D02"}


@pytest.mark.parametrize("harm", ["damaged", "cut", "topic id", "leftover", "kept originals", "no log"])
@pytest.mark.parametrize("fix", FIXES)
def test_a_replica_that_is_damaged_cut_or_of_another_life_holds_everything_back(
    fix: str, harm: str, tmp_path: Path
) -> None:
    broker(tmp_path, 1, cleaned(), topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    other = broker(tmp_path, 2, cleaned(), topic_id="AAAAAAAAAAAAAAAAAAAAAQ") / "t-0"
    if harm == "damaged":
        log = other / f"{0:020d}.log"
        flip(log, -1)
    elif harm == "cut":
        watermark(tmp_path / "b2", 11)
    elif harm == "topic id":
        (other / "partition.metadata").write_text("version: 0\ntopic_id: BBBBBBBBBBBBBBBBBBBBBQ\n")
    elif harm == "leftover":
        (other / f"{0:020d}.log.swap").write_bytes(b"")
    elif harm == "kept originals":
        (other / "krepair~0123abcd").mkdir()
    else:
        for path in other.glob("*.log"):
            path.unlink()
    plan = applied(verbs(tmp_path, fix, f"2={tmp_path}/b2", replicas="1,2"))
    assert evidence(plan).kind == "none"
    assert left_in(tmp_path / "b1" / "t-0").markers == (2, 5)


@pytest.mark.parametrize("owner", [1, 2])
def test_a_folder_that_is_about_to_become_a_replica_holds_back_too(owner: int, tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, cleaned())
    future = broker(tmp_path / "elsewhere", 5, whole())
    shutil.copytree(future / "t-0", tmp_path / f"b{owner}" / f"t-0.{'a' * 32}-future")
    plan = applied(verbs(tmp_path, "compact", f"2={tmp_path}/b2", replicas="1,2"))
    assert evidence(plan).kind == "replicas", evidence(plan).why
    left = left_in(tmp_path / "b1" / "t-0")
    assert (left.markers, left.tombstones) == ((2, 5), 1)


@pytest.mark.parametrize("told", ["--config", "--replicas"])
def test_a_folder_in_another_log_directory_of_this_broker_holds_back_too(told: str, tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, cleaned())
    more = broker(tmp_path / "more", 1, whole()) / "t-0"
    more.rename(more.parent / f"t-0.{'a' * 32}-future")
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={tmp_path}/b1,{more.parent}\n")
    said: dict[str, object] = {"config": str(config)} if told == "--config" else {}
    given = [f"2={tmp_path}/b2", *([] if said else [f"1={tmp_path}/b1,{more.parent}"])]
    plan = applied(verbs(tmp_path, "compact", *given, replicas="1,2", **said))
    assert evidence(plan).kind == "replicas", evidence(plan).why
    left = left_in(tmp_path / "b1" / "t-0")
    assert (left.markers, left.tombstones) == ((2, 5), 1)


def test_a_log_directory_of_this_broker_that_cannot_be_read_keeps_everything(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, cleaned())
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={tmp_path}/b1,{tmp_path}/unmounted\n")
    plan = verbs(tmp_path, "compact", f"2={tmp_path}/b2", replicas="1,2", config=str(config)).plan()
    assert evidence(plan).kind == "none"
    assert "unmounted" in evidence(plan).why


# -- apply


def test_apply_needs_the_same_logs_again_unchanged(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    other = broker(tmp_path, 2, cleaned())
    run = verbs(tmp_path, "compact", f"2={other}", replicas="1,2")
    plan = run.plan()
    os.utime(other / "t-0" / f"{0:020d}.log", ns=(1, 1))
    report = run.apply(plan)
    assert {result.exit_code for result in report.results} == {ExitCode.STALE_PLAN}
    assert left_in(tmp_path / "b1" / "t-0").markers == (2, 5)
    shutil.rmtree(other)
    with pytest.raises((StalePlanError, KrepairError)):
        apply(plan, run.given)


def test_a_replica_in_use_is_refused(tmp_path: Path) -> None:
    from krepair.durable.real_disk import RealDisk
    from krepair.durable.tree import Tree
    from krepair.logdir.lock import hold_lock

    broker(tmp_path, 1, cleaned())
    other = broker(tmp_path, 2, cleaned())
    run = verbs(tmp_path, "compact", f"2={other}", replicas="1,2")
    plan = run.plan()
    with Tree(str(other), other.stat().st_ino) as tree, hold_lock(str(other), RealDisk(tree)):
        with pytest.raises(LockedError):
            run.plan()
        with pytest.raises(LockedError):
            run.apply(plan)


@pytest.mark.parametrize(
    ("number", "ids", "told"),
    [
        (3, "version=0\nbroker.id=2\ncluster.id=c\n", "3=ROOT/b2: ROOT/b2 is of broker 2, not 3"),
        (2, "version=0\nbroker.id=2\ncluster.id=d\n", "ROOT/b2 is of cluster d, ROOT/b1 is of cluster c"),
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
        lambda: compare(parse_sides([f"1={mine}", side]), Options()),
    ):
        with pytest.raises(RefusedError) as refused:
            run()
        said.append(str(refused.value).replace(str(tmp_path), "ROOT"))
    assert said == [told, told]


def test_a_plan_is_continued_after_an_interruption_and_taken_back(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, whole())
    run = verbs(tmp_path, "compact", f"2={tmp_path}/b2", replicas="1,2")
    before = {path.name: path.read_bytes() for path in (tmp_path / "b1" / "t-0").glob("*.log")}
    plan = run.plan()
    assert run.apply(plan).exit_code is ExitCode.DONE
    assert run.undo(plan).exit_code is ExitCode.DONE
    assert {path.name: path.read_bytes() for path in (tmp_path / "b1" / "t-0").glob("*.log")} == before
    assert run.apply(plan).exit_code is ExitCode.DONE


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
    "seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 60))]
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

    logs = {}
    for number in (1, 2, 3):
        logs[number] = replica(number)
        made = LogDir(tmp_path / f"b{number}")
        partition = made.partition("t", index_interval_bytes=200)
        half = len(logs[number]) // 2
        for batches in (logs[number][:half], logs[number][half:]):
            if batches:
                partition.segment(
                    *batches, base_offset=0 if batches is logs[number][:half] else None, mtime_ms=OLD
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
    left = set(left_in(tmp_path / "b1" / "t-0").markers)
    for pid, first, marker in spans:
        needed = any(
            one.producer_id == pid and not one.control and first <= one.base_offset < marker
            for number in (2, 3)
            for one in logs[number]
        )
        if needed:
            assert marker in left
    last: dict[str, Batch] = {}
    aborted = {(pid, first, marker) for pid, first, marker in spans if logs_abort(history, marker)}
    for one in logs[1]:
        ends = any(
            pid == one.producer_id and first <= one.base_offset < marker for pid, first, marker in aborted
        )
        if not one.control and not ends:
            last[key_of(one)] = one
    batches = left_in(tmp_path / "b1" / "t-0").batches
    for key, one in last.items():
        older = any(
            key_of(other) == key and other.base_offset < one.base_offset
            for number in (2, 3)
            for other in logs[number]
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
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, cleaned())
    run = verbs(tmp_path, "compact", f"2={tmp_path}/b2", replicas="1,2")
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
    broker(tmp_path, 1, mine)
    theirs = [batch for batch in one_producer() if batch.base_offset not in lost]
    plan = applied(verbs(tmp_path, fix, f"2={broker(tmp_path, 2, theirs)}", replicas="1,2"))
    assert evidence(plan).kind == "replicas", evidence(plan).why
    assert left_in(tmp_path / "b1" / "t-0").markers == (2, 4, 6)


@pytest.mark.parametrize("fix", FIXES)
def test_other_replicas_of_two_topics_of_one_name_are_no_evidence(tmp_path: Path, fix: str) -> None:
    broker(tmp_path, 1, whole())
    sides = [
        f"{number}={broker(tmp_path, number, whole(), topic_id=topic_id)}"
        for number, topic_id in ((2, "AAAAAAAAAAAAAAAAAAAAAQ"), (3, "BBBBBBBBBBBBBBBBBBBBBQ"))
    ]
    evidence = part(verbs(tmp_path, fix, *sides).plan()).evidence
    assert isinstance(evidence, Evidence)
    assert evidence.kind == "none"
    assert "several topics of this name" in evidence.why


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
