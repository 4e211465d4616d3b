"""What an earlier krepair half applied, applied, half undid or half purged: this one resumes, undoes and purges it.

Of versions, scenes, ways in which the earlier one stopped, changes that it left open, verbs, and how it went on itself,
any two that meet in a recorded state meet in a test. All states and verbs: ``KREPAIR_EVERY_STATE=1``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Hashable
from pathlib import Path
from typing import NamedTuple

import pytest

from krepair.errors import ExitCode
from tests.earlier import states
from tests.earlier.states import Placed, State
from tests.hostile.verbs import run
from tests.ops.conftest import memory_dir
from tests.pairs import meeting_in_pairs

__all__ = ["memory_dir"]
PREVIOUS = "7d977dd"
NEWER = "5adb171"
"""The last one in which each kind of change had code of its own for keeping, renaming and syncing."""
OLDER = "7bfac99"
"""Its journal has no digests of what is kept, and a purge that was begun did not stop an apply."""
REFUSALS = {ExitCode.PARTLY, ExitCode.PERSON_DECIDES, ExitCode.STALE_PLAN, ExitCode.REFUSED}
QUICK = 4
"""The quick tests take every fourth of the cases."""


class Case(NamedTuple):
    """A verb of this version on a state that an earlier version left."""

    version: str
    state: State
    verb: str


def values(case: Case) -> tuple[Hashable, ...]:
    """What makes one case unlike another."""
    state = case.state
    stopped = re.sub("[0-9]+", "", state.steps)
    intents = frozenset(state.open_intents() | state.open_intents("~root/journal"))
    return case.version, state.scene, stopped, intents, case.verb, state.ends[case.verb].code


ALL = [
    Case(version, state, verb)
    for version in (NEWER, PREVIOUS, OLDER)
    for state in states.states(version)
    for verb in ("apply", "undo", "purge")
]
CASES = [
    pytest.param(
        case.state,
        case.verb,
        id=f"{case.version} {case.state.scene} {case.state.steps} {case.verb}",
        marks=pytest.mark.slow if number % QUICK else (),
    )
    for number, case in enumerate(
        ALL if os.environ.get("KREPAIR_EVERY_STATE") == "1" else meeting_in_pairs(ALL, values)
    )
]


def go(verb: str, placed: Placed) -> int:
    return run(verb, str(placed.plan), *(("--engine", "inline") if verb == "apply" else ())).code


def assert_known(placed: Placed, state: State) -> None:
    """Each file is what it was before the plan, or what the earlier krepair made of it."""
    found, made = states.look(placed.log_dir), [state.before, *(end.files for end in state.ends.values())]
    for name in found.keys() | state.before.keys():
        assert any(found.get(name) == known.get(name) for known in made), name


@pytest.mark.parametrize(("state", "verb"), CASES)
def test_goes_on_where_the_earlier_one_stopped(memory_dir: Path, state: State, verb: str) -> None:
    placed, earlier = states.place(state, memory_dir), state.ends[verb]
    code = go(verb, placed)
    if code == ExitCode.DONE and earlier.code == ExitCode.DONE:
        assert states.look(placed.log_dir) == earlier.files
    if code == ExitCode.DONE:
        assert verb != "undo" or states.look(placed.log_dir) == state.before
        assert verb == "apply" or states.private(placed.log_dir) == []
        return
    assert code in REFUSALS
    # What the earlier one could do is done. Only what is being purged was applied again by the first of them.
    assert earlier.code or (verb, "purge@" in state.steps) == ("apply", True)
    undone = go("undo", placed)
    assert undone in {ExitCode.DONE, *REFUSALS}
    if code != ExitCode.PARTLY and state.ends["undo"].code == ExitCode.DONE:
        assert undone == ExitCode.DONE
    assert go("purge", placed) == ExitCode.DONE
    assert_known(placed, state)
    assert states.private(placed.log_dir) == []
    if undone == ExitCode.DONE:
        assert states.look(placed.log_dir) == state.before


def test_there_is_a_state_in_the_middle_of_each_kind_of_change_and_of_undo_and_purge() -> None:
    previous = states.states(PREVIOUS)
    assert {intent for state in previous for intent in state.open_intents()} == {
        "apply",
        "swap",
        "aside",
        "log, new file",
        "log, no new file",
        "replace, new file",
        "replace, no new file",
        "undo",
        "purge",
    }
    assert "replace, new file" in {one for state in previous for one in state.open_intents("~root/journal")}


def test_the_newest_states_are_those_of_every_keep_and_of_an_empty_segment_too() -> None:
    newest = states.states(NEWER)
    assert {"recovery", "keys"} < {state.scene for state in newest}
    assert {json.loads(state.plan)["policy"].get("keep", "inplace") for state in newest} == {
        "inplace",
        "until-verified",
    }
    opened = {intent for state in newest for intent in state.open_intents()}
    assert {"apply", "swap", "aside", "log, new file", "log, no new file", "undo", "purge"} < opened


@pytest.mark.parametrize("version", [PREVIOUS, OLDER])
def test_there_is_one_state_of_each_scene_that_is_applied_and_kept(version: str) -> None:
    kept = [state for state in states.states(version) if state.steps == "apply"]
    assert len(kept) == len({state.scene for state in kept}) == 12
    assert all(state.ends["undo"].files == state.before for state in kept)
