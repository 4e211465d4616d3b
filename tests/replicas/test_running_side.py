"""On a side whose broker runs, only files at rest are compared. The broker is another process with the lock."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.fixes import replicas
from krepair.fixes.replicas import parse_brokers
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_partition
from krepair.ops.compare import compare
from krepair.ops.facts import facts
from krepair.options import EngineName, Options
from krepair.rules.replicas import model as m
from tests.lab.waiting import LIMIT_S
from tests.replicas.real_clusters import compared, sides_of, unpack_cluster

_BROKER = """
import fcntl, os, shutil, struct, sys
lock = open(sys.argv[1] + "/.lock", "ab")
fcntl.fcntl(lock, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
print("runs", flush=True)
for line in sys.stdin:
    verb, path = line.split(maxsplit=1)
    path = path.rstrip("\\n")
    if verb == "append":
        with open(path, "ab") as log:
            log.write(b"half of a batch")
    else:
        shutil.copy2(path, path + ".swap")
        os.replace(path + ".swap", path)
    print("done", flush=True)
"""
"""It holds the lock as a JVM does, appends to a log, and replaces one as its cleaner does."""

Broker = Callable[[str, Path], None]


class Listings:
    """Listings of a partition after a reading. Before each that has something to do, the broker does it."""

    def __init__(self, *deeds: Callable[[], None]) -> None:
        self.deeds, self.made = deeds, 0

    def __call__(self, view: LogDir, folder: str) -> Partition:
        """List it once more."""
        if folder.startswith("velvet") and view.path.endswith("b3"):
            if self.made < len(self.deeds):
                self.deeds[self.made]()
            self.made += 1
        return read_partition(view, folder)


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    """The segments of broker 3, which misses tombstones below offset 14; they begin at 0, 14 and 26."""
    unpack_cluster("open-3.9.2-tomb", tmp_path)
    (tmp_path / "b3" / ".kafka_cleanshutdown").unlink()
    return sorted((tmp_path / "b3" / "velvet-630-0").glob("*.log"))


@pytest.fixture
def broker(logs: list[Path]) -> Iterator[Broker]:
    argv = [sys.executable, "-c", _BROKER, str(logs[0].parents[1])]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"

        def do(verb: str, path: Path) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{verb} {path}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"

        yield do
        process.communicate("", timeout=LIMIT_S)


def verdict_with(listings: Listings, root: Path, patch: pytest.MonkeyPatch) -> m.PartitionVerdict:
    patch.setattr(replicas, "read_partition", listings)
    report = compared(root)
    [partition] = report.partitions
    expected = ExitCode.UNREADABLE if partition.verdict == m.MISSING else ExitCode.FOUND
    assert report.exit_code is expected
    return partition


def up_to(partition: m.PartitionVerdict) -> str:
    """What was said of a running broker."""
    return next((one for one in partition.harmless if one.name == "running"), "")


def set_checkpoint(root: Path, name: str, offset: int) -> None:
    (root / "b3" / name).write_text(f"0\n1\nvelvet-630 0 {offset}\n")


def deeds_of(broker: Broker, logs: list[Path], words: str) -> list[Callable[[], None]]:
    """What the broker does before each listing: ``append`` or ``swap`` with the number of a segment, or ``-``."""
    pairs = (word.partition(" ") for word in filter(None, words.split(", ")))
    return [partial(broker, verb, logs[int(number)]) if number else lambda: None for verb, _, number in pairs]


@pytest.mark.parametrize(
    ("words", "made"),
    [
        pytest.param("", 2, id="it has the lock, and nothing changed"),
        pytest.param("append 2, append 2, append 2", 2, id="the log grew"),
        pytest.param("swap 0, swap 0", 4, id="the cleaner replaced a segment: read again"),
        # headers, records (changed), the listing to read, headers, records
        pytest.param("-, swap 0", 5, id="the cleaner did before records were read: read again"),
    ],
)
def test_of_a_running_broker_the_closed_segments_are_compared(
    broker: Broker, logs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, made: int
) -> None:
    listings = Listings(*deeds_of(broker, logs, words))
    partition = verdict_with(listings, tmp_path, monkeypatch)
    assert (partition.verdict, listings.made) == (m.DIVERGED, made)
    assert up_to(partition) == "running (broker 3 was compared up to 26, where its segments at rest end)"
    [found] = partition.disagreements
    assert (found.kind, found.brokers, found.offset, found.count) == (m.TOMBSTONE_MISSED, (3,), 7, 3)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(", ".join(["swap 1"] * 9), "changed each time", id="a segment changes each time"),
        pytest.param(", ".join(["-, swap 0, -"] * 9), "", id="each time its records are read"),
    ],
)
def test_a_closed_segment_that_is_never_at_rest_makes_the_replica_missing(
    broker: Broker, logs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, told: str
) -> None:
    partition = verdict_with(Listings(*deeds_of(broker, logs, words)), tmp_path, monkeypatch)
    [found] = partition.disagreements
    assert (partition.verdict, found.kind, found.brokers) == (m.MISSING, m.NOT_AT_REST, (3,))
    assert told in found.text


def test_a_broker_that_starts_while_its_log_is_read_is_found_out(
    logs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = [sys.executable, "-c", _BROKER, str(logs[0].parents[1])]
    with contextlib.ExitStack() as running:

        def start() -> None:
            process = running.enter_context(
                subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            assert process.stdout is not None
            assert process.stdout.readline() == "runs\n"
            running.callback(process.communicate, "", 60)

        partition = verdict_with(Listings(start), tmp_path, monkeypatch)
        assert "compared up to 26," in up_to(partition)


def test_a_log_that_did_not_change_and_that_no_broker_uses_is_compared_whole(
    logs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its broker was killed: no marker of a clean stop, and no lock."""
    listings = Listings()
    partition = verdict_with(listings, tmp_path, monkeypatch)
    assert (partition.verdict, up_to(partition), listings.made) == (m.DIVERGED, "", 2)


def test_facts_of_a_running_broker_say_how_far_they_go(
    broker: Broker, logs: list[Path], tmp_path: Path
) -> None:
    path = f"{tmp_path}/b3.facts"
    options = Options(engine=EngineName.INLINE)
    facts([f"{tmp_path}/b3"], path, options)
    sides = [f"3={path}" if side.startswith("3=") else side for side in sides_of(tmp_path)]
    direct, by_facts = (
        compare(parse_brokers(some), options).partitions[0] for some in (sides_of(tmp_path), sides)
    )
    assert "compared up to 26," in up_to(by_facts)
    assert [one.kind for one in by_facts.disagreements] == [m.TOMBSTONE_MISSED]
    assert (by_facts.verdict, by_facts.right) == (direct.verdict, direct.right)


@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "recovery-point-offset-checkpoint"])
@pytest.mark.parametrize(("offset", "end"), [(25, 14), (26, 26), (14, 14)])
def test_a_closed_segment_above_a_checkpoint_is_not_at_rest(
    name: str,
    offset: int,
    end: int,
    broker: Broker,
    logs: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_checkpoint(tmp_path, name, offset)
    partition = verdict_with(Listings(partial(broker, "append", logs[-1])), tmp_path, monkeypatch)
    assert f"compared up to {end}," in up_to(partition)
    assert partition.verdict == m.DIVERGED


def test_a_log_without_a_segment_at_rest_is_missing_and_says_so(
    broker: Broker, logs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_checkpoint(tmp_path, "replication-offset-checkpoint", 13)
    partition = verdict_with(Listings(partial(broker, "append", logs[-1])), tmp_path, monkeypatch)
    [found] = partition.disagreements
    assert (partition.verdict, found.kind) == (m.MISSING, m.NOT_AT_REST)
    assert "no closed segment lies below its high watermark and recovery point" in found.text


@pytest.mark.parametrize(("swaps", "listed", "failed"), [(1, 5, ""), (9, 8, "changed each time")])
def test_facts_look_again_after_the_records_as_compare_does(
    swaps: int,
    listed: int,
    failed: str,
    broker: Broker,
    logs: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listings = Listings(*deeds_of(broker, logs, "-, swap 0, -, " * swaps))
    monkeypatch.setattr(replicas, "read_partition", listings)
    report = facts([f"{tmp_path}/b3"], f"{tmp_path}/b3.facts", Options(engine=EngineName.INLINE))
    assert (listings.made, bool(report.failed)) == (listed, bool(failed))
    assert failed in "".join(report.failed)
    assert report.exit_code is (ExitCode.UNREADABLE if failed else ExitCode.DONE)
