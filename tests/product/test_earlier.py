"""What each released krepair left when it was killed: this version resumes the work, rolls it back, and frees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.torture.earlier import Kept, put, read_kept, the_place
from tools.torture.runs import inline, run_here
from tools.torture.scenes import Tree, differences, look, private, visible

VERSIONS = ("1.0.0", "1.1.0")
KEPT = {(version, one.name): one for version in VERSIONS for one in read_kept(version)}
STOPS = [(*key, steps) for key, one in KEPT.items() for steps in one.stops]
UNDONE = [stop for stop in STOPS if "purge" not in stop[-1]]


def tree_of(kept: Kept, steps: str, place: Path) -> Tree:
    """What a broker sees of the log directory after some steps; none: as it was."""
    return visible(look(put(kept.stops[steps] if steps else kept.before, place)))


def run(verb: str, *words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run_here([verb, *words, *inline(verb)])
    said = capsys.readouterr()
    assert code == 0, f"{verb} {words}: {code}\n{said.out}{said.err}"


@pytest.mark.parametrize(("version", "name", "steps"), STOPS)
def test_the_same_command_goes_on_with_what_was_left(
    version: str, name: str, steps: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, verb = KEPT[version, name], steps.rpartition(".")[2].partition("@")[0]
    with the_place() as place:
        wanted = tree_of(kept, "" if verb == "undo" else "apply", place)
        path, plan = put(kept.stops[steps], place), place / "plan"
        plan.write_bytes(kept.plan)
        run(verb, str(plan), capsys=capsys)
        found = look(path)
    assert not differences(visible(found), wanted)
    assert verb == "apply" or not private(found)


@pytest.mark.parametrize(("version", "name", "steps"), UNDONE)
def test_undo_takes_back_what_was_left_without_the_plan_file_and_in_another_place(
    version: str, name: str, steps: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = KEPT[version, name]
    before = tree_of(kept, "", tmp_path)
    path = put(kept.stops[steps], tmp_path)
    run("undo", str(path), "--plan-id", plan_id(kept), capsys=capsys)
    assert not differences(visible(look(path)), before)


@pytest.mark.parametrize(("version", "name"), KEPT)
def test_purge_frees_what_was_applied_without_the_plan_file_and_in_another_place(
    version: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = KEPT[version, name]
    path = put(kept.stops["apply"], tmp_path)
    applied = visible(look(path))
    run("purge", str(path), "--plan-id", plan_id(kept), capsys=capsys)
    found = look(path)
    assert not differences(visible(found), applied)
    assert not private(found)


def plan_id(kept: Kept) -> str:
    """Of the names of its folders, as an operator reads it."""
    folder = next(one for one in kept.stops["apply"] if "krepair~" in one.name)
    return folder.name.partition("krepair~")[2].partition("/")[0]
