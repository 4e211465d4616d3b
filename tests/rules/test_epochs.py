"""Leader epochs in the file, merged with those that the log shows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from krepair.derive.epochs import EpochStart, LogEpochs, clears_history, epochs_of_log
from krepair.formats.checkpoint import EpochEntry, decode_epochs, encode_epochs
from krepair.kernels.classes import EPOCH_SIZE
from krepair.kernels.scan import SegmentSummary
from krepair.rules.epochs import (
    EpochFacts,
    EpochReason,
    MergedEpochs,
    Recorded,
    merge_epochs,
    read_recorded,
    writes_epoch_zero,
)
from tests.rules.facts import facts

V2_2, V2_7 = (2, 2, 1), (2, 7, 0)
LOG = LogEpochs(
    (EpochStart(0, 0, -1), EpochStart(2, 40, 39), EpochStart(4, 80, 79), EpochStart(6, 120, 119)),
    199,
    0,
    200,
    False,
)
FROM_LOG = [(0, 0), (2, 40), (4, 80), (6, 120)]
COMPACTED = LogEpochs(
    (EpochStart(2, 50, 30), EpochStart(4, 95, 70), EpochStart(6, 120, 119)), 199, 0, 200, True
)


def merged(
    data: bytes | None, log: LogEpochs = LOG, version: tuple[int, int, int] | None = None
) -> MergedEpochs:
    return merge_epochs(read_recorded(data), log, version)


def pairs(found: MergedEpochs) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in found.entries]


def reasons(found: MergedEpochs) -> dict[int, EpochReason]:
    return {one.epoch: one.reason for one in found.decisions if one.start is None}


def lines(*entries: tuple[int, int], count: int = 9) -> bytes:
    """Of a file that is damaged, if only by the number of its lines."""
    return f"0\n{count}\n".encode() + b"".join(b"%d %d\n" % entry for entry in entries)


WITHOUT_0 = FROM_LOG[1:]
OF_COMPACTED = [(2, 50), (4, 95), (6, 120)]
HISTORIES: dict[str, tuple[bytes | None, LogEpochs, list[tuple[int, int]]]] = {
    "a first epoch that is not 0 is missing": (
        encode_epochs(EpochEntry(*pair) for pair in WITHOUT_0),
        LOG._replace(epoch_starts=(EpochStart(1, 0, -1), *LOG.epoch_starts[1:])),
        [(1, 0), *WITHOUT_0],
    ),
    "a leader without data at the log end": (lines(*FROM_LOG, (8, 200)), LOG, [*FROM_LOG, (8, 200)]),
    "a start without the file cut it to one entry": (b"0\n1\n14 200\n", LOG, [*FROM_LOG, (14, 200)]),
    "no file, of a log that starts late": (None, LOG._replace(start=90), [(4, 90), (6, 120)]),
    "the log end is hidden by damage": (
        lines(*FROM_LOG, (8, 5000)),
        LOG._replace(end=None),
        [*FROM_LOG, (8, 5000)],
    ),
    "damaged, of a log without epochs": (b"0\n3\nx", LogEpochs((), -1, 0, 0, False), []),
    "no line end": (lines(*FROM_LOG, (8, 200))[:-1], LOG, [*FROM_LOG, (8, 200)]),
    "compacted: earlier starts, and epochs without batches": (
        lines((0, 0), (1, 20), (2, 40), (3, 60), (4, 80), (6, 120)),
        COMPACTED,
        [(0, 0), (1, 20), (2, 40), (3, 60), (4, 80), (6, 120)],
    ),
    "compacted: no file": (None, COMPACTED, OF_COMPACTED),
    "compacted: a higher epoch that starts earlier than that of the log": (
        lines((3, 30)),
        COMPACTED._replace(epoch_starts=(EpochStart(2, 50, 20), EpochStart(6, 120, 119))),
        [(3, 30), (6, 120)],
    ),
    "compacted: a lower epoch that starts later than that of the log": (
        lines((1, 60)),
        COMPACTED,
        [(1, 60), (4, 95), (6, 120)],
    ),
}


@pytest.mark.parametrize(("data", "log", "history"), HISTORIES.values(), ids=HISTORIES)
def test_history_is_put_together_from_the_file_and_the_log(
    data: bytes | None, log: LogEpochs, history: list[tuple[int, int]]
) -> None:
    found = merged(data, log)
    assert (pairs(found), found.needed) == (history, True)


@pytest.mark.parametrize("history", [FROM_LOG, WITHOUT_0], ids=["whole", "without epoch 0"])
def test_intact_file_is_left_as_it_is(history: list[tuple[int, int]]) -> None:
    found = merged(encode_epochs(EpochEntry(*pair) for pair in history))
    assert (pairs(found), found.needed) == (history, False)
    assert [(one.epoch, one.start) for one in found.decisions] == history


@pytest.mark.parametrize(
    ("data", "version", "first"),
    [(None, V2_2, (2, 40)), (None, V2_7, (0, 0)), (None, None, (0, 0)), (lines((0, 0)), V2_2, (0, 0))],
    ids=["2.2 takes none from a log", "2.7", "not known", "recorded, for 2.2"],
)
def test_epoch_zero_is_written_as_the_target_version_takes_it(
    data: bytes | None, version: tuple[int, int, int] | None, first: tuple[int, int]
) -> None:
    assert pairs(merged(data, LOG, version))[0] == first


@pytest.mark.parametrize(
    ("data", "history", "dropped"),
    [
        (lines((2, 40), (4, 80), (6, 12))[:-1], [(2, 40), (4, 80), (6, 120)], {6: EpochReason.CUT}),
        (lines((8, 199))[:-1], OF_COMPACTED, {8: EpochReason.CUT}),
        (lines((8, 200))[:-1], OF_COMPACTED, {8: EpochReason.CUT}),
        (lines((8, 200)), [*OF_COMPACTED, (8, 200)], {}),
        (lines((6, 120))[:-1], OF_COMPACTED, {}),
        (lines((1, 10), (5, 60)), [(1, 10), (2, 50), (5, 60), (6, 120)], {}),
        (lines((3, 50)), [(3, 50), (4, 95), (6, 120)], {2: EpochReason.NO_DATA}),
    ],
)
def test_of_a_compacted_log_each_entry_that_does_not_stay_has_its_reason(
    data: bytes, history: list[tuple[int, int]], dropped: dict[int, EpochReason]
) -> None:
    found = merged(data, COMPACTED)
    assert (pairs(found), reasons(found)) == (history, dropped)


@pytest.mark.parametrize(
    ("data", "log", "reason", "recorded", "shown", "trivial"),
    [
        (b"0\n9\n0 0\n2 40\n3 80\n4 80\n6 120\n", LOG, EpochReason.NO_DATA, 80, 80, True),
        (b"0\n4\n0 0\n2 60\n4 80\n6 120\n", LOG, EpochReason.CONTRADICTED, 60, 40, False),
        (b"0\n3\n2 60\n4 80\n6 120\n", COMPACTED, EpochReason.UNPROVEN, 60, 50, False),
    ],
)
def test_what_is_decided_against_one_side_tells_both_and_whether_it_matters(
    data: bytes, log: LogEpochs, reason: EpochReason, recorded: int, shown: int, trivial: bool
) -> None:
    (one,) = [one for one in merged(data, log).decisions if one.reason is reason]
    assert (one.recorded, one.shown, one.trivial, one.conflict) == (recorded, shown, trivial, not trivial)


def test_a_hundred_megabytes_on_one_line_are_no_entries() -> None:
    assert read_recorded(b"0\n1\n" + b"7" * (20 << 20)).entries == ()


@pytest.mark.slow
def test_two_hundred_thousand_lines_in_falling_order_are_merged_in_time() -> None:
    lines = "".join(f"{n} {n}\n" for n in range(200_000, 0, -1))
    found = merged(f"0\n200000\n{lines}".encode(), LogEpochs((), -1, 0, 200_000, False))
    assert len(found.entries) == 200_000


@st.composite
def logs(draw: st.DrawFn) -> LogEpochs:
    """A log whose epochs rise, with or without gaps before them."""
    epoch_starts, offset, epoch, last = [], draw(st.integers(0, 5)), -1, -1
    for _ in range(draw(st.integers(0, 6))):
        epoch += draw(st.integers(1, 3))
        gap = draw(st.integers(0, 3))
        offset += gap
        epoch_starts.append(EpochStart(epoch, offset, last))
        last = offset + draw(st.integers(0, 9))
        offset = last + 1
    compacted = draw(st.booleans())
    start = draw(st.integers(0, max(last + 1, 0)))
    return LogEpochs(tuple(epoch_starts), last, start, max(offset, start), compacted)


FILES = st.one_of(
    st.none(),
    st.binary(max_size=30),
    st.builds(
        lambda lines, count, end: (f"0\n{count}\n" + "\n".join(f"{e} {s}" for e, s in lines) + end).encode(),
        st.lists(st.tuples(st.integers(-1, 20), st.integers(-1, 60)), max_size=8),
        st.integers(-1, 9),
        st.sampled_from(["", "\n", "\n\0\0\0"]),
    ),
)
VERSIONS = st.sampled_from([None, V2_2, V2_7])


@given(FILES, logs(), VERSIONS)
@example(
    b"\n\n0 19\n",
    LogEpochs(
        (EpochStart(0, 0, -1), EpochStart(1, 6, 2), EpochStart(2, 19, 15)),
        19,
        start=0,
        end=20,
        compacted=True,
    ),
    None,
)
def test_whatever_is_merged_loads_and_merged_again_is_the_same(
    data: bytes | None, log: LogEpochs, version: tuple[int, int, int] | None
) -> None:
    found = merged(data, log, version)
    loaded = decode_epochs(found.data)
    assert (loaded.entries, loaded.damage, loaded.broker_reads) == (found.entries, (), True)
    again = merged(found.data, log, version)
    assert (again.entries, again.needed) == (found.entries, False)


@given(logs(), VERSIONS, st.data())
def test_recorded_entry_that_no_batch_contradicts_is_never_dropped(
    log: LogEpochs, version: tuple[int, int, int] | None, data: st.DataObject
) -> None:
    """A true history (with epochs that have no batches left), some of its lines lost, the rest in any order."""
    true: list[EpochEntry] = []
    below = log.start
    for epoch_start in log.epoch_starts:
        start = max(epoch_start.first_offset, log.start)
        if epoch_start.first_offset < log.start or start < below:
            continue
        earliest = max(epoch_start.before + 1, below)
        true.append(EpochEntry(epoch_start.epoch, data.draw(st.integers(min(earliest, start), start))))
        below = start + 1
    assert log.end is not None
    if (
        data.draw(st.booleans())
        and (not true or true[-1].start_offset < log.end)
        and log.last_offset < log.end
    ):
        true.append(EpochEntry((log.epoch_starts[-1].epoch if log.epoch_starts else 0) + 1, log.end))
    lines = data.draw(st.permutations(true))[: data.draw(st.integers(0, len(true)))]
    found = merge_epochs(Recorded(True, tuple(lines)), log, version)
    assert set(lines) <= set(found.entries)


def segment(
    base: int,
    last: int,
    *epochs: tuple[int, int, int],
    each: int = 10,
    batches: int = 100,
    position: int = 0,
    **fields: object,
) -> SegmentSummary:
    """A segment of stretches of so many batches of one epoch, the first at a position."""
    rows = [(*row, each * number, position + 100 * number) for number, row in enumerate(epochs)]
    found = np.array(rows, np.int64).reshape(-1, EPOCH_SIZE)
    return facts(base, last_offset=last, epochs=found, batches=batches, **fields).summary


def epoch_starts(*segments: SegmentSummary, compacted: bool = False) -> list[tuple[int, int, int]]:
    return [
        tuple(epoch_start) for epoch_start in epochs_of_log(segments, 0, compacted=compacted).epoch_starts
    ]


def test_epoch_counts_where_it_rises_above_all_before_it() -> None:
    first, second = segment(0, 99, (1, 0, -1), (3, 40, 39)), segment(100, 199, (2, 100, 99), (3, 150, 149))
    third = segment(200, 299, (3, 200, 199), (4, 250, 240))
    assert epoch_starts(first, second, third) == [(1, 0, -1), (3, 40, 39), (4, 250, 240)]
    assert epoch_starts(segment(0, 9, (0, 0, -1))) == [(0, 0, -1)]


def test_batch_before_the_first_of_a_segment_is_the_last_of_the_one_before() -> None:
    gap = segment(0, 89, (1, 0, -1)), segment(100, 199, (2, 100, 99))
    assert epoch_starts(*gap) == [(1, 0, -1), (2, 100, 89)]
    hollow = segment(0, -1, batches=0), segment(100, 199, (2, 105, 99))
    assert epoch_starts(*hollow) == [(2, 105, -1)]
    inside = segment(0, 99, (1, 0, -1)), segment(100, 199, (2, 101, 100))
    assert epoch_starts(*inside) == [(1, 0, -1), (2, 101, 100)]


def by_batch(*epochs: int) -> SegmentSummary:
    """A segment with one batch of ten offsets per number; -1 has no epoch."""
    changes, known = [], -1
    for number, epoch in enumerate(epochs):
        if epoch not in {-1, known}:
            changes.append((epoch, 10 * number, 10 * number - 1, number, 100 * number))
            known = epoch
    rows = np.array(changes, np.int64).reshape(-1, EPOCH_SIZE)
    return facts(0, last_offset=10 * len(epochs) - 1, epochs=rows, batches=len(epochs)).summary


@pytest.mark.parametrize(
    ("why", "epochs", "doubted", "rising"),
    [
        ("one bit more in the middle", (0, 0, 16384, 0, 0), [2], [(0, 0)]),
        ("in the first batch", (16384, 0, 0, 0), [0], [(0, 10)]),
        ("in the last batch but one", (3, 3, 7, 3), [2, 3], [(3, 0)]),
        ("one bit less in the middle", (5, 5, 1, 5, 5), [2], [(5, 0)]),
        ("in the last batch", (5, 5, 5, 1), [3], [(5, 0)]),
        ("where an epoch begins", (5, 5, 21, 6, 6), [2], [(5, 0), (6, 30)]),
        ("the first of an epoch too low", (5, 5, 2, 6, 6), [2], [(5, 0), (6, 30)]),
        ("a last batch may be alone in its epoch", (5, 5, 5, 6), [], [(5, 0), (6, 30)]),
        ("so may a first, and each", (1, 2, 3, 4), [], [(1, 0), (2, 10), (3, 20), (4, 30)]),
        ("a log that diverged", (0, 0, 5, 5, 3, 3, 6), [], [(0, 0), (5, 20), (6, 60)]),
        ("batches without an epoch say nothing", (0, 0, -1, 9, 0, 0), [3], [(0, 0)]),
        ("one batch is contradicted by nobody", (16384,), [], [(16384, 0)]),
        ("of two either may be wrong", (7, 6), [0, 1], []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_epoch_that_its_neighbours_contradict_is_doubted(
    why: str, epochs: tuple[int, ...], doubted: list[int], rising: list[tuple[int, int]]
) -> None:
    log = epochs_of_log([by_batch(*epochs)], 0, compacted=False)
    assert [one.position // 100 for one in log.doubted] == doubted
    assert [(epoch_start.epoch, epoch_start.first_offset) for epoch_start in log.epoch_starts] == rising


@pytest.mark.parametrize(
    ("why", "epochs", "lines", "doubted"),
    [
        ("the last batch", (1, 1, 2050), "1 0\n2 20\n", [2]),
        ("the only batch", (64,), "0 0\n", [0]),
        ("a batch between", (1, 2, 4), "1 0\n3 10\n4 20\n", [1]),
        ("another batch agrees", (1, 2, 2), "1 0\n3 10\n", []),
        ("its own line is there too", (1, 1, 3), "1 0\n2 20\n3 20\n", []),
        ("no line begins at the batch", (1, 1, 3), "1 0\n2 15\n", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_epoch_that_a_line_at_its_offset_contradicts_is_doubted_and_that_line_stays(
    why: str, epochs: tuple[int, ...], lines: str, doubted: list[int]
) -> None:
    recorded = read_recorded(f"0\n{lines.count(chr(10))}\n{lines}".encode())
    log = epochs_of_log([by_batch(*epochs)], 0, compacted=False, recorded=recorded.entries)
    assert [one.position // 100 for one in log.doubted] == doubted
    if doubted:
        assert merge_epochs(recorded, log).entries == recorded.entries


def test_nothing_is_derived_from_a_doubted_epoch_and_its_own_line_stays() -> None:
    log = epochs_of_log([by_batch(5, 5, 21, 6, 6)], 0, compacted=False)
    nothing = merge_epochs(read_recorded(None), log)
    assert [tuple(entry) for entry in nothing.entries] == [(5, 0), (6, 30)]
    assert nothing.may_be_late == (6,), "the doubted batch may be the first of epoch 6"
    for line in ("6 20", "6 30", "21 20"):
        recorded = read_recorded(f"0\n2\n5 0\n{line}\n".encode())
        assert line in [f"{one.epoch} {one.start_offset}" for one in merge_epochs(recorded, log).entries]


@pytest.mark.parametrize(
    ("segments", "compacted", "end"),
    [
        ((segment(0, 99), segment(100, 199)), False, 200),
        ((segment(0, 98), segment(100, 199)), True, 200),
        ((segment(5, 98), segment(99, 199)), False, 200),
        ((segment(0, 0), segment(2, 199)), True, 200),
        ((segment(0, 0), segment(1, 199)), False, 200),
        ((segment(100, 199),), False, 200),
        ((segment(0, 99), segment(100, 99, batches=0)), False, 100),
        ((segment(0, 89), segment(100, 99, batches=0)), False, 100),
        ((segment(0, 89), segment(100, 99, batches=0), segment(120, 199)), True, 200),
        ((segment(0, 99, damage=3), segment(100, 199)), True, 200),
        ((segment(0, 99), segment(100, 199, damage=3)), True, None),
        ((), False, 0),
    ],
)
def test_gap_or_damage_says_that_batches_may_be_missing(
    segments: tuple[SegmentSummary, ...], compacted: bool, end: int | None
) -> None:
    log = epochs_of_log(segments, 7, compacted=False)
    assert (log.compacted, log.end, log.start) == (compacted, end, 7)
    assert epochs_of_log(segments, 7, compacted=True).compacted


@pytest.mark.parametrize(
    ("segments", "clears"),
    [
        ((segment(0, 9, (1, 0, -1)), segment(10, 19, old_batches=1, last_old_position=0)), True),
        ((segment(0, 9, (1, 0, -1), old_batches=1, last_old_position=50),), True),
        ((segment(0, 9, (1, 5, 4), position=100, old_batches=1, last_old_position=0),), False),
        ((segment(0, 9, (1, 3, 2), position=100, old_batches=2, last_old_position=200),), True),
        ((segment(0, 9, old_batches=1, last_old_position=50),), False),
        ((segment(0, 9, old_batches=1, last_old_position=0), segment(10, 19, (1, 10, 9))), False),
        ((segment(0, 9), segment(10, 19, old_batches=1, last_old_position=0)), False),
        (
            (segment(0, 9, (1, 0, -1)), segment(10, 19), segment(20, 29, old_batches=1, last_old_position=0)),
            True,
        ),
        ((), False),
    ],
)
def test_old_messages_behind_new_batches_make_a_broker_forget_all_epochs(
    segments: tuple[SegmentSummary, ...], clears: bool
) -> None:
    assert clears_history(segments) is clears


@pytest.mark.parametrize(
    ("data", "entries", "cut", "exists"),
    [
        (None, [], False, False),
        (b"", [], False, True),
        (b"0\n1\n2 40\n", [(2, 40)], False, True),
        (b"0\n1\n2 40\r", [(2, 40)], False, True),
        (b"0\n1\n2 40", [(2, 40)], True, True),
        (b"0\n1\n2", [], False, True),
        (b"0\n2\n2 40\n3", [(2, 40)], False, True),
        (b"7\n1\n2 40\n", [(2, 40)], False, True),
        (b"7\r\n1\r\n2 40\r\n", [(2, 40)], False, True),
        (b"7\r1\r2 40\r", [(2, 40)], False, True),
        (b"2 40", [], True, True),
        (b"x" * 4096 + b"\n1\n2 40\n", [(2, 40)], False, True),
        (b"x" * 4097 + b"\n1\n2 40\n", [(2, 40)], False, True),
        (b"x" * 4098 + b"\n1\n2 40\n", [], False, True),
    ],
)
def test_what_is_recorded_is_read_as_far_as_lines_can_be(
    data: bytes | None, entries: list[tuple[int, int]], cut: bool, exists: bool
) -> None:
    found = read_recorded(data)
    assert ([tuple(entry) for entry in found.entries], found.cut, found.exists) == (entries, cut, exists)


def test_history_is_intact_with_entries_and_without_damage() -> None:
    assert read_recorded(b"0\n1\n2 40\n").intact
    assert not read_recorded(b"0\n0\n").intact
    assert not read_recorded(b"0\n2\n2 40\n").intact
    assert read_recorded(None).broker_reads, "a broker makes a missing file itself"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            (2, 41),
            "epoch 2 is recorded to start at 41, the log has the first batch of it or a later one at 40: dropped",
        ),
        (
            (8, 201),
            "epoch 8 is recorded to start at 201, the log has no batch of it or a later one: dropped",
        ),
        (
            (8, 200),
            "epoch 8 is recorded to start at 200, the log has no batch of it or a later one: starts at 200",
        ),
        (
            (-1, 5),
            "epoch -1 is recorded to start at 5, the log has the first batch of it or a later one at 0: dropped",
        ),
    ],
)
def test_entry_is_told_with_both_sides(entry: tuple[int, int], words: str) -> None:
    found = merged(encode_epochs([EpochEntry(*entry)]))
    assert words in [one.text.removesuffix(f" ({one.reason.value})") for one in found.decisions]
    assert (
        "epoch 6 is not recorded, the log has the first batch of it or a later one at 120: starts at 120 (from the log)"
        in [one.text for one in found.decisions]
    )


def one_by_one(data: bytes, log: LogEpochs = LOG) -> dict[tuple[int, int], tuple[str, int | None]]:
    """(epoch, recorded start) -> (reason, start in the merged file)."""
    return {
        (one.epoch, one.recorded): (one.reason.name, one.start)
        for one in merged(data, log).decisions
        if one.recorded is not None
    }


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ((2, 40), ("RECORDED", 40)),
        ((2, 39), ("CONTRADICTED", None)),
        ((1, 39), ("CONTRADICTED", None)),
        ((1, 0), ("CONTRADICTED", None)),
        ((0, 0), ("RECORDED", 0)),
        ((7, 199), ("CONTRADICTED", None)),
        ((7, 200), ("RECORDED", 200)),
        ((0, -1), ("NEGATIVE", None)),
    ],
)
def test_entry_just_at_and_beside_what_the_log_shows(
    entry: tuple[int, int], expected: tuple[str, int | None]
) -> None:
    assert one_by_one(encode_epochs([EpochEntry(*entry)]))[entry] == expected


def test_entries_below_the_log_start_stay() -> None:
    history = encode_epochs(EpochEntry(*pair) for pair in FROM_LOG)
    for start in (80, 81, 200):
        found = merge_epochs(read_recorded(history), LOG._replace(start=start))
        assert (found.data, found.needed) == (history, False)


def test_repeated_epoch_keeps_its_lower_start() -> None:
    log = LogEpochs((), -1, 0, 200, True)
    for lines in (b"0\n2\n3 50\n3 60\n", b"0\n2\n3 60\n3 50\n"):
        assert one_by_one(lines, log) == {(3, 50): ("RECORDED", 50), (3, 60): ("REPEATED", None)}


def test_later_line_wins_over_those_that_contradict_it() -> None:
    log = LogEpochs((), -1, 0, 200, True)
    assert one_by_one(b"0\n3\n2 50\n3 60\n4 40\n", log) == {
        (2, 50): ("DISORDER", None),
        (3, 60): ("DISORDER", None),
        (4, 40): ("RECORDED", 40),
    }
    assert one_by_one(b"0\n2\n4 40\n3 60\n", log) == {
        (4, 40): ("DISORDER", None),
        (3, 60): ("RECORDED", 60),
    }
    assert one_by_one(b"0\n2\n4 40\n3 40\n", log) == {
        (4, 40): ("RECORDED", 40),
        (3, 40): ("NO_DATA", None),
    }
    assert one_by_one(b"0\n2\n3 40\n4 40\n", log) == {
        (4, 40): ("RECORDED", 40),
        (3, 40): ("NO_DATA", None),
    }


def test_start_that_may_be_late_is_told_of_a_compacted_log_only() -> None:
    found = {one.epoch: one.reason.name for one in merged(None, COMPACTED).decisions}
    assert found == {2: "LOG_LATE", 4: "LOG_LATE", 6: "LOG"}
    assert merged(None, COMPACTED).may_be_late == (2, 4)
    whole = COMPACTED._replace(compacted=False)
    assert merged(None, whole).may_be_late == ()
    assert merged(None, COMPACTED._replace(start=50)).may_be_late == (4,)


@pytest.mark.parametrize(
    ("version", "takes"), [(None, True), ((2, 6, 3), False), ((2, 7, 0), True), ((2, 7, 1), True)]
)
def test_epoch_zero_counts_from_2_7_on(version: tuple[int, int, int] | None, takes: bool) -> None:
    assert writes_epoch_zero(version) is takes


def test_only_a_history_that_is_needed_and_may_be_is_mended() -> None:
    wrong = merged(b"0\n9\n0 0\n")
    recorded = read_recorded(b"0\n9\n0 0\n")
    assert EpochFacts(recorded, wrong, "x").mends
    assert not EpochFacts(recorded, wrong, "x", left="why").mends
    right = merged(encode_epochs(EpochEntry(*pair) for pair in FROM_LOG))
    assert not EpochFacts(recorded, right, "x").mends


def test_recorded_and_shown_epoch_0_are_both_told_where_neither_stays() -> None:
    found = merged(b"0\n1\n0 -1\n", LOG, V2_2)
    assert [one.reason.name for one in found.decisions if one.epoch == 0] == ["NEGATIVE", "EPOCH_ZERO"]
