"""Small log directories with plans that mix all fixes, on which kills, failing calls and power cuts are tried.

    scene = build("markers", seed=3)
    placed = scene.place(Path("/dev/shm/case-1"))   # a copy in logs/, and its plan as a value and as a file

A scene is built once and then copied from memory, which takes a millisecond or two. A plan names its
directory, so every copy has a plan of its own: the one of the scene with this copy's path, sealed anew. A test
holds it against the plan that ``make_plan`` makes of the copy; they are the same to the byte.

The same name and seed give the same bytes, times, owners and modes everywhere.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import msgspec

from krepair.ops.plan import make_plan
from krepair.options import EngineName, Options
from krepair.plan import planfile
from krepair.plan.fit import fit_of
from krepair.plan.keep import AUTO, UNTIL_VERIFIED, is_freed_by_apply
from krepair.plan.model import Plan, Room
from tests import builders, forgotten
from tests.builders import NOW_MS, Batch, LogDir, Partition, data
from tests.commit import txfixture
from tests.fixture_dirs import unpack
from tests.flips import flip
from tests.ops import pending

CLEAN_MARKER = ".kafka_cleanshutdown"
CHECKPOINT = "-offset-checkpoint"
POINTS = f"recovery-point{CHECKPOINT}"
WATERMARKS = "replication-offset-checkpoint"
EPOCHS = "leader-epoch-checkpoint"
LOCK = ".lock"
PRIVATE = "krepair~"
FAR = "4000000000000"
"""A delete horizon in the far future: every marker that may go goes."""

INTERVAL_BYTES = 100
OLD_MS = NOW_MS - 90 * 86_400_000
MEMORY = "/dev/shm"
BROKER = (4242, 4343)
"""Owner and group of the files in scenes where the broker is not the user who runs krepair."""

_COMPACT = (
    ("cleanup.policy", "compact"),
    ("index.interval.bytes", str(INTERVAL_BYTES)),
    ("segment.bytes", "420"),
)
_ALL = "markers,epochs,checkpoints,index,snapshots,leftovers,tail"
_MINUTE_MS = 60_000

Setup = Callable[[Path, random.Random], Options]
"""Writes the log directory at a path and says under which options its plan is made."""


class Seen(NamedTuple):
    """State of one name in a log directory: everything that must be the same after undo.

    Attributes:
        mode: type and permission bits.
        owner: ids of user and group.
        links: names of the file, 0 of a folder.
        mtime_ns: modification time of a file, 0 for a folder (its time changes with every name in it).
        content: SHA-256 of a file's bytes, the target of a link; for a root checkpoint its lines.
        xattrs: extended attributes, as text.
    """

    mode: int
    owner: tuple[int, int]
    links: int
    mtime_ns: int
    content: str
    xattrs: str


Tree = dict[str, Seen]
"""Path relative to the log directory (``.`` is the directory) -> what is there."""


def look(root: Path | str, without: Callable[[str], bool] = lambda path: False) -> Tree:
    """Read everything below a directory, including krepair's own folders.

    Args:
        root: directory that is read.
        without: decides, by its path, whether a file is skipped.
    """
    out: Tree = {}
    top = os.fspath(root)
    pending_folders = [top]
    while pending_folders:
        folder = pending_folders.pop()
        out[os.path.relpath(folder, top)] = _seen(folder)
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending_folders.append(entry.path)
                elif not without(entry.path):
                    out[os.path.relpath(entry.path, top)] = _seen(entry.path)
    return out


def visible(tree: Tree) -> Tree:
    """Return the tree as a broker sees it: without krepair's own folders and without ``.lock``.

    The number of links is left out: an original that is kept has two names for a while.
    """
    return {
        name: entry._replace(links=0) for name, entry in tree.items() if PRIVATE not in name and name != LOCK
    }


def private(tree: Tree) -> list[str]:
    """Return the names of krepair's own folders and of their contents."""
    return sorted(name for name in tree if PRIVATE in name)


def differences(tree: Tree, wanted: Tree, at_most: int = 6) -> str:
    """Return the differences of two trees, one line per name; empty if they are equal."""
    lines = []
    for name in sorted(tree.keys() | wanted.keys()):
        have, want = tree.get(name), wanted.get(name)
        if have == want:
            continue
        if have is None or want is None:
            lines.append(f"{name}: {'is missing' if have is None else 'should not be there'}")
            continue
        fields = [
            f"{field} {getattr(have, field)!r}, not {getattr(want, field)!r}"
            for field in Seen._fields
            if getattr(have, field) != getattr(want, field)
        ]
        lines.append(f"{name}: {'; '.join(fields)}")
    more = [f"and {len(lines) - at_most} more"] if len(lines) > at_most else []
    return "\n".join(lines[:at_most] + more)


def _seen(path: str) -> Seen:
    status = os.lstat(path)
    owner = (status.st_uid, status.st_gid)
    if stat.S_ISDIR(status.st_mode):
        return Seen(status.st_mode, owner, 0, 0, "", "")
    if stat.S_ISLNK(status.st_mode):
        return Seen(status.st_mode, owner, status.st_nlink, 0, os.readlink(path), "")
    with open(path, "rb") as file:
        data = file.read()
    content = data.decode("latin-1") if path.endswith(CHECKPOINT) else hashlib.sha256(data).hexdigest()
    attributes = _xattrs(path)
    return Seen(status.st_mode, owner, status.st_nlink, status.st_mtime_ns, content, repr(attributes or ""))


def _xattrs(path: str) -> dict[str, bytes]:
    try:
        return {
            name: os.getxattr(path, name, follow_symlinks=False)
            for name in os.listxattr(path, follow_symlinks=False)
        }
    except OSError:
        return {}


class Entry(NamedTuple):
    """One file or folder of a scene, as it is written again.

    Attributes:
        name: relative to the log directory; ``.`` is the directory itself.
        data: bytes of a file, None of a folder.
        mode: the permission bits only.
        owner: ids of user and group.
        mtime_ns: modification time, 0 of a folder.
        xattrs: extended attributes by name.
    """

    name: str
    data: bytes | None
    mode: int
    owner: tuple[int, int]
    mtime_ns: int
    xattrs: dict[str, bytes]


class Placed(NamedTuple):
    """One copy of a scene.

    Attributes:
        path: path of the log directory.
        plan: plan of the scene.
        plan_file: the same, as ``krepair plan`` writes it; beside the log directory.
        by: words that name the plan for a verb; empty: the plan file.
    """

    path: Path
    plan: Plan
    plan_file: Path
    by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scene:
    """A log directory and the plan that was made of it.

    Attributes:
        name: name in ``SCENES``.
        seed: seed that it was built from, together with the name.
        options: under which its plan was made.
        plan: plan of the directory that it was built in, which is gone.
        entries: all its entries, a folder before its contents.
        one_barrier: true if one sync of the file system makes all staged files durable, however few they are.
    """

    name: str
    seed: int
    options: Options
    plan: Plan
    entries: tuple[Entry, ...]
    one_barrier: bool = False

    @property
    def keep(self) -> str:
        """``inplace`` or ``until-verified``."""
        return self.plan.policy.keep

    def place(self, root: Path) -> Placed:
        """Write a copy to ``root/logs`` and its plan to ``root/plan``; neither may be there."""
        path = root / "logs"
        write(self.entries, os.fspath(path))
        return self._planned(path, root / "plan")

    def beside(self, placed: Placed, number: int) -> Placed:
        """Make another plan of a placed directory that has not changed since: ``plan-NUMBER`` beside it.

        Args:
            placed: scene with the same entries, on its file system.
            number: number of the plan.
        """
        return self._planned(placed.path, placed.path.with_name(f"plan-{number}"))

    def _planned(self, path: Path, plan_file: Path) -> Placed:
        plan = planfile.seal(_moved(self.plan, os.fspath(path)))
        plan_file.write_bytes(planfile.dumps(plan))
        return Placed(path, plan, plan_file)


def build(
    name: str, seed: int = 0, *, keep: str = "inplace", setup: Setup | None = None, **typed: object
) -> Scene:
    """Build a scene.

    Args:
        name: name in ``SCENES``; a suffix ``~until-verified`` or ``~auto`` sets ``--keep`` of its plan; for
            ``~one-barrier`` see ``Scene``.
        seed: varies how many partitions, segments and batches it has.
        keep: mode ``inplace`` or ``until-verified``.
        setup: setup of a scene that is not in ``SCENES``; experiments outside of this package make such scenes.
        typed: other options than those of the scene.
    """
    name, _, way = name.partition("~")
    one_barrier = way == "one-barrier"
    keep = keep if one_barrier else way or keep
    parent = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="krepair-scene-", dir=parent) as work:
        path = Path(work) / "logs"
        options = (setup or SCENES[name])(path, random.Random(f"{name} {seed}"))
        _settle(path)
        options = replace(options, keep=keep, **typed)  # type: ignore[arg-type]
        plan = _tight(str(path), options) if keep == AUTO else make_plan(str(path), options)
        if plan.root is None and not any(partition.changes for partition in plan.partitions):
            raise AssertionError(f"scene {name}, seed {seed}: nothing is planned")
        return Scene(name, seed, options, plan, read(path), one_barrier)


def _tight(path: str, options: Options) -> Plan:
    """Make a plan with ``--keep auto`` for a disk that just has room for all of it: the first groups are freed."""
    wide = Room(free_bytes=1 << 40, reserve_bytes=0, start_bytes=0)
    freeing = make_plan(path, replace(options, keep=UNTIL_VERIFIED))
    room = Room(free_bytes=fit_of(freeing, wide).needs.peak, reserve_bytes=0, start_bytes=0)
    with mock.patch("krepair.ops.plan.room_of", return_value=room):
        return make_plan(path, options)


@functools.cache
def keeps_of(name: str) -> tuple[str, ...]:
    """Return a scene of ``SCENES``, and the same with ``--keep until-verified`` if its plan then frees originals."""
    plan = build(name, keep=UNTIL_VERIFIED).plan
    frees = any(is_freed_by_apply(change) for partition in plan.partitions for change in partition.changes)
    return (name, f"{name}~{UNTIL_VERIFIED}") if frees else (name,)


def every_keep(names: Iterable[str]) -> Iterator[str]:
    """Return each scene with each ``--keep`` that makes a difference."""
    return (each for name in names for each in keeps_of(name))


def _settle(path: Path) -> None:
    """Give each file that has the time of this minute one that is the same in every run."""
    for number, file in enumerate(sorted(each for each in path.rglob("*") if each.is_file())):
        if file.stat().st_mtime_ns > (NOW_MS + _MINUTE_MS) * 1_000_000:
            mtime_ns = (NOW_MS - 3_600_000 + number) * 1_000_000 + 7
            os.utime(file, ns=(mtime_ns, mtime_ns))


def read(path: Path) -> tuple[Entry, ...]:
    """Read a tree, a folder before what is in it."""
    entries = []
    for place in [path, *sorted(path.rglob("*"))]:
        status = place.lstat()
        content = None if stat.S_ISDIR(status.st_mode) else place.read_bytes()
        entries.append(
            Entry(
                os.path.relpath(place, path),
                content,
                stat.S_IMODE(status.st_mode),
                (status.st_uid, status.st_gid),
                0 if content is None else status.st_mtime_ns,
                _xattrs(os.fspath(place)),
            )
        )
    return tuple(entries)


def write(entries: tuple[Entry, ...], root: str) -> None:
    """Write a tree."""
    us = (os.geteuid(), os.getegid())
    for entry in entries:
        path = root if entry.name == "." else f"{root}/{entry.name}"
        if entry.data is None:
            os.makedirs(path)
            os.chmod(path, entry.mode)
            if entry.owner != us:
                os.chown(path, *entry.owner)
            continue
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            view = memoryview(entry.data)
            while view:
                view = view[os.write(descriptor, view) :]
            if entry.owner != us:
                os.fchown(descriptor, *entry.owner)
            for key, value in entry.xattrs.items():
                os.setxattr(descriptor, key, value)
            os.fchmod(descriptor, entry.mode)
            os.utime(descriptor, ns=(entry.mtime_ns, entry.mtime_ns))
        finally:
            os.close(descriptor)


def _moved(plan: Plan, path: str) -> Plan:
    """Return the plan for a copy: only its path differs."""
    partitions = tuple(
        msgspec.structs.replace(
            partition,
            notes=tuple(note.replace(plan.log_dir, path) for note in partition.notes),  # some name a command
            next_command=partition.next_command.replace(plan.log_dir, path),
        )
        for partition in plan.partitions
    )
    return msgspec.structs.replace(plan, log_dir=path, partitions=partitions)


# -- what the setups are made of ----------------------------------------------------------------------
def _options(fixes: str, **arguments: object) -> Options:
    values: dict[str, object] = {
        "engine": EngineName.INLINE,
        "now_ms": NOW_MS + _MINUTE_MS,
        "fixes": tuple(sorted(fixes.split(","))),
        "settings": _COMPACT,
        "delete_horizon": FAR,
        "only_replica": ("*",),
    }
    return Options(**(values | arguments))  # type: ignore[arg-type]


def bloated(
    directory: LogDir, topic: str, rng: random.Random, *, number: int = 0, segments: int = 6
) -> Partition:
    """Build a partition whose segments mostly hold markers of expired producers: several groups of two or three.

    Each has a committed record, and an aborted one with its marker, so that transaction indexes matter.
    """
    partition = directory.partition(topic, number, index_interval_bytes=INTERVAL_BYTES)
    offset = 0
    for place in range(segments):
        batches: list[Batch] = []
        for _ in range(rng.randint(2, 4)):
            batches.append(builders.commit(offset, pid=1000 + offset, timestamp=OLD_MS))
            offset += 1
        batches.append(data(offset, 1, timestamp=OLD_MS + place, leader_epoch=place // 2))
        offset += 1
        if place % 2:
            aborted = data(offset, 1, pid=7, sequence=place, txn=True, timestamp=OLD_MS + place)
            batches.append(_with_epoch(aborted, place // 2))
            batches.append(builders.abort(offset + 1, pid=7, timestamp=OLD_MS, leader_epoch=place // 2))
            offset += 2
        if place == 0:
            offset = 10
        partition.segment(*batches, mtime_ms=OLD_MS + place * 1000)
    partition.segment(data(offset, 2, timestamp=NOW_MS, leader_epoch=segments // 2))
    return partition


def _with_epoch(batch: Batch, leader_epoch: int) -> Batch:
    """Return the same batch with another leader epoch, which its checksum does not cover."""
    raw = batch.raw[:12] + leader_epoch.to_bytes(4, "big") + batch.raw[16:]
    return Batch(raw, *(getattr(batch, field) for field in list(batch.__dataclass_fields__)[1:]))


def plain(directory: LogDir, topic: str, rng: random.Random, *, segments: int = 3) -> Partition:
    """Build segments of five batches, each with a leader epoch of its own."""
    partition = directory.partition(topic, index_interval_bytes=INTERVAL_BYTES)
    for place in range(segments):
        base = place * 10
        batches = [
            data(each, 2, leader_epoch=2 * place, timestamp=NOW_MS + each)
            for each in range(base, base + 10, 2)
        ]
        partition.segment(*batches, mtime_ms=NOW_MS - rng.randint(1, 9) * 1000 + base)
    return partition


def _of_segment(folder: Path, base_offset: int, suffix: str = ".log") -> Path:
    return folder / f"{base_offset:020d}{suffix}"


def _bases(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def _tear(folder: Path, content: bytes) -> None:
    """Append bytes and keep the old time."""
    path = _of_segment(folder, _bases(folder)[-1])
    status = path.stat()
    with path.open("ab") as log:
        log.write(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _padded(folder: Path, base_offset: int) -> None:
    for suffix, size in ((".index", 8), (".timeindex", 12)):
        path = _of_segment(folder, base_offset, suffix)
        path.write_bytes(path.read_bytes() + bytes(size * 20))


def _owned(path: Path, *, lock: bool = True) -> None:
    """Set modes as on a real host; and, if permitted, files of a separate broker user."""
    if lock:
        (path / LOCK).touch()
    for place in [path, *path.rglob("*")]:
        os.chmod(place, 0o750 if place.is_dir() else 0o640)
        if os.geteuid() == 0:
            os.chown(place, *BROKER)


# -- the scenes -----------------------------------------------------------------------------------------
def _markers(path: Path, rng: random.Random) -> Options:
    """Groups under the fence, in one partition; the clean-shutdown marker is there."""
    directory = LogDir(path)
    bloated(directory, "b", rng, segments=rng.randint(6, 8))
    directory.write()
    (path / CLEAN_MARKER).write_bytes(b'{"version":0,"brokerEpoch":17}')
    (path / LOCK).touch()
    return _options("markers")


def _markers_unclean(path: Path, rng: random.Random) -> Options:
    """Build the same after a crash of the broker, without clean-shutdown marker and ``.lock``."""
    directory = LogDir(path)
    bloated(directory, "b", rng)
    directory.write(clean_stop=False)
    return _options("markers")


def _markers_without_points(path: Path, rng: random.Random) -> Options:
    """Build a directory without recovery points: only the clean-shutdown marker is moved away."""
    directory = LogDir(path)
    bloated(directory, "b", rng, segments=4)
    directory.write()
    (path / POINTS).unlink()
    _owned(path)
    return _options("markers")


def _partitions(path: Path, rng: random.Random) -> Options:
    """Build three bloated partitions of the broker's user, one also with an index and a torn tail to repair."""
    directory = LogDir(path)
    for number in range(rng.randint(2, 3)):
        bloated(directory, "b", rng, number=number, segments=4)
    plain(directory, "a", rng)
    directory.write()
    _padded(path / "a-0", 10)
    _tear(path / "b-0", b"\0" * 9)
    _owned(path)
    return _options("markers,index,tail")


def _fence_and_tail(path: Path, rng: random.Random) -> Options:
    """Build a directory where one partition is under the fence while another one's active files are cut."""
    directory = LogDir(path)
    bloated(directory, "m", rng, segments=4)
    plain(directory, "a", rng)
    plain(directory, "z", rng)
    directory.write()
    for topic in ("a", "z"):
        _tear(path / f"{topic}-0", data(30, 5, leader_epoch=4).raw[: rng.randint(20, 90)])
        (path / f"{topic}-0" / EPOCHS).write_bytes(b"0\n1\n0 0\n")
    _owned(path, lock=False)
    return _options("markers,tail,epochs")


def _damaged_elsewhere(path: Path, rng: random.Random) -> None:
    directory = LogDir(path)
    bloated(directory, "b", rng, segments=4)
    plain(directory, "o", rng, segments=2)
    directory.write()
    flip(_of_segment(path / "o-0", 10), 100, bits=0x40)
    (path / LOCK).touch()


def _without_fence_2_2(path: Path, rng: random.Random) -> Options:
    """Build damage that recovery would meet: the order of 2.x, without the fence."""
    _damaged_elsewhere(path, rng)
    return _options("markers", broker_version="2.2.1")


def _without_fence_3_9(path: Path, rng: random.Random) -> Options:
    """Build damage that recovery would meet: the order of 3.x, without the fence."""
    _damaged_elsewhere(path, rng)
    return _options("markers", broker_version="3.9.2")


def _indexes(path: Path, rng: random.Random) -> Options:
    """Indexes cut to their entries and made anew, missing ones among them, and a transaction index."""
    directory = LogDir(path)
    partition = plain(directory, "i", rng)
    partition.segment(
        data(30, 2, pid=7, txn=True, timestamp=NOW_MS), builders.abort(32, pid=7, timestamp=NOW_MS + 1)
    )
    partition.segment(data(33, 1, timestamp=NOW_MS + 9))
    plain(directory, "j", rng, segments=2)
    directory.write()
    folder = path / "i-0"
    for base in (0, 10):
        _padded(folder, base)
    _of_segment(folder, 20, ".timeindex").write_bytes(b"\xa5" * 24)
    _of_segment(folder, 20, ".index").unlink()
    _of_segment(folder, 30, ".txnindex").write_bytes(b"")
    _of_segment(path / "j-0", 0, ".timeindex").unlink()
    _owned(path)
    return _options("index=regenerate")


def _derived(path: Path, rng: random.Random) -> Options:
    """Build faults in epochs, producer snapshots and checkpoints of the root, but in no log."""
    directory = LogDir(path)
    partition = directory.partition("s", index_interval_bytes=INTERVAL_BYTES)
    for base in range(0, 10 * rng.randint(2, 4), 10):
        partition.segment(
            data(base, 2, pid=7, sequence=base, txn=True, timestamp=NOW_MS + base),
            builders.commit(base + 2, pid=7, timestamp=NOW_MS + base),
            data(base + 3, 7, pid=9, sequence=base, timestamp=NOW_MS + base),
        )
    plain(directory, "e", rng)
    directory.write()
    for snapshot in (path / "s-0").glob("*.snapshot"):
        snapshot.write_bytes(b"\xa5" * 30)
    (path / "e-0" / EPOCHS).write_bytes(b"0\n99\n0 0\n")
    (path / POINTS).write_bytes(b"0\n7\ns 0 10\n")
    (path / WATERMARKS).write_bytes(b"\0" * 40)
    _owned(path)
    return _options("epochs,checkpoints,snapshots")


def _everything(path: Path, rng: random.Random) -> Options:
    """Build work for all fixes in one plan: groups, derived files, the root, leftovers, a torn tail."""
    directory = LogDir(path)
    bloated(directory, "b", rng, segments=5)
    for topic in ("e", "l"):
        plain(directory, topic, rng)
    directory.write()
    folder = path / "b-0"
    (folder / EPOCHS).write_bytes(b"0\n2\n0 0\n")
    (path / POINTS).write_bytes(b"0\n1\n")
    newest = sorted(folder.glob("*.snapshot"))[-1]
    newest.write_bytes(b"\xa5")
    _padded(path / "e-0", 10)
    _tear(path / "e-0", data(30, 5, leader_epoch=4).raw[:50])
    (path / "l-0" / f"{0:020d}.log.deleted").write_bytes(b"x" * 40)
    (path / "l-0" / f"{10:020d}.index.cleaned").write_bytes(b"x" * 16)
    _owned(path)
    return _options(_ALL)


def _leftovers(path: Path, rng: random.Random) -> Options:
    """Build an interrupted swap, under the fence, and other leftovers of brokers."""
    gone = (200, 300)[: rng.randint(0, 2)]
    pending.write(path, gone=gone, without=rng.choice([(), (".index",), (".index", ".timeindex")]))
    for name in (f"{0:020d}.log.deleted", f"{100:020d}.timeindex.deleted"):
        (path / "t-0" / name).write_bytes(b"x" * 40)
    return pending.options()


def _leftovers_without_fence(path: Path, rng: random.Random) -> Options:
    """Build the opposite, a split, with damage in reach: the order of 3.x."""
    if rng.randrange(2):
        pending.write_split(path, damage_elsewhere=True)
    else:
        pending.write(path, gone=(300,), damage_elsewhere=True)
    return pending.options(broker_version="3.9.2")


def _removals(path: Path, rng: random.Random) -> Options:
    """Build only files that are removed."""
    directory = LogDir(path)
    plain(directory, "l", rng)
    directory.write()
    folder = path / "l-0"
    for base, suffix in ((0, ".log.deleted"), (10, ".index.deleted"), (10, ".log.cleaned"), (5, ".index")):
        _of_segment(folder, base, suffix).write_bytes(b"\0" * 8)
    _owned(path)
    return _options("leftovers")


def _tail_cut(path: Path, rng: random.Random) -> Options:
    """Build torn tails of two partitions after a crash, cut in place; the cut bytes are kept."""
    directory = LogDir(path)
    plain(directory, "a", rng)
    plain(directory, "z", rng, segments=2)
    directory.write(clean_stop=False)
    _tear(path / "a-0", data(30, 5, leader_epoch=4).raw[: rng.randint(20, 90)])
    _tear(path / "z-0", bytes(rng.randint(1, 5000)))
    _padded(path / "a-0", 20)
    _owned(path)
    return _options("tail")


def _damaged_middle(path: Path, rng: random.Random, *, clean_stop: bool = True) -> None:
    directory = LogDir(path)
    plain(directory, "d", rng, segments=4)
    directory.write(clean_stop=clean_stop)
    folder = path / "d-0"
    batch = len(data(0, 2).raw)
    flip(_of_segment(folder, 0), batch + 90, bits=0x40)
    _owned(path)


def _excise(path: Path, rng: random.Random) -> Options:
    """Build damage in the middle of a closed segment, cut out by consent; the old log is kept."""
    _damaged_middle(path, rng)
    return _options("tail=excise", accepted_losses=("KR302:d-0:2",))


def _set_aside(path: Path, rng: random.Random) -> Options:
    """Build the same for a cut as a broker does it: all later segments are set aside."""
    _damaged_middle(path, rng, clean_stop=rng.random() < 0.5)
    return _options("tail=broker", accepted_losses=("KR302:d-0:2",))


def _xattrs_and_tail(path: Path, rng: random.Random) -> Options:
    """Build groups and a zeroed tail in one partition whose files have extended attributes."""
    directory = LogDir(path)
    bloated(directory, "x", rng, segments=5)
    directory.write()
    _tear(path / "x-0", bytes(4096))
    _owned(path)
    for file in (path / "x-0").iterdir():
        try:
            os.setxattr(file, "user.kept", file.name.encode())
        except OSError:
            break  # this file system has none
    return _options("markers,tail")


OFFSETS_TOPIC = "__consumer_offsets"


def keyed(
    directory: LogDir,
    topic: str,
    rng: random.Random,
    *,
    number: int = 0,
    segments: int = 6,
    transactions: bool = True,
) -> Partition:
    """Build a partition whose few keys are written repeatedly: several groups of two or three segments.

    Each segment has records of its own keys, tombstones, a batch that loses some and one that loses all, an aborted
    transaction that reaches into the next segment, and one that is committed. Without transactions the plan says which
    records stay.
    """
    partition = directory.partition(topic, number, index_interval_bytes=INTERVAL_BYTES)
    offset = 0
    for place in range(segments):
        epoch, time = place // 2, OLD_MS + place
        batches: list[Batch] = []

        def add(batch: Batch, records: int, batches: list[Batch] = batches, epoch: int = epoch) -> None:
            nonlocal offset
            batches.append(_with_epoch(batch, epoch))
            offset += records

        if place and transactions:
            add(builders.abort(offset, pid=7, timestamp=time), 1)
        for _ in range(rng.randint(2, 3)):
            keys = rng.sample([b"a", b"b", b"c", b"d", b"e"], 3)
            add(data(offset, [builders.Record(key, b"%d" % offset) for key in keys], timestamp=time), 3)
        gone = builders.Record(rng.choice([b"a", b"b"]), None)
        own = builders.Record(b"own-%d" % place, b"stays")
        add(data(offset, [gone, own], pid=9, sequence=4 * place, txn=transactions, timestamp=time), 2)
        if transactions:
            add(builders.commit(offset, pid=9, timestamp=time), 1)
        if place < segments - 1 and transactions:
            lost = builders.Record(b"c", b"of an aborted transaction")
            add(data(offset, [lost], pid=7, sequence=place, txn=True, timestamp=time), 1)
        partition.segment(*batches, mtime_ms=OLD_MS + place * 1000)
    partition.segment(data(offset, 2, timestamp=NOW_MS, leader_epoch=segments // 2))
    return partition


def _keys(path: Path, rng: random.Random) -> Options:
    """Records go by key: several groups of three partitions, under the fence, of the broker's user."""
    directory = LogDir(path)
    for number in range(2):
        keyed(directory, OFFSETS_TOPIC, rng, number=number, segments=rng.randint(5, 7))
    keyed(directory, "__transaction_state", rng, segments=4)
    directory.write()
    (path / CLEAN_MARKER).write_bytes(b'{"version":0,"brokerEpoch":17}')
    _owned(path)
    return _options("compact")


def _keys_and_others(path: Path, rng: random.Random) -> Options:
    """Records go by key in some partitions, markers in another, and all other fixes are in the same plan."""
    directory = LogDir(path)
    keyed(directory, OFFSETS_TOPIC, rng, segments=5)
    keyed(directory, OFFSETS_TOPIC, rng, number=3, segments=4)
    bloated(directory, "b", rng, segments=4)
    plain(directory, "l", rng)
    directory.write()
    folder = path / f"{OFFSETS_TOPIC}-0"
    (folder / EPOCHS).write_bytes(b"0\n2\n0 0\n")
    newest = sorted(folder.glob("*.snapshot"))[-1]
    newest.write_bytes(b"\xa5")
    _tear(path / f"{OFFSETS_TOPIC}-3", data(300, 5, leader_epoch=4).raw[:50])
    _padded(path / "l-0", 10)
    (path / "l-0" / f"{0:020d}.log.deleted").write_bytes(b"x" * 40)
    (path / POINTS).write_bytes(b"0\n1\n")
    _owned(path)
    return _options(f"compact,{_ALL}")


def _keys_without_fence(path: Path, rng: random.Random) -> Options:
    """Records go by key beside damage that recovery would meet: the order of 3.x, without the fence."""
    directory = LogDir(path)
    keyed(directory, OFFSETS_TOPIC, rng, segments=5)
    keyed(directory, OFFSETS_TOPIC, rng, number=1, segments=4, transactions=False)
    plain(directory, "o", rng, segments=2)
    directory.write()
    flip(_of_segment(path / "o-0", 10), 100, bits=0x40)
    (path / LOCK).touch()
    return _options("compact", broker_version="3.9.2")


def _killed(path: Path, rng: random.Random, *, with_groups: bool) -> None:
    directory = LogDir(path)
    partition = directory.partition("r", index_interval_bytes=INTERVAL_BYTES)
    for base in range(0, 10 * rng.randint(3, 4), 10):
        partition.segment(
            _with_epoch(data(base, 2, pid=7, sequence=base, txn=True, timestamp=NOW_MS + base), base // 10),
            builders.abort(base + 2, pid=7, timestamp=NOW_MS + base, leader_epoch=base // 10),
            data(base + 3, 7, timestamp=NOW_MS + base, leader_epoch=base // 10),
        )
    plain(directory, "a", rng, segments=2)
    if with_groups:
        bloated(directory, "b", rng, segments=4)
    directory.write(clean_stop=False)
    lines = ["b 0 0"] * with_groups
    (path / POINTS).write_text("\n".join(["0", str(len(lines) + 1), "r 0 10", *lines]) + "\n")
    folder = path / "r-0"
    (folder / EPOCHS).write_bytes(b"0\n1\n0 0\n")
    _of_segment(folder, 20, ".txnindex").write_bytes(b"")
    _of_segment(folder, 10, ".timeindex").unlink()
    for snapshot in folder.glob("*.snapshot"):
        if int(snapshot.stem) > 10:
            snapshot.unlink()
    _padded(folder, _bases(folder)[-1])
    _tear(path / "a-0", data(20, 5, leader_epoch=4).raw[: rng.randint(20, 90)])
    _owned(path)


def _recovery(path: Path, rng: random.Random) -> Options:
    """Build a killed broker's directory for pre-recovery: two partitions, one of them with a torn tail."""
    _killed(path, rng, with_groups=False)
    return _options("recovery", broker_version="3.9.2")


def _recovery_and_all(path: Path, rng: random.Random) -> Options:
    """Build the same with groups under the fence and every other fix in one plan."""
    _killed(path, rng, with_groups=True)
    return _options(f"{_ALL},recovery", broker_version="3.9.2")


def _real(name: str, path: Path, folders: tuple[str, ...]) -> None:
    """Copy a real log directory, reduced to some of its partitions."""
    with tempfile.TemporaryDirectory(dir=path.parent) as work:
        unpack(name, Path(work)).rename(path)
    for place in path.iterdir():
        if place.is_dir() and place.name not in folders:
            shutil.rmtree(place)
    topics = {tuple(folder.rsplit("-", 1)) for folder in folders}
    for file in path.glob("*-offset-checkpoint"):
        lines = [line for line in file.read_text().splitlines()[2:] if tuple(line.split()[:2]) in topics]
        file.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")
    for place in [path, *path.rglob("*")]:
        os.chown(place, os.geteuid(), os.getegid())


def _real_offsets(path: Path, rng: random.Random) -> Options:
    """Copy ``__consumer_offsets`` of a real 4.3.1 broker."""
    _real("offsets-tv2-4.3.1", path, ("__consumer_offsets-1", "__transaction_state-0", "t-a-0"))
    keys = (
        ("delete.retention.ms", "100"),
        ("segment.bytes", rng.choice(["4000", "8000"])),
        ("index.interval.bytes", "512"),
    )
    return _options("markers,snapshots,checkpoints", settings=keys)


def _real_epochs(path: Path, rng: random.Random) -> Options:
    """Copy two partitions of a real 2.2.1 broker whose leader epochs were destroyed, with torn tails."""
    _real("leader-epochs-2.2.1-corrupt", path, ("e-some-0", "e-none-0", "e-all-0"))
    _tear(path / "e-some-0", b"\0" * rng.randint(1, 60))
    return _options("epochs,snapshots,tail", settings=())


def _real_old_formats(path: Path, rng: random.Random) -> Options:
    """Copy a real 2.2.1 directory with messages of 0.10 and before; its indexes were never trimmed, some are lost."""
    _real("oldformat-2.2.1-before", path, ("m0-gzip-0", "m1-lat-0"))
    for folder in (path / "m0-gzip-0", path / "m1-lat-0"):
        bases = _bases(folder)
        for base in bases[:-1]:
            _padded(folder, base)
        _of_segment(folder, rng.choice(bases[:-1]), ".index").unlink()
    return _options("index", settings=())


def _forgotten(path: Path, *fixes: str) -> Options:
    """Build a snapshot in which a transaction is open that the log has forgotten."""
    forgotten.made(path, forgotten.CASES[1])
    (path / LOCK).touch()
    return Options(engine=EngineName.INLINE, now_ms=NOW_MS + _MINUTE_MS, fixes=fixes)


def _swap_of_active(path: Path, rng: random.Random) -> Options:
    """Build a swap of the active segment: the fence watches its files, and krepair's own change is not a broker's."""
    del rng
    txfixture.write_log_dir(path)
    for name in (LOCK, CLEAN_MARKER):
        (path / name).touch()
    # Without its aborted transactions a swap is left to the start.
    for suffix in (".log", ".txnindex"):
        log = path / pending.FOLDER / pending.name(400, suffix)
        shutil.copy2(log, f"{log}.swap")
    return pending.options()


def _swap_before_3_0(path: Path, rng: random.Random) -> Options:
    """Complete a swap beside damage that recovery would meet: the order of 2.x, without the fence."""
    del rng
    pending.write(path, deleted=(300,), damage_elsewhere=True)
    return pending.options(broker_version="2.2.1", partitions=(("t", 0),))


def _swap_over_damage(path: Path, rng: random.Random) -> Options:
    """Damage a segment that the swap replaces, so a real copy of it is kept."""
    del rng
    pending.write(path)
    flip(path / pending.FOLDER / pending.name(200), 3000)
    return pending.options(broker_version="3.9.2")


FREEING = (
    "markers~auto",
    "partitions~auto",
    "everything~auto",
    "markers~until-verified",
    "partitions~until-verified",
    "without-fence-3.9~until-verified",
    "everything~until-verified",
    "leftovers~until-verified",
    "indexes~until-verified",
    "xattrs-and-tail~until-verified",
)
"""Scenes whose plans free originals while they are applied: for ``build``."""

ONE_BARRIER = (
    "recovery~one-barrier",
    "indexes~one-barrier",
    "partitions~one-barrier",
    "everything~one-barrier",
)
"""Scenes in which what is staged is made durable with one sync of the file system: for ``build``."""

SCENES: dict[str, Setup] = {
    "markers": _markers,
    "markers-unclean": _markers_unclean,
    "markers-without-points": _markers_without_points,
    "partitions": _partitions,
    "fence-and-tail": _fence_and_tail,
    "without-fence-2.2": _without_fence_2_2,
    "without-fence-3.9": _without_fence_3_9,
    "indexes": _indexes,
    "derived": _derived,
    "everything": _everything,
    "leftovers": _leftovers,
    "leftovers-without-fence": _leftovers_without_fence,
    "removals": _removals,
    "tail-cut": _tail_cut,
    "excise": _excise,
    "set-aside": _set_aside,
    "xattrs-and-tail": _xattrs_and_tail,
    "keys": _keys,
    "keys-and-others": _keys_and_others,
    "keys-without-fence": _keys_without_fence,
    "recovery": _recovery,
    "recovery-and-all": _recovery_and_all,
    "real-offsets": _real_offsets,
    "real-epochs": _real_epochs,
    "real-old-formats": _real_old_formats,
    "forgotten": lambda path, _: _forgotten(path, "snapshots"),
    "forgotten-and-recovery": lambda path, _: _forgotten(path, "snapshots", "recovery"),
    "swap-of-active": _swap_of_active,
    "swap-before-3.0": _swap_before_3_0,
    "swap-over-damage": _swap_over_damage,
}
"""Name -> setup. ``build`` makes a scene of one."""
