"""Pre-recovery of the simple case: planned, applied, verified, started, undone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from krepair.engine.items import Failed, LogsItem
from krepair.formats import producer_snapshot
from krepair.plan.review import review
from krepair.rewrite.indexes import transactions
from krepair.rewrite.indexes.transactions import TxnResult, inspect_txn
from tests.builders import LogDir, abort, data
from tests.commit.txfixture import INTERVAL_BYTES, SETTINGS, TIME_MS
from tests.lab.judge import Judge
from tests.ops.inline import there_and_back
from tests.recovery.scene import (
    NOW_MS,
    VERSIONS,
    Verbs,
    loaded,
    planned,
    points_of,
    set_points,
    started,
    write_unclean,
)


def test_everything_above_the_recovery_point_is_made_ready_and_the_point_is_raised(tmp_path: Path) -> None:
    path, verbs, plan = planned(tmp_path / "logs")
    assert review(plan) == []
    assert points_of(path) == {"t": 250, "o": 0}
    with there_and_back(path, plan, verbs.options()):
        assert points_of(path) == {"t": 450, "o": 3}
        assert verbs.wrong(plan) == []
        for folder, end in (("t-0", 450), ("o-0", 3)):
            for suffix in ("log", "index", "timeindex"):
                assert (path / folder / f"{end:020d}.{suffix}").stat().st_size == 0
            assert (path / folder / f"{end:020d}.snapshot").exists()
        assert (path / "t-0" / f"{400:020d}.index").stat().st_size < 4096
        assert not (path / ".kafka_cleanshutdown").exists()


def test_transaction_indexes_of_the_range_are_made_and_read_again_without_the_logs_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_unclean(tmp_path / "logs")
    files = [file for base in (300, 400) if (file := path / "t-0" / f"{base:020d}.txnindex").exists()]
    right = [file.read_bytes() for file in files]
    assert any(right)
    for file in files:
        file.write_bytes(b"")
    read: list[tuple[int, ...]] = []

    def noting(item: LogsItem) -> TxnResult | Failed:
        read.append(tuple(base for base, _ in item.segments))
        return inspect_txn(item)

    monkeypatch.setattr(transactions, "inspect_txn", noting)
    verbs = Verbs(path)
    plan = verbs.plan()
    verbs.apply(plan)
    read.clear()
    assert [file.read_bytes() for file in files] == right
    assert verbs.wrong(plan) == []
    assert read
    assert all(0 not in bases and 200 in bases for bases in read), read
    name = next(file for file, data in zip(files, right, strict=True) if data)
    name.write_bytes(name.read_bytes()[:-1] + b"\1")
    assert verbs.wrong(plan)


def test_a_cleaner_may_have_removed_the_last_batches_before_an_empty_active_segment(tmp_path: Path) -> None:
    directory = LogDir(tmp_path / "logs")
    directory.partition("c").segment(data(0, 3)).segment(data(3, 4)).segment(base_offset=9)
    path = directory.write(clean_stop=False)
    set_points(path, {"c": 3})
    verbs = Verbs(path, settings=(("cleanup.policy", "compact"),))
    plan = verbs.plan()
    with there_and_back(path, plan, verbs.options()):
        assert points_of(path) == {"c": 9}


def test_producers_are_those_of_the_snapshot_that_the_start_replays_from(tmp_path: Path) -> None:
    """A recovery deletes the snapshots above its first segment: one of them may lack what a replay knows."""
    directory = LogDir(tmp_path / "logs")
    made = directory.partition("t").segment(data(0, 3, pid=7)).segment(data(3, 3, pid=8), abort(6, pid=9))
    made.segment(data(7, 2, pid=7, sequence=3))
    path = directory.write(clean_stop=False)
    set_points(path, {"t": 3})
    folder = path / "t-0"
    (folder / f"{7:020d}.snapshot").write_bytes(producer_snapshot.encode_table(np.empty((0, 8), np.int64)))
    (folder / f"{99:020d}.snapshot").write_bytes((folder / f"{3:020d}.snapshot").read_bytes())
    verbs = Verbs(path, fixes=("snapshots", "recovery"))
    plan = verbs.plan()
    with there_and_back(path, plan, verbs.options()):
        decoded = producer_snapshot.decode((folder / f"{9:020d}.snapshot").read_bytes())
        assert isinstance(decoded, producer_snapshot.ProducerSnapshot)
        assert {entry.producer_id for entry in decoded.entries} == {7, 8, 9}


def padded_below(root: Path) -> Path:
    """A transaction is open from offset 3 on; the recovery point is 10, and the time index at 5 ends with zeros."""
    directory = LogDir(root)
    directory.partition("t", index_interval_bytes=INTERVAL_BYTES).segment(
        data(0, 3, timestamp=TIME_MS), data(3, 2, pid=7, txn=True, timestamp=TIME_MS)
    ).segment(
        data(5, 2, pid=7, txn=True, sequence=2, timestamp=TIME_MS), data(7, 3, timestamp=TIME_MS)
    ).segment(data(10, 1, pid=7, txn=True, sequence=4, timestamp=TIME_MS))
    path = directory.write(clean_stop=False)
    set_points(path, {"t": 10})
    times = path / "t-0" / f"{5:020d}.timeindex"
    times.write_bytes(times.read_bytes() + bytes(24))
    return path


@pytest.mark.parametrize("version", ["2.2.1", "", "2.3.1"])
def test_an_index_below_the_point_is_mended_first_if_the_broker_checks_it(
    version: str, tmp_path: Path
) -> None:
    path = padded_below(tmp_path / "logs")
    (part,) = Verbs(path, broker_version=version).plan().partitions
    assert (part.code, bool(part.changes)) == (("", True) if version == "2.3.1" else ("index", False))
    verbs = Verbs(path, broker_version=version, fixes=("index", "recovery"))
    plan = verbs.plan()
    with there_and_back(path, plan, verbs.options()):
        assert points_of(path) == {"t": 11}


@pytest.mark.broker
def test_a_transaction_that_is_open_from_below_a_mended_index_stays_open(
    judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    """Without the index the broker recovers that segment too, and knows it only from offset 10 on."""
    path = padded_below(tmp_path / "logs")
    plain = loaded(judge("2.2.1"), path, tmp_path)
    verbs = Verbs(path, broker_version="2.2.1", fixes=("index", "recovery"))
    verbs.apply(verbs.plan())
    ready = loaded(judge("2.2.1"), path, tmp_path)
    assert (ready.stable_offset, ready.served) == (plain.stable_offset, plain.served)
    assert [one.open_from for one in ready.producers] == [3]


@pytest.mark.broker
@pytest.mark.parametrize("version", VERSIONS)
def test_start_after_it_recovers_the_empty_segment_alone_and_serves_what_a_plain_start_serves(
    version: str, judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    plain, ready = write_unclean(tmp_path / "plain"), write_unclean(tmp_path / "ready")
    verbs = Verbs(ready, broker_version=version)
    plan = verbs.plan()
    verbs.apply(plan)
    assert verbs.wrong(plan) == []
    said = started(judge(version), ready, tmp_path)
    assert said.recovered == (450,)
    assert started(judge(version), plain, tmp_path).recovered == (200, 300, 400)
    a, b = loaded(judge(version), plain, tmp_path), loaded(judge(version), ready, tmp_path)
    assert (a.log_end, a.stable_offset) == (b.log_end, b.stable_offset) == (450, 440)
    assert a.served == b.served
    assert (a.producers, a.aborted) == (b.producers, b.aborted)


@pytest.mark.broker
@pytest.mark.parametrize("version", VERSIONS)
def test_start_with_a_recovery_point_past_the_log_end_recovers_the_empty_segment_alone(
    version: str, judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    plain, ready = (write_unclean(tmp_path / name, {"t": 451, "o": 0}) for name in ("plain", "ready"))
    verbs = Verbs(ready, broker_version=version)
    verbs.apply(verbs.plan())
    assert points_of(ready)["t"] == 451
    assert started(judge(version), ready, tmp_path).recovered == (450,)
    a, b = loaded(judge(version), plain, tmp_path), loaded(judge(version), ready, tmp_path)
    assert (a.log_end, a.stable_offset, a.served) == (b.log_end, b.stable_offset, b.served)


@pytest.mark.broker
@pytest.mark.parametrize("version", VERSIONS)
def test_indexes_that_a_running_broker_wrote_stay_as_they_are_and_serve_what_those_of_a_recovery_serve(
    version: str, judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    """A broker counts the bytes between two entries anew after each start: its entries lie elsewhere, and are true."""
    path = write_unclean(tmp_path / "plain")
    own = {}
    for base in (200, 300):
        for suffix, size in ((".index", 8), (".timeindex", 12)):
            file = path / "t-0" / f"{base:020d}{suffix}"
            entries = [file.read_bytes()[at : at + size] for at in range(0, file.stat().st_size, size)]
            assert len(entries) > 3
            own[file.name] = b"".join([*entries[1:-1:2], entries[-1]])
            file.write_bytes(own[file.name])
    ready = shutil.copytree(path, tmp_path / "ready")
    verbs = Verbs(ready, broker_version=version)
    plan = verbs.plan()
    verbs.apply(plan)
    assert verbs.wrong(plan) == []
    assert {name: (ready / "t-0" / name).read_bytes() for name in own} == own
    point, settings = points_of(path)["t"], SETTINGS
    judge(version).start(
        path / "t-0", clean=False, recovery_point=point, log_start=0, settings=settings, now_ms=NOW_MS
    )
    assert all((path / "t-0" / name).read_bytes() != data for name, data in own.items())
    times = [TIME_MS + at for at in range(-1, 397)]  # of the closed segments
    a, b = (
        judge(version).serve(one / "t-0", range(451), times, settings=settings, now_ms=NOW_MS)
        for one in (path, ready)
    )
    assert (a.fetched, a.found) == (b.fetched, b.found)
    assert len(set(a.found)) > 50
