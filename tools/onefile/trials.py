"""``make trials``: tries ``dist/krepair`` on systems where nothing else is installed. Needs root and debootstrap.

Each scene is a tree of its own that ``chroot`` enters. In each a log directory is checked, planned, repaired, verified
and taken back; every byte, name and time has to be as before. What cannot be used as the folder of the programs has to
be refused in one sentence.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fixture_dirs import unpack_into

ROOT: Final = Path(__file__).resolve().parents[2]
FIXTURE: Final = "timeindex-padded-2.2.1"
NOBODY: Final = 65534
DONE, FOUND, REFUSED = 0, 2, 13
_IN_NAMESPACE: Final = "KREPAIR_TRIALS_IN_NAMESPACE"


class TrialFailedError(Exception):
    """Failure of a trial, with the difference."""


@dataclass(frozen=True)
class Tree:
    """A tree that ``chroot`` enters.

    Attributes:
        root: path of the tree on this machine.
        user: id of the user who types the commands.
        program: path of krepair in the tree.
        environment: all that the commands see.
    """

    root: Path
    user: int = 0
    program: str = "/krepair"
    environment: tuple[tuple[str, str], ...] = ()

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start krepair in the tree."""

        def enter() -> None:
            os.chroot(self.root)
            os.chdir("/tmp")
            os.setgroups([])
            os.setgid(self.user)
            os.setuid(self.user)

        return subprocess.Popen(
            [self.program, *words],
            executable=self.program,
            preexec_fn=enter,  # noqa: PLW1509
            env=dict(self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def run(self, *words: str, expected: int) -> str:
        """Run krepair and return what it said on stderr.

        Raises:
            TrialFailedError: it ended otherwise.
        """
        process = self.begin(*words)
        out, errors = process.communicate()
        if process.returncode != expected:
            raise TrialFailedError(
                f"krepair {' '.join(words)}: ended with {process.returncode}:\n{out}{errors}"
            )
        return errors

    def with_place(self, place: str) -> Tree:
        """Return the same with another folder for the programs."""
        return Tree(self.root, self.user, self.program, (("KREPAIR_CACHE_DIR", place),))


def state_of(folder: Path) -> str:
    """Return a digest of every name, byte and modification time below a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        when = path.stat().st_mtime_ns if path.is_file() else 0
        digest.update(f"{path.relative_to(folder)} {when} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def whole_round(tree: Tree) -> None:
    """Check, plan, apply, verify and undo in a tree; every byte comes back.

    Raises:
        TrialFailedError: a verb ended otherwise, something was compiled, or a byte differs.
    """
    work = tree.root / "tmp/work"
    logs = unpack_into(FIXTURE, work)
    for path in (work, *work.rglob("*")):
        os.chown(path, tree.user, tree.user)
    before, plan, inside = state_of(logs), "/tmp/work/one.krplan", "/tmp/work/logs"
    output = tree.run("check", inside, expected=FOUND)
    output += tree.run("plan", inside, "--fix", "index", "--out", plan, expected=FOUND)
    output += tree.run("apply", plan, expected=DONE)
    output += tree.run("verify", plan, expected=DONE)
    if state_of(logs) == before:
        raise TrialFailedError("apply changed nothing")
    output += tree.run("undo", plan, expected=DONE)
    if state_of(logs) != before:
        raise TrialFailedError("undo did not bring every byte, name and time back")
    if "compiling" in output:
        raise TrialFailedError(f"a kernel was compiled:\n{output}")
    shutil.rmtree(work)


def refused(tree: Tree, *parts: str) -> None:
    """Start krepair in a tree where its programs find no place.

    Raises:
        TrialFailedError: it did not say so in one line with these parts.
    """
    output = tree.run("--version", expected=REFUSED)
    if output.count("\n") != 1 or not all(part in output for part in (*parts, "KREPAIR_CACHE_DIR=DIR")):
        raise TrialFailedError(f"not the one sentence with {parts}: {output}")
    print(f"    {output.strip()}")


def mount(*words: str) -> None:
    """Mount something in this process's own namespace."""
    subprocess.run(["mount", *words], check=True)


class Trials:
    """The scenes.

    Args:
        room: folder for the trees.
        program: path of ``dist/krepair``.
        bullseye: path of a tree of Debian 11 without Python; made if it is missing.
    """

    def __init__(self, room: Path, program: Path, bullseye: Path) -> None:
        self.room, self.program, self.bullseye = room, program, bullseye

    def tree(self, name: str, tmp: str = "size=2g", user: int = 0) -> Tree:
        """Create a tree with nothing but /proc, /tmp and the file."""
        root = self.room / name
        (root / "proc").mkdir(parents=True)
        (root / "tmp").mkdir()
        mount("-t", "proc", "proc", str(root / "proc"))
        mount("-t", "tmpfs", "-o", f"{tmp},mode=1777", "none", str(root / "tmp"))
        shutil.copy(self.program, root / "krepair")
        return Tree(root, user)

    def an_empty_tree(self) -> None:
        """Try a tree with nothing but /proc and /tmp."""
        tree = self.tree("empty")
        output = tree.run("--version", expected=DONE)
        if output.count("\n") != 1 or "/tmp/krepair-0" not in output:
            raise TrialFailedError(output)
        print(f"    {output.strip()}")
        if tree.run("--version", expected=DONE):
            raise TrialFailedError("the second start said something")
        whole_round(tree)

    def no_proc(self) -> None:
        """Try a tree without /proc."""
        tree = self.tree("noproc")
        subprocess.run(["umount", str(tree.root / "proc")], check=True)
        tree.run("--version", expected=DONE)

    def debian_11(self) -> None:
        """Try an older Debian without Python."""
        if not self.bullseye.is_dir():
            fresh = self.room / "debian"
            subprocess.run(
                ["debootstrap", "--variant=minbase", "bullseye", str(fresh)],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            fresh.rename(self.bullseye)
        root = self.bullseye
        if list(root.glob("usr/bin/python*")):
            raise TrialFailedError(f"{root} has a Python")
        mount("--bind", str(root), str(root))
        mount("-t", "proc", "proc", str(root / "proc"))
        mount("-t", "tmpfs", "-o", "size=2g,mode=1777", "none", str(root / "tmp"))
        shutil.copy(self.program, root / "krepair")
        for user in (0, NOBODY):
            whole_round(Tree(root, user))
        (root / "krepair").unlink()

    def nobody(self) -> None:
        """Try a user without a home."""
        whole_round(self.tree("nobody", user=NOBODY))

    def a_read_only_place(self) -> None:
        """Try a read-only file in a tree where only /tmp can be written."""
        tree = self.tree("readonly")
        mount("--bind", str(tree.root), str(tree.root))
        mount("-o", "remount,ro,bind", str(tree.root))
        mount("-t", "proc", "proc", str(tree.root / "proc"))
        mount("-t", "tmpfs", "-o", "size=2g,mode=1777", "none", str(tree.root / "tmp"))
        whole_round(tree)

    def a_noexec_tmp(self) -> None:
        """Try a /tmp that forbids programs."""
        tree = self.tree("noexec", "noexec,size=2g")
        refused(tree, "/tmp: it is mounted noexec")
        refused(tree.with_place("/tmp"), "/tmp cannot hold", "noexec")
        (tree.root / "room").mkdir()
        whole_round(tree.with_place("/room"))

    def a_small_tmp(self) -> None:
        """Try 100 MB in /tmp."""
        tree = self.tree("small", "size=100m")
        refused(tree, "/tmp: ", " MB are free")
        refused(tree.with_place("/tmp"), "/tmp cannot hold", " MB are needed")
        if list((tree.root / "tmp").iterdir()):
            raise TrialFailedError("something was left in /tmp")
        (tree.root / "room").mkdir()
        whole_round(tree.with_place("/room"))

    def two_at_once(self) -> None:
        """Try two first starts at the same time."""
        tree = self.tree("two")
        both = [tree.begin("--version") for _ in range(2)]
        outputs = [process.communicate() for process in both]
        if [process.returncode for process in both] != [DONE, DONE]:
            raise TrialFailedError(str(outputs))
        if sorted(len(errors.splitlines()) for _, errors in outputs) != [0, 1]:
            raise TrialFailedError(f"it was not unpacked once: {outputs}")

    def killed(self) -> None:
        """Kill unpackings at many moments, and check that their remains are removed."""
        tree = self.tree("killed", "size=1400m")
        for milliseconds in (50, 200, 400, 700, 1000, 1500, 2500):
            process = tree.begin("--version")
            time.sleep(milliseconds / 1000)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        tree.run("--version", expected=DONE)
        names_left = sorted(path.name[:4] for path in (tree.root / "tmp/krepair-0").iterdir())
        if len(names_left) != 2 or "new-" in names_left:
            raise TrialFailedError(f"left: {names_left}")

    def a_file_that_is_gone(self) -> None:
        """Try a copy from which a cleaner of old files removed one."""
        tree = self.tree("gone")
        tree.run("--version", expected=DONE)
        next((tree.root / "tmp/krepair-0").rglob("libarrow.so*")).unlink()
        if "once" not in tree.run("--version", expected=DONE):
            raise TrialFailedError("it was not unpacked again")

    def planted(self) -> None:
        """Try a folder that another user created first."""
        for kind in ("link", "foreign", "writable"):
            tree = self.tree(f"planted-{kind}")
            place = tree.root / "tmp/krepair-0"
            if kind == "link":
                (tree.root / "tmp/own").mkdir()
                place.symlink_to("/tmp/own")
            else:
                place.mkdir()
                place.chmod(0o777 if kind == "writable" else 0o700)
                os.chown(place, NOBODY if kind == "foreign" else 0, NOBODY)
            refused(tree, "/tmp: it is not private")
            (tree.root / "open").mkdir()
            (tree.root / "open").chmod(0o777)
            refused(tree.with_place("/open"), "/open cannot hold", "not private")

    def damaged(self) -> None:
        """Try an incomplete copy, and one with a flipped bit."""
        tree = self.tree("damaged")
        copy = tree.root / "krepair"
        os.truncate(copy, copy.stat().st_size - 1)
        if "copy it again" not in tree.run("--version", expected=15):
            raise TrialFailedError("truncated")
        shutil.copy(self.program, copy)
        with copy.open("r+b") as file:
            file.seek(50 << 20)
            byte = file.read(1)[0]
            file.seek(50 << 20)
            file.write(bytes([byte ^ 1]))
        if "copy it again" not in tree.run("--version", expected=15):
            raise TrialFailedError("flipped")

    def spark(self) -> None:
        """Check that Spark is refused in one sentence."""
        tree = self.tree("spark")
        unpack_into(FIXTURE, tree.root / "tmp/work")
        output = tree.run("check", "/tmp/work/logs", "--engine", "spark", expected=REFUSED)
        if "--engine inline" not in output:
            raise TrialFailedError(output)

    def all(self) -> list[Callable[[], None]]:
        """Run every scene."""
        return [
            self.an_empty_tree,
            self.no_proc,
            self.debian_11,
            self.nobody,
            self.a_read_only_place,
            self.a_noexec_tmp,
            self.a_small_tmp,
            self.two_at_once,
            self.killed,
            self.a_file_that_is_gone,
            self.planted,
            self.damaged,
            self.spark,
        ]


@contextmanager
def roomy() -> Iterator[Path]:
    """Create a folder for the trees, on a file system of its own."""
    room = Path(tempfile.mkdtemp(prefix="krepair-trials-"))
    mount("-t", "tmpfs", "-o", "size=80%", "none", str(room))
    try:
        yield room
    finally:
        subprocess.run(["umount", "--recursive", "--lazy", str(room)], check=False)
        with suppress(OSError):
            room.rmdir()


def main() -> None:
    """Parse the command line and try every scene."""
    parser = argparse.ArgumentParser(prog="python -m tools.onefile.trials", description=__doc__)
    parser.add_argument("--program", type=Path, default=Path("dist/krepair"))
    parser.add_argument("--bullseye", type=Path, help="a tree that debootstrap made")
    parser.add_argument("--only", help="name of one scene")
    chosen = parser.parse_args()
    if os.geteuid():
        sys.exit("trials: chroot needs root")
    if not chosen.program.is_file():
        sys.exit(f"trials: {chosen.program} is missing: make bundle")
    if not chosen.bullseye and not shutil.which("debootstrap"):
        sys.exit("trials: an older Debian is made by debootstrap. On Debian: apt install debootstrap")
    if _IN_NAMESPACE not in os.environ:
        words = ["unshare", "--mount", sys.executable, "-m", "tools.onefile.trials", *sys.argv[1:]]
        os.execvpe("unshare", words, {**os.environ, _IN_NAMESPACE: "1"})
    failed = 0
    with roomy() as room:
        trials = Trials(room, chosen.program.resolve(), chosen.bullseye or room / "bullseye")
        for scene in trials.all():
            if chosen.only not in {None, scene.__name__}:
                continue
            began = time.monotonic()
            print(f"{scene.__name__}: {scene.__doc__}", flush=True)
            try:
                scene()
            except TrialFailedError as problem:
                failed += 1
                print(f"    FAILED: {problem}")
            else:
                print(f"    as it should be, {time.monotonic() - began:.1f} s", flush=True)
    sys.exit(f"trials: {failed} failed" if failed else 0)


if __name__ == "__main__":
    main()
