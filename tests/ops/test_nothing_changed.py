"""Exit codes 12, 13, 14, 15 and 17 say that nothing was changed. Then no file that a broker sees is another one.

What an earlier run has left is taken back before anything else is decided: its fence goes down, a change that is half
done goes back. A verb that did this and nothing else ends with 3 and names it.

All scenes with a fence, stopped at every call: ``KREPAIR_EVERY_CALL=1 make test
ARGS=tests/ops/test_nothing_changed.py``.
"""

from __future__ import annotations

import errno
import functools
import os
from pathlib import Path

import pytest

from krepair.commit.fence import Fence
from krepair.commit.reports import ApplyReport
from krepair.durable.disk import Disk
from krepair.errors import ExitCode, KrepairError, RefusedError, UnwritableError
from krepair.logdir.lock import Lock
from krepair.ops.apply import apply
from krepair.ops.undo import undo
from krepair.plan.keep import UNTIL_VERIFIED
from tests.ops.journeys import built
from tests.ops.stops import EVERY_CALL, calls_of, stopped, telling_stops
from tools.torture.scenes import Placed, Scene, Tree, differences, look, visible

FENCED = (
    "markers",
    "markers-unclean",
    "markers-without-points",
    "partitions",
    "fence-and-tail",
    "everything",
    "leftovers",
    "xattrs-and-tail",
    "keys",
    "keys-and-others",
    "recovery-and-all",
    "real-offsets",
)
IN_THE_GATE = ("markers", "partitions", "leftovers", "keys")
EVERY_KEEP = [
    f"{name}{keep}" for name in (FENCED if EVERY_CALL else IN_THE_GATE) for keep in ("", f"~{UNTIL_VERIFIED}")
]
STRIDE = 1 if EVERY_CALL else 4
SAYS_UNCHANGED = frozenset({12, 13, 14, 15, 17})


def seen(placed: Placed) -> Tree:
    return visible(look(placed.path))


def fences(placed: Placed) -> list[Path]:
    return list(placed.path.glob("*/krepair~*/fence"))


def applied_with_its_fence_up(scene: Scene, placed: Placed, fails: str) -> None:
    """All is committed, and freed where apply frees; the last look at a fence, or its way down, ends with EACCES."""
    whole, ups = getattr(Fence, fails), []

    def denied(self: Fence) -> bool:
        if self.place in ups:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.place)
        return bool(whole(self))

    def put_up(self: Fence) -> None:
        put(self)
        ups.append(self.place)

    put = Fence.put_up
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fence, fails, denied)
        patch.setattr(Fence, "put_up", put_up)
        assert apply(placed.plan, scene.options).exit_code == ExitCode.PARTLY
    assert fences(placed)


def apply_on(placed: Placed, scene: Scene, disk: Disk) -> ApplyReport:
    return apply(placed.plan, scene.options, disk=disk)


def end_of(verb: str, scene: Scene, placed: Placed) -> tuple[int, ApplyReport | None]:
    """Exit code of a verb, and its report where it got so far."""
    try:
        report = {"apply": apply, "undo": undo}[verb](placed.plan, scene.options)
    except KrepairError as error:
        return int(error.exit_code), None
    return int(report.exit_code), report


@pytest.mark.parametrize(
    "wrong", ["a copy", *(pytest.param(wrong, marks=pytest.mark.slow) for wrong in ("nothing", "a file"))]
)
@pytest.mark.parametrize("name", EVERY_KEEP)
def test_undo_after_an_apply_whose_fence_stayed_up_says_what_it_changed(
    memory_dir: Path, name: str, wrong: str
) -> None:
    scene = built(name)
    placed = scene.place(memory_dir)
    original = seen(placed)
    applied_with_its_fence_up(scene, placed, "lift" if wrong == "nothing" else "is_up")
    spoil(placed, wrong)
    before = seen(placed)
    code, report = end_of("undo", scene, placed)
    assert code not in SAYS_UNCHANGED or seen(placed) == before
    assert code != ExitCode.DONE or seen(placed) == original
    if wrong == "a file" and fences(placed):
        # Somebody was here while the change was half done: nothing goes back, and the fence stays as it is.
        assert code in SAYS_UNCHANGED
        assert seen(placed) == before
        return
    assert report is not None
    assert fences(placed) == []
    assert code in {ExitCode.DONE, ExitCode.PARTLY}
    if all(one.outcome in {"failed", "skipped"} for one in report.results):
        assert report.taken_back[0].startswith("the recovery guard of ")
        assert report.taken_back[0] in " ".join(report.notes)
        before = seen(placed)
        assert end_of("undo", scene, placed)[0] in SAYS_UNCHANGED  # no fence is left: now it only says why
        assert seen(placed) == before
    if wrong == "nothing":
        assert end_of("apply", scene, placed)[0] == ExitCode.DONE


def spoil(placed: Placed, what: str) -> None:
    """Every new log, or every kept original, is not as apply left it; so no partition with one can go back."""
    if what == "nothing":
        return
    for folder in {partition.folder for partition in placed.plan.partitions}:
        kept = list((placed.path / folder).glob("krepair~*/keep/*.log"))
        made = [log for log in (placed.path / folder).glob("*.log") if log.stat().st_size]
        for log in kept if what == "a copy" else made[:1]:
            log.write_bytes(log.read_bytes()[:-1] + b"\xa5")


def no_room(*_: object) -> None:
    raise RefusedError("there is no room")


def refused(scene: Scene, placed: Placed, how: str, patch: pytest.MonkeyPatch) -> None:
    """From here on apply is refused, for one of the reasons that it has."""
    if how == "space":
        patch.setattr("krepair.ops.apply.check_fits", no_room)
    elif how == "full":
        patch.setattr("krepair.ops.apply.stage_all", unwritable)
    else:
        for partition in placed.plan.partitions:
            # Not of logs alone: an index is replaced whatever became of them.
            for file in (placed.path / partition.folder).glob("*.*"):
                os.utime(file, ns=(5, 5))


def unwritable(*_: object) -> None:
    raise UnwritableError("no space is left")


@pytest.mark.parametrize("how", ["space", "full", "stale"])
@pytest.mark.parametrize("name", EVERY_KEEP if EVERY_CALL else EVERY_KEEP[:3])
def test_apply_that_goes_on_and_is_refused_says_what_it_changed(
    memory_dir: Path, name: str, how: str
) -> None:
    """Stopped with a fence up, at each kind of call; what goes back, or goes down, is no longer as it was."""
    scene = built(name)
    (memory_dir / "whole").mkdir()
    whole = scene.place(memory_dir / "whole")
    calls = calls_of(functools.partial(apply_on, whole, scene))
    codes = set()
    for stop in telling_stops(calls)[::STRIDE]:
        folder = memory_dir / str(stop)
        folder.mkdir()
        placed = scene.place(folder)
        stopped(functools.partial(apply_on, placed, scene), stop)
        with pytest.MonkeyPatch.context() as patch:
            refused(scene, placed, how, patch)
            before = seen(placed)
            code, _ = end_of("apply", scene, placed)
        codes.add(code)
        assert code not in SAYS_UNCHANGED or differences(seen(placed), before) == "", (stop, code)
    assert codes & SAYS_UNCHANGED
    assert ExitCode.PARTLY in codes


def test_a_lock_that_is_lost_when_new_files_lie_beside_the_old_ones_is_no_plain_refusal(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay, since nothing more may be touched, and they take room."""
    scene = built("markers")
    placed = scene.place(memory_dir)
    before = seen(placed)

    def check(self: Lock) -> None:
        if list(placed.path.glob("*/krepair~*/stage/*")):
            raise RefusedError("the lock's file is gone, a broker may have started")

    monkeypatch.setattr(Lock, "check", check)
    report = apply(placed.plan, scene.options)
    assert list(placed.path.glob("*/krepair~*/stage/*"))
    assert (report.exit_code, str(report.next_command)) == (ExitCode.PARTLY, "krepair apply PLAN")
    assert differences(seen(placed), before) == ""
    monkeypatch.undo()
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
