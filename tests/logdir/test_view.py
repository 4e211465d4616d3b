"""Results of ``read_log_dir`` on real and on hostile directories."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.errors import NotALogDirError, UnreadableError
from krepair.logdir.values import Partition
from krepair.logdir.view import read_log_dir
from tests.calls import before_open, fail_to_open
from tests.fixture_dirs import unpack

BLOAT = "offsets-bloat-2.2.0-clean"


def log_name(base_offset: int, suffix: str = ".log") -> str:
    return f"{base_offset:020d}{suffix}"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log directory with one partition of two segments."""
    root = tmp_path / "logs"
    (root / "t-0").mkdir(parents=True)
    (root / "meta.properties").write_bytes(b"version=0\nbroker.id=7\ncluster.id=abc\n")
    (root / ".kafka_cleanshutdown").touch()
    for base in (0, 100):
        for suffix in (".log", ".index", ".timeindex"):
            (root / "t-0" / log_name(base, suffix)).write_bytes(b"x")
    return root


def only_partition(log_dir: Path) -> Partition:
    (partition,) = read_log_dir(str(log_dir)).partitions
    return partition


class TestRealDirectory:
    def test_bloated_offsets_are_read_with_checkpoints_and_ids(self, tmp_path: Path) -> None:
        root = unpack(BLOAT, tmp_path)
        found = read_log_dir(str(root))
        folders = [partition.folder for partition in found.partitions]
        assert folders == sorted(folders)
        assert len(folders) == 10
        offsets = found.partitions[0]
        assert (offsets.topic, offsets.number) == ("__consumer_offsets", 0)
        assert (len(offsets.segments), offsets.segments[-1].base_offset) == (24, 29518)
        assert sum(segment.log.size for segment in offsets.segments[:-1]) > 1_200_000
        assert [snapshot.offset for snapshot in offsets.snapshots] == [28234, 29518, 30467]
        assert (offsets.leftovers, offsets.orphan_indexes, offsets.specials) == ((), (), ())
        assert found.clean_shutdown
        assert (found.broker_id, found.cluster_id, found.directory_id) == ("0", "", "")
        assert found.high_watermark.offsets["__consumer_offsets", 0] == 30467
        assert found.cleaner.offsets["__consumer_offsets", 0] == 29518
        assert (found.recovery_point.damage, found.log_start.offsets) == ((), {})
        assert [special.name for special in found.foreign] == ["lab-manifest.json"]
        assert (found.path, found.inode) == (str(root), root.stat().st_ino)

    def test_every_file_is_listed_once_with_its_own_stat(self, tmp_path: Path) -> None:
        root = unpack(BLOAT, tmp_path)
        for partition in read_log_dir(str(root)).partitions:
            listed = {file.name: (file.size, file.mtime_ns, file.inode) for file in partition.files()}
            folder = Path(partition.path)
            expected = {
                path.name: (path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_ino)
                for path in folder.iterdir()
            }
            assert listed == expected

    def test_reading_opens_nothing_for_writing(self, tmp_path: Path) -> None:
        """An audit hook cannot be taken out again, so it lives in a process of its own."""
        root = unpack(BLOAT, tmp_path)
        program = f"""
import os, sys
from krepair.logdir.view import read_log_dir
opened, changed = [], []
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
changing = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate",
            "os.utime", "os.chmod", "os.chown", "os.setxattr", "os.removexattr")
def hook(event, args):
    if event == "open":
        opened.append(args[0])
        if isinstance(args[2], int) and args[2] & writing:
            changed.append((event, *args))
    elif event in changing:
        changed.append((event, *args))
sys.addaudithook(hook)
found = read_log_dir({str(root)!r})
assert len(found.partitions) == 10
assert changed == [], changed
assert len(opened) >= 1 + 10 + 5, opened
assert not any(str(name).endswith(".log") for name in opened), opened
"""
        subprocess.run([sys.executable, "-B", "-c", program], check=True)


class TestNotALogDir:
    @pytest.mark.parametrize("make", ["missing", "file", "empty", "other files"])
    def test_what_is_no_log_directory_is_refused_naming_what_was_expected(
        self, tmp_path: Path, make: str
    ) -> None:
        path = tmp_path / "x"
        if make == "file":
            path.touch()
        elif make != "missing":
            path.mkdir()
            if make == "other files":
                (path / "photo\n.jpg").touch()
        with pytest.raises(NotALogDirError, match="expected") as caught:
            read_log_dir(str(path))
        assert "\n" not in caught.value.message
        if make != "file":
            assert str(caught.value.next_command) == "krepair check --config server.properties"

    def test_a_partition_folder_is_refused_with_a_hint(self, log_dir: Path) -> None:
        with pytest.raises(NotALogDirError, match="give the directory that holds it") as caught:
            read_log_dir(str(log_dir / "t-0"))
        assert str(caught.value.next_command) == f"krepair check {log_dir}"

    def test_the_folder_above_a_log_directory_is_refused_and_the_log_directory_is_named(
        self, log_dir: Path
    ) -> None:
        with pytest.raises(NotALogDirError) as caught:
            read_log_dir(str(log_dir.parent))
        assert str(caught.value.next_command) == f"krepair check {log_dir}"

    @pytest.mark.parametrize(
        ("name", "verb"),
        [("offsets.krplan", "show"), (f"{0:020d}.log", "dump"), ("recovery-point-offset-checkpoint", "dump")],
    )
    def test_a_file_is_refused_and_the_verb_that_reads_it_is_named(
        self, tmp_path: Path, name: str, verb: str
    ) -> None:
        path = tmp_path / name
        path.touch()
        with pytest.raises(NotALogDirError, match="found a file") as caught:
            read_log_dir(str(path))
        assert str(caught.value.next_command) == f"krepair {verb} {path}"

    def test_partition_folders_with_logs_alone_are_enough(self, tmp_path: Path) -> None:
        (tmp_path / "a-b-3").mkdir()
        (tmp_path / "a-b-3" / f"{0:020d}.log").touch()
        (partition,) = read_log_dir(str(tmp_path)).partitions
        assert (partition.topic, partition.number, len(partition.segments)) == ("a-b", 3, 1)

    def test_a_folder_only_named_like_a_partition_is_not_enough(self, tmp_path: Path) -> None:
        (tmp_path / "ImageMagick-6").mkdir()
        with pytest.raises(NotALogDirError, match=r"partition folders .* with logs"):
            read_log_dir(str(tmp_path))


class TestRoot:
    def test_a_symlink_to_the_directory_is_resolved(self, log_dir: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(log_dir)
        assert read_log_dir(str(tmp_path / "link")) == read_log_dir(str(log_dir))

    def test_foreign_names_are_named_with_their_kind(self, log_dir: Path) -> None:
        (log_dir / "lost+found").mkdir()
        (log_dir / "t-00").mkdir()
        (log_dir / "t--1").mkdir()
        (log_dir / "notes.txt").touch()
        (log_dir / "notes").symlink_to(log_dir / "t-0")
        (log_dir / "nothing").symlink_to(log_dir / "gone")
        os.mkfifo(log_dir / "replication-offset-checkpoint")
        os.mkdir(os.fsencode(log_dir) + b"/\xff\xfe-0")
        os.mkdir(os.fsencode(log_dir) + b"/a\nb-0")
        found = read_log_dir(str(log_dir))
        assert [(special.name, special.kind) for special in found.foreign] == [
            ("a\nb-0", "folder"),
            ("lost+found", "folder"),
            ("notes", "folder"),  # as a broker takes a link to one
            ("notes.txt", "file"),
            ("nothing", "symlink"),
            ("replication-offset-checkpoint", "FIFO"),
            ("t-00", "folder"),
            ("\udcff\udcfe-0", "folder"),
        ]
        # t--1 is partition 1 of topic "t-"
        assert [(p.topic, p.number) for p in found.partitions] == [("t", 0), ("t-", 1)]
        assert found.high_watermark.file is None

    def test_a_partition_folder_that_is_a_link_is_listed_and_never_looked_into(self, log_dir: Path) -> None:
        os.rename(log_dir / "t-0", log_dir.parent / "elsewhere")
        (log_dir / "t-0").symlink_to(log_dir.parent / "elsewhere")
        (log_dir / "u-1").mkdir()
        (log_dir / "t-0.0a-delete").symlink_to("/nonexistent")
        found = read_log_dir(str(log_dir))
        link, folder = found.partitions
        assert (link.folder, link.is_link, link.files()) == ("t-0", True, ())
        assert link.unreadable == f"{log_dir}/t-0: is a symbolic link; it is left alone"
        assert (folder.folder, folder.is_link, folder.unreadable) == ("u-1", False, "")
        assert [(marked.role, marked.is_link) for marked in found.marked] == [("delete", True)]

    def test_links_named_like_partitions_make_no_log_directory(self, tmp_path: Path) -> None:
        (tmp_path / "ImageMagick-6").symlink_to("ImageMagick-6.9.12")
        with pytest.raises(NotALogDirError):
            read_log_dir(str(tmp_path))

    def test_folders_that_the_broker_marked_are_apart(self, log_dir: Path) -> None:
        for name in ("t-1.0a-delete", "t-0.0b-future", "u-0.0c-stray"):
            (log_dir / name).mkdir()
        found = read_log_dir(str(log_dir))
        assert [(p.topic, p.number, p.role) for p in found.marked] == [
            ("t", 0, "future"),
            ("t", 1, "delete"),
            ("u", 0, "stray"),
        ]
        assert [p.folder for p in found.partitions] == ["t-0"]

    def test_partitions_are_ordered_by_number_not_by_name(self, log_dir: Path) -> None:
        for number in (10, 2):
            (log_dir / f"t-{number}").mkdir()
        assert [p.number for p in read_log_dir(str(log_dir)).partitions] == [0, 2, 10]

    def test_damage_of_small_files_is_a_value(self, log_dir: Path) -> None:
        (log_dir / "meta.properties").write_bytes(b"version=9\n")
        (log_dir / "replication-offset-checkpoint").write_bytes(b"0\n2\nt 0 5\n")
        (log_dir / "cleaner-offset-checkpoint").write_bytes(bytes(300))
        found = read_log_dir(str(log_dir))
        assert len(found.meta_damage) == 1
        assert found.broker_id == ""
        assert found.high_watermark.offsets == {("t", 0): 5}
        assert len(found.high_watermark.damage) == 1
        assert not found.high_watermark.broker_reads
        assert (found.cleaner.offsets, len(found.cleaner.damage)) == ({}, 1)

    def test_without_a_clean_stop_there_is_no_marker(self, log_dir: Path) -> None:
        (log_dir / ".kafka_cleanshutdown").unlink()
        assert not read_log_dir(str(log_dir)).clean_shutdown


class TestPartition:
    def test_segments_ascend_with_their_companions(self, log_dir: Path) -> None:
        (log_dir / "t-0" / log_name(100, ".txnindex")).touch()
        (log_dir / "t-0" / log_name(20)).touch()
        segments = only_partition(log_dir).segments
        assert [segment.base_offset for segment in segments] == [0, 20, 100]
        assert [len(segment.files()) for segment in segments] == [3, 1, 4]
        assert segments[2].txn_index is not None
        assert segments[2].txn_index.name == log_name(100, ".txnindex")

    def test_indexes_without_a_log_are_apart(self, log_dir: Path) -> None:
        (log_dir / "t-0" / log_name(50, ".index")).touch()
        partition = only_partition(log_dir)
        assert [file.name for file in partition.orphan_indexes] == [log_name(50, ".index")]
        assert len(partition.segments) == 2

    @pytest.mark.parametrize("kind", ["FIFO", "folder", "dangling link"])
    def test_indexes_of_a_log_that_is_no_file_are_not_without_a_log(self, log_dir: Path, kind: str) -> None:
        log = log_dir / "t-0" / log_name(50)
        make: Callable[[], None] = {
            "FIFO": lambda: os.mkfifo(log),
            "folder": log.mkdir,
            "dangling link": lambda: log.symlink_to("nowhere"),
        }[kind]
        make()
        (log_dir / "t-0" / log_name(50, ".index")).touch()
        os.mkfifo(log_dir / "t-0" / log_name(60, ".log.deleted"))
        (log_dir / "t-0" / log_name(60, ".index")).touch()
        partition = only_partition(log_dir)
        assert [file.name for file in partition.orphan_indexes] == [log_name(60, ".index")]

    def test_leftovers_are_named_by_kind(self, log_dir: Path) -> None:
        names = [log_name(0, s) for s in (".log.swap", ".index.cleaned", ".log.deleted", ".log.bak")]
        for name in (*names, "5.log", "x.log"):
            (log_dir / "t-0" / name).touch()
        partition = only_partition(log_dir)
        assert [(left.kind, left.base_offset, left.file.name) for left in partition.leftovers] == [
            ("cleaned", 0, log_name(0, ".index.cleaned")),
            ("foreign", 0, log_name(0, ".log.bak")),
            ("deleted", 0, log_name(0, ".log.deleted")),
            ("swap", 0, log_name(0, ".log.swap")),
            ("foreign", 5, "5.log"),
            ("foreign", -1, "x.log"),
        ]
        assert len(partition.segments) == 2

    def test_private_folders_are_known_by_plan_and_not_entered(self, log_dir: Path) -> None:
        (log_dir / "t-0" / "krepair~0123abcd").mkdir()
        (log_dir / "t-0" / "krepair~0123abcd" / log_name(0)).touch()
        (log_dir / "t-0" / "krepair~not hex").mkdir()
        partition = only_partition(log_dir)
        assert [(p.plan_id, p.name) for p in partition.private] == [("0123abcd", "krepair~0123abcd")]
        assert [(s.name, s.kind) for s in partition.specials] == [("krepair~not hex", "folder")]
        assert len(partition.files()) == 6

    def test_specials_are_named_and_never_opened(
        self, log_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = log_dir / "t-0"
        os.mkfifo(folder / log_name(200))
        (folder / log_name(300)).symlink_to(folder / log_name(0))
        (folder / log_name(400)).mkdir()
        with socket.socket(socket.AF_UNIX) as listener:
            monkeypatch.chdir(folder)  # the address of a socket is short
            listener.bind("s")
        partition = only_partition(log_dir)
        assert [(s.name, s.kind) for s in partition.specials] == [
            (log_name(200), "FIFO"),
            (log_name(300), "symlink"),
            (log_name(400), "folder"),
            ("s", "socket"),
        ]
        assert [segment.base_offset for segment in partition.segments] == [0, 100]

    def test_hostile_names_are_foreign(self, log_dir: Path) -> None:
        for name in (b"\xff\xfe.log", b"new\nline", b"00000000000000000001.log\n", b" ", b"\x1b[31m"):
            (Path(os.fsdecode(os.fsencode(log_dir / "t-0") + b"/" + name))).touch()
        partition = only_partition(log_dir)
        assert {left.kind for left in partition.leftovers} == {"foreign"}
        assert len(partition.leftovers) == 5
        assert all(os.path.lexists(left.file.path) for left in partition.leftovers)

    @pytest.mark.usefixtures("through_os_open")
    def test_ten_thousand_segments_cost_one_stat_a_file_and_no_open(
        self, log_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = log_dir / "t-1"
        folder.mkdir()
        for base in range(10_000):
            os.close(os.open(folder / log_name(base), os.O_CREAT | os.O_WRONLY))
        opened: list[object] = []
        before_open(monkeypatch, lambda name, _: opened.append(name))
        found = read_log_dir(str(log_dir))
        assert len(found.partitions[1].segments) == 10_000
        on_the_way = log_dir.parts[1:]
        assert opened == [*on_the_way, "meta.properties", "t-0", "t-1"]


@pytest.mark.usefixtures("through_os_open")
class TestUnreadable:
    def test_one_unreadable_partition_does_not_stop_the_others(
        self, log_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (log_dir / "t-1").mkdir()
        fail_to_open(monkeypatch, "t-0", errno.EIO)
        first, second = read_log_dir(str(log_dir)).partitions
        assert (first.segments, first.unreadable.endswith("could not be read: Input/output error (EIO)")) == (
            (),
            True,
        )
        assert (second.folder, second.unreadable) == ("t-1", "")

    def test_a_partition_swapped_for_a_symlink_while_we_look_is_unreadable(
        self, log_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def swap(name: str, _: int) -> None:
            if name == "t-0":
                os.rename(log_dir / "t-0", log_dir.parent / "moved")
                os.symlink(log_dir.parent / "moved", log_dir / "t-0")

        before_open(monkeypatch, swap)
        partition = only_partition(log_dir)
        assert (partition.segments, partition.unreadable != "") == ((), True)

    @pytest.mark.parametrize("name", ["meta.properties", "cleaner-offset-checkpoint"])
    @pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
    def test_an_unreadable_small_file_is_an_error_that_names_it(
        self, log_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
    ) -> None:
        (log_dir / name).touch()
        fail_to_open(monkeypatch, name, code)
        with pytest.raises(UnreadableError, match=f"{name}: could not be read"):
            read_log_dir(str(log_dir))

    def test_an_unreadable_directory_is_an_error(
        self, log_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fail_to_open(monkeypatch, log_dir.name, errno.EACCES)
        with pytest.raises(UnreadableError, match="Permission denied"):
            read_log_dir(str(log_dir))

    def test_where_access_times_may_not_be_spared_it_reads_all_the_same(
        self, log_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def of_another_user(name: str, flags: int) -> None:
            if flags & os.O_NOATIME:
                raise PermissionError(errno.EPERM, "Operation not permitted", name)

        expected = read_log_dir(str(log_dir))
        before_open(monkeypatch, of_another_user)
        assert read_log_dir(str(log_dir)) == expected
