"""Offset checkpoints are mended only in ways that let a broker keep more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.formats.checkpoint import CheckpointEntry, decode_offsets, encode_offsets
from krepair.formats.filenames import (
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
)
from krepair.rules.checkpoints import KIND_OF, KINDS, CheckpointKind, EntryReason, repair_offsets

ENDS: dict[tuple[str, int], int | None] = {("a", 0): 100, ("a", 1): 50, ("b.c-d", 7): 0, ("hidden", 0): None}
GOOD = b"0\n3\na 0 100\na 1 7\nb.c-d 7 0\n"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_good_file_is_left_as_it_is(kind: CheckpointKind) -> None:
    found = repair_offsets(kind, decode_offsets(GOOD), ENDS)
    assert (found.needed, found.data, found.decisions) == (False, GOOD, ())


@pytest.mark.parametrize("data", [b"", b"0\n0\n"])
def test_file_without_lines_needs_nothing(data: bytes) -> None:
    assert repair_offsets(KINDS[0], decode_offsets(data), ENDS).needed is False


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (RECOVERY_POINT_CHECKPOINT, "a 1 50\n"),
        (REPLICATION_CHECKPOINT, "a 1 50\n"),
        (LOG_START_CHECKPOINT, ""),
        (CLEANER_CHECKPOINT, ""),
    ],
)
def test_offset_past_the_log_end_comes_down_to_where_nothing_is_lost(name: str, line: str) -> None:
    found = repair_offsets(KIND_OF[name], decode_offsets(b"0\n2\na 0 100\na 1 51\n"), ENDS)
    assert found.data == f"0\n{1 + bool(line)}\na 0 100\n{line}".encode()
    assert [one.reason for one in found.past_end] == [EntryReason.PAST_END]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"0\n3\na 0 100\na 1 7\n", b"0\n2\na 0 100\na 1 7\n", id="count too high"),
        pytest.param(b"0\n-1\na 0 100\na 1 7\n", b"0\n2\na 0 100\na 1 7\n", id="count -1"),
        pytest.param(b"0\n2147483647\na 0 9\n", b"0\n1\na 0 9\n", id="count 2^31-1"),
        pytest.param(b"0\n2\na 0 100\na 1", b"0\n1\na 0 100\n", id="truncated line"),
        pytest.param(
            b"0\n2\na 0 100\na 1 4", b"0\n2\na 0 100\na 1 4\n", id="truncated number, which is lower"
        ),
        pytest.param(b"0\n2\na 0 100\n\0\0\0\0\0\n", b"0\n1\na 0 100\n", id="NULs"),
        pytest.param(b"garbage\n", b"0\n0\n", id="garbage"),
        pytest.param(b"0\n2\na 0 100\n\xff\xfe 0 9\n", b"0\n1\na 0 100\n", id="name that is no UTF-8"),
        pytest.param(
            b"0\n3\na 0 100\ngone 0 9\n", b"0\n2\na 0 100\ngone 0 9\n", id="partition that is not there"
        ),
        pytest.param(b"0\n2\na 0 100\na 1 -5\n", b"0\n1\na 0 100\n", id="negative"),
        pytest.param(b"0\n2\na 0 100\na 0 40\n", b"0\n1\na 0 40\n", id="partition twice"),
        pytest.param(
            b"0\n2\nhidden 0 9999\na 0 1\n", b"0\n2\nhidden 0 9999\na 0 1\n", id="log end not known"
        ),
    ],
)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_damaged_file_keeps_the_lines_that_can_be_right(
    kind: CheckpointKind, data: bytes, expected: bytes
) -> None:
    found = repair_offsets(kind, decode_offsets(data), ENDS)
    assert (found.data, found.needed) == (expected, data != expected)


def test_damaged_file_names_the_partitions_whose_line_is_lost() -> None:
    found = repair_offsets(KINDS[0], decode_offsets(b"0\n2\na 0 100\n\0\0\n"), ENDS)
    assert found.without == (("a", 1), ("b.c-d", 7), ("hidden", 0))


TOPICS = st.sampled_from(["a", "b", "gone", "x y", "\x7f", "ü"])


@given(
    st.sampled_from(KINDS),
    st.one_of(
        st.binary(max_size=60),
        st.builds(
            lambda lines, count, end: (
                f"0\n{count}\n" + "\n".join(f"{t} {p} {o}" for t, p, o in lines) + end
            ).encode(),
            st.lists(st.tuples(TOPICS, st.integers(-1, 2), st.integers(-2, 60)), max_size=8),
            st.integers(-1, 9),
            st.sampled_from(["", "\n"]),
        ),
    ),
    st.dictionaries(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2)), st.none() | st.integers(0, 50), max_size=5
    ),
)
def test_mended_file_loads_never_rises_and_comes_to_rest(
    kind: CheckpointKind, data: bytes, ends: dict[tuple[str, int], int | None]
) -> None:
    found = repair_offsets(kind, decode_offsets(data), ends)
    loaded = decode_offsets(found.data)
    assert (loaded.entries, loaded.damage) == (found.entries, ())
    before: dict[tuple[str, int], set[int]] = {}
    for entry in decode_offsets(data).entries:
        before.setdefault((entry.topic, entry.partition), set()).add(entry.offset)
    for entry in found.entries:
        key = (entry.topic, entry.partition)
        end = ends.get(key)
        assert entry.offset <= max(before[key])
        assert end is None or 0 <= entry.offset <= end
    again = repair_offsets(kind, decode_offsets(found.data), ends)
    assert (again.entries, again.needed) == (found.entries, False)


@given(
    st.sampled_from(KINDS),
    st.dictionaries(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 9)), st.integers(0, 50), max_size=9
    ),
)
def test_line_within_its_log_is_never_touched(
    kind: CheckpointKind, offsets: dict[tuple[str, int], int]
) -> None:
    data = encode_offsets(CheckpointEntry(*key, offset) for key, offset in offsets.items())
    found = repair_offsets(kind, decode_offsets(data), dict.fromkeys(offsets, 50))
    assert (found.data, found.needed) == (data, False)


TABLE = {
    RECOVERY_POINT_CHECKPOINT: ("KR403", "recovery point", True),
    REPLICATION_CHECKPOINT: ("KR404", "high watermark", True),
    LOG_START_CHECKPOINT: ("KR405", "log start", False),
    CLEANER_CHECKPOINT: ("KR410", "first dirty offset", False),
}


def test_each_checkpoint_has_its_own_rule_and_word() -> None:
    assert {kind.name: (kind.rule, kind.word, kind.of_each) for kind in KINDS} == TABLE
    assert list(KIND_OF) == list(TABLE)


@pytest.mark.parametrize(
    ("line", "becomes", "words"),
    [
        ("a 0 -1", None, "a-0 at -1: a negative offset; the line is removed"),
        ("a 1 51", 50, "a-1 at 51: past the log end 50; becomes 50"),
        ("b.c-d 7 1", 0, "b.c-d-7 at 1: past the log end 0; becomes 0"),
    ],
)
def test_line_that_cannot_be_is_told_with_both_sides(line: str, becomes: int | None, words: str) -> None:
    found = repair_offsets(
        KIND_OF[RECOVERY_POINT_CHECKPOINT], decode_offsets(f"0\n1\n{line}\n".encode()), ENDS
    )
    assert [one.text for one in found.decisions] == [words]
    assert [entry.offset for entry in found.entries] == ([] if becomes is None else [becomes])
    assert found.needed


@pytest.mark.parametrize("line", ["a 0 0", "a 0 100", "b.c-d 7 0", "hidden 0 999999"])
def test_line_at_a_limit_stays(line: str) -> None:
    found = repair_offsets(KINDS[0], decode_offsets(f"0\n1\n{line}\n".encode()), ENDS)
    assert (found.needed, found.decisions) == (False, ())


def test_of_two_lines_of_a_partition_the_lower_stays_whichever_comes_first() -> None:
    for data in (b"0\n2\na 0 9\na 0 7\n", b"0\n2\na 0 7\na 0 9\n"):
        found = repair_offsets(KINDS[0], decode_offsets(data), ENDS)
        assert [tuple(entry) for entry in found.entries] == [("a", 0, 7)]
        assert [one.text for one in found.decisions] == [
            "a-0 at 9: another line of its partition; the line is removed"
        ]
        assert found.past_end == ()


def test_lost_lines_are_named_only_of_a_damaged_file_that_should_have_one_of_each() -> None:
    healthy, damaged = b"0\n1\na 0 9\n", b"0\n2\na 0 9\n"
    without = (("a", 1), ("b.c-d", 7), ("hidden", 0))
    assert (
        repair_offsets(KIND_OF[RECOVERY_POINT_CHECKPOINT], decode_offsets(damaged), ENDS).without == without
    )
    assert repair_offsets(KIND_OF[RECOVERY_POINT_CHECKPOINT], decode_offsets(healthy), ENDS).without == ()
    assert repair_offsets(KIND_OF[CLEANER_CHECKPOINT], decode_offsets(damaged), ENDS).without == ()
