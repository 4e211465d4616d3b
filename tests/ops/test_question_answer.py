"""A question travels, answers come back, no data does: a tombstone goes only if every answer lets it go."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import ExitCode, RefusedError, StalePlanError, UnreadableError, UsageError
from krepair.logdir.lock import hold_lock
from krepair.logdir.replica import ReplicaState
from krepair.ops import answer
from krepair.ops.ask import AskReport, ask
from krepair.ops.compare import compare
from krepair.ops.facts import facts
from krepair.ops.sides import parse_sides
from krepair.options import Engine, Options
from krepair.plan.review import review
from tests.builders import NOW_MS, Batch, LogDir
from tests.compaction.directories import Verbs
from tests.ops.replica_scenes import OLD, left_in, watermark
from tests.ops.replicas_read import applied, broker, cleaned, evidence, in_txn, part, value, verbs, whole
from tests.ops.test_facts_evidence import other, recovery_point, taken
from tests.ops.test_other_replicas import sealed

pytestmark = pytest.mark.replicas


def asked(root: Path, *, replicas: str = "1,2,3", **more: object) -> AskReport:
    run = verbs(root, "compact", replicas=replicas, **more)
    return ask(str(root / "b1"), str(root / "b1.question"), run.given)


def answered(root: Path, number: int, question: str = "b1.question", out: str = "") -> str:
    """``ID=FILE`` of the answer of one broker, which has a recovery point."""
    path = root / (out or f"b{number}.answer")
    recovery_point(root / f"b{number}", 10)
    report = facts(
        [str(root / f"b{number}")],
        str(path),
        Options(engine=Engine.INLINE, now_ms=OLD),
        question=str(root / question),
    )
    assert report.exit_code is ExitCode.DONE
    return f"{number}={path}"


def test_a_tombstone_that_nobody_needs_goes_by_answers_alone(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        broker(tmp_path, number, cleaned())
    report = asked(tmp_path)
    assert (report.partitions, report.keys) == (1, 1)
    assert b"gone" not in (tmp_path / "b1.question").read_bytes()
    plan = applied(verbs(tmp_path, "compact", answered(tmp_path, 2), answered(tmp_path, 3)))
    assert {one.question for one in evidence(plan).facts} == {report.digest}
    assert [one.asked for one in evidence(plan).facts] == [1, 1]
    left = left_in(tmp_path / "b1" / "t-0")
    assert (left.markers, left.tombstones) == ((), 0)


@pytest.mark.parametrize("second", ["answer", "directory", "facts"])
def test_one_older_record_anywhere_keeps_the_tombstone(second: str, tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, cleaned())
    behind = [value(0, "gone"), *cleaned(tombstone=False)]
    broker(tmp_path, 3, behind)
    asked(tmp_path)
    sides = [answered(tmp_path, 2)]
    if second == "answer":
        sides.append(answered(tmp_path, 3))
    elif second == "directory":
        sides.append(f"3={tmp_path}/b3")
    else:
        sides.append(f"3={other(tmp_path / 'again', 3, behind)}")
    plan = applied(verbs(tmp_path, "compact", *sides))
    assert evidence(plan).kind == "replicas", evidence(plan).why
    left = left_in(tmp_path / "b1" / "t-0")
    assert (left.markers, left.tombstones) == ((), 1)


@pytest.mark.parametrize(("records", "stays"), [("open", 1), ("aborted", 0), ("younger", 0), ("future", 1)])
def test_what_counts_as_an_older_record(records: str, stays: int, tmp_path: Path) -> None:
    from tests.builders import abort

    broker(tmp_path, 1, cleaned())
    more: dict[str, list[Batch]] = {
        "open": [in_txn(0, "gone", 5), *cleaned()],
        "aborted": [in_txn(0, "gone", 5), abort(1, pid=5, timestamp=OLD), *cleaned()],
        "younger": [*cleaned(tombstone=False)[:-1], value(7, "gone")],
        "future": cleaned(),
    }
    broker(tmp_path, 2, more[records])
    if records == "future":
        future = broker(tmp_path / "elsewhere", 5, whole())
        shutil.copytree(future / "t-0", tmp_path / "b2" / f"t-0.{'a' * 32}-future")
    asked(tmp_path, replicas="1,2")
    applied(verbs(tmp_path, "compact", answered(tmp_path, 2), replicas="1,2"))
    assert left_in(tmp_path / "b1" / "t-0").tombstones == stays


@pytest.mark.parametrize("at", [3, 4])
@pytest.mark.parametrize("what", ["high watermark", "recovery point"])
def test_an_answer_speaks_only_below_high_watermark_and_recovery_point(
    what: str, at: int, tmp_path: Path
) -> None:
    """The tombstone is at 3."""
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, cleaned())
    asked(tmp_path, replicas="1,2")
    if what == "high watermark":
        watermark(tmp_path / "b2", at)
    side = answered(tmp_path, 2)
    if what == "recovery point":
        recovery_point(tmp_path / "b2", at)
        report = facts(
            [str(tmp_path / "b2")],
            side.partition("=")[2],
            Options(engine=Engine.INLINE, now_ms=OLD),
            question=str(tmp_path / "b1.question"),
        )
        assert report.asked == 1
    plan = applied(verbs(tmp_path, "compact", side, replicas="1,2"))
    assert evidence(plan).facts[0].reach == at
    assert left_in(tmp_path / "b1" / "t-0").tombstones == (1 if at == 3 else 0)


def test_a_running_broker_answers_for_its_closed_segments(tmp_path: Path) -> None:
    for number in (1, 2):
        broker(tmp_path, number, cleaned())
    other_dir = tmp_path / "b2"
    asked(tmp_path, replicas="1,2")
    with Tree(str(other_dir), other_dir.stat().st_ino) as tree, hold_lock(str(other_dir), RealDisk(tree)):
        side = answered(tmp_path, 2)
    plan = applied(verbs(tmp_path, "compact", side, replicas="1,2"))
    assert evidence(plan).kind == "replicas"
    assert left_in(tmp_path / "b1" / "t-0").tombstones == 0


# -- answers to something else


def test_an_answer_to_a_question_of_before_keeps_tombstones_and_says_so(tmp_path: Path) -> None:
    broker(tmp_path, 1, [*cleaned()[:-1], value(7, "last", None)])
    broker(tmp_path, 2, cleaned())
    asked(tmp_path, replicas="1,2")
    side = answered(tmp_path, 2)
    shutil.rmtree(tmp_path / "b1")
    broker(tmp_path, 1, cleaned())
    plan = applied(verbs(tmp_path, "compact", side, replicas="1,2"))
    assert "another log" in evidence(plan).why
    left = left_in(tmp_path / "b1" / "t-0")
    assert (left.markers, left.tombstones) == ((), 1)


def test_answers_to_two_questions_or_of_another_asker_are_refused(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        broker(tmp_path, number, cleaned())
    asked(tmp_path)
    first = answered(tmp_path, 2)
    asked(tmp_path)
    second = answered(tmp_path, 3)
    with pytest.raises(RefusedError, match="different questions"):
        verbs(tmp_path, "compact", first, second).plan()
    run = verbs(tmp_path, "compact", f"1={first.partition('=')[2]}")
    run.log_dir = tmp_path / "b3"
    with pytest.raises(UsageError, match="of broker 2, not 1"):
        run.plan()
    run = verbs(tmp_path, "compact", first)
    run.log_dir = tmp_path / "b3"
    with pytest.raises(RefusedError, match="question of broker 1"):
        run.plan()


def test_a_question_of_another_cluster_a_damaged_one_and_facts_as_question_are_refused(
    tmp_path: Path,
) -> None:
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, cleaned())
    asked(tmp_path, replicas="1,2")
    file = tmp_path / "b1.question"
    raw = file.read_bytes()
    for place in range(0, len(raw), max(len(raw) // 30, 1)):
        flipped = bytearray(raw)
        flipped[place] ^= 1
        for content in (bytes(flipped), raw[:place]):
            file.write_bytes(content)
            with pytest.raises((UnreadableError, RefusedError)):
                answered(tmp_path, 2)
    file.write_bytes(taken(tmp_path, 2).read_bytes())
    with pytest.raises(UnreadableError, match="krepair question"):
        answered(tmp_path, 2)
    file.write_bytes(raw)
    (tmp_path / "b2" / "meta.properties").write_text("version=0\nbroker.id=2\ncluster.id=d\n")
    with pytest.raises(RefusedError, match="asks cluster c"):
        answered(tmp_path, 2)


def test_a_question_is_not_written_over_facts_nor_into_a_log_directory(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    file = other(tmp_path, 2, cleaned())
    run = verbs(tmp_path, "compact")
    for path in (file, tmp_path / "b1" / "question"):
        with pytest.raises(RefusedError):
            ask(str(tmp_path / "b1"), str(path), run.given)
    with pytest.raises(UsageError, match="only --fix compact"):
        ask(str(tmp_path / "b1"), str(tmp_path / "q"), verbs(tmp_path, "markers").given)


def test_an_answer_is_not_compared(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, cleaned())
    asked(tmp_path, replicas="1,2")
    sides = parse_sides([f"1={tmp_path}/b1", answered(tmp_path, 2)])
    with pytest.raises(RefusedError, match="answers a question"):
        compare(sides, Options(engine=Engine.INLINE))


def test_a_replica_of_another_life_is_not_answered_for(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned(), topic_id="AAAAAAAAAAAAAAAAAAAAAg")
    broker(tmp_path, 2, cleaned(), topic_id="BBBBBBBBBBBBBBBBBBBBBQ")
    asked(tmp_path, replicas="1,2")
    plan = verbs(tmp_path, "compact", answered(tmp_path, 2), replicas="1,2").plan()
    assert evidence(plan).kind == "none"
    assert "topic id" in evidence(plan).why


# -- apply


def test_apply_needs_the_same_answers_again(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, cleaned())
    asked(tmp_path, replicas="1,2")
    side = answered(tmp_path, 2)
    run = verbs(tmp_path, "compact", side, replicas="1,2")
    plan = run.plan()
    path = Path(side.partition("=")[2])
    raw = path.read_bytes()
    path.write_bytes(taken(tmp_path, 2).read_bytes())
    with pytest.raises(StalePlanError, match="are not those of the plan"):
        run.apply(plan)
    path.write_bytes(raw)
    assert run.apply(plan).exit_code is ExitCode.DONE
    os.unlink(path)
    assert run.verify(plan).problems == ()


def test_review_objects_to_more_than_the_facts_allow(tmp_path: Path) -> None:
    broker(tmp_path, 1, cleaned())
    broker(tmp_path, 2, cleaned())
    asked(tmp_path, replicas="1,2")
    plan = verbs(tmp_path, "compact", answered(tmp_path, 2), replicas="1,2").plan()
    assert review(plan) == []
    known = evidence(plan)
    for facts_ in (
        replace(known.facts[0], reach=0),
        replace(known.facts[0], question=""),
    ):
        edited = sealed(plan, replace(part(plan), evidence=replace(known, facts=(facts_,))))
        assert {objection.code for objection in review(edited)} == {"RV33"}


# -- a property: facts and directories come to the same


@pytest.mark.parametrize("seed", range(25))
def test_answers_let_go_what_directories_let_go(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    history = [
        value(offset, f"k{chance.randrange(8)}", None if chance.random() < 0.5 else b"v")
        for offset in range(60)
    ]
    for number in (1, 2, 3):
        left = [batch for batch in history if chance.random() < 0.6]
        made = LogDir(tmp_path / f"b{number}")
        partition = made.partition("t", index_interval_bytes=200)
        cut = chance.randrange(1, len(left))
        for base, batches in ((0, left[:cut]), (None, left[cut:])):
            if batches:
                partition.segment(*batches, base_offset=base, mtime_ms=OLD)
        partition.segment(value(60, "z"), mtime_ms=NOW_MS - 1000)
        partition.segment(value(61, "active"))
        made.write()
        (tmp_path / f"b{number}" / "meta.properties").write_text(
            f"version=0\nbroker.id={number}\ncluster.id=c\n"
        )
        watermark(tmp_path / f"b{number}", 62)
        (tmp_path / f"b{number}" / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 62\n")
    asked(tmp_path)
    question = str(tmp_path / "b1.question")
    for number in (2, 3):
        out = str(tmp_path / f"b{number}.answer")
        facts([str(tmp_path / f"b{number}")], out, Options(engine=Engine.INLINE), question=question)
    by_answers = verbs(tmp_path, "compact", *(f"{n}={tmp_path}/b{n}.answer" for n in (2, 3)))
    by_directories = verbs(tmp_path, "compact", *(f"{n}={tmp_path}/b{n}" for n in (2, 3)))
    first, second = by_answers.plan(), by_directories.plan()
    assert review(first) == []
    assert part(first).compaction == part(second).compaction
    assert part(first).changes == part(second).changes
    if part(first).changes:
        assert Verbs(by_answers.log_dir, by_answers.given).apply(first).exit_code is ExitCode.DONE


def test_the_folders_of_a_broker_are_gone_through_once_for_all_partitions_that_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = 0

    class Counting(tuple[ReplicaState, ...]):
        def __iter__(self) -> Iterator[ReplicaState]:
            nonlocal times
            times += 1
            return super().__iter__()

    monkeypatch.setattr(answer, "write_answered", lambda writer, found: None)
    side: Any = SimpleNamespace(state=SimpleNamespace(partitions=Counting()))
    nothing: Any = SimpleNamespace(path="")
    question: Any = SimpleNamespace(
        path="Q", partitions=[SimpleNamespace(topic="t", partition=number) for number in range(5)]
    )
    found = answer.write_answers(nothing, nothing, side, question, nothing)
    assert [one.why for one in found] == ["one folder of it was expected, found 0"] * 5
    assert times == 1
