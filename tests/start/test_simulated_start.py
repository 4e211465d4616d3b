"""One play of a start stands for all versions that do the same: the outcome is that of each version alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from krepair.durable.tree import Tree
from krepair.engine.items import Failed, Place
from krepair.fixes.next_start import swaps_of
from krepair.formats.broker_version import VersionNumber
from krepair.loading import simulate as task
from krepair.loading.behaviour import Broker, Brokers, behaviour_of
from krepair.loading.next_start import LoadedLog
from krepair.loading.producers import SimulatedProducers, SnapshotFolder
from krepair.loading.simulate import SegmentFiles, StartItem, simulate_start
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_log_dir
from tests.builders import LogDir as Made
from tests.builders import data
from tests.lab.starts import CLOCK_MS, EXPIRY_MS, SETTINGS, VERSIONS, Sources, make_case, write_root
from tests.twins.start import Seen, Start, Unsure

SEEDS = range(120)
ALL = tuple(Broker(one, behaviour_of(one), EXPIRY_MS[one[:2]]) for one in VERSIONS)


def item_of(
    view: LogDir, partition: Partition, settings: dict[str, int], brokers: tuple[Broker, ...]
) -> StartItem:
    """The start of a partition of a log directory that was read."""
    key = (partition.topic, partition.number)
    return StartItem(
        place=Place(host="", log_dir=view.path, log_dir_inode=view.inode, folder=partition.folder),
        segments=tuple(
            SegmentFiles(one.base_offset, one.log, one.index, one.time_index, one.txn_index)
            for one in partition.segments
        ),
        snapshots=tuple(one.offset for one in partition.snapshots),
        clean=view.clean_shutdown,
        recovery_point=view.recovery_point.offsets.get(key, 0),
        log_start=view.log_start.offsets.get(key, 0),
        interval_bytes=settings["index.interval.bytes"],
        index_bytes=settings["segment.index.bytes"],
        now_ms=CLOCK_MS,
        brokers=brokers,
        swaps=swaps_of(partition),
        lowest_cleaned=min(
            (one.base_offset for one in partition.leftovers if one.kind == "cleaned"), default=1 << 62
        ),
    )


def played(item: StartItem) -> dict[VersionNumber, LoadedLog]:
    """What comes of it."""
    found = simulate_start(item)
    assert not isinstance(found, Failed), found
    return found


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[LogDir, Partition, dict[str, int]]]:
    """Damaged partitions, as they were read, with their settings."""
    room = tmp_path_factory.mktemp("damaged")
    sources = Sources(room)
    roots: dict[Path, dict[str, int]] = {}

    def root(settings: int, clean: bool) -> Path:
        folder = room / f"logs-{settings}-{clean}"
        folder.mkdir(exist_ok=True)
        roots[folder] = SETTINGS[settings]
        return folder

    made = [make_case(seed, root, sources) for seed in SEEDS]
    found = []
    for folder, settings in roots.items():
        write_root(folder, [one for one in made if (folder / one.folder).exists()])
        view = read_log_dir(str(folder))
        found += [(view, partition, settings) for partition in view.partitions if partition.segments]
    return found


# with few shared batches the others are read anew, as those of a log that is larger than what is kept in memory
@pytest.mark.parametrize("shared", [1 << 16, 8, 0])
def test_versions_played_together_come_to_what_each_comes_to_alone(
    damaged: list[tuple[LogDir, Partition, dict[str, int]]], monkeypatch: pytest.MonkeyPatch, shared: int
) -> None:
    monkeypatch.setattr(task, "_SHARED_BATCHES", shared)
    apart = 0
    for view, partition, settings in damaged:
        together = played(item_of(view, partition, settings, ALL))
        for broker in ALL:
            alone = played(item_of(view, partition, settings, (broker,)))
            assert alone == {broker.version: together[broker.version]}, (view.path, partition.folder)
        apart += len({(one.file, one.segments, one.log_end) for one in together.values()}) > 1
    assert 0 < apart < len(damaged) / 2, "most versions do the same, and some do not"


def test_each_file_is_opened_once_for_four_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(tmp_path)
    partition = made.partition("t")
    for base in range(0, 60, 20):
        partition.segment(*(data(offset, 2) for offset in range(base, base + 20, 2)))
    made.write(clean_stop=False)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    view = read_log_dir(str(tmp_path))
    opened: Counter[str] = Counter()
    real = Tree.open

    def noting(tree: Tree, path: str, flags: int, mode: int = 0o600) -> int:
        opened[Path(path).name] += 1
        return real(tree, path, flags, mode)

    monkeypatch.setattr(Tree, "open", noting)
    result = played(item_of(view, view.partitions[0], SETTINGS[0], ALL))
    assert [one.log_end for one in result.values()] == [60] * 4
    logs = {name for name in opened if name.endswith(".log")}
    assert len(logs) == 3
    assert {count for name, count in opened.items() if name.startswith("0")} == {1}, opened


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex"])
@pytest.mark.parametrize("left", [0, 3])
def test_a_file_that_has_become_shorter_since_it_was_listed_is_a_failure(
    tmp_path: Path, suffix: str, left: int
) -> None:
    """A follower cuts its log, and a broker rolls, while they are read."""
    made = Made(tmp_path / "logs")
    one = made.partition("t", index_interval_bytes=1)
    one.segment(data(0, 3)).segment(*(data(3 + number) for number in range(9)))
    view = read_log_dir(str(made.write(clean_stop=False)))
    settings = {"index.interval.bytes": 1, "segment.index.bytes": 1024}
    item = item_of(view, view.partitions[0], settings, ALL)
    (one.folder / f"{3:020d}.{suffix}").write_bytes(bytes(left))
    found = simulate_start(item)
    assert isinstance(found, Failed)
    assert "become shorter" in found.why


@pytest.mark.parametrize(
    ("offsets", "lost"),
    [
        ((100, 200, 250), ()),
        ((50, 100, 250), (50,)),
        ((100, 200, 230, 250), (230,)),
        ((100, 250, 900), (250,)),
        ((50, 150), (50, 150)),
        ((), ()),
    ],
)
def test_since_2_8_of_those_of_no_segment_only_the_greatest_is_looked_at(
    offsets: tuple[int, ...], lost: tuple[int, ...]
) -> None:
    later = Brokers(tuple(one for one in ALL if one.version >= (2, 8, 0)))
    folder = SnapshotFolder(dict.fromkeys(offsets, ()))
    SimulatedProducers(folder, later, CLOCK_MS).remove_strays([0, 100, 200])
    assert tuple(sorted(folder.unread)) == lost


def test_a_slow_loader_of_other_code_sees_the_same(
    damaged: list[tuple[LogDir, Partition, dict[str, int]]],
) -> None:
    brokers = tuple(one for one in ALL if one.version >= (3, 0, 0))
    told = 0
    for view, partition, settings in damaged:
        item = item_of(view, partition, settings, brokers)
        files = {one.name: one.read_bytes() for one in Path(partition.path).iterdir() if one.is_file()}
        start = Start(
            files,
            clean=item.clean,
            point=item.recovery_point,
            log_start=item.log_start,
            interval=item.interval_bytes,
        )
        try:
            slow = start.load()
        except Unsure:
            continue
        for version, loaded in played(item).items():
            if loaded.failure:
                continue
            snapshot = loaded.snapshot_offset if slow.snapshot is not None else None
            seen = Seen(loaded.segments, loaded.recovered, loaded.log_end, snapshot)
            assert seen == slow, (partition.path, version)
            told += 1
    assert told > len(damaged)
