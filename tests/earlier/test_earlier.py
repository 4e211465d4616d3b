"""What an earlier krepair half applied, applied, half undid or half purged: this one resumes, undoes and purges it."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.errors import ExitCode
from tests.earlier import states
from tests.earlier.states import Placed, State
from tests.hostile.verbs import run
from tests.ops.conftest import memory_dir

__all__ = ["memory_dir"]
PREVIOUS = "7d977dd"
OLDER = "7bfac99"
"""Its journal has no digests of what is kept, and a purge that was begun did not stop an apply."""
REFUSALS = {ExitCode.PARTLY, ExitCode.PERSON_DECIDES, ExitCode.STALE_PLAN, ExitCode.REFUSED}
EVERY = 5
"""The quick tests take every fifth state of the previous version."""
CASES = [
    pytest.param(
        state,
        id=f"{version} {state.scene} {state.steps}",
        marks=() if version == PREVIOUS and number % EVERY == 0 else (pytest.mark.slow,),
    )
    for version in (PREVIOUS, OLDER)
    for number, state in enumerate(states.states(version))
]


def go(verb: str, placed: Placed) -> int:
    return run(verb, str(placed.plan), *(("--engine", "inline") if verb == "apply" else ())).code


def assert_known(placed: Placed, state: State) -> None:
    """Each file is what it was before the plan, or what the earlier krepair made of it."""
    found, made = states.look(placed.log_dir), [state.before, *(end.files for end in state.ends.values())]
    for name in found.keys() | state.before.keys():
        assert any(found.get(name) == known.get(name) for known in made), name


@pytest.mark.parametrize("state", CASES)
@pytest.mark.parametrize("verb", ["apply", "undo", "purge"])
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


@pytest.mark.parametrize("version", [PREVIOUS, OLDER])
def test_there_is_one_state_of_each_scene_that_is_applied_and_kept(version: str) -> None:
    kept = [state for state in states.states(version) if state.steps == "apply"]
    assert len(kept) == len({state.scene for state in kept}) == 12
    assert all(state.ends["undo"].files == state.before for state in kept)
