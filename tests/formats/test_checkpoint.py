from __future__ import annotations

import gc
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.errors import UsageError
from krepair.formats import checkpoint
from krepair.formats.checkpoint import CheckpointEntry, EpochEntry
from krepair.formats.damage import Damage
from tests.formats.strategies import INT32, INT64

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=249)
OFFSETS = st.lists(
    st.builds(CheckpointEntry, TOPICS, INT32, INT64), max_size=8, unique_by=lambda entry: entry[:2]
).map(tuple)
GOOD = b"0\n2\nt-a 0 15\n__consumer_offsets 49 9223372036854775807\n"


@given(OFFSETS)
def test_offset_checkpoint_decodes_to_what_was_encoded(entries: tuple[CheckpointEntry, ...]) -> None:
    assert checkpoint.decode_offsets(checkpoint.encode_offsets(entries)) == (entries, (), True)


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=8))
def test_epoch_checkpoint_decodes_to_what_was_encoded(pairs: list[tuple[int, int]]) -> None:
    epochs = sorted({epoch for epoch, _ in pairs})
    starts = sorted({start for _, start in pairs})
    entries = tuple(map(EpochEntry, epochs, starts))
    assert checkpoint.decode_epochs(checkpoint.encode_epochs(entries)) == (entries, (), True)


@pytest.mark.parametrize("end", range(len(GOOD)))
def test_checkpoint_cut_anywhere_is_damage_or_created_and_never_filled(end: int) -> None:
    found = checkpoint.decode_offsets(GOOD[:end])
    assert bool(found.damage) == (end > 0)


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (b"1\n0\n", Damage(0, 4, "version 0", "1")),
        (b"zero\n0\n", Damage(0, 7, "version 0", "zero")),
        (b"0\n-1\n", Damage(2, 2, "0 (the number of entries that follow)", "-1")),
        (b"0\n2147483647\nt 0 1\n", Damage(2, 10, "1 (the number of entries that follow)", "2147483647")),
        (b"0\n2147483648\nt 0 1\n", Damage(2, 10, "the number of entries", "2147483648")),
        (b"0\n2\nt 0 1\n", Damage(2, 1, "1 (the number of entries that follow)", "2")),
        (b"0\n1\nt 0\n", Damage(4, 3, "topic partition offset", "t 0")),
        (b"0\n1\nt 0 1 2\n", Damage(4, 7, "topic partition offset", "t 0 1 2")),
        (b"0\n1\n t 0 1\n", Damage(4, 6, "topic partition offset", " t 0 1")),
        (b"0\n1\nt 0 1_0\n", Damage(4, 7, "topic partition offset", "t 0 1_0")),
        (b"0\n1\nt 2147483648 1\n", Damage(4, 14, "topic partition offset", "t 2147483648 1")),
        (
            b"0\n1\nt 0 9223372036854775808\n",
            Damage(4, 23, "topic partition offset", "t 0 9223372036854775808"),
        ),
        (b"0\n0\n\n", Damage(4, 0, "topic partition offset", "")),
        (b"0\n1\n\x00\x00\x00\n", Damage(4, 3, "topic partition offset", "\\x00\\x00\\x00")),
        (b"0\n1\nt\xff 0 1\n", Damage(4, 6, "topic partition offset", "t\\xff 0 1")),
    ],
)
def test_checkpoint_that_a_broker_refuses_is_named_and_marked(data: bytes, wrong: Damage) -> None:
    found = checkpoint.decode_offsets(data)
    assert found.broker_reads is False
    assert wrong in found.damage


@pytest.mark.parametrize(
    ("data", "entries"),
    [
        (b"0\r\n1\r\nt 0 1\r\n", (("t", 0, 1),)),
        (b"0\r1\rt 0 1\r", (("t", 0, 1),)),
        (b"+0\n01\nt \t +0  001 \n", (("t", 0, 1),)),
        ("0\n1\nt ٣ 1\n".encode(), (("t", 3, 1),)),
        (b"0\n1\nt 0 -1\n", (("t", 0, -1),)),
    ],
)
def test_checkpoint_in_a_form_that_java_reads_is_read_alike(
    data: bytes, entries: tuple[tuple[str, int, int], ...]
) -> None:
    assert checkpoint.decode_offsets(data) == (entries, (), True)


def test_missing_last_line_end_is_damage_although_a_broker_reads_a_shortened_number() -> None:
    found = checkpoint.decode_offsets(GOOD[:-3])
    assert found.entries[1].offset == 92233720368547758
    assert found.broker_reads
    assert [wrong.expected for wrong in found.damage] == ["a line end"]


def test_partition_named_twice_is_damage_although_a_broker_takes_the_last() -> None:
    found = checkpoint.decode_offsets(b"0\n2\nt 0 1\nt 0 2\n")
    assert (len(found.entries), found.broker_reads) == (2, True)
    assert [wrong.expected for wrong in found.damage] == ["each partition once"]


@pytest.mark.parametrize("lines", ["1 5\n1 9", "2 5\n1 9", "1 5\n2 5", "1 5\n2 4"])
def test_epochs_that_do_not_grow_are_damage(lines: str) -> None:
    found = checkpoint.decode_epochs(f"0\n2\n{lines}\n".encode())
    assert [wrong.expected for wrong in found.damage] == ["epochs and start offsets that grow"]


def test_line_of_100_mb_is_damage_in_bounded_memory() -> None:
    data = b"0\n1\n" + b"x" * 100_000_000
    tracemalloc.start()
    try:
        found = checkpoint.decode_offsets(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (line,) = (wrong for wrong in found.damage if wrong.position == 4)
    assert line.length == 100_000_000
    assert len(line.found) < 200
    assert peak < 1_000_000


def test_flood_of_damaged_lines_gives_few_damages_and_covers_the_file() -> None:
    data = b"0\n0\n" + b"\n" * 1_000_000
    found = checkpoint.decode_offsets(data)
    assert len(found.damage) == checkpoint.MAX_DAMAGES + 1
    assert found.damage[-1].position + found.damage[-1].length == len(data)


@pytest.mark.parametrize("topic", ["", "a b", "a\nb", "a\u0000b"])
def test_topic_name_that_would_break_the_file_is_not_written(topic: str) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        checkpoint.encode_offsets([CheckpointEntry(topic, 0, 0)])


@pytest.mark.parametrize(
    ("data", "unchecked"),
    [
        (b"", False),
        (b"0\n", False),
        (b"0\n1\nt 0 5\n", False),
        (b"0\n9\nt 0 5\n", False),
        (b"0\n-1\n", True),
        (b"1\n-1\n", False),
        (b"0\nx\n", False),
        (b"0\n1\nt 0 99999999999999999999\n", True),
        (b"0\n2\nt x 5\nbroken\n", True),
        (b"0\n2\nbroken\nt x 5\n", False),
        (b"0\n1\nt 0 5 6\n", False),
        (b"\0" * 30, False),
    ],
)
def test_what_newer_brokers_leave_at_an_unchecked_exception(data: bytes, unchecked: bool) -> None:
    """Which of them go on is proven on 3.9.2 and 4.3.1 by the corpus."""
    assert checkpoint.ends_unchecked(data) is unchecked


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.text("ab.-_\x85\u2028 \t\r", min_size=0, max_size=4),
            st.sampled_from(["0", "7", "-1", "+3", "2147483648", "1_0", "٣", ""])
            | st.integers(0, 99).map(str),
            st.sampled_from(["0", "9223372036854775808", "-5", "x"]) | st.integers(0, 10**17).map(str),
        ),
        max_size=6,
    ),
    st.sampled_from(["\n", "\r\n", ""]),
    st.integers(-1, 1),
)
def test_the_fast_way_reads_what_the_slow_way_reads_or_leaves_the_file_to_it(
    lines: list[tuple[str, str, str]], last: str, wrong: int
) -> None:
    text = f"0\n{len(lines) + wrong}\n" + "\n".join(" ".join(words) for words in lines) + last
    data = text.encode()
    fast = checkpoint._as_written(data)
    slow = checkpoint._decode(data, checkpoint._offset_entry, "topic partition offset")
    assert fast is None or (fast, (), True) == tuple(slow)


def test_a_file_as_a_broker_writes_it_is_read_the_fast_way() -> None:
    entries = tuple(CheckpointEntry(f"t.{n}", n, n * n) for n in range(1000))
    assert checkpoint._as_written(checkpoint.encode_offsets(entries)) == entries


@pytest.mark.slow
def test_a_million_lines_cost_a_million_times_one_line_also_where_the_file_is_damaged() -> None:
    def seconds(count: int, end: str) -> float:
        data = (
            f"0\n{count}\n" + "".join(f"topic-{n // 50} {n % 50} {n}\n" for n in range(count)) + end
        ).encode()
        found = []
        # The least of three: one may meet a busy machine.
        for _ in range(3):
            began = time.process_time()
            assert len(checkpoint.decode_offsets(data).entries) == count
            found.append(time.process_time() - began)
        return min(found)

    gc.disable()
    try:
        for end in ("", "broken\n"):
            assert seconds(80_000, end) < 40 * max(seconds(8_000, end), 0.005)
    finally:
        gc.enable()
