"""``plan --free``: the ordered plans that free a full disk. Room is made by hand here; real disks: test_full_disks."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from krepair.cli.main import app
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, LockedError, StalePlanError
from krepair.fixes.context import Context
from krepair.fixes.survey import Survey
from krepair.logdir.space import Space
from krepair.ops import apply as apply_module
from krepair.ops import order
from krepair.ops import sequence as ops
from krepair.ops.apply import apply
from krepair.ops.need import bytes_that_stay, need_of_all
from krepair.ops.reports import ApplyReport, SequenceReport
from krepair.ops.steps import Make
from krepair.ops.target import targets_of
from krepair.options import Options
from krepair.pipeline.progress import Progress
from krepair.plan.model import Plan
from krepair.plan.planfile import dumps
from krepair.plan.sequence import PlanSequence, loads_sequence
from krepair.rules.model import SegmentFacts
from tests.durable.disks import SimulatedCrash, StoppingDisk
from tests.ops.scene import BLOAT, Scene, scene, tree
from tests.ops.test_full_disks import FOLDER, _copies

PARTITIONS = 4
SMALLEST = 190_000
"""Bytes in which one partition of the scene can be freed, and not two with their originals."""
KIB = 1 << 10


class Full:
    """A stopped broker's directory on a disk that says how much is free."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int = PARTITIONS) -> None:
        one = scene(tmp_path / "fixture", BLOAT)
        self.path = tmp_path / "kafka"
        _copies(one, self.path, partitions)
        self.scene = Scene.__new__(Scene)
        self.scene.__dict__.update(one.__dict__)
        self.scene.path = self.path
        self.work = tmp_path
        self._patch = monkeypatch

    def options(self, **more: object) -> Options:
        return self.scene.options(topics=("__consumer_offsets",), **more)

    def has(self, free: int, files: int = 100_000) -> None:
        """What the disk says from now on when a sequence is made."""
        self._patch.setattr(ops, "read_space", lambda *_, **__: Space(free, files, 4096, False))

    def sequence(self, free: int, files: int = 100_000, **more: object) -> PlanSequence:
        self.has(free, files)
        return ops.make_sequence(str(self.path), self.options(**more))

    def type(self, *words: str) -> Result:
        return CliRunner().invoke(app, [*words])

    def words(self) -> list[str]:
        settings = [
            word for key, value in self.scene.settings.items() for word in ("--set", f"{key}={value}")
        ]
        chosen = ["--topic", "__consumer_offsets", "--delete-horizon", "4000000000000", "--engine", "inline"]
        return [str(self.path), *chosen, "--now", str(self.scene.now_ms), *settings]


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Full:
    return Full(tmp_path, monkeypatch)


def keeps(sequence: PlanSequence) -> list[str]:
    return [step.plan.policy.keep for step in sequence.steps]


@pytest.mark.parametrize(
    ("free", "keep", "expected"),
    [
        (1 << 30, "inplace", ["inplace"]),
        (SMALLEST, "inplace", ["until-verified", "inplace"]),
        (SMALLEST, "until-verified", ["until-verified", "until-verified"]),
        (1 << 30, "until-verified", ["until-verified"]),
        (0, "inplace", []),
    ],
)
def test_originals_are_kept_as_soon_as_there_is_room(full: Full, free: int, keep: str, expected: list[str]):
    made = full.sequence(free, keep=keep)
    assert keeps(made) == expected
    folders = [one.folder for step in made.steps for one in step.plan.changing]
    left = [one.partition for one in made.left_out if one.code == "room"]
    assert sorted(folders + left) == [f"__consumer_offsets-{number}" for number in range(PARTITIONS)]
    room = free
    for step in made.steps:
        targets = targets_of(step.plan)
        assert step.free_before == room
        assert step.needs_bytes == need_of_all(step.plan, targets).bytes <= room
        room -= bytes_that_stay(step.plan, targets)
        assert step.free_after == room
    assert all(one.bytes_missing > 0 for one in made.left_out if one.code == "room")


def test_with_copies_in_a_folder_every_step_can_be_taken_back(full: Full):
    folder = full.work / "copies"
    folder.mkdir()
    made = _with_room_for_copies(full, folder)
    assert keeps(made) == [str(folder), "inplace"]
    assert all(step.can_be_taken_back for step in made.steps)


def _with_room_for_copies(full: Full, folder: Path) -> PlanSequence:
    def space(path: str, *_: object, **__: object) -> Space:
        return Space(1 << 30 if path == str(folder) else SMALLEST, 100_000, 4096, False)

    full._patch.setattr(ops, "read_space", space)
    full._patch.setattr("krepair.ops.plan.check_keep", lambda *_: None)  # it is on the same file system here
    return ops.make_sequence(str(full.path), full.options(keep=str(folder)))


def test_few_free_files_give_smaller_steps_and_none_gives_none(full: Full):
    made = full.sequence(1 << 30, files=40)
    assert len(made.steps) > 1
    assert all(step.needs_files <= 40 for step in made.steps)
    none = full.sequence(1 << 30, files=0)
    assert (none.steps, len(none.left_out)) == ((), PARTITIONS)


def test_steps_without_undo_begin_only_when_that_is_typed(full: Full):
    made, before = full.sequence(SMALLEST), tree(full.path)
    report = ops.apply_sequence(made, full.options())
    assert report.exit_code is ExitCode.PERSON_DECIDES
    assert [one.outcome for one in report.steps] == ["stopped", "not begun"]
    assert report.next_command == "krepair apply PLAN --free=until-verified --engine inline"
    assert tree(full.path) == before
    done = ops.apply_sequence(made, full.options(without_undo=True))
    assert (done.exit_code, [one.outcome for one in done.steps]) == (ExitCode.DONE, ["done", "done"])
    assert ops.verify_sequence(made, full.options()).exit_code is ExitCode.DONE
    # The step that kept its originals comes back; the one before it cannot.
    kept = {one.folder for one in made.steps[1].plan.changing}
    back = ops.undo_sequence(made, full.options())
    assert (back.steps[0].number, back.steps[0].outcome) == (2, "done")
    after = tree(full.path)
    assert {name: one for name, one in after.items() if name.split("/")[0] in kept} == {
        name: one for name, one in before.items() if name.split("/")[0] in kept
    }


def test_a_sequence_with_room_is_taken_back_to_every_byte(full: Full):
    made, before = full.sequence(1 << 30), tree(full.path)
    assert ops.apply_sequence(made, full.options()).exit_code is ExitCode.DONE
    assert tree(full.path) != before
    assert ops.undo_sequence(made, full.options()).exit_code is ExitCode.DONE
    assert tree(full.path) == before


STOPS = (1, 12, 40, 90, 150, 10_000)
"""File-changing calls at which apply is killed: in the first step, between the steps, in the second, and never."""
MORE_STOPS = range(2, 400, 5) if os.environ.get("KREPAIR_EVERY_STATE") else ()


@pytest.mark.slow
@pytest.mark.parametrize("stop", [*STOPS, *MORE_STOPS])
def test_killed_anywhere_the_same_apply_ends_as_if_nothing_had_happened(full: Full, stop: int):
    made = full.sequence(SMALLEST)
    assert len(made.steps) == 2
    _killed_at(made, full, stop)
    again = ops.apply_sequence(made, full.options(without_undo=True))
    assert again.exit_code is ExitCode.DONE, again
    assert ops.verify_sequence(made, full.options()).exit_code is ExitCode.DONE
    kept = sorted(path.parent.name for path in full.path.glob("*/krepair~*"))
    assert kept == sorted(one.folder for one in made.steps[1].plan.changing)
    for part in full.path.glob("__consumer_offsets-*"):
        logs = sorted(path.name for path in part.glob("*.log"))
        assert logs == sorted(path.name for path in (full.path / FOLDER).glob("*.log")), part
        assert b"".join((part / name).read_bytes() for name in logs) == _log(full), part


def _log(full: Full) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((full.path / FOLDER).glob("*.log")))


def _killed_at(sequence: PlanSequence, one: Full, stop: int) -> bool:
    disk = StoppingDisk(RealDisk(), stop)

    def killed(plan: Plan, options: Options, progress: Progress | None) -> ApplyReport:
        return apply(plan, options, progress, disk=disk)

    try:
        ops.apply_sequence(sequence, one.options(without_undo=True), verb=killed)
    except SimulatedCrash:
        return True
    return False


def test_a_disk_that_fills_up_between_two_steps_ends_the_sequence(full: Full):
    made = full.sequence(SMALLEST)
    applied = []

    def verb(plan: Plan, options: Options, progress: Progress | None) -> ApplyReport:
        if applied:
            full._patch.setattr(apply_module, "read_space", lambda *_, **__: Space(0, 10, 4096, False))
        applied.append(plan.plan_id)
        return apply(plan, options, progress)

    report = ops.apply_sequence(made, full.options(without_undo=True), verb=verb)
    assert [one.outcome for one in report.steps] == ["done", "failed"]
    assert report.exit_code is ExitCode.PARTLY
    assert "0 are free" in report.steps[1].why
    assert report.next_command == "krepair plan LOGDIR --free --out PLAN"
    # What is there is whole, and the rest is planned anew.
    rest = full.sequence(1 << 30)
    assert len(rest.steps[0].plan.changing) == PARTITIONS - len(made.steps[0].plan.changing)


def test_a_step_that_fails_is_the_last_one(full: Full):
    made = full.sequence(SMALLEST)
    folder = made.steps[0].plan.changing[0].folder
    log = min((full.path / folder).glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1] + b"\0")
    before = tree(full.path)
    report = ops.apply_sequence(made, full.options(without_undo=True))
    assert [one.outcome for one in report.steps] == ["failed", "not begun"]
    assert report.exit_code is ExitCode.STALE_PLAN
    assert tree(full.path) == before


def edits(data: bytes) -> Iterator[tuple[str, bytes]]:
    """A sequence's file with one thing changed."""
    read = json.loads(data)
    yield "steps in another order", _text(read | {"steps": read["steps"][::-1]})
    yield "a step less", _text(read | {"steps": read["steps"][:1]})
    yield "a step twice", _text(read | {"steps": [*read["steps"], read["steps"][0]]})
    yield "another room", _text(read | {"free_bytes": 1})
    yield "another text", data.replace(b"  ", b" ", 1)
    yield "a field more", _text(read | {"more": 1})
    yield "cut off", data[: len(data) // 2]


def _text(read: object) -> bytes:
    return json.dumps(read, indent=2, sort_keys=True).encode() + b"\n"


def test_a_sequence_that_was_edited_is_refused_by_every_verb(full: Full):
    path = full.work / "s.krplan"
    data = dumps(full.sequence(SMALLEST))
    for what, text in edits(data):
        path.write_bytes(text)
        for verb in ("apply", "undo", "verify", "purge", "show"):
            result = full.type(verb, str(path))
            expected = ExitCode.UNREADABLE if what == "cut off" else ExitCode.STALE_PLAN
            assert result.exit_code == expected, (what, verb, result.output)


def test_two_steps_never_change_the_same_partition(full: Full):
    made = full.sequence(SMALLEST)
    step = made.steps[0]
    twice = ops.seal(ops.replace(made, steps=(step, step)))
    with pytest.raises(StalePlanError, match="is in step 1 and in step 2"):
        loads_sequence(dumps(twice), "s")


def test_the_verbs_take_the_file_of_a_sequence(full: Full, tmp_path: Path):
    path = str(tmp_path / "s.krplan")
    full.has(SMALLEST)
    planned = full.type("plan", *full.words(), "--free", "--out", path)
    assert planned.exit_code == ExitCode.FOUND, planned.output
    assert "There is no undo of some steps" in planned.output.partition("Steps\n")[0]
    line = r"^2 steps, the first needs 1\d\d\.\d KiB of the 185\.5 KiB that are free\.$"
    assert re.search(line, planned.output, re.MULTILINE), planned.output
    # Nobody has said which markers may go: the page has the bytes of each part.
    assert "bytes left out" in planned.output
    for form, begin in (
        ("text", "krepair sequence"),
        ("md", "# krepair sequence"),
        ("html", "<!doctype html>"),
    ):
        shown = full.type("show", path, "--format", form)
        assert (shown.exit_code, shown.output.startswith(begin)) == (0, True), shown.output
        assert "Step 2" in shown.output
    assert full.type("show", path, "--format", "json").output == Path(path).read_text()
    assert full.type("apply", path, "--engine", "inline").exit_code == ExitCode.PERSON_DECIDES
    digest = json.loads(Path(path).read_text())["digest"]
    wrong = full.type("apply", path, "--expect", "0" * 32, "--free=until-verified")
    assert wrong.exit_code == ExitCode.STALE_PLAN
    done = full.type("apply", path, "--expect", digest, "--free=until-verified", "--engine", "inline")
    assert done.exit_code == ExitCode.DONE, done.output
    assert full.type("verify", path, "--engine", "inline").exit_code == ExitCode.DONE
    again = full.type("plan", *full.words(), "--free", "--out", path)
    assert (again.exit_code, "still there" in again.output) == (ExitCode.REFUSED, True), again.output
    assert full.type("purge", path).exit_code == ExitCode.DONE
    assert not list(full.path.rglob("krepair~*"))
    assert full.type("plan", *full.words(), "--free").exit_code == ExitCode.DONE


def test_a_preview_of_a_sequence_is_read_agreed_on_and_made_real(full: Full, tmp_path: Path):
    preview, real = str(tmp_path / "p.krplan"), str(tmp_path / "s.krplan")
    full.has(SMALLEST)
    made = full.type("plan", *full.words(), "--free", "--preview", "--out", preview)
    assert made.exit_code == ExitCode.FOUND, made.output
    assert "This is a preview: apply refuses it" in made.output
    refused = full.type("apply", preview, "--free=until-verified")
    assert refused.exit_code == ExitCode.REFUSED, refused.output
    assert f"next: krepair plan --from {preview} --out PLAN" in refused.output
    planned = full.type("plan", "--from", preview, "--out", real, "--engine", "inline")
    assert planned.exit_code == ExitCode.FOUND, planned.output
    assert "Both plans make the same changes in every partition." in planned.output
    same = full.type("diff", preview, real)
    assert "Both plans make the same changes in every partition." in same.output
    assert full.type("diff", real, real).exit_code == ExitCode.DONE


def test_the_consent_of_a_sequence_goes_with_no_plan_and_has_one_value(full: Full, tmp_path: Path):
    path = str(tmp_path / "a.krplan")
    assert full.type("plan", *full.words(), "--out", path).exit_code == ExitCode.FOUND
    assert full.type("apply", path, "--free=until-verified").exit_code == ExitCode.USAGE
    assert full.type("apply", path, "--free=all").exit_code == ExitCode.USAGE


@pytest.mark.parametrize("maker", [ops.make_sequence, ops.make_preview_sequence])
def test_the_names_of_a_steps_partitions_are_gone_through_as_often_for_many_as_for_few(
    maker: Callable[[str, Options], PlanSequence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = []

    class Counting(list[str]):
        def __iter__(self) -> Iterator[str]:
            times[-1] += 1
            return super().__iter__()

    real = ops._sequence_of

    def asking(make: Make, folders: Sequence[str], options: Options) -> PlanSequence:
        return real(lambda keep, some: make(keep, Counting(some)), folders, options)

    monkeypatch.setattr(ops, "_sequence_of", asking)
    for partitions in (2, 4):
        times.append(0)
        one = Full(tmp_path / str(partitions), monkeypatch, partitions)
        one.has(1 << 30)
        assert maker(str(one.path), one.options(keep="until-verified")).steps
    assert times[0] == times[1]


def test_active_segments_of_other_partitions_are_read_once_for_all_steps(
    full: Full, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Counter[str] = Counter()
    real = order.read_last_logs

    def reading(context: Context, surveys: Sequence[Survey]) -> list[tuple[Survey, SegmentFacts]]:
        read.update(survey.partition.folder for survey in surveys)
        return real(context, surveys)

    monkeypatch.setattr(order, "read_last_logs", reading)
    only = (("__consumer_offsets", 0), ("__consumer_offsets", 1))
    full.has(SMALLEST + 40_000)
    made = ops.make_sequence(str(full.path), full.scene.options(partitions=only))
    assert len(made.steps) > 1
    assert read
    assert set(read.values()) == {1}


@pytest.mark.parametrize("verb", [ops.apply_sequence, ops.undo_sequence])
def test_under_a_lock_the_same_verb_of_a_sequence_comes_next(
    verb: Callable[..., SequenceReport], full: Full, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequence = full.sequence(10**9)

    def locked(*_: object) -> ApplyReport:
        raise LockedError("it is locked")

    monkeypatch.setattr(ops, "undo", locked)
    given = {"verb": locked} if verb is ops.apply_sequence else {}
    report = verb(sequence, full.options(), None, **given)
    assert report.exit_code is ExitCode.LOCKED
    assert report.next_command.startswith("krepair undo PLAN" if not given else "krepair apply PLAN")
