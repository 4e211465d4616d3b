"""Columns of a large checkpoint say the same as its lines read one by one; what is not as written is left to those."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from krepair.errors import RefusedError
from krepair.formats import checkpoint, offset_lines
from krepair.formats.checkpoint import (
    LARGE_BYTES,
    CheckpointEntry,
    decode_offsets,
    encode_offsets,
    written_lines,
)
from krepair.formats.offset_lines import OffsetLines
from krepair.journal.fence import Point, lowered_points, raised_points
from krepair.rules.checkpoints import KINDS, CheckpointKind, MendedTable, mend_offsets

TOPICS = st.sampled_from(
    ["a", "a-1", "b.c", "some_topic.with-a-longer-name", "x" * 8, "x" * 15, "x" * 16, "y" * 249]
)
ENTRIES = st.lists(
    st.builds(CheckpointEntry, TOPICS, st.integers(0, 20), st.integers(0, 10**18 - 1)),
    max_size=40,
    unique_by=lambda entry: entry[:2],
)
PATCHED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "LARGE_BYTES", 0)
    monkeypatch.setattr(offset_lines, "_BLOCK_LINES", 3)
    monkeypatch.setattr(offset_lines, "_SEARCHED_ONE_BY_ONE", 5)


@pytest.mark.usefixtures("any_size")
@PATCHED
@given(ENTRIES)
def test_columns_of_what_a_broker_writes_are_its_lines(entries: list[CheckpointEntry]) -> None:
    found = written_lines(encode_offsets(entries))
    if not entries:
        assert found is None
        return
    assert found is not None
    assert [found.entry(place) for place in range(len(found))] == entries
    for _ in range(2):  # one by one at first, then by a table
        assert dict(found) == {(entry.topic, entry.partition): entry.offset for entry in entries}
        assert [found.place(entry.topic, entry.partition) for entry in entries] == list(range(len(entries)))
        for key in (("a", 21), ("nope", 0), ("a 0", 0), ("", 0), ("\udcff", 1), ("a", -1)):
            assert found.get(key) is None
    for place in range(len(entries)):
        changed = [entry._replace(offset=7) if entry == entries[place] else entry for entry in entries]
        assert found.with_offset(place, 7) == encode_offsets(changed)


PIECES = [b"", b"0", b" ", b"\n", b"\r", b"\t", b"-", b"\xff", b"\0", b"9" * 12, b"a 0 1\n"]


@st.composite
def odd_files(draw: st.DrawFn) -> bytes:
    """A file of a broker's with a few bytes of it changed, taken out or put in."""
    data = bytearray(encode_offsets(draw(ENTRIES)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        piece = draw(st.sampled_from(PIECES))
        data[at : at + draw(st.integers(0, 2))] = piece
    return bytes(data)


@pytest.mark.usefixtures("any_size")
@PATCHED
@given(odd_files())
@example(b"0\n1\na 0 01\n")
@example(b"0\n1\na 00 1\n")
@example(b"0\n01\na 0 1\n")
@example(b"0\n2\na 0 1\na 0 1\n")
@example(b"0\n1\na 0 1")
@example(b"0\n1\n 0 1\n")
@example(b"0\n2\na 0 1\n")
@example(b"0\n1\na 0 1000000000000000000\n")
def test_columns_are_made_of_nothing_but_what_a_broker_writes(data: bytes) -> None:
    found, lines = written_lines(data), decode_offsets(data)
    as_written = not lines.damage and lines.broker_reads and encode_or_none(lines.entries) == data
    if found is not None:
        assert as_written
        assert [found.entry(place) for place in range(len(found))] == list(lines.entries)
    elif as_written and lines.entries:
        # negative numbers, or those of 10, or 19, digits; names that no topic has
        assert any(
            not (0 <= entry.partition < 10**9 and 0 <= entry.offset < 10**18)
            or not (entry.topic.isascii() and entry.topic.isprintable())
            or len(entry.topic) > 249
            for entry in lines.entries
        )


def encode_or_none(entries: tuple[CheckpointEntry, ...]) -> bytes | None:
    try:
        return encode_offsets(entries)
    except Exception:
        return None


ALIKE = (
    "kind",
    "damage",
    "broker_reads",
    "without",
    "needed",
    "past_end",
    "before",
    "entries",
    "decisions",
    "data",
)
KEYS = st.tuples(TOPICS, st.integers(0, 20))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.usefixtures("any_size")
@PATCHED
@given(ENTRIES, st.dictionaries(KEYS, st.none() | st.integers(0, 10**18), max_size=30))
def test_a_table_is_mended_as_its_lines_are(
    kind: CheckpointKind, entries: list[CheckpointEntry], ends: dict[tuple[str, int], int | None]
) -> None:
    ends |= {entry[:2]: 500 for entry in entries[:3]}
    data = encode_offsets(entries)
    found = written_lines(data)
    if found is None:
        return
    table, lines = MendedTable(kind, found, ends), mend_offsets(kind, data, ends)
    assert {name: getattr(table, name) for name in ALIKE} == {name: getattr(lines, name) for name in ALIKE}
    assert [table.others(count) for count in (0, 3, 100)] == [lines.others(count) for count in (0, 3, 100)]


@pytest.mark.usefixtures("any_size")
@PATCHED
@given(ENTRIES, KEYS, st.integers(0, 10**18 - 1))
def test_a_fence_lowers_and_raises_a_large_file_as_a_small_one(
    entries: list[CheckpointEntry], key: tuple[str, int], base: int
) -> None:
    data, point = encode_offsets(entries), Point(*key, base)
    with pytest.MonkeyPatch.context() as patch:
        large = lowered_points(data, point, "p")
        raised = raised_points(large or data, data, point, "p")
        other = raised_points(data, large or data, point, "p")
        patch.setattr(checkpoint, "LARGE_BYTES", 1 << 40)
        assert large == lowered_points(data, point, "p")
        assert raised == raised_points(large or data, data, point, "p")
        assert other == raised_points(data, large or data, point, "p")
    if large is not None:
        assert raised == data


@pytest.mark.usefixtures("any_size")
def test_a_fence_still_refuses_a_damaged_file_and_names_the_byte() -> None:
    with pytest.raises(
        RefusedError, match=r"p: byte 2: expected 1 \(the number of entries that follow\), found 2"
    ):
        lowered_points(b"0\n2\na 0 7\nb 0 x\n", Point("a", 0, 3), "p")


def test_small_files_are_read_line_by_line() -> None:
    assert written_lines(b"0\n1\na 0 1\n") is None
    many = encode_offsets([CheckpointEntry("topic", number, number) for number in range(LARGE_BYTES // 8)])
    assert isinstance(written_lines(many), OffsetLines)
    assert written_lines(many) is written_lines(bytes(bytearray(many)))
