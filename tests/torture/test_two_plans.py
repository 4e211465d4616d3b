"""Two plans of one log directory at once: a seeded sample of ``make torture``, and its judges."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.builders import LogDir, Record, data
from tests.torture.kills import PREFACE
from tests.torture.programme import of_scenes, run_part, run_script, wrong_of
from tools.torture.two_plans import records_of

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

LOST_SWAP = "0+{other}:a-apply@5rb.b-apply@6rb.a-undo"
"""The first plan is killed before its commit, the second one behind it, and the first one is undone."""


@pytest.mark.slow
def test_plans_that_were_made_together_are_all_taken_back_in_any_order(tmp_path: Path) -> None:
    state = run_part("two_plans", tmp_path, "--samples", "6", *of_scenes(["everything"]))
    assert not state.all_wrong, wrong_of(state)
    assert state.figures["sequences"] == 6
    assert state.figures["kills"] > 3


ONCE_WRONG = (
    "derived:3:5+4:a-apply@84t.b-apply@15b.a-undo@4rb.b-apply@150b",
    "markers-without-points:0:2+0:a-apply@8ra.cleaned.b-apply@5ra.a-undo@6ra.a-undo@16b.a-apply",
    "leftovers-without-fence:3:1+3:a-apply@17ra.cleaned.a-apply@4rb",
    "removals:0:0+2:a-apply@2ra.a-apply@1rb.cleaner.a-verify.b-apply.a-apply@36b",
)


@pytest.mark.slow
def test_sequences_that_were_once_wrong_end_well() -> None:
    printed = run_script(
        PREFACE
        + f"""
from tools.torture import two_plans
for case in {ONCE_WRONG!r}:
    print(case, two_plans.replay(case, work) == [])
"""
    )
    assert printed.splitlines() == [f"{case} True" for case in ONCE_WRONG]


@pytest.mark.slow
def test_an_undo_that_takes_the_swap_of_another_plan_is_found_out() -> None:
    printed = run_script(
        PREFACE
        + f"""
import krepair.commit.segments as rewrite
from krepair.commit.group import GroupFiles
from krepair.commit import partition, ready, stack
from krepair.commit.visited import Answer
from tools.torture import two_plans
known = two_plans.known_of(runner, "markers", 0, work)
def wrong():
    cases = [{LOST_SWAP!r}.format(other=other) for other in range(1, len(known))]
    return any(two_plans.Episode(runner, known, case, work).play() for case in cases)
sound = wrong()
rewrite._check_swap_is_of_group = lambda *_: None
GroupFiles.is_of_another_program = lambda *_: False
ready._check_no_other_plan = lambda *_: None
stack.Stack.check = lambda *_: None
partition.detect_visit = lambda *_: Answer()
print(sound, wrong())
"""
    )
    assert printed.split() == ["False", "True"]


def test_records_are_told_by_offset_key_and_value(tmp_path: Path) -> None:
    made = LogDir(tmp_path / "logs")
    made.partition("t").segment(data(5, [Record(b"k", b"v"), Record(b"k", None)]))
    assert records_of(made.write()) == {"t-0": {(5, b"k", b"v"), (6, b"k", None)}}
