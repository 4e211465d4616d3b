"""Links in place of everything in a log directory: no verb ever reads, changes or deletes their targets.

What has a place is moved out of the log directory and linked from there: whoever followed the link would find all as it
was. A sample runs here; all places: ``KREPAIR_EVERY_LINK=1``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.options import EngineName, Options
from krepair.plan.planfile import read_plan
from tests.durable.disks import SimulatedCrash, StoppingDisk
from tests.engine.cluster import SUBMIT_ARGS
from tests.hostile import small
from tests.hostile.verbs import Ran, assert_tame, picture, run
from tests.ops.conftest import memory_dir

__all__ = ["memory_dir"]

EVERY_LINK = os.environ.get("KREPAIR_EVERY_LINK") == "1"
SAMPLE = 2
PRIVATE = "krepair~ID"
"""Stands for the private folder's name, which is another one in each plan."""
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_DONE_IN_PART = {ExitCode.PARTLY, ExitCode.STALE_PLAN, ExitCode.REFUSED}


class Scene(small.Scene):
    """And beside it what must never be touched."""

    @property
    def victims(self) -> Path:
        return self.root / "apart" / "victims"

    @property
    def private(self) -> str:
        return f"krepair~{read_plan(str(self.plan)).plan_id}"

    def make(self, state: str) -> None:
        """Make all anew, as it is ``planned``, ``applied``, or ``stopped`` in the middle of an apply."""
        self.anew()
        shutil.rmtree(self.victims, ignore_errors=True)
        self.victims.mkdir(parents=True)
        (self.victims / "precious").write_bytes(b"precious")
        assert run("plan", *super().words("plan")).code == ExitCode.FOUND
        if state == "applied":
            assert self.run("apply").code == ExitCode.DONE
        elif state == "stopped":
            self.stop()

    def stop(self) -> None:
        """Stop an apply where a partition is half done under its fence."""
        plan = read_plan(str(self.plan))
        disk = _StopsAtCommit(RealDisk(Tree(plan.log_dir)), 1 << 30)
        with pytest.raises(SimulatedCrash):
            apply(plan, Options(engine=EngineName.INLINE), disk=disk)

    def words(self, verb: str) -> tuple[str, ...]:
        """How a verb is called; a second plan is another file."""
        others = {
            "check": (str(self.log_dir), "--all", "--engine", "inline"),
            "plan": (str(self.log_dir), *small.WORDS, "--out", str(self.root / "again.plan")),
        }
        return others.get(verb) or super().words(verb)

    def at(self, place: str) -> Path:
        """Where a place is."""
        return self.log_dir / place.replace(PRIVATE, self.private)

    def places(self) -> list[str]:
        """Everything that is there now."""
        names = (os.fsdecode(name) for name in picture(self.log_dir))
        return sorted(name.replace(self.private, PRIVATE) for name in names)

    def plant(self, place: str) -> None:
        """Put a link to a victim where something is, or will be; what is there becomes the victim."""
        path = self.at(place)
        victim = self.victims / path.name
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            os.rename(path, victim)
        elif path.name in {"stage", "keep", "out", "fence"} or path.name.startswith("krepair~"):
            victim.mkdir()
            (victim / f"{0:020d}.log").write_bytes(b"precious")
        else:
            victim.write_bytes(b"precious")
        path.symlink_to(victim)


class _StopsAtCommit(StoppingDisk):
    """Stops when the first new log has taken its place, so that stage, keep, fence and journal are all there."""

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if target.endswith(f"m-0/{0:020d}.log"):
            raise SimulatedCrash


def is_ours(place: str) -> bool:
    """Whether it is a folder or file of krepair's own."""
    return PRIVATE in place or place == ".lock"


def is_partition(place: str) -> bool:
    return place in small.PARTITIONS


def wrong_end(verb: str, place: str, ran: Ran, *, changed: bool) -> str:
    """What is wrong with how a verb ends that met a link in a place, or empty."""
    said = ran.out + ran.err
    if verb in {"check", "plan", "verify"}:
        return "the log directory was changed" if changed else ""
    if place == ".lock" and verb == "purge":
        # It works beside a running broker, and so without the broker's lock.
        return "" if ran.code == ExitCode.DONE else f"ended with {ran.code}, although it needs no .lock"
    if is_ours(place) and (place == ".lock" or place.rsplit("/", maxsplit=1)[-1] in _OWN_FOLDERS):
        if ran.code != ExitCode.REFUSED:
            return f"ended with {ran.code}, not 13"
        return "refused, but something was changed before" if changed else ""
    if is_partition(place):
        if ran.code not in _DONE_IN_PART:
            return f"ended with {ran.code}"
        return (
            "" if "symbolic link" in said or "symlink" in said else "does not say that it is a symbolic link"
        )
    return ""


_OWN_FOLDERS = {"stage", "keep", "out", "fence", "journal", PRIVATE}
_STATES = {
    "check": ("planned", "applied"),
    "plan": ("planned",),
    "apply": ("planned", "stopped", "applied"),
    "verify": ("applied",),
    "undo": ("planned", "stopped", "applied"),
    "purge": ("planned", "applied"),
}
_ALWAYS = (
    "m-0",
    f"m-0/{PRIVATE}",
    f"m-0/{PRIVATE}/stage",
    f"m-0/{PRIVATE}/keep",
    f"m-0/{PRIVATE}/journal",
    ".lock",
)


@pytest.fixture
def scene(memory_dir: Path) -> Scene:
    return Scene(memory_dir)


def chosen(scene: Scene, state: str, seed: str) -> list[str]:
    """Places where a link is planted."""
    scene.make("stopped")
    known = set(scene.places())
    scene.make("applied")
    known |= {*scene.places(), ".lock"}
    scene.make(state)
    places = sorted(known | set(scene.places()))
    if EVERY_LINK:
        return places
    fixed = [place for place in _ALWAYS if place in places]
    return fixed + random.Random(seed).sample([each for each in places if each not in fixed], SAMPLE)


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "state"), [(verb, state) for verb in _STATES for state in _STATES[verb]])
def test_what_a_link_points_to_is_never_touched(scene: Scene, verb: str, state: str) -> None:
    wrong = []
    for place in chosen(scene, state, verb + state):
        scene.make(state)
        scene.plant(place)
        victims, before = picture(scene.victims), picture(scene.log_dir)
        ran = scene.run(verb)
        assert_tame(ran)
        assert picture(scene.victims) == victims, (verb, state, place, ran)
        text = wrong_end(verb, place, ran, changed=picture(scene.log_dir) != before)
        if text:
            wrong.append(f"{verb}, {state}, {place}: {text}; {ran.out[-300:]}{ran.err[-300:]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("verb", ["apply", "undo", "purge"])
@pytest.mark.parametrize("folder", ["", "/stage", "/keep", "/out"])
def test_a_link_into_another_partition_is_no_way_there(scene: Scene, verb: str, folder: str) -> None:
    scene.make("planned" if verb == "apply" else "applied")
    path = scene.at(f"m-0/{PRIVATE}{folder}")
    path.parent.mkdir(exist_ok=True)
    shutil.rmtree(path, ignore_errors=True)
    path.symlink_to(scene.log_dir / "i-0")
    before = picture(scene.log_dir)
    ran = scene.run(verb)
    assert_tame(ran, ExitCode.REFUSED)
    assert picture(scene.log_dir) == before


def test_a_partition_folder_that_is_a_link_is_left_alone_and_the_others_are_changed(scene: Scene) -> None:
    scene.make("planned")
    scene.plant("m-0")
    victims = picture(scene.victims)
    checked = scene.run("check")
    assert "m-0: is a symbolic link; it is left alone" in " ".join(checked.out.split())
    assert "KR606" in checked.out
    planned = scene.run("plan")
    assert_tame(planned, ExitCode.FOUND)
    again = msgspec.json.decode((scene.root / "again.plan").read_bytes())
    changes = {each["folder"]: bool(each["changes"]) for each in again["partitions"]}
    assert (changes.get("m-0", False), changes["i-0"], changes["c-0"]) == (False, True, True)
    applied = scene.run("apply")
    assert_tame(applied, *_DONE_IN_PART)
    assert (scene.log_dir / "i-0" / f"{0:020d}.index").stat().st_size == 16
    assert (scene.log_dir / "c-0" / f"{10:020d}.log").stat().st_size == 515
    assert picture(scene.victims) == victims


@pytest.mark.parametrize("verb", ["apply", "undo", "purge"])
def test_a_file_that_is_also_elsewhere_is_never_written(scene: Scene, verb: str) -> None:
    state = "stopped" if verb == "apply" else "applied"
    scene.make(state)
    places = [place for place in scene.places() if is_ours(place) and scene.at(place).is_file()]
    if not EVERY_LINK:
        places = random.Random(verb).sample(places, SAMPLE)
    for place in [*places, ".lock"]:
        scene.make(state)
        path, victim = scene.at(place), scene.victims / "hard"
        data = path.read_bytes() if path.exists() else b""
        victim.write_bytes(data[:-1] + b"?" if data else b"")
        path.unlink(missing_ok=True)
        os.link(victim, path)
        victims = picture(scene.victims)
        ran = scene.run(verb)
        assert_tame(ran)
        assert picture(scene.victims) == victims, (verb, place, ran)


def exchange(one: Path, other: Path) -> bool:
    """``renameat2`` with ``RENAME_EXCHANGE``; whether both were there."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = [os.fsencode(path) for path in (one, other)]
    return libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0


@contextlib.contextmanager
def exchanging(one: Path, other: Path) -> Iterator[None]:
    """A second process exchanges the two names as fast as it can, with pauses of all lengths."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            pauses = random.Random(str(one))
            while os.getppid() != 1:
                exchange(one, other)
                time.sleep(pauses.choice((0, 0, 0.0001, 0.001, 0.01)))
        os._exit(0)
    try:
        yield
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


@pytest.mark.parametrize(
    "verb", ["apply", *(pytest.param(verb, marks=pytest.mark.slow) for verb in ("undo", "purge"))]
)
@pytest.mark.parametrize("place", ["m-0", f"m-0/{PRIVATE}", f"m-0/{PRIVATE}/stage", f"m-0/{PRIVATE}/keep"])
def test_folders_exchanged_for_links_meanwhile_are_no_way_out(scene: Scene, verb: str, place: str) -> None:
    if not hasattr(ctypes.CDLL(None), "renameat2"):
        pytest.skip("no renameat2 here")
    for _ in range(20 if EVERY_LINK else 3):
        scene.make("planned" if verb == "apply" else "applied")
        aside = scene.root / "aside"
        aside.unlink(missing_ok=True)
        shutil.copytree(scene.log_dir / "m-0", scene.victims / "m-0")
        for name in ("stage", "keep", "out", "fence"):
            shutil.copytree(scene.log_dir / "i-0", scene.victims / "folder" / name)
        aside.symlink_to(scene.victims / ("m-0" if place == "m-0" else "folder"))
        victims = picture(scene.victims)
        with exchanging(scene.at(place), aside):
            ran = scene.run(verb)
        assert_tame(ran)
        assert picture(scene.victims) == victims, ran
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside)


@pytest.mark.spark
@pytest.mark.slow
def test_tasks_on_spark_follow_no_link_either(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    from krepair.engine.spark import SparkEngine

    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", SUBMIT_ARGS)
    scene.make("planned")
    victims: dict[bytes, tuple[object, ...]] = {}
    real = SparkEngine.map

    def run_after(self: SparkEngine, *given: object) -> object:
        # The driver has made its folders: now only the tasks can refuse.
        if not victims:
            for place in (f"m-0/{PRIVATE}/stage", f"i-0/{PRIVATE}/stage"):
                shutil.rmtree(scene.victims / "stage", ignore_errors=True)
                scene.plant(place)
            victims.update(picture(scene.victims))
        return real(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(SparkEngine, "map", run_after)
    plan = read_plan(str(scene.plan))
    report = apply(plan, Options(engine=EngineName.SPARK, master="local[1]"))
    failed = {result.partition for result in report.results if result.outcome == "failed"}
    assert "m-0" in failed
    assert victims
    assert picture(scene.victims) == victims


def attack(scene: Scene, act: Callable[[], None]) -> Ran:
    """Apply, with an act of the attacker right before the first task runs."""
    from krepair.engine import engine

    real = engine.InlineEngine.map

    def run_after(self: engine.InlineEngine, *given: object) -> object:
        act()
        return real(self, *given)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.InlineEngine, "map", run_after)
        return scene.run("apply")


def test_a_log_directory_that_is_exchanged_for_another_is_noticed_by_the_tasks(scene: Scene) -> None:
    scene.make("planned")
    other = scene.victims / "logs"
    shutil.copytree(scene.log_dir, other, copy_function=shutil.copy2)
    victims: dict[bytes, tuple[object, ...]] = {}

    def act() -> None:
        if victims:
            return
        assert exchange(scene.log_dir, other)
        victims.update(picture(scene.log_dir))

    ran = attack(scene, act)
    assert_tame(ran)
    assert "is not the same directory" in ran.out + ran.err
    assert picture(scene.log_dir) == victims
