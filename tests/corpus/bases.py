"""The small log directories that the corpus damages: each healthy, cleanly stopped, one partition."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests import builders
from tests.builders import NOW_MS, data
from tests.fixture_dirs import readable_by_4, unpack

POINTS, WATERMARKS, STARTS, CLEANED = (
    f"{word}-offset-checkpoint" for word in ("recovery-point", "replication", "log-start", "cleaner")
)
EPOCHS = "leader-epoch-checkpoint"
MARKER = ".kafka_cleanshutdown"
EXPIRING = {"cleanup.policy": "delete", "retention.ms": "86400000", "index.interval.bytes": "100"}
KEEP = {"retention.ms": "-1"}


@dataclass(frozen=True)
class Made:
    """One log directory with one partition, to be damaged.

    Attributes:
        log_dir: the directory.
        topic: name of its topic.
    """

    log_dir: Path
    topic: str

    @property
    def folder(self) -> Path:
        """The partition folder."""
        return self.log_dir / f"{self.topic}-0"

    def file(self, base_offset: int, suffix: str) -> Path:
        """A file of a segment."""
        return self.folder / f"{base_offset:020d}{suffix}"

    @property
    def bases(self) -> list[int]:
        """Base offsets of its segments."""
        return sorted(int(path.stem) for path in self.folder.glob("*.log"))


@dataclass(frozen=True)
class Base:
    """A healthy directory.

    Attributes:
        make: writes it: root and topic in, log directory out.
        config: settings of the topic, for krepair and for the brokers.
        end: log end offset.
        leader_epoch: the epoch at which a broker leads on.
    """

    make: Callable[[Path, str], Path]
    end: int
    leader_epoch: int
    config: Mapping[str, str] = field(default_factory=lambda: KEEP)

    def write(self, root: Path, topic: str) -> Made:
        """Write it."""
        return Made(self.make(root, topic), topic)


def _plain(root: Path, topic: str) -> Path:
    """Three segments of ten records, a leader epoch each, with entries in their indexes."""
    directory = builders.LogDir(root)
    partition = directory.partition(topic, index_interval_bytes=100)
    for base, epoch in ((0, 0), (10, 2), (20, 4)):
        offsets = range(base, base + 10, 2)
        batches = [data(each, 2, leader_epoch=epoch, timestamp=NOW_MS + each) for each in offsets]
        partition.segment(*batches, mtime_ms=NOW_MS + base)
    return directory.write()


def _transactions(root: Path, topic: str) -> Path:
    """Committed, aborted and idempotent batches in three segments; two of them have aborted transactions."""
    directory = builders.LogDir(root)
    partition = directory.partition(topic, index_interval_bytes=100)
    partition.segment(
        data(0, 2, pid=7, txn=True, timestamp=NOW_MS),
        builders.abort(2, pid=7, timestamp=NOW_MS + 1),
        data(3, 2, pid=8, txn=True, timestamp=NOW_MS + 2),
        builders.commit(5, pid=8, timestamp=NOW_MS + 3),
    )
    partition.segment(
        data(6, 2, pid=7, sequence=2, txn=True, timestamp=NOW_MS + 4),
        data(8, 1, pid=9, timestamp=NOW_MS + 5),
        builders.abort(9, pid=7, timestamp=NOW_MS + 6),
    )
    partition.segment(data(10, 2, pid=9, sequence=1, timestamp=NOW_MS + 7))
    return directory.write()


def bloat(partition: builders.Partition) -> None:
    """First segments of markers whose transactions were compacted away long since."""
    long_ago = NOW_MS - 90 * 86_400_000
    for base in (0, 10, 20):
        markers = [
            builders.commit(offset, pid=100 + offset, timestamp=long_ago) for offset in range(base, base + 9)
        ]
        partition.segment(*markers, data(base + 9, 1, timestamp=long_ago), mtime_ms=long_ago)
    partition.segment(data(30, 2, timestamp=NOW_MS))


def _bloated(root: Path, topic: str) -> Path:
    directory = builders.LogDir(root)
    bloat(directory.partition(topic, index_interval_bytes=100))
    return directory.write()


def _compacted(root: Path, topic: str) -> Path:
    """Of each leader epoch the first batches are compacted away; the checkpoint still knows where they began."""
    directory = builders.LogDir(root)
    partition = directory.partition(topic, index_interval_bytes=100)
    partition.segment(data(4, 2), data(8, 2), base_offset=0)
    partition.segment(data(13, 2, leader_epoch=2), data(18, 2, leader_epoch=2), base_offset=10)
    partition.segment(data(21, 1, leader_epoch=4), base_offset=20)
    path = directory.write()
    (path / f"{topic}-0" / EPOCHS).write_bytes(b"0\n3\n0 0\n2 10\n4 20\n")
    return path


def _of_fixture(name: str, folder: str, end: int) -> Callable[[Path, str], Path]:
    """One partition of a real log directory, under another name."""

    def make(root: Path, topic: str) -> Path:
        path = readable_by_4(unpack(name, root))
        shutil.move(path / folder, path / f"{topic}-0")
        for other in path.iterdir():
            if other.is_dir() and other.name != f"{topic}-0":
                shutil.rmtree(other)
        for checkpoint in (POINTS, WATERMARKS):
            (path / checkpoint).write_text(f"0\n1\n{topic} 0 {end}\n")
        return path

    return make


def _large(root: Path, topic: str) -> Path:
    """A first segment of 400 kB, which a broker indexes."""
    directory = builders.LogDir(root)
    value = b"x" * 10_000
    batches = [data(offset, [builders.Record(None, value)]) for offset in range(40)]
    directory.partition(topic).segment(*batches).segment(data(40, 1))
    return directory.write()


COMPACT = {"cleanup.policy": "compact", "index.interval.bytes": "100"}
BASES = {
    "plain": Base(_plain, 30, 4, KEEP | {"index.interval.bytes": "100"}),
    "transactions": Base(_transactions, 12, 0, KEEP | {"index.interval.bytes": "100"}),
    "expiring": Base(_plain, 30, 4, EXPIRING),
    "large": Base(_large, 41, 0),
    "bloated": Base(_bloated, 32, 0, COMPACT),
    "compacted": Base(_compacted, 22, 4, COMPACT),
    "ten segments": Base(_of_fixture("leader-epochs-2.2.1", "e-all-0", 280), 280, 12),
    "real indexes": Base(_of_fixture("timeindex-ok-2.2.1", "f-t-0", 1000), 1000, 0),
}
