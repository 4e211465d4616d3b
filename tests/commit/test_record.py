"""The journal file: torn ends are tolerated, damage is not."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.commit import journal
from krepair.commit.journal import (
    MAGIC,
    VERSION,
    Done,
    ExecutorName,
    FileState,
    Freed,
    Intent,
    Journal,
    JournalHeader,
    Line,
    LostBytes,
    Purge,
    Step,
    Undo,
    decode_lines,
    encode_line,
)
from krepair.errors import RefusedError
from krepair.logdir.space import VolumeSpace
from tests.commit.scene import UnsyncedDisk
from tests.durable.disks import RecordingDisk

names = st.text(max_size=30)
offsets = st.integers(0, 2**63 - 1)
digests = st.text("0123456789abcdef", max_size=32)
file_states = st.builds(FileState, name=names, size=offsets, mtime_ns=offsets, digest=digests)
LOST = LostBytes(size_after=1, digest_after="", digest_removed="", front_bytes=0, last=True)
states = st.lists(file_states, max_size=3).map(tuple)
steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(
        Intent,
        change_id=names,
        executor=st.sampled_from(get_args(ExecutorName)),
        originals=states,
        made=states,
        order=st.sampled_from(["P1", "P2"]),
        copied=st.lists(names, max_size=2).map(tuple),
        parts=st.lists(st.tuples(offsets, offsets), max_size=2).map(tuple),
        digests=st.dictionaries(names, digests, max_size=2),
        over=st.none() | file_states,
        lost=st.none() | st.just(LOST),
    ),
    st.builds(Undo, change_id=names),
    st.builds(Done, change_id=names, state=st.sampled_from(["committed", "rolled back", "undone"])),
    st.builds(Freed, change_id=names),
    st.just(Purge()),
)
lines_of: st.SearchStrategy[Line] = st.lists(steps, min_size=1, max_size=3).map(tuple)
HEADER = JournalHeader(magic=MAGIC, version=VERSION, plan_id="ab", folder="t-0")


@given(st.lists(lines_of, max_size=5))
def test_records_come_back_as_they_were_written(written: list[Line]) -> None:
    data = b"".join(encode_line(line) for line in written)
    assert (written, len(data)) == decode_lines(data, "journal")


@given(st.lists(lines_of, min_size=1, max_size=4), st.data())
def test_a_torn_last_record_never_happened(written: list[Line], data: st.DataObject) -> None:
    whole = b"".join(encode_line(line) for line in written[:-1])
    last = encode_line(written[-1])
    torn = last[: data.draw(st.integers(0, len(last) - 1))] + b"\0" * data.draw(st.integers(0, 9))
    assert (written[:-1], len(whole)) == decode_lines(whole + torn, "journal")


@given(st.lists(lines_of, min_size=2, max_size=4), st.data())
def test_a_changed_byte_before_the_last_record_is_refused_with_its_place(
    written: list[Line], data: st.DataObject
) -> None:
    lines = [encode_line(line) for line in written]
    at = data.draw(st.integers(0, len(lines[0]) - 2))
    changed = bytes([lines[0][at] ^ data.draw(st.integers(1, 255).filter(lambda x: lines[0][at] ^ x != 10))])
    with pytest.raises(RefusedError, match="journal: byte 0"):
        decode_lines(lines[0][:at] + changed + lines[0][at + 1 :] + b"".join(lines[1:]), "journal")


NEW = FileState(name="x", size=1, mtime_ns=1)


def intent(change_id: str) -> Intent:
    return Intent(change_id=change_id, executor="files", made=(NEW,))


def opened(folder: Path) -> Journal:
    return Journal(UnsyncedDisk(), str(folder), "ab", "t-0")


def test_appending_after_a_torn_record_cuts_it_off(tmp_path: Path) -> None:
    opened(tmp_path).append(intent("a"))
    with open(tmp_path / "journal", "ab") as file:
        file.write(b"00000000 {to")
    opened(tmp_path).append(Done(change_id="a", state="committed"))
    expected = [HEADER, (intent("a"),), (Done(change_id="a", state="committed"),)]
    assert expected == decode_lines((tmp_path / "journal").read_bytes(), "")[0]


@pytest.mark.parametrize("torn", [b"", b"12", encode_line(HEADER)[:-1]])
def test_a_journal_whose_header_is_torn_is_begun_again(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "journal").write_bytes(torn)
    journal = opened(tmp_path)
    journal.append(Undo(change_id="a"))
    assert [HEADER, (Undo(change_id="a"),)] == decode_lines((tmp_path / "journal").read_bytes(), "")[0]


@pytest.mark.parametrize(
    "foreign",
    [
        JournalHeader(magic=MAGIC, version=VERSION, plan_id="cd", folder="t-0"),
        JournalHeader(magic=MAGIC, version=VERSION, plan_id="ab", folder="t-1"),
        (Undo(change_id="a"),),
    ],
)
def test_a_journal_of_another_plan_or_partition_is_refused(tmp_path: Path, foreign: Line) -> None:
    (tmp_path / "journal").write_bytes(encode_line(foreign))
    with pytest.raises(RefusedError, match="expected the journal of plan ab for t-0"):
        opened(tmp_path)


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_journal_of_another_format_is_refused_in_a_sentence(tmp_path: Path, version: int) -> None:
    header = JournalHeader(magic=MAGIC, version=version, plan_id="ab", folder="t-0")
    (tmp_path / "journal").write_bytes(encode_line(header) + b"00000000 what this krepair cannot read\n\n")
    with pytest.raises(
        RefusedError, match=f"format {version} of a journal, this krepair reads {VERSION}"
    ) as caught:
        opened(tmp_path)
    assert str(caught.value.next_command).startswith("krepair undo ")


def test_states_follow_the_records(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.append(intent("a"))
    journal.append(Done(change_id="a", state="committed"))
    journal.append(Intent(change_id="b", executor="files", originals=(NEW,), made=(NEW,)))
    assert opened(tmp_path).states == {"a": "committed", "b": "committing"}
    assert opened(tmp_path).unfinished() == ["b"]
    journal.append(Undo(change_id="a"))
    assert opened(tmp_path).states == {"a": "undoing", "b": "committing"}
    assert not opened(tmp_path).purging
    journal.append(Purge())
    assert opened(tmp_path).purging


LOG = FileState(name="00000000000000000100.log", size=1, mtime_ns=1)
NO_LOG = FileState(name="x.log", size=1, mtime_ns=1)
DONE = Done(change_id="a", state="committed")


@pytest.mark.parametrize(
    "written",
    [
        [DONE],
        [Undo(change_id="a")],
        [Freed(change_id="a")],
        [intent("a"), intent("a")],
        [intent("a"), Done(change_id="a", state="undone")],
        [intent("a"), Freed(change_id="a")],
        [intent("a"), DONE, DONE],
        [intent("a"), DONE, intent("a")],
        [intent("a"), Undo(change_id="a"), Done(change_id="a", state="rolled back")],
        [Purge(), intent("a")],
        [Purge(), Purge()],
        [Intent(change_id="a", executor="segments", originals=(LOG,))],
        [Intent(change_id="a", executor="swap", originals=(LOG,), made=(NEW,))],
        [Intent(change_id="a", executor="segments", originals=(NO_LOG,), made=(LOG,))],
        [Intent(change_id="a", executor="segments", made=(NO_LOG,))],
        [Intent(change_id="a", executor="log", originals=(LOG,))],
        [Intent(change_id="a", executor="log", originals=(NEW, LOG), lost=LOST)],
        [Intent(change_id="a", executor="files", originals=(NEW, LOG))],
        [Intent(change_id="a", executor="files", made=(NEW, LOG))],
        [Intent(change_id="a", executor="files", originals=(LOG,), made=(NEW,))],
        [Intent(change_id="a", executor="files")],
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_records_that_cannot_be_there_are_refused_with_their_line(
    tmp_path: Path, written: list[Step], *, at_once: bool
) -> None:
    lines: list[Line] = [HEADER, *([tuple(written)] if at_once else [(step,) for step in written])]
    (tmp_path / "journal").write_bytes(b"".join(map(encode_line, lines)))
    with pytest.raises(
        RefusedError, match=f"line {len(lines)}: expected a record that can follow"
    ) as refused:
        opened(tmp_path)
    assert re.fullmatch("krepair undo .* --plan-id .*", str(refused.value.next_command))


def test_second_header_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(encode_line(HEADER) * 2)
    with pytest.raises(RefusedError, match="line 2: expected a record that can follow"):
        opened(tmp_path)


def test_an_append_of_several_records_that_was_torn_anywhere_never_happened(tmp_path: Path) -> None:
    """Sectors of one write reach a disk in any order: a bad byte at its beginning, whole lines behind it."""
    disk = UnsyncedDisk()
    journal = Journal(disk, str(tmp_path), "0123abcd", "t-0")
    journal.append(intent("t-0/first"))
    journal.append(Done(change_id="t-0/first", state="committed"))
    before = (tmp_path / "journal").read_bytes()
    journal.append(*(intent(f"t-0/{n}") for n in range(50)))
    whole = (tmp_path / "journal").read_bytes()
    for position in range(len(before), len(whole) - 1, 97):
        torn = bytearray(whole)
        torn[position : position + 40] = bytes(len(torn[position : position + 40]))
        (tmp_path / "journal").write_bytes(torn)
        again = Journal(disk, str(tmp_path), "0123abcd", "t-0")
        assert again.states == {"t-0/first": "committed"}
        again.append(intent("t-0/second"))
        assert Journal(disk, str(tmp_path), "0123abcd", "t-0").states == {
            "t-0/first": "committed",
            "t-0/second": "committing",
        }


def test_record_with_a_right_crc_and_bytes_that_are_no_utf8_is_no_record() -> None:
    body = b'[{"type":"done","change_id":"\x80","state":"committed"}]'
    line = b"%08x %b\n" % (zlib.crc32(body), body)
    assert decode_lines(line, "journal") == ([], 0)
    with pytest.raises(RefusedError, match="journal: byte 0: expected a journal record"):
        decode_lines(line * 2, "journal")


def test_record_with_another_byte_in_its_text_is_refused() -> None:
    lines = encode_line((Done(change_id="t-0/1", state="committed"),))
    after = encode_line((Done(change_id="t-0/2", state="committed"),))
    with pytest.raises(RefusedError, match="byte 0: expected a journal record with a right CRC"):
        decode_lines(lines.replace(b"t-0/1", b"t-0/7") + after, "journal")
    with pytest.raises(RefusedError, match="byte 0: expected a journal record with a right CRC"):
        decode_lines(lines.replace(b" ", b"_", 1) + after, "journal")


def test_record_is_appended_to_a_whole_journal_which_is_not_written_again(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    Journal(UnsyncedDisk(), str(private), "p", "t-0").append(intent("t-0/1"))
    disk = RecordingDisk(UnsyncedDisk())
    journal = Journal(disk, str(private), "p", "t-0")
    journal.append(intent("t-0/2"))
    journal.append(Purge())
    assert disk.kinds() == ["append", "append"]


def test_what_was_written_before_is_not_copied_for_a_record_that_comes_behind_it(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.append(intent("a"))
    records_so_far = journal._whole
    for change in "bcd":
        journal.append(intent(change))
    assert journal._whole is records_so_far
    assert bytes(journal._whole) == (tmp_path / "journal").read_bytes()


def test_journal_of_the_largest_size_is_read_and_a_larger_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path).append(intent("a"))
    size = (tmp_path / "journal").stat().st_size
    monkeypatch.setattr(journal, "MOST_BYTES", size)
    assert opened(tmp_path).states == {"a": "committing"}
    for most in (size - 1, size - 2):
        monkeypatch.setattr(journal, "MOST_BYTES", most)
        with pytest.raises(RefusedError, match=f"larger than {most} bytes, which no journal of krepair is"):
            opened(tmp_path)


@pytest.mark.parametrize(
    ("inodes", "spare_blocks", "anew"), [(1, 2, True), (-1, 3, True), (0, 2, False), (1, 1, False)]
)
def test_what_was_read_is_made_durable_in_a_new_file_where_there_is_room_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inodes: int, spare_blocks: int, anew: bool
) -> None:
    opened(tmp_path).append(intent("a"))
    whole = (tmp_path / "journal").read_bytes()
    with open(tmp_path / "journal", "ab") as file:
        file.write(b"00000000 {to")
    before = (tmp_path / "journal").stat().st_ino
    space = VolumeSpace(len(whole) + spare_blocks * 512, inodes, 512, mounted_read_only=False)
    monkeypatch.setattr(journal, "read_space", lambda path, tree: space)
    disk = RecordingDisk(UnsyncedDisk())
    found = Journal(disk, str(tmp_path), "ab", "t-0")
    found.settle()
    assert (tmp_path / "journal").read_bytes() == whole
    assert ("create" in disk.kinds()) is anew
    assert ((tmp_path / "journal").stat().st_ino != before) is anew
    found.append(Done(change_id="a", state="committed"))
    assert opened(tmp_path).states == {"a": "committed"}
