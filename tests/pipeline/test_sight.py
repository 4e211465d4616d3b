"""What a worker has to see before it takes an item, and what both sides do before it writes. Without Spark."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import RefusedError
from krepair.logdir import lock
from krepair.pipeline import greeting as greetings
from krepair.pipeline import sight as sights
from krepair.pipeline.engines import spark
from krepair.pipeline.engines.rounds import Rounds
from krepair.pipeline.greeting import LOCKS_DIFFER, Greeter, why_not_greeted
from krepair.pipeline.sight import sights_of, why_changed, why_not_here
from tests.pipeline.sights import items, log_dir, sight

__all__ = ["log_dir"]


def test_the_same_directory_is_seen_and_nothing_differs(log_dir: Path) -> None:
    assert why_not_here(sight(log_dir)) == ""
    assert len(sight(log_dir).folders) == 2


def test_folders_that_were_listed_for_a_bundle_of_the_same_wave_are_not_listed_again(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: dict[str, object] = {}
    (first,) = sights_of(items(log_dir), random.Random(1), listed)  # type: ignore[arg-type]
    monkeypatch.setattr(sights, "_files", lambda tree, path: pytest.fail(path))
    (second,) = sights_of(items(log_dir)[:1], random.Random(2), listed)  # type: ignore[arg-type]
    assert second.folders == first.folders[:1]


def _other_content(root: Path) -> None:
    path = root / "t-0" / f"{0:020d}.log"
    times = path.stat()
    path.write_bytes(bytes(9000))
    (root / "t-1" / f"{0:020d}.log").write_bytes(bytes(9000))
    for folder in ("t-0", "t-1"):
        os.utime(root / folder / f"{0:020d}.log", ns=(times.st_atime_ns, times.st_mtime_ns))


def _other_time(root: Path) -> None:
    os.utime(root / "t-1" / f"{0:020d}.log", ns=(0, 0))


def _other_size(root: Path) -> None:
    os.truncate(root / "t-1" / f"{0:020d}.log", 10)


def _other_name(root: Path) -> None:
    (root / "t-0" / f"{7:020d}.log").touch()


def _other_meta(root: Path) -> None:
    (root / "meta.properties").write_text("version=0\nbroker.id=2\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_other_content, "other bytes than on"),
        (_other_time, "t-1 has other files, sizes or times"),
        (_other_size, "t-1 has other files, sizes or times"),
        (_other_name, "t-0 has other files, sizes or times"),
        (_other_meta, "meta.properties is another one"),
    ],
)
def test_what_differs_is_named(log_dir: Path, change: object, said: str) -> None:
    seen = sight(log_dir)
    mtimes = {path: path.stat().st_mtime_ns for path in log_dir.rglob("*.log")}
    change(log_dir)  # type: ignore[operator]
    if change is _other_content:
        for path, mtime in mtimes.items():
            os.utime(path, ns=(mtime, mtime))
    assert said in why_not_here(seen)


def test_a_copy_under_the_same_path_has_another_inode(log_dir: Path) -> None:
    seen = sight(log_dir)
    shutil.copytree(log_dir, log_dir.with_name("copy"))
    log_dir.rename(log_dir.with_name("away"))
    log_dir.with_name("copy").rename(log_dir)
    assert "has inode" in why_not_here(seen)


def test_a_directory_that_is_not_there_is_said_with_its_path(log_dir: Path) -> None:
    seen = sight(log_dir)
    shutil.rmtree(log_dir)
    assert str(log_dir) in why_not_here(seen)


def test_another_krepair_or_python_is_said_with_both_versions(log_dir: Path) -> None:
    seen = replace(sight(log_dir), versions="krepair 0.0.9, Python 3.9")
    assert "the driver krepair 0.0.9, Python 3.9" in why_not_here(seen)


def test_a_file_that_grows_while_it_is_read_is_a_change(log_dir: Path) -> None:
    seen = sight(log_dir)
    assert why_changed(seen) == ""
    with open(log_dir / "t-0" / f"{0:020d}.log", "ab") as file:
        file.write(b"more")
    assert "t-0" in why_changed(seen)


def test_krepairs_own_folder_may_fill_while_workers_stage(log_dir: Path) -> None:
    seen = sight(log_dir)
    (log_dir / "t-0" / "krepair~0123" / "stage").mkdir(parents=True)
    (log_dir / "t-0" / "krepair~0123" / "stage" / "x").touch()
    assert why_changed(seen) == ""


def test_a_scratch_folder_that_is_not_shared_is_said(log_dir: Path, tmp_path: Path) -> None:
    seen = replace(sight(log_dir), scratch=(str(tmp_path / "nowhere"), 5))
    assert "--scratch has to name storage that all share" in why_not_here(seen)


# -- before a worker writes


@pytest.fixture
def private(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(greetings, "_answers", {})
    path = log_dir / "t-0" / "krepair~0123"
    path.mkdir()
    return path


def test_worker_is_greeted_where_both_see_files_and_locks_and_nothing_is_left(
    log_dir: Path, private: Path
) -> None:
    with lock.hold_lock(str(log_dir), RealDisk()), Greeter(str(log_dir), str(private)) as greeter:
        assert why_not_greeted(greeter.greeting) == ""
    assert list(private.iterdir()) == []


def test_on_network_storage_both_sides_make_their_clients_look_anew_and_nothing_is_left(
    log_dir: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greetings, "is_of_one_host", lambda tree, path: False)
    made: list[str] = []
    unlink = RealDisk.unlink
    monkeypatch.setattr(RealDisk, "unlink", lambda disk, path: (made.append(path), unlink(disk, path))[1])
    with lock.hold_lock(str(log_dir), RealDisk()), Greeter(str(log_dir), str(private)) as greeter:
        assert why_not_greeted(greeter.greeting) == ""
    stirred = {os.path.basename(path) for path in made if f"/{greetings.STIRRED}" in path}
    nonce = greeter.greeting.nonce
    assert f"{greetings.STIRRED}{nonce}" in stirred
    assert any(name.startswith(f"{greetings.STIRRED}{nonce}~") for name in stirred)
    assert list(private.iterdir()) == []


def test_worker_that_does_not_see_the_nonce_writes_nothing(log_dir: Path, private: Path) -> None:
    with lock.hold_lock(str(log_dir), RealDisk()), Greeter(str(log_dir), str(private)) as greeter:
        (private / f"hosts~{greeter.greeting.nonce}").unlink()
        assert "does not see what" in why_not_greeted(greeter.greeting)
        assert list(private.iterdir()) == []


def test_worker_to_which_the_lock_looks_free_writes_nothing(log_dir: Path, private: Path) -> None:
    with Greeter(str(log_dir), str(private)) as greeter:
        said = why_not_greeted(greeter.greeting)
    assert "looks free here" in said
    assert "nolock" in said


def test_worker_whose_lock_the_driver_does_not_see_is_told_so(
    log_dir: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greetings, "holder_of_file", lambda path, tree: None)
    with lock.hold_lock(str(log_dir), RealDisk()), Greeter(str(log_dir), str(private)) as greeter:
        assert "a lock that it holds is not seen on" in why_not_greeted(greeter.greeting)


def test_answer_that_the_driver_finds_before_it_is_whole_is_answered_once_it_is(
    log_dir: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver may look between the making of the file and the writing, or see a part of what is written."""
    looks = []
    reply, append = Greeter._reply, RealDisk.append

    def replies(greeter: Greeter, token: str) -> bool:
        looks.append(token)
        return reply(greeter, token)

    def in_two_pieces(disk: RealDisk, path: str, data: bytes) -> None:
        for number, piece in enumerate((data[:7], data[7:]), start=1):
            until = time.monotonic() + 20
            while len(looks) < number and time.monotonic() < until:
                time.sleep(0.01)
            append(disk, path, piece)

    monkeypatch.setattr(Greeter, "_reply", replies)
    monkeypatch.setattr(RealDisk, "append", in_two_pieces)
    with lock.hold_lock(str(log_dir), RealDisk()), Greeter(str(log_dir), str(private)) as greeter:
        assert why_not_greeted(greeter.greeting, waits_s=20) == ""
    assert len(looks) == 3


def test_reply_that_the_worker_sees_only_in_part_is_read_again(
    log_dir: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Tree.read
    partly = []

    def in_part(tree: Tree, path: str, most: int) -> bytes:
        whole = read(tree, path, most)
        if f"/{greetings.REPLY}" in path and whole and len(partly) < len(whole):
            partly.append(whole[: len(partly)])
            return partly[-1]
        return whole

    monkeypatch.setattr(Tree, "read", in_part)
    with lock.hold_lock(str(log_dir), RealDisk()), Greeter(str(log_dir), str(private)) as greeter:
        assert why_not_greeted(greeter.greeting, waits_s=20) == ""
    assert partly[-1] != b""


def test_worker_whose_answer_does_not_arrive_gives_up(
    log_dir: Path, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Greeter, "_reply", lambda self, token: False)
    with lock.hold_lock(str(log_dir), RealDisk()), Greeter(str(log_dir), str(private)) as greeter:
        assert "does not reach" in why_not_greeted(greeter.greeting, waits_s=0.3)


@pytest.mark.parametrize("why", [f"it looks free here: {LOCKS_DIFFER}; mount it", "it has another inode"])
def test_one_host_that_locks_do_not_reach_ends_the_run_and_one_that_is_blind_does_not(why: str) -> None:
    row = spark._Row(0, None, "host-2", why, "")
    if LOCKS_DIFFER not in why:
        spark._refuse_if_locks_differ(row)
        return
    with pytest.raises(RefusedError, match=r"host host-2: .*nothing was replaced"):
        spark._refuse_if_locks_differ(row)


# -- rounds


def test_items_are_given_out_again_while_somebody_takes_some() -> None:
    rounds = Rounds("spark://m:7077")
    for given_out, left in ((6, 5), (5, 5), (5, 5), (5, 4), (4, 4), (4, 4), (4, 0)):
        rounds.ended(given_out, range(left), {"host-2": "x"}, 3)
        assert (rounds.patience_s < 1) is (left == given_out), (given_out, left)


def test_one_blind_worker_that_is_asked_again_and_again_is_not_taken_for_all() -> None:
    rounds = Rounds("spark://m:7077")
    for _ in range(11):
        rounds.ended(1, range(1), {"host-2": "x"}, 3)
        assert rounds.patience_s < 1
    rounds.ended(1, range(0), {}, 3)
    assert rounds.patience_s > 1


@pytest.mark.parametrize(("workers", "asked"), [(5, 3), (7, 12), (-1, 12)])
def test_rounds_in_vain_are_refused_with_host_and_difference(workers: int, asked: int) -> None:
    rounds = Rounds("spark://m:7077")
    why = {f"host-{number}": "/log has inode 1, on d it has 2" for number in range(5)}
    for _ in range(asked - 1):
        rounds.ended(3, range(3), why, workers)
    assert rounds.patience_s < 1
    with pytest.raises(RefusedError, match=r"host host-0: /log has inode 1.*; and 2 more hosts; nothing was"):
        rounds.ended(3, range(3), why, workers)
