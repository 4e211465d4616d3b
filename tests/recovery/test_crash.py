"""krepair stopped at each file-changing call: every state starts as before, and the next run finishes the work."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.undo import undo
from krepair.plan.model import Plan
from tests.durable.disks import FILE_CHANGING, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.lab.judge import Judge, Loaded
from tests.ops.scene import tree
from tests.ops.stops import telling_stops
from tests.recovery.scene import VERSIONS, Verbs, loaded, points_of, started, write_unclean


def write_torn(root: Path) -> Path:
    """As ``write_unclean``, and the last write never ended."""
    path = write_unclean(root)
    log = path / "t-0" / f"{400:020d}.log"
    log.write_bytes(log.read_bytes() + log.read_bytes()[:50])
    return path


def stops(verbs: Verbs, plan: Plan, verb: str, *, every: bool = False) -> Iterator[bool]:
    """``apply`` or ``undo`` stopped at calls that tell something new, or at all; at last it comes to its end.

    The body leaves the directory as it was before each.
    """
    run = apply if verb == "apply" else undo
    for number in stops_of(verbs, plan, verb, every=every):
        with pytest.raises(SimulatedCrash):
            run(plan, verbs.options(), disk=StoppingDisk(RealDisk(), number))
        yield True
    run(plan, verbs.options())
    yield False


def crashed_copies(verbs: Verbs, plan: Plan, verb: str, start: Path) -> Iterator[int]:
    """``apply`` or ``undo`` stopped at each telling call, each time on a new copy of a directory."""
    run = apply if verb == "apply" else undo
    for number in stops_of(verbs, plan, verb):
        shutil.rmtree(verbs.path)
        shutil.copytree(start, verbs.path)
        with pytest.raises(SimulatedCrash):
            run(plan, verbs.options(), disk=StoppingDisk(RealDisk(), number))
        yield number


def stops_of(verbs: Verbs, plan: Plan, verb: str, *, every: bool = False) -> list[int]:
    """The calls before which ``stops`` stops; the directory is as before."""
    whole = RecordingDisk(RealDisk())
    (apply if verb == "apply" else undo)(plan, verbs.options(), disk=whole)
    (undo if verb == "apply" else apply)(plan, verbs.options())
    changing = sum(call.kind in FILE_CHANGING for call in whole.calls)
    return list(range(1, changing + 1)) if every else telling_stops(whole.calls)


def test_nothing_of_a_recovery_goes_back_under_a_marker_that_came_while_the_undo_was_stopped(
    memory_dir: Path,
) -> None:
    """A start under it recovers nothing: it would trust the indexes of before."""
    path = write_torn(memory_dir / "logs")
    verbs = Verbs(path)
    plan = verbs.plan()
    verbs.apply(plan)
    shutil.copytree(path, applied := memory_dir / "applied")
    refused = 0
    for _ in crashed_copies(verbs, plan, "undo", applied):
        (path / ".kafka_cleanshutdown").write_bytes(b"{}")
        before = tree(path / "t-0", private=False)
        report = undo(plan, verbs.options())
        assert tree(path / "t-0", private=False) == before, report.results
        refused += any(one.exit_code == ExitCode.STALE_PLAN for one in report.results)
    assert refused > 10


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("name", [f"{300:020d}.txnindex", "leader-epoch-checkpoint"])
def test_no_point_rises_over_what_a_start_left_half_built_while_apply_was_stopped(
    memory_dir: Path, name: str, made: bool
) -> None:
    """A start that is killed while it recovers has emptied these files; under the raised point none fills them."""
    path = write_torn(memory_dir / "logs")
    file, half = path / "t-0" / name, b"" if name.endswith("index") else b"0\n0\n"
    verbs = Verbs(path)
    if name not in {one.name for one in (path / "t-0").iterdir()}:
        verbs.apply(plan := verbs.plan())
        right = file.read_bytes()
        verbs.undo(plan)
    else:
        right = file.read_bytes()
    if made:
        file.write_bytes(half)
    elif not file.exists():
        file.write_bytes(right)
    plan = verbs.plan()
    shutil.copytree(path, before := memory_dir / "before")
    kept_low = 0
    for number in crashed_copies(verbs, plan, "apply", before):
        if points_of(path)["t"] != 250:
            continue
        file.write_bytes(half)
        apply(plan, verbs.options())
        kept_low += points_of(path)["t"] == 250
        assert points_of(path)["t"] == 250 or file.read_bytes() == right, number
    assert kept_low


def ready(path: Path, folder: str) -> bool:
    """Whether a partition is as a start may trust it at its log end."""
    names = {one.name for one in (path / folder).iterdir()}
    end = points_of(path)[folder[0]]
    return {f"{end:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".snapshot")} <= names


@pytest.mark.slow
def test_apply_stopped_at_any_call_ends_as_without_the_stop_and_no_point_is_raised_too_early(
    tmp_path: Path,
) -> None:
    path = write_torn(tmp_path / "logs")
    before = tree(path)
    verbs = Verbs(path)
    plan = verbs.plan()
    raised_at = 0
    for calls, stopped in enumerate(stops(verbs, plan, "apply"), 1):
        if points_of(path) != {"t": 250, "o": 0}:
            raised_at = raised_at or calls
            assert points_of(path) == {"t": 450, "o": 3}
            assert ready(path, "t-0")
            assert ready(path, "o-0")
        if stopped:
            apply(plan, verbs.options())
            assert points_of(path) == {"t": 450, "o": 3}
            if calls % 8 == 0:
                assert verbs.wrong(plan) == []
            verbs.undo(plan)
            assert tree(path) == before
    assert raised_at > 10


@pytest.mark.slow
def test_undo_stopped_at_any_call_takes_the_points_back_before_anything_else(tmp_path: Path) -> None:
    path = write_torn(tmp_path / "logs")
    before = tree(path)
    verbs = Verbs(path)
    plan = verbs.plan()
    verbs.apply(plan)
    after = tree(path, private=False)
    calls = 0
    for stopped in stops(verbs, plan, "undo"):
        calls += stopped
        if points_of(path) != {"t": 250, "o": 0}:
            now = tree(path, private=False)
            changed = {name for name in after if now.get(name) != after[name]}
            assert not {name for name in changed if name.endswith(("log", "index", "snapshot"))}, changed
            assert ready(path, "t-0")
        if stopped:
            verbs.undo(plan)
            assert tree(path) == before
            verbs.apply(plan)
    assert tree(path) == before
    assert calls > 10


def states_of(path: Path) -> str:
    """Which state a partition and its recovery point are in, without what is krepair's own."""
    state = hashlib.sha256((path / "recovery-point-offset-checkpoint").read_bytes())
    for one in sorted((path / "t-0").iterdir()):
        if one.is_file():
            state.update(one.name.encode() + hashlib.sha256(one.read_bytes()).digest())
    return state.hexdigest()


def known_of(one: Loaded) -> tuple[object, ...]:
    """What a start must know and serve whatever krepair had done before."""
    return one.log_end, one.stable_offset, one.producers, one.aborted, one.served


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_state_that_a_stop_leaves_starts_as_a_directory_that_was_never_touched(
    version: str, judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    path = write_torn(tmp_path / "logs")
    plain = tmp_path / "plain"
    shutil.copytree(path, plain)
    expected = known_of(loaded(judge(version), plain, tmp_path))
    verbs = Verbs(path, broker_version=version)
    plan = verbs.plan()
    seen: dict[str, tuple[int, ...]] = {}
    for verb in ("apply", "undo"):
        for _ in stops(verbs, plan, verb, every=True):  # only a state that is new costs a start
            state = states_of(path)
            if state not in seen:
                assert known_of(loaded(judge(version), path, tmp_path)) == expected
                seen[state] = started(judge(version), path, tmp_path).recovered
            if verb == "apply":
                apply(plan, verbs.options())
            verbs.undo(plan)
            if verb == "undo":
                verbs.apply(plan)
        if verb == "apply":
            verbs.apply(plan)
    assert len(seen) > 8
    assert (450,) in seen.values()
    assert (200, 300, 400) in seen.values()
