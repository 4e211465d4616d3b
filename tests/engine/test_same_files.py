"""Checks of a worker before and after an item. The worker is this process; no Spark."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from krepair.durable.real_disk import RealDisk
from krepair.engine import same_files, spark, spark_worker
from krepair.engine.items import Failed, Outcome, Place, ScanItem
from krepair.engine.place import open_log_dir
from krepair.engine.same_files import (
    DriverFiles,
    Listed,
    Nonce,
    files_seen_here,
    is_visible_here,
    new_nonce,
    states_after_writing,
    why_other_files,
)
from krepair.engine.spark import SparkEngine
from krepair.engine.spark_worker import map_items
from krepair.errors import RefusedError
from krepair.formats.java_numbers import INT64_MAX
from krepair.logdir import lock

LOG = f"{0:020d}.log"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Two partitions with a file each."""
    root = tmp_path / "log"
    for folder in ("t-0", "t-1"):
        (root / folder).mkdir(parents=True)
        (root / folder / LOG).write_bytes(os.urandom(9000))
    return root


def items(root: Path) -> list[ScanItem]:
    inode = root.stat().st_ino
    return [
        ScanItem(
            place=Place(host="driver", log_dir=str(root), log_dir_inode=inode, folder=f"t-{number}"),
            base_offset=0,
            size=9000,
            now_ms=0,
            high_watermark=INT64_MAX,
        )
        for number in (0, 1)
    ]


def seen(root: Path, nonce: Nonce | None = None) -> DriverFiles:
    return files_seen_here(items(root), nonce, Listed())


def said(seen_there: DriverFiles) -> str:
    """Why a worker that sees what this process sees now does no item; empty if it does."""
    failed = why_other_files(seen_there)
    if failed is None:
        return ""
    assert failed.kind == "sees other files"
    return failed.why


def test_the_same_directory_is_seen_and_nothing_differs(log_dir: Path) -> None:
    assert said(seen(log_dir)) == ""
    assert len(seen(log_dir).folders) == 2


def test_folders_that_were_listed_for_a_bundle_of_the_same_wave_are_not_listed_again(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Listed()
    first = files_seen_here(items(log_dir), None, listed)
    monkeypatch.setattr(same_files, "_listing", lambda place: pytest.fail(place.path))
    assert files_seen_here(items(log_dir)[:1], None, listed).folders == first.folders[:1]


def _other_time(root: Path) -> None:
    os.utime(root / "t-1" / LOG, ns=(0, 0))


def _other_size(root: Path) -> None:
    os.truncate(root / "t-1" / LOG, 10)


def _other_name(root: Path) -> None:
    (root / "t-1" / f"{7:020d}.log").touch()


def _other_inode(root: Path) -> None:
    path = root / "t-1" / LOG
    shutil.copy2(path, root / "copy")
    (root / "copy").replace(path)


@pytest.mark.parametrize("change", [_other_time, _other_size, _other_name, _other_inode])
def test_a_file_that_differs_is_seen_and_its_folder_is_named(
    log_dir: Path, change: Callable[[Path], None]
) -> None:
    before = seen(log_dir)
    change(log_dir)
    assert "t-1 has other files, sizes or times than on" in said(before)


def test_a_copy_under_the_same_path_is_another_directory(log_dir: Path) -> None:
    before = seen(log_dir)
    shutil.copytree(log_dir, log_dir.with_name("copy"))
    log_dir.rename(log_dir.with_name("away"))
    log_dir.with_name("copy").rename(log_dir)
    assert "t-0 has other files" in said(before)


def test_a_directory_that_is_not_there_is_said_with_its_path(log_dir: Path) -> None:
    before = seen(log_dir)
    shutil.rmtree(log_dir)
    assert str(log_dir) in said(before)


def test_another_krepair_or_python_is_said_with_both_versions(log_dir: Path) -> None:
    before = seen(log_dir)._replace(versions="krepair 0.0.9, Python 3.9")
    assert "has krepair 0.0.9, Python 3.9" in said(before)


def test_krepairs_own_folder_may_fill_while_workers_stage(log_dir: Path) -> None:
    before = seen(log_dir)
    (log_dir / "t-0" / "krepair~0123" / "stage").mkdir(parents=True)
    (log_dir / "t-0" / "krepair~0123" / "stage" / "x").touch()
    assert said(before) == ""


def test_a_scratch_folder_that_is_not_shared_is_said(log_dir: Path, tmp_path: Path) -> None:
    before = seen(log_dir)._replace(scratch=(str(tmp_path / "nowhere"), 5))
    assert "--scratch has to name storage that all share" in said(before)


# -- before a worker writes


@pytest.fixture
def private(log_dir: Path) -> Path:
    path = log_dir / "t-0" / "krepair~0123"
    path.mkdir()
    return path


def test_a_worker_writes_where_it_sees_the_nonce_and_the_lock_and_nothing_is_left(
    log_dir: Path, private: Path
) -> None:
    with (
        lock.hold_lock(str(log_dir), RealDisk()),
        new_nonce(str(log_dir), str(private)) as nonce,
    ):
        assert said(seen(log_dir, nonce)) == ""
    assert list(private.iterdir()) == []


def test_a_clone_with_equal_inodes_sizes_and_times_has_no_nonce(log_dir: Path, private: Path) -> None:
    with (
        lock.hold_lock(str(log_dir), RealDisk()),
        new_nonce(str(log_dir), str(private)) as nonce,
    ):
        os.unlink(nonce.path)
        assert "does not see what" in said(seen(log_dir, nonce))
        Path(nonce.path).write_bytes(nonce.data[:-1])
        assert "does not see what" in said(seen(log_dir, nonce))
        os.unlink(nonce.path)


def test_a_worker_to_which_the_lock_looks_free_writes_nothing(log_dir: Path, private: Path) -> None:
    with new_nonce(str(log_dir), str(private)) as nonce:
        failed = why_other_files(seen(log_dir, nonce))
    assert failed is not None
    assert failed.kind == "sees no lock"
    assert "nolock" in failed.why


# -- what a worker wrote


def _wrote(folder: Path) -> same_files.WrittenFile:
    path = folder / "made"
    path.write_bytes(b"abc")
    (written,) = states_after_writing([str(path), str(folder / "removed again")])
    return written


def test_what_a_worker_wrote_is_here_also_after_others_have_added_to_it(private: Path) -> None:
    written = _wrote(private)
    assert is_visible_here(written)
    with open(written.path, "ab") as file:
        file.write(b"more")
    assert is_visible_here(written)


def _gone(path: Path) -> None:
    path.unlink()


def _another(path: Path) -> None:
    shutil.copy2(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def _older(path: Path) -> None:
    os.utime(path, ns=(0, 0))


def _shorter(path: Path) -> None:
    times = path.stat()
    os.truncate(path, 1)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("change", [_gone, _another, _older, _shorter])
def test_a_file_that_is_not_as_the_worker_left_it_has_not_come(
    private: Path, change: Callable[[Path], None]
) -> None:
    written = _wrote(private)
    change(Path(written.path))
    assert not is_visible_here(written)


def test_on_network_storage_a_file_is_made_beside_it_so_that_the_client_looks_anew_and_goes_again(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = _wrote(private)
    os.rename(written.path, private / "late")
    real = RealDisk.create

    def create(disk: RealDisk, path: str, data: bytes, *, synced: bool = True) -> None:
        real(disk, path, data, synced=synced)
        os.rename(private / "late", written.path)

    monkeypatch.setattr(same_files, "is_of_one_host", lambda tree, path: False)
    monkeypatch.setattr(RealDisk, "create", create)
    assert is_visible_here(written)
    assert [path.name for path in private.iterdir()] == ["made"]


# -- an engine with a worker that is this process


class Work(ScanItem, frozen=True, kw_only=True):
    """Writes ``made`` into a folder.

    Attributes:
        stage: path of the folder.
    """

    stage: str


def write(item: Work) -> Outcome:
    """The function of the tests below."""
    tree, _ = open_log_dir(item.place)
    path = f"{item.stage}/{item.place.folder}"
    disk = RealDisk(tree)
    if tree.is_there(path):
        disk.unlink(path)
    disk.create(path, b"abc")
    return Outcome(why=str(os.stat(path).st_ino))


def could_not_read(item: ScanItem) -> Outcome:
    """As a worker whose mount is gone, and as this host."""
    return Outcome(failure="unreadable") if ON_WORKER else Outcome()


ON_WORKER: list[int] = []
OVER: list[Callable[[], None]] = []


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkEngine]:
    context = SimpleNamespace(defaultParallelism=2)
    session = SimpleNamespace(conf={"spark.speculation": "false"}, sparkContext=context, stop=lambda: None)
    monkeypatch.setattr(spark, "start_session", lambda master: session)
    monkeypatch.setattr(spark_worker, "_PATIENCE_S", 0.0)

    def wave(self: SparkEngine, table: pa.Table) -> list[spark.Row]:
        ON_WORKER.append(1)
        try:
            rows = [row for batch in map_items(table.to_batches()) for row in batch.to_pylist()]
        finally:
            ON_WORKER.clear()
        for act in OVER:
            act()
        return [(row["index"], row["done"]) for row in rows]

    monkeypatch.setattr(SparkEngine, "_wave", wave)
    monkeypatch.setattr(SparkEngine, "_executors", lambda self: 1)
    yield SparkEngine("spark://m:7077", "test")
    OVER.clear()


def works(log_dir: Path, private: Path) -> list[Work]:
    return [
        Work(place=item.place, base_offset=0, size=9000, now_ms=0, high_watermark=0, stage=str(private))
        for item in items(log_dir)
    ]


def inodes(private: Path) -> dict[int, str]:
    return {number: str((private / f"t-{number}").stat().st_ino) for number in (0, 1)}


def test_what_a_worker_wrote_on_the_same_storage_counts(
    log_dir: Path, private: Path, engine: SparkEngine
) -> None:
    made: list[dict[int, str]] = []
    OVER.append(lambda: made.append(inodes(private)))
    with lock.hold_lock(str(log_dir), RealDisk()), engine.writing(str(log_dir), lambda: str(private)):
        found = dict(engine.map(write, works(log_dir, private)))
    assert {index: one.why for index, one in found.items()} == made[0] == inodes(private)


def test_what_a_worker_wrote_elsewhere_does_not_count_and_this_host_writes_it(
    log_dir: Path, private: Path, engine: SparkEngine, tmp_path: Path
) -> None:
    OVER.append(lambda: (private / "t-1").rename(tmp_path / "elsewhere") and None)
    with lock.hold_lock(str(log_dir), RealDisk()), engine.writing(str(log_dir), lambda: str(private)):
        found = dict(engine.map(write, works(log_dir, private)))
    assert {index: one.why for index, one in found.items()} == inodes(private)
    assert found[1].why != str((tmp_path / "elsewhere").stat().st_ino)


def test_this_host_does_what_a_worker_with_other_files_did_not_and_says_so_once(
    log_dir: Path, private: Path, engine: SparkEngine, caplog: pytest.LogCaptureFixture
) -> None:
    real = same_files.files_seen_here
    with (
        pytest.MonkeyPatch.context() as patch,
        lock.hold_lock(str(log_dir), RealDisk()),
        engine.writing(str(log_dir), lambda: str(private)),
        caplog.at_level(logging.WARNING),
    ):
        patch.setattr(spark, "files_seen_here", lambda *given: real(*given)._replace(versions="other"))
        OVER.append(lambda: sorted(private.glob("t-*")) == [] or pytest.fail("a worker wrote"))
        found = dict(engine.map(write, works(log_dir, private)))
    assert {index: one.why for index, one in found.items()} == inodes(private)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "it has krepair" in line
    assert "this host does its work" in line


def test_a_worker_that_loses_its_files_between_two_items_has_done_nothing_that_counts(
    log_dir: Path, engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([None, Failed("sees other files", "gone", "h")] * 2)
    monkeypatch.setattr(spark_worker, "why_other_files", lambda seen: next(answers))
    found = dict(engine.map(could_not_read, items(log_dir)))
    assert found == {0: Outcome(), 1: Outcome()}


def test_what_a_worker_cannot_read_this_host_reads(log_dir: Path, engine: SparkEngine) -> None:
    assert dict(engine.map(could_not_read, items(log_dir))) == {0: Outcome(), 1: Outcome()}


def test_one_host_that_locks_do_not_reach_ends_the_run(
    log_dir: Path, private: Path, engine: SparkEngine
) -> None:
    with (
        engine.writing(str(log_dir), lambda: str(private)),
        pytest.raises(RefusedError, match=r"looks free here: a broker would not be kept away.*nothing was"),
    ):
        list(engine.map(write, works(log_dir, private)))
    assert list(private.iterdir()) == []
