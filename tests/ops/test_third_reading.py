"""A decision that forgets another replica, in the plan and again in apply, is found by the third reading of apply."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from krepair.errors import ExitCode
from krepair.formats.java_numbers import INT64_MAX
from krepair.ops.facts import facts
from krepair.options import Engine, Options
from krepair.pipeline.compaction.items import OffsetFile
from krepair.pipeline.replicas import questions
from krepair.pipeline.replicas.answers_check import tombstone_without_leave
from krepair.pipeline.replicas.evidence_check import (
    _Intervals,
    _with_before,
    first_beyond,
)
from krepair.pipeline.replicas.holdings import Pairs
from tests.compaction.directories import Verbs
from tests.ops.replica_scenes import OLD
from tests.ops.replicas_read import FIXES, broker, cleaned, forgotten, value, verbs, whole
from tests.ops.test_facts_evidence import other, recovery_point
from tests.ops.test_question_answer import answered
from tests.ops.test_question_answer import asked as ask_all

pytestmark = pytest.mark.replicas


def refused(run: Verbs, root: Path, why: str) -> None:
    plan = run.plan()
    before = {path.name: path.read_bytes() for path in (root / "b1" / "t-0").glob("*.log")}
    (result,) = run.apply(plan).results
    assert result.exit_code == ExitCode.VERIFY_FAILED, result
    assert why in result.why
    assert {path.name: path.read_bytes() for path in (root / "b1" / "t-0").glob("*.log")} == before


@pytest.mark.parametrize("given", ["directory", "facts"])
@pytest.mark.parametrize("fix", FIXES)
def test_a_marker_that_another_replica_needs_is_missed(
    fix: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker(tmp_path, 1, cleaned())
    behind = [batch for batch in whole() if batch.base_offset in {1, 2, 3, 5, 6, 7}]
    file = other(tmp_path, 2, behind)
    forgotten(monkeypatch)
    run = verbs(tmp_path, fix, f"2={file}" if given == "facts" else f"2={tmp_path}/b2", replicas="1,2")
    refused(run, tmp_path, "the marker at offset 2 is gone, but a batch of its transaction (producer 7)")


@pytest.mark.parametrize("fix", FIXES)
def test_a_marker_for_which_the_facts_do_not_speak_is_missed(
    fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker(tmp_path, 1, cleaned())
    file = other(tmp_path, 2, cleaned(), flushed=3)
    forgotten(monkeypatch)
    run = verbs(tmp_path, fix, f"2={file}", replicas="1,2")
    refused(run, tmp_path, "the marker at offset 5 is gone, but facts speak only below 3")


@pytest.mark.parametrize("forgets", ["an answer", "the reach", "a key"])
def test_a_tombstone_that_the_answers_hold_is_missed(
    forgets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = [*cleaned()[:-1], value(7, "end")]
    broker(tmp_path, 1, mine)
    broker(
        tmp_path, 2, [value(0, "gone"), *cleaned(tombstone=False)] if forgets == "an answer" else cleaned()
    )
    ask_all(tmp_path, replicas="1,2")
    side = answered(tmp_path, 2)
    if forgets == "the reach":
        recovery_point(tmp_path / "b2", 3)
        out, question = side.partition("=")[2], str(tmp_path / "b1.question")
        facts([str(tmp_path / "b2")], out, Options(engine=Engine.INLINE, now_ms=OLD), question=question)
    if forgets == "a key":
        # the question has been made without the tombstone, and the log is read in the same wrong way
        real = questions.tombstones_of
        for module in ("krepair.pipeline.replicas.questions", "krepair.ops.ask"):
            monkeypatch.setattr(
                f"{module}.tombstones_of", lambda *said: dict.fromkeys(real(*said), ()), raising=False
            )
        ask_all(tmp_path, replicas="1,2")
        side = answered(tmp_path, 2)
    monkeypatch.setattr(questions, "held_tombstones", lambda *_: ())
    run = verbs(tmp_path, "compact", side, replicas="1,2")
    refused(run, tmp_path, "the tombstone at offset 3 is gone, but the answers do not let it go")


# -- the pieces, against a slow twin


@pytest.mark.parametrize("seed", range(30))
def test_what_is_needed_is_what_a_slow_twin_finds(seed: int) -> None:
    chance = np.random.default_rng(seed)
    markers = [(int(chance.integers(4)), offset) for offset in range(100) if chance.random() < 0.3]
    before: dict[int, int] = {}
    pieces = []
    for first in range(0, len(markers), 7):
        part = np.array(markers[first : first + 7], np.int64).reshape(-1, 2)
        pieces.append(_with_before(part, before))
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


def test_the_first_offset_beyond_what_facts_speak_for() -> None:
    gone = Pairs(data=np.array([[1, -1, 5], [2, -1, 9]], np.int64).tobytes())
    assert [first_beyond(gone, reach) for reach in (5, 6, 9, 10, INT64_MAX)] == [5, 9, 9, -1, -1]


def test_nothing_gone_needs_no_leave() -> None:
    from krepair.formats.question_file import AskedPartition

    one = AskedPartition(topic="t", partition=0, topic_id="", end=0)
    assert tombstone_without_leave([OffsetFile()], one, bytes(16), {}, [], 10) == -1
