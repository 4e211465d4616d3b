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
VERSIONS = ("7d977dd",)
REFUSALS = {ExitCode.PARTLY, ExitCode.PERSON_DECIDES, ExitCode.STALE_PLAN, ExitCode.REFUSED}
CASES = [
    pytest.param(state, id=f"{version} {state.scene} {state.steps}")
    for version in VERSIONS
    for state in states.states(version)
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
    # What the earlier one could do is done; what it refused may still be refused, and then nothing is lost.
    assert earlier.code
    assert code in REFUSALS
    assert_known(placed, state)
    undone = go("undo", placed)
    assert undone in {ExitCode.DONE, *REFUSALS}
    assert go("purge", placed) == ExitCode.DONE
    assert_known(placed, state)
    assert states.private(placed.log_dir) == []
    if undone == ExitCode.DONE:
        assert states.look(placed.log_dir) == state.before


@pytest.mark.parametrize("version", VERSIONS)
def test_there_is_a_state_in_the_middle_of_each_kind_of_change_and_of_undo_and_purge(version: str) -> None:
    found = {intent for state in states.states(version) for intent in state.open_intents()}
    assert found == {
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
    ended = [state for state in states.states(version) if state.steps == "apply"]
    assert len(ended) == len({state.scene for state in ended})
    assert all(state.ends["undo"].files == state.before for state in ended)
