"""Keeps the trees that this version of krepair leaves when it is killed, so that later versions are tested on them.

    python -m tools.torture.earlier        writes fixtures/earlier-VERSION.zst

A plan names its log directory, so all of it lies under one fixed path (``PLACE``), where it is put again to be tried.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import zstandard

from krepair import __version__
from tests.fixture_dirs import FIXTURES
from tools.torture import faults
from tools.torture.runs import Runner, parse_step
from tools.torture.scenes import Entry, Scene, build, read, write

PLACE = Path("/tmp/krepair-earlier")
STOPS = {
    "everything": ("apply@40a", "apply@90a", "apply@150a", "apply.undo@30a", "apply.purge@9a", "apply"),
    "keys-without-fence": ("apply@30a", "apply@60a", "apply.undo@20a", "apply.purge@6a", "apply"),
    "recovery-and-all": ("apply@30a", "apply@60a", "apply.undo@20a", "apply"),
}
"""Scene -> where its verbs are killed, see ``runs.parse_step``; the last one is not killed."""


class Kept(msgspec.Struct, frozen=True):
    """One scene.

    Attributes:
        name: name of the scene.
        plan: bytes of the plan file.
        before: the log directory, before anything was done.
        stops: steps -> the log directory after them.
    """

    name: str
    plan: bytes
    before: list[Entry]
    stops: dict[str, list[Entry]]


@contextlib.contextmanager
def the_place() -> Iterator[Path]:
    """Create ``PLACE``, empty, for one process at a time; remove it afterwards."""
    with open(f"{PLACE}.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(PLACE, ignore_errors=True)
        PLACE.mkdir(mode=0o700)
        try:
            yield PLACE
        finally:
            shutil.rmtree(PLACE)


def put(entries: list[Entry], place: Path) -> Path:
    """Write a log directory to ``place/logs``, as files of this user."""
    us = (os.geteuid(), os.getegid())
    path = place / "logs"
    shutil.rmtree(path, ignore_errors=True)
    write(tuple(entry._replace(owner=us) for entry in entries), os.fspath(path))
    return path


def read_kept(version: str) -> list[Kept]:
    """Read the trees that a version has left."""
    packed = (FIXTURES / f"earlier-{version}.zst").read_bytes()
    return msgspec.msgpack.decode(zstandard.decompress(packed), type=list[Kept])


def _keep(scene: Scene, stops: tuple[str, ...], place: Path, runner: Runner) -> Kept:
    entries: dict[str, list[Entry]] = {}
    for steps in stops:
        shutil.rmtree(place / "logs", ignore_errors=True)
        (place / "plan").unlink(missing_ok=True)
        placed = scene.place(place)
        for word in steps.split("."):
            step = parse_step(word)
            ended = runner.run(placed, step)
            if step.kills != ended.killed:
                raise SystemExit(f"{scene.name} {steps}: {ended}")
        entries[steps] = list(read(placed.path))
    return Kept(scene.name, (place / "plan").read_bytes(), list(scene.entries), entries)


def main() -> None:
    """Write the fixture of this version."""
    faults.start_again(["-m", "tools.torture.earlier"])
    runner = Runner()
    with the_place() as place:
        kept = [_keep(build(name), stops, place, runner) for name, stops in STOPS.items()]
    path = FIXTURES / f"earlier-{__version__}.zst"
    path.write_bytes(zstandard.compress(msgspec.msgpack.encode(kept), 19))
    print(
        f"{path}: {path.stat().st_size:,} bytes, {sum(len(log_dir.stops) for log_dir in kept)} log directories"
    )


if __name__ == "__main__":
    main()
