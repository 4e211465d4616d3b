"""``plan --keep DIR`` where DIR is shared, cannot hold what it should, has a link in it, or goes while apply runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import ExitCode, KrepairError
from krepair.journal.copies import Copies
from tests.durable.disks import FILE_CHANGING, Call, PassingDisk
from tests.ops.full_disks import file_system, not_here
from tests.ops.test_copies_lost import contents, logs_of
from tests.ops.test_keep_copies import Site, elsewhere
from tests.ops.test_resume import stops
from tools.torture.scenes import differences

__all__ = ["elsewhere"]

MIB = 1 << 20


# -- shared


@pytest.mark.parametrize("ends", [("undo", "purge"), ("purge", "undo")])
def test_two_plans_share_a_folder_and_neither_touches_what_the_other_keeps(
    memory_dir: Path, elsewhere: Path, ends: tuple[str, str]
) -> None:
    one = Site("markers", memory_dir / "a", elsewhere)
    two = Site("partitions", memory_dir / "b", elsewhere)
    assert one.run("apply") == two.run("apply") == ExitCode.DONE
    applied = one.seen()
    own = elsewhere / f"krepair~{two.plan.plan_id}"
    held = contents(own)
    assert one.run(ends[0]) == ExitCode.DONE, one.why
    assert differences(one.seen(), one.before if ends[0] == "undo" else applied) == ""
    assert [path.name for path in elsewhere.iterdir()] == [own.name]
    assert contents(own) == held
    assert two.run(ends[1]) == ExitCode.DONE, two.why
    assert (one.private(), two.private(), list(elsewhere.iterdir())) == ([], [], [])


_HOST = """
import os, sys
from dataclasses import replace
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from tools.torture.scenes import build, differences, look, visible
from pathlib import Path

root, keep, user = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
scene = build("markers")
path = scene.place(root).path
if user:  # Python itself may lie where this user may not look: what is loaded late is loaded now
    (root / "warm").mkdir()
    warm = make_plan(str(scene.place(root / "warm").path), replace(scene.options, keep=keep))
    assert apply(warm, scene.options).exit_code == undo(warm, scene.options).exit_code == 0
    for each in (path, *path.rglob("*")):
        os.chown(each, user, user)
    os.setgid(user)
    os.setuid(user)
before = visible(look(path))
options = replace(scene.options, keep=keep)
plan = make_plan(str(path), options)
assert apply(plan, options).exit_code == 0
print("applied", plan.host, flush=True)
sys.stdin.readline()
report = undo(plan, options)
assert report.exit_code == 0, report.results
assert differences(visible(look(path)), before) == ""
print("undone", flush=True)
"""


@contextlib.contextmanager
def host(name: str, root: Path, keep: Path, user: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A process that applies a plan, and takes it back when it is told to, on a host of its own name."""
    root.mkdir()
    work = [sys.executable, "-c", textwrap.dedent(_HOST), str(root), str(keep), str(user)]
    if os.geteuid() != 0:
        not_here("only root makes namespaces")
    command = ["unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh", *work]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return said(process)


@pytest.mark.slow
def test_two_hosts_and_two_users_share_a_folder_at_the_same_time(memory_dir: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="krepair-shared-") as folder:
        elsewhere = Path(folder)
        if elsewhere.stat().st_dev == memory_dir.stat().st_dev:
            pytest.skip("there is one file system only")
        elsewhere.chmod(0o1777)
        memory_dir.chmod(0o755)
        share(memory_dir, elsewhere)


def share(memory_dir: Path, elsewhere: Path) -> None:
    with (
        host("host-a", memory_dir / "a", elsewhere) as one,
        host("host-b", memory_dir / "b", elsewhere, user=4711) as two,
    ):
        assert (said(one), said(two)) == ("applied host-a", "applied host-b")
        owners = sorted(path.stat().st_uid for path in elsewhere.iterdir())
        assert owners == [0, 4711]
        assert go_on(one) == "undone"
        assert [path.stat().st_uid for path in elsewhere.iterdir()] == [4711]
        assert go_on(two) == "undone"
    assert list(elsewhere.iterdir()) == []


# -- a file system that cannot hold it


class Losing(PassingDisk):
    """Copies lose something, as on a file system that has no such thing."""

    def __init__(self, lose: Callable[[str], None]) -> None:
        super().__init__(RealDisk())
        self.lose = lose

    def copy(self, source: str, target: str, of: Tree | None = None) -> None:
        super().copy(source, target, of)
        self.lose(target)

    def _before(self, call: Call) -> None:
        """Nothing."""


def without_times(path: str) -> None:
    """As vfat: two seconds."""
    found = os.stat(path)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns // 2_000_000_000 * 2_000_000_000))


LOSSES: dict[str, Callable[[str], None]] = {
    "mtime_ns": without_times,
    "mode": lambda path: os.chmod(path, 0o755),
    "uid": lambda path: os.chown(path, 4711, -1),
    "gid": lambda path: os.chown(path, -1, 4711),
    "xattrs": lambda path: os.setxattr(path, "user.more", b"1"),
}


@pytest.mark.parametrize("what", LOSSES)
def test_a_file_system_that_does_not_keep_something_is_refused_before_anything_changes(
    memory_dir: Path, elsewhere: Path, what: str
) -> None:
    if what in {"uid", "gid"} and os.geteuid() != 0:
        not_here("only root gives files away")
    if what == "xattrs":
        try:
            os.setxattr(elsewhere, "user.probe", b"1")
        except OSError:
            pytest.skip("this file system has no attributes")
    site = Site("markers", memory_dir / "a", elsewhere)
    code = site.run("apply", Losing(LOSSES[what]))
    assert code == ExitCode.REFUSED, site.why
    assert f"its file system does not keep {what}" in " ".join(site.why)
    assert "krepair plan --keep DIR" in " ".join(site.why)
    assert differences(site.seen(), site.before) == ""
    assert site.run("undo") == ExitCode.DONE, site.why
    assert differences(site.seen(), site.before) == ""
    assert site.private() == []


def test_vfat_is_refused_and_nothing_changes(memory_dir: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("mkfs.vfat") is None:
        pytest.skip("only root mounts file systems, and mkfs.vfat has to be installed")
    image, mount = tmp_path / "image", tmp_path / "fat"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(8 * MIB)
    subprocess.run(["mkfs.vfat", str(image)], check=True, capture_output=True)
    done = subprocess.run(["mount", "-o", "loop", str(image), str(mount)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this kernel has no vfat")
    try:
        site = Site("markers", memory_dir / "a", mount)
        assert site.run("apply") == ExitCode.REFUSED, site.why
        assert differences(site.seen(), site.before) == ""
        assert site.run("undo") == ExitCode.DONE, site.why
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


# -- links


def test_a_link_in_the_place_of_the_folder_or_in_it_is_never_followed(
    memory_dir: Path, elsewhere: Path, tmp_path: Path
) -> None:
    site = Site("markers", memory_dir / "a", elsewhere)
    aim = tmp_path / "aim"
    aim.mkdir()
    own = elsewhere / f"krepair~{site.plan.plan_id}"
    own.symlink_to(aim)
    assert refused(site) in {ExitCode.REFUSED, ExitCode.PARTLY}
    own.unlink()
    own.mkdir(mode=0o700)
    (own / "b-0").symlink_to(aim)
    assert refused(site) in {ExitCode.REFUSED, ExitCode.PARTLY}
    (own / "b-0").unlink()
    (own / "identity.new").symlink_to(aim / "planted")
    shutil.rmtree(own)
    elsewhere.rmdir()
    elsewhere.symlink_to(aim)
    assert refused(site) is ExitCode.REFUSED
    assert list(aim.iterdir()) == []
    assert differences(site.seen(), site.before) == ""


def refused(site: Site) -> ExitCode:
    try:
        code = site.run("apply")
    except KrepairError as error:
        code = error.exit_code
    assert differences(site.seen(), site.before) == ""
    return code


def test_a_link_under_the_name_of_a_copy_is_replaced_and_its_aim_stays(
    memory_dir: Path, elsewhere: Path, tmp_path: Path
) -> None:
    site = Site("markers", memory_dir / "a", elsewhere)
    victim = tmp_path / "victim"
    victim.write_bytes(b"somebody's")
    place = elsewhere / f"krepair~{site.plan.plan_id}" / "b-0"
    place.mkdir(parents=True, mode=0o700)
    place.parent.chmod(0o700)
    for log in sorted((site.path / "b-0").glob("*.log")):
        (place / log.name).symlink_to(victim)
    with contextlib.suppress(KrepairError):
        site.run("apply")
    assert victim.read_bytes() == b"somebody's"
    for left in place.iterdir():
        if left.is_symlink():
            left.unlink()
    assert site.run("undo") == ExitCode.DONE, site.why
    assert differences(site.seen(), site.before) == ""


# -- gone while apply runs


class Watched(PassingDisk):
    """Counts the calls that change a file, of the log directory and of the folder alike, and acts before one."""

    def __init__(self, inner: RealDisk, before: Callable[[Call], None]) -> None:
        super().__init__(inner)
        self.before = before

    def _before(self, call: Call) -> None:
        if call.kind in FILE_CHANGING:
            self.before(call)


class Act:
    """Something that happens right before the nth call of an apply; each folder is opened once, as in a real run."""

    def __init__(self, site: Site, number: int, act: Callable[[], None]) -> None:
        self.site, self.number, self.act = site, number, act
        self.calls: list[Call] = []

    def _before(self, call: Call) -> None:
        self.calls.append(call)
        if len(self.calls) == self.number:
            self.act()

    def run(self) -> ExitCode:
        path, plan = self.site.options.keep, self.site.plan
        with (
            Tree(str(self.site.path)) as logs,
            Tree(path) as keep,
            pytest.MonkeyPatch.context() as patch,
        ):
            copies = Copies(Watched(RealDisk(keep), self._before), path, plan.plan_id)
            patch.setattr(
                "krepair.ops.apply.copies_of", lambda plan, given=None: contextlib.nullcontext(copies)
            )
            try:
                return self.site.run("apply", Watched(RealDisk(logs), self._before))
            except KrepairError as error:
                return error.exit_code


def calls_of(site: Site) -> int:
    """Number of the calls until the last original is gone."""
    counting = Act(site, 0, lambda: None)
    assert counting.run() == ExitCode.DONE
    assert site.run("undo") == ExitCode.DONE
    freed = [n for n, one in enumerate(counting.calls, 1) if one.kind == "unlink" and "/keep/" in one.path]
    return freed[-1]


@pytest.mark.slow
def test_a_folder_that_is_exchanged_while_apply_runs_costs_no_original(
    memory_dir: Path, elsewhere: Path
) -> None:
    most = calls_of(Site("markers", memory_dir / "whole", elsewhere))
    away, ends = elsewhere.with_name("away"), []

    def exchange() -> None:
        elsewhere.rename(away)
        shutil.copytree(away, elsewhere)

    for stop in stops(most, int(os.environ.get("KREPAIR_MOVED", "8"))):
        for left in (memory_dir / "try", away):
            shutil.rmtree(left, ignore_errors=True)
        shutil.rmtree(elsewhere)
        elsewhere.mkdir()
        site = Site("markers", memory_dir / "try", elsewhere)
        originals = logs_of(site)
        ends.append(Act(site, stop, exchange).run())
        # What is in the folder that took its place does not count.
        assert originals <= contents(site.path, away), (stop, site.why)
        shutil.rmtree(elsewhere)
        away.rename(elsewhere)
        assert site.run("undo") == ExitCode.DONE, (stop, site.why)
        assert differences(site.seen(), site.before) == "", stop
    assert set(ends) - {ExitCode.DONE}
    assert set(ends) <= {ExitCode.DONE, ExitCode.REFUSED, ExitCode.PARTLY}


@pytest.mark.slow
def test_a_file_system_that_is_lazily_unmounted_while_apply_runs_costs_no_original(
    memory_dir: Path, tmp_path: Path
) -> None:
    ends = []
    with file_system("ext4", tmp_path, 16 * MIB) as mount:
        image = mount.with_name("image")
        most = calls_of(Site("markers", memory_dir / "whole", mount))

        def away() -> None:
            subprocess.run(["umount", "-l", str(mount)], check=True)

        for stop in stops(most, int(os.environ.get("KREPAIR_MOVED", "6"))):
            shutil.rmtree(memory_dir / "try", ignore_errors=True)
            for left in mount.glob("krepair~*"):
                shutil.rmtree(left)
            site = Site("markers", memory_dir / "try", mount)
            originals = logs_of(site)
            ends.append(Act(site, stop, away).run())
            below = list(mount.iterdir())
            subprocess.run(["mount", "-o", "loop", str(image), str(mount)], check=True)
            assert below == [], "nothing may be written below the mount point"
            assert originals <= contents(site.path, mount), stop
            assert site.run("undo") == ExitCode.DONE, (stop, site.why)
            assert differences(site.seen(), site.before) == "", stop
    assert set(ends) - {ExitCode.DONE}
    assert set(ends) <= {ExitCode.DONE, ExitCode.REFUSED, ExitCode.PARTLY}
