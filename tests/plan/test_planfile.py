"""The plan file is canonical, and a reader says what is wrong with a file that is not."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from krepair.durable import output_file
from krepair.durable.real_disk import RealDisk
from krepair.durable.writing_error import WritingError
from krepair.errors import (
    ExitCode,
    KrepairError,
    RefusedError,
    StalePlanError,
    UnreadableError,
    UnwritableError,
    UsageError,
)
from krepair.formats.filenames import SEGMENT_SUFFIXES
from krepair.formats.words import printable
from krepair.plan import planfile
from krepair.plan.planfile import check_place, digest_of, dumps, kept_copy, loads, read_plan, seal
from tests.plan.plans import fingerprint, good_plan, laid_out, left_alone, partition, write_plan


def edited(change: object) -> bytes:
    """The good plan's file after a change of its JSON."""
    document = json.loads(dumps(good_plan()))
    change(document)  # type: ignore[operator]
    return laid_out(document)


def test_what_is_written_is_read_back_equal():
    plan = good_plan()
    assert loads(dumps(plan), "p") == plan


def test_bytes_are_sorted_with_a_line_for_each_partition_and_end_in_one_newline():
    data = dumps(good_plan())
    assert laid_out(json.loads(data)) == data


def test_plan_id_is_the_beginning_of_the_sha256_of_the_bare_bytes_of_what_is_kept():
    plan = good_plan()
    bare = kept_copy(msgspec.structs.replace(plan, digest="", plan_id=""))
    digest = hashlib.sha256(bare).hexdigest()
    assert (plan.digest, plan.plan_id) == (digest, digest[:8])


def test_a_sealed_plan_stays_as_it_is_when_sealed_again():
    plan = good_plan()
    assert seal(plan) == plan


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"\x00" * 100, "not a plan"),
        (b"hello", "not a plan"),
        (b"[1, 2]", "not a plan"),
        (b"{}", "no format_version"),
        (b'{"format_version": 1}', "not a plan"),
        (b'{"format_version": "1.0", "tool_version": "9"}', "plan format '1.0'"),
        (b"\xff\xfe{", "not a plan"),
        (b"[" * 100_000, "not a plan"),
    ],
)
def test_a_file_that_is_no_plan_is_wrong_use(data: bytes, words: str):
    with pytest.raises(UsageError, match=words) as caught:
        loads(data, "some.json")
    assert caught.value.exit_code == ExitCode.USAGE
    assert "some.json" in caught.value.message
    assert str(caught.value.next_command) == "krepair plan LOGDIR --out PLAN"


def test_every_cut_of_a_plan_is_told_as_cut_off_or_edited():
    data = dumps(good_plan())
    for size in range(2, len(data) - 2, 97):
        with pytest.raises((UsageError, UnreadableError), match=r"cut off|not a plan") as caught:
            loads(data[:size], "p")
        assert isinstance(caught.value, UnreadableError) == (size > 20)


@pytest.mark.parametrize("junk", [b"\xff", b"\x80", b"\xc3", b"\xed\xa0\x80"])
def test_bytes_that_are_no_text_are_told_wherever_they_are(junk: bytes):
    data = dumps(good_plan())
    for place in range(0, len(data), 13):
        with pytest.raises((UsageError, UnreadableError, StalePlanError), match=r"p\.plan"):
            loads(data[:place] + junk + data[place + 1 :], "p.plan")


def test_the_place_of_a_byte_that_is_no_text_is_counted_from_the_beginning_of_the_file():
    data = dumps(good_plan())
    place = data.index(b'"host": "') + 10
    with pytest.raises(StalePlanError, match=f"p: .*byte {place} is no UTF-8 text"):
        loads(data[:place] + b"\xff" + data[place + 1 :], "p")


def test_a_plan_without_its_last_newline_is_edited():
    with pytest.raises(StalePlanError, match="formatted again"):
        loads(dumps(good_plan())[:-1], "p")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(host="other"), "the plan was edited: its values have digest"),
        (lambda d: d["partitions"][0]["changes"][0].update(log_bytes=1), "the plan was edited"),
        (
            lambda d: d["unchanged"][0].update(why="it is well"),
            "its partitions without changes are not those",
        ),
        (lambda d: d["unchanged"].pop(), "its partitions without changes are not those"),
        (lambda d: d["unchanged"][0].update(extra=1), "fields were added"),
        (lambda d: d["unchanged"].reverse(), "its partitions without changes|fields were added"),
        (lambda d: d.update(unchanged_digest="0" * 64), "the plan was edited"),
        (lambda d: d["policy"].update(now_ms=5), "the plan was edited"),
        (lambda d: d.update(extra=1), "fields were added"),
        (lambda d: d["partitions"][0].update(extra=1), "fields were added"),
        (lambda d: d.pop("digest"), "digest is missing or malformed"),
        (lambda d: d.update(digest="0" * 64), "the plan was edited"),
        (lambda d: d.update(plan_id="00000000"), "plan_id is '00000000'"),
        (lambda d: d.pop("policy"), "edited or damaged"),
        (lambda d: d.update(peak_extra_bytes="many"), "edited or damaged"),
        (lambda d: d["partitions"][0]["changes"][0].update(type="delete everything"), "edited or damaged"),
    ],
)
def test_an_edited_plan_is_stale(change: object, words: str):
    with pytest.raises(StalePlanError, match=words) as caught:
        loads(edited(change), "p.krplan")
    assert caught.value.exit_code == ExitCode.STALE_PLAN


def test_a_key_that_is_there_twice_is_an_edit():
    data = dumps(good_plan()).replace(b'"host": "broker-1"', b'"host": "x",\n"host": "broker-1"', 1)
    with pytest.raises(StalePlanError):
        loads(data, "p")


def test_a_newer_minor_version_with_a_right_digest_is_read():
    plan = seal(msgspec.structs.replace(good_plan(), format_version="2.9"))
    assert loads(dumps(plan), "p") == plan


def test_what_is_kept_for_undo_has_the_partitions_that_change_and_proves_the_same_id():
    plan = good_plan()
    kept = loads(kept_copy(plan), "p")
    assert (kept.plan_id, kept.digest) == (plan.plan_id, plan.digest)
    assert kept.partitions == tuple(plan.changing)
    assert kept_copy(kept) == dumps(kept) == kept_copy(plan)
    with pytest.raises(StalePlanError, match="the plan was edited"):
        loads(kept_copy(plan).replace(b'"host": "broker-1"', b'"host": "broker-2"'), "p")


def test_a_partition_that_is_left_alone_costs_its_name_and_equal_reasons_stand_once():
    def size(count: int) -> int:
        parts = [
            left_alone(
                partition=number,
                folder=f"__consumer_offsets-{number}",
                why=f"__consumer_offsets-{number}: the .txnindex differs",
                next_command=f"krepair check LOGDIR --partition __consumer_offsets-{number}",
                files=(fingerprint(f"{0:020d}.log", 4096),),
            )
            for number in range(100, 100 + count)
        ]
        plan = good_plan(partition(), *parts)
        assert loads(dumps(plan), "p") == plan
        return len(dumps(plan))

    assert size(101) - size(100) <= len('"__consumer_offsets-100",')


@pytest.mark.parametrize("text", ["{partition}", "{partition} of __consumer_offsets-7", "-7", ""])
def test_a_reason_is_read_back_whatever_is_in_it(text: str):
    odd = left_alone(topic="odd", folder="odd-name", why=text, notes=(text, f"{text}odd-name"))
    plan = good_plan(partition(), left_alone(why=text, next_command=text), odd)
    assert loads(dumps(plan), "p") == plan


def test_a_partition_of_three_segments_that_are_cleaned_takes_at_most_three_kilobytes():
    names = [f"{base:020d}{suffix}" for base in (0, 100, 200) for suffix in SEGMENT_SUFFIXES]
    three = partition(files=tuple(fingerprint(name, 4096) for name in names))
    assert len(msgspec.json.encode(three)) <= 3000


def test_a_plan_of_1_0_0_is_written_as_it_was():
    plan = seal(msgspec.structs.replace(good_plan(), format_version="2.0"))
    data = dumps(plan)
    document = json.loads(data)
    assert (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode() == data
    assert [one["why"] for one in document["partitions"]] == [one.why for one in plan.partitions]
    assert loads(data, "p") == plan
    assert kept_copy(plan) == data


def test_a_plan_has_at_most_one_gibibyte():
    assert planfile.MAX_PLAN_BYTES == 1_073_741_824


def test_an_absurdly_large_file_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "p"
    path.write_bytes(b"{" * 2000)
    monkeypatch.setattr(planfile, "MAX_PLAN_BYTES", 1000)
    with pytest.raises(UsageError, match="2000 bytes; a plan has at most 1000"):
        read_plan(str(path))


def test_a_plan_of_just_the_largest_size_is_read_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    data = dumps(good_plan())
    path = tmp_path / "p"
    path.write_bytes(data)
    monkeypatch.setattr(planfile, "MAX_PLAN_BYTES", len(data))
    assert loads(data, "p") == read_plan(str(path)) == good_plan()
    write_plan(str(path), good_plan(left_alone()), RealDisk())
    assert read_plan(str(path)) == good_plan(left_alone())


def test_bytes_that_are_too_many_are_refused_and_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    data = dumps(good_plan())
    (tmp_path / "p").write_bytes(data)
    monkeypatch.setattr(planfile, "MAX_PLAN_BYTES", len(data) - 1)
    with pytest.raises(UsageError, match=f"{len(data)} bytes; a plan has at most {len(data) - 1}"):
        loads(data, "p")
    with pytest.raises(RefusedError, match="is not a plan"):
        write_plan(str(tmp_path / "p"), good_plan(), RealDisk())


def test_what_the_system_says_is_told_in_its_words(tmp_path: Path):
    long, zero = f"{tmp_path}/{'x' * 300}", f"{tmp_path}/a\0b"
    # Later versions of Python name the call before the words.
    for path, words in ((long, r"File name too long \(ENAMETOOLONG\)"), (zero, r"(open: )?embedded null .*")):
        with pytest.raises(UnreadableError) as caught:
            read_plan(path)
        assert re.fullmatch(f"{re.escape(path)}: could not be read: {words}", caught.value.message)


def test_a_missing_file_a_folder_and_a_fifo_are_told_apart(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    for name, words in (("none", "no such plan file"), ("", "found a folder"), ("fifo", "regular file")):
        with pytest.raises(KrepairError, match=words):
            read_plan(str(tmp_path / name))


def test_a_plan_is_written_whole_and_nothing_is_left_beside_it(tmp_path: Path):
    path = tmp_path / "p.krplan"
    path.write_bytes(dumps(good_plan(left_alone())))
    plan = good_plan()
    write_plan(str(path), plan, RealDisk())
    assert read_plan(str(path)) == plan
    assert [entry.name for entry in tmp_path.iterdir()] == ["p.krplan"]


def test_a_file_that_is_no_plan_is_never_overwritten(tmp_path: Path):
    texts = {
        "server.properties": "log.dirs=/data\n",
        "check.json": '{"format_version": "1.0", "verb": "check", "report": {}}',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "link").symlink_to(tmp_path / "server.properties")
    os.mkfifo(tmp_path / "fifo")
    for name in (*texts, "link", "fifo"):
        with pytest.raises(RefusedError, match="is not a plan"):
            write_plan(str(tmp_path / name), good_plan(), RealDisk())
    assert {name: (tmp_path / name).read_text() for name in texts} == texts
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([*texts, "fifo", "link"])


@pytest.mark.parametrize("suffix", ["", "~root"])
@pytest.mark.parametrize("edit", [False, True])
def test_a_plan_whose_private_folder_is_still_there_is_never_overwritten(
    tmp_path: Path, suffix: str, *, edit: bool
):
    log_dir = tmp_path / "log dir"
    (log_dir / "t-0").mkdir(parents=True)
    (log_dir / "link").symlink_to("/")
    plan = seal(msgspec.structs.replace(good_plan(), log_dir=str(log_dir)))
    path = tmp_path / "p q"
    # An edited plan, or one of another format version, may be the applied one, too.
    path.write_bytes(dumps(plan).replace(b'"1.0"', b'"7.3"') if edit else dumps(plan))
    before = path.read_bytes()
    (log_dir / "t-0" / f"krepair~{plan.plan_id}{suffix}").mkdir()
    with pytest.raises(RefusedError, match=f"plan {plan.plan_id}, and its backups still exist") as refused:
        write_plan(str(path), good_plan(), RealDisk())
    assert f"krepair undo '{path}'" in refused.value.message
    assert str(refused.value.next_command) == "krepair plan LOGDIR --out OTHER-PLAN"
    assert path.read_bytes() == before
    (log_dir / "t-0" / f"krepair~{plan.plan_id}{suffix}").rmdir()
    again = seal(msgspec.structs.replace(good_plan(), log_dir=str(log_dir)))
    write_plan(str(path), again, RealDisk())
    assert read_plan(str(path)) == again


def test_a_plan_whose_directory_cannot_be_seen_is_not_overwritten(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "log_dir").symlink_to(tmp_path / "real")
    path = tmp_path / "p"
    path.write_bytes(dumps(seal(msgspec.structs.replace(good_plan(), log_dir=str(tmp_path / "log_dir")))))
    with pytest.raises(RefusedError, match="cannot see whether its backups still exist"):
        write_plan(str(path), good_plan(), RealDisk())


def test_an_empty_file_made_for_the_plan_is_replaced(tmp_path: Path):
    path = tmp_path / "p"
    path.touch()
    write_plan(str(path), good_plan(), RealDisk())
    assert read_plan(str(path)) == good_plan()


class FullDisk(RealDisk):
    """Has no room for the plan."""

    def create(self, path: str, data: bytes) -> None:
        raise WritingError(errno.ENOSPC, "could not be written: no space is left")


def test_a_full_disk_leaves_the_old_plan(tmp_path: Path):
    path = tmp_path / "p"
    write_plan(str(path), good_plan(), RealDisk())
    with pytest.raises(UnwritableError, match="/p: could not be written: no space is left"):
        write_plan(str(path), good_plan(left_alone()), FullDisk())
    assert read_plan(str(path)) == good_plan()


@pytest.mark.parametrize(
    ("elsewhere", "out"), [("/mnt/a disk", "'/mnt/a disk/p'"), ("", "OTHER-PLAN")], ids=["a place", "none"]
)
def test_a_full_disk_says_where_else_the_plan_has_room(
    elsewhere: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(output_file, "folder_with_room", lambda folder, needed: elsewhere)
    with pytest.raises(UnwritableError) as full:
        write_plan(str(tmp_path / "p"), good_plan(), FullDisk())
    assert str(full.value.next_command) == f"krepair plan LOGDIR --out {out}"


class NoRename(RealDisk):
    """Writes the plan beside its place, and gets no further."""

    def rename(self, source: str, target: str) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def test_a_plan_that_cannot_take_its_place_leaves_nothing_beside_it(tmp_path: Path):
    for _ in range(2):
        with pytest.raises(RefusedError, match=f"{tmp_path}/p: cannot be written: Permission denied"):
            write_plan(str(tmp_path / "p"), good_plan(), NoRename())
        assert list(tmp_path.iterdir()) == []


class Noted(RealDisk):
    """Notes what makes a plan last, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def rename(self, source: str, target: str) -> None:
        self.calls.append(f"rename to {target}")
        super().rename(source, target)

    def sync_dir(self, path: str) -> None:
        self.calls.append(f"sync {path}")
        super().sync_dir(path)


def test_a_plan_in_its_place_outlives_a_power_loss(tmp_path: Path):
    disk = Noted()
    write_plan(str(tmp_path / "p"), good_plan(), disk)
    assert disk.calls == [f"rename to {tmp_path}/p", f"sync {tmp_path}"]


def test_what_a_killed_write_left_is_replaced(tmp_path: Path):
    (tmp_path / f".p.{os.getpid()}.tmp").write_bytes(b"half a pl")
    write_plan(str(tmp_path / "p"), good_plan(), RealDisk())
    assert read_plan(str(tmp_path / "p")) == good_plan()
    assert [entry.name for entry in tmp_path.iterdir()] == ["p"]


@pytest.mark.parametrize("place", ["", "p", "sub/p", "../dir/p", "link/p", "../outside/p"])
def test_a_plan_is_never_written_into_its_log_directory(tmp_path: Path, place: str):
    root = tmp_path / "dir"
    (root / "sub").mkdir(parents=True)
    (root / "link").symlink_to(root / "sub")
    (tmp_path / "outside").symlink_to(root)
    plan = seal(msgspec.structs.replace(good_plan(), log_dir=str(root)))
    before = sorted(root.rglob("*"))
    with pytest.raises(RefusedError, match="never written into the log directory"):
        write_plan(str(root / place), plan, RealDisk())
    assert sorted(root.rglob("*")) == before


def test_a_missing_folder_for_the_plan_is_wrong_use(tmp_path: Path):
    with pytest.raises(UsageError, match="is not there"):
        write_plan(str(tmp_path / "none" / "p"), good_plan(), RealDisk())
    (tmp_path / "d").mkdir()
    with pytest.raises(UsageError, match="needs a file name"):
        write_plan(str(tmp_path / "d"), good_plan(), RealDisk())


def test_names_that_are_not_utf8_are_spelled_out():
    hostile = "x\udcff\n"
    plan = good_plan(left_alone(folder=hostile, why=f"folder {hostile}"))
    assert plan.partitions[0].folder == printable(hostile) == "x\\udcff\n"
    assert loads(dumps(plan), "p") == plan
    assert digest_of(plan) == plan.digest


def test_a_reviewed_plan_of_another_log_directory_is_not_overwritten(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    path, disk = str(tmp_path / "p.krplan"), RealDisk()
    write_plan(path, seal(replace(good_plan(), log_dir=str(tmp_path / "a"))), disk)
    write_plan(path, seal(replace(good_plan(), log_dir=str(tmp_path / "a"))), disk)
    with pytest.raises(RefusedError, match="of another log directory"):
        write_plan(path, seal(replace(good_plan(), log_dir=str(tmp_path / "b"))), disk)
    assert read_plan(path).log_dir == str(tmp_path / "a")


def test_a_place_that_cannot_be_looked_up_is_named_as_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fails(path: str) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO), os.path.dirname(path))

    monkeypatch.setattr("krepair.plan.planfile.is_there", fails)
    with pytest.raises(UnreadableError, match=f"^{tmp_path}/p: cannot be looked up: Input/output error$"):
        check_place(str(tmp_path / "p"), str(tmp_path / "logs"))
