"""Processes killed at calls that change a file: a seeded sample of ``make torture``, and the tools that it uses."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from krepair.ops.plan import make_plan
from krepair.plan import planfile
from tests.torture.kills import PREFACE
from tests.torture.programme import IN_THE_GATE, ROOT, of_scenes, run_part, run_script, wrong_of
from tools.torture import faults
from tools.torture.faults import Control, Fault, Kind, Mode
from tools.torture.runs import Step, Wanted, inline, installed_command, judge_snapshots, parse_step
from tools.torture.scenes import POINTS, SCENES, Seen, Tree, build, every_keep, look
from tools.torture.state import State

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.mark.slow
def test_killed_at_any_call_the_next_run_ends_as_without_the_crash(tmp_path: Path) -> None:
    state = run_part("kills", tmp_path, "--samples", "0.4", "--seeds", "1", *of_scenes(IN_THE_GATE))
    assert not state.all_wrong, wrong_of(state)
    assert state.figures["kills"] > 50
    kept = {unit.partition(":")[0].partition("~")[2] for unit in state.units}
    assert kept == {"", "until-verified"}
    assert state.figures["installed kills"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "set-aside:1:apply.purge@25a.purge",
        # Apply goes on beside a partition that is half purged: the recovery points of the others are set.
        "recovery:1:apply@144t.purge@10a?.apply?.purge.apply.purge",
    ],
)
def test_a_purge_goes_on_although_what_it_took_away_is_missing_now(case: str) -> None:
    printed = run_script(PREFACE + f"from tools.torture import kills\nprint(kills.replay({case!r}, work))")
    assert printed.strip() == "[]"


@pytest.mark.parametrize("name", every_keep(SCENES))
def test_plan_of_a_copied_scene_is_what_the_planner_makes_of_the_copy(memory_dir: Path, name: str) -> None:
    scene = build(name, seed=1)
    placed = scene.place(memory_dir)
    options = scene.options
    assert planfile.dumps(make_plan(str(placed.path), options)) == placed.plan_file.read_bytes()
    assert build(name, seed=1).entries == scene.entries


def test_scenes_have_every_kind_of_change_and_both_orders() -> None:
    scenes = [build(name) for name in SCENES]
    kinds = {
        type(change).__name__ for scene in scenes for part in scene.plan.partitions for change in part.changes
    }
    assert kinds == {
        "RewriteSegments",
        "ReplaceFile",
        "MendLog",
        "SetAside",
        "CompleteSwap",
        "RollSegment",
    }
    assert any(scene.plan.root is not None for scene in scenes)
    assert {(scene.plan.commit.order, scene.plan.commit.fence) for scene in scenes} == {
        ("P1", True),
        ("P1", False),
        ("P2", False),
    }


@pytest.mark.slow
def test_kill_before_a_call_leaves_it_undone_and_after_it_done() -> None:
    printed = run_script(
        PREFACE
        + """
scene = build("removals")
runner.warm_up([scene], work)
wanted = find_wanted(runner, scene, work)
call = next(call for call in wanted.calls["apply"] if call.kind.name == "UNLINK")
for mode in "ba":
    with case_folder(work) as folder:
        placed = scene.place(folder)
        ended = runner.run(placed, parse_step(f"apply@{call.number}{mode}"))
        print(ended.code, (placed.path / call.path).exists())
"""
    )
    assert printed.split() == ["-9", "True", "-9", "False"]


@pytest.mark.slow
def test_journal_that_forgets_its_last_line_is_found_out() -> None:
    printed = run_script(
        PREFACE
        + """
from krepair.commit import journal
whole = journal.decode_lines
def forgetful(data, path):
    lines, size = whole(data, path)
    return (lines[:-1], size) if len(lines) > 1 else (lines, size)
scene = build("removals")
runner.warm_up([scene], work)
wanted = find_wanted(runner, scene, work)
from tools.torture import kills
def wrong():
    steps = kills.cases("removals:0:apply@.undo.apply.purge", wanted, 40)
    return sum(bool(kills.try_case(runner, scene, wanted, one, work).wrong) for one in steps)
sound = wrong()
journal.decode_lines = forgetful
print(sound, wrong() > 3)
"""
    )
    assert printed.split() == ["0", "True"]


def test_a_line_of_a_checkpoint_is_old_or_new_and_none_is_anything_else() -> None:
    def root(content: str, mtime_ns: int = 0) -> Tree:
        return {POINTS: Seen(0o644, (0, 0), 1, mtime_ns, content, "")}

    wanted = Wanted(root("0\n1\nr 0 10\n"), root("0\n2\na 0 20\nr 0 40\n"), {}, {}, {})
    for lines in ("0\n1\nr 0 40\n", "0\n2\na 0 20\nr 0 10\n"):
        assert not judge_snapshots(root(lines), wanted)
    for found in (root("0\n1\nr 0 39\n"), root("0\n0\n"), root("0\n1\nr 0 40\n", 1), {}):
        assert judge_snapshots(found, wanted)


def test_state_is_kept_per_unit(tmp_path: Path) -> None:
    state = State(tmp_path, "kills", "tmpfs")
    state.wrong("scene:0:apply@1b.apply", "apply ended with 3")
    state.keep("unit", {"kills": 3})
    again = State(tmp_path, "kills", "tmpfs")
    assert again.is_done("unit")
    assert again.figures == {"kills": 3, "wrong": 1}


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("undo", Step("undo", None, False, False, "undo")),
        ("purge?", Step("purge", None, False, True, "purge?")),
        ("apply@17b", Step("apply", Fault(Mode.KILL_BEFORE, 17), False, False, "apply@17b")),
        ("undo^3a?", Step("undo", Fault(Mode.KILL_AFTER, 3), True, True, "undo^3a?")),
    ],
)
def test_steps_are_read_as_they_are_written(text: str, step: Step) -> None:
    assert parse_step(text) == step


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_every_call_that_changes_a_file_below_the_folder_is_counted(memory_dir: Path) -> None:
    placed = build("everything").place(memory_dir)
    before = look(placed.path)
    control = Control(memory_dir / "control")
    for verb in ("apply", "undo", "apply", "purge"):
        control.set(placed.path, Fault())
        control.arm()
        trace = memory_dir / "trace"
        command = [*installed_command(), verb, str(placed.plan_file), *inline(verb)]
        subprocess.run(
            ["strace", "-f", "-y", "-s", "0", "-o", str(trace), *command],
            env=faults.environment(control.path) | {"PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
        )
        counted = [call for call in control.calls() if call.number]
        assert len(counted) == _changing(trace.read_text(), str(placed.path))
        assert {Kind.FSYNC, Kind.UNLINK} <= {call.kind for call in counted}
        if verb == "undo":
            assert look(placed.path) == before


CHANGING = re.compile(
    r"(write|pwrite64|pwritev2?|writev|ftruncate|truncate|rename|renameat2?|link|linkat|symlink|symlinkat|unlink|unlinkat"
    r"|mkdir|mkdirat|rmdir|mknod|mknodat|fsync|fdatasync|syncfs|utimensat|utimes|futimesat|chmod|fchmod|fchmodat2?|chown"
    r"|fchown|lchown|fchownat|copy_file_range|sendfile|splice|l?f?setxattr|l?f?removexattr|fallocate)\("
)
MAKING = re.compile(r"(open|openat|openat2|creat)\(.*(O_CREAT|O_TRUNC|O_TMPFILE)")


def _changing(trace: str, root: str) -> int:
    calls = [line.partition(" ")[2].strip() for line in trace.splitlines() if root in line]
    return sum(bool(CHANGING.match(call) or MAKING.match(call) or "FICLONE" in call) for call in calls)


def test_python_of_the_tests_is_the_one_that_runs_the_command() -> None:
    assert Path(installed_command()[0]).parent == Path(sys.executable).parent
