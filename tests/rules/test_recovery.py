"""Pre-recovery by bare facts: which recovery points stay, and which leader epochs a recovery leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from krepair.derive.epochs import EpochStart, epochs_of_log
from krepair.formats.checkpoint import EpochEntry, encode_epochs
from krepair.kernels import classes as c
from krepair.kernels.classes import EPOCH_SIZE
from krepair.rules.damage import DamageAssessment, DamagedRange, Loss
from krepair.rules.epochs import read_recorded
from krepair.rules.model import SegmentFacts
from krepair.rules.recovery import (
    EpochsAfter,
    RecoveryPointFacts,
    choose_epochs,
    epochs_after_recovery,
    floor_of,
    why_damage_stays,
    why_ends_differ,
    why_not_rolled,
    why_recovery_point_stays,
)
from tests.rules.facts import facts

FINE = RecoveryPointFacts(special=None, untouched="", first="", marked=(), is_file=True, damaged=False)


def damaged(*, torn: bool) -> DamageAssessment:
    where = DamagedRange(
        start=7,
        end=9,
        damage=c.D_TORN,
        text="cut short",
        first_lost=3,
        next_offset=-1,
        records=-1,
        last_lost=-1,
        zeros=False,
    )
    nothing = Loss(2, 3, -1, -1, False)
    return DamageAssessment(0, where, "KR301" if torn else "KR302", torn, "", nothing, nothing, "")


def with_epochs(base: int, last: int, *epoch_starts: tuple[int, int]) -> SegmentFacts:
    changes = [(epoch, offset, base, 10 * number, 0) for number, (epoch, offset) in enumerate(epoch_starts)]
    rows = np.array(changes, np.int64).reshape(-1, EPOCH_SIZE)
    return facts(base, last_offset=last, epochs=rows, batches=100)


@pytest.mark.parametrize(
    ("known", "code", "said"),
    [
        ({"special": ("1.log", "FIFO")}, "special-file", "1.log: a regular file was expected, found a FIFO"),
        ({"untouched": "it is tiered"}, "untouched", "it is tiered"),
        ({"marked": ["t-0.ab-delete"]}, "marked-folder", "t-0.ab-delete has the same line"),
        ({"is_file": False}, "special-file", "is no regular file"),
        ({"damaged": True}, "checkpoint", "is damaged"),
    ],
)
def test_each_thing_that_is_wrong_keeps_the_recovery_point_where_it_is(
    known: dict[str, Any], code: str, said: str
) -> None:
    left = why_recovery_point_stays(FINE._replace(**known))
    assert left is not None
    assert left.code == code
    assert said in left.why
    assert why_recovery_point_stays(FINE) is None


def test_a_recovery_begins_with_the_segment_that_holds_the_recovery_point() -> None:
    assert [floor_of([0, 10, 20], point) for point in (0, 9, 10, 19, 20, 99)] == [0, 0, 10, 10, 20, 20]
    assert floor_of([5, 10], 0) == 5
    assert floor_of([], 3) is None


def test_a_log_ends_at_its_last_segment_also_if_that_is_empty() -> None:
    assert facts(10).end_offset == 20
    assert facts(10, last_offset=-1).end_offset == 10


def test_only_a_torn_tail_is_cut_on_the_way() -> None:
    assert why_damage_stays([], "") is None
    assert why_damage_stays([damaged(torn=True)], "") is None
    other = why_damage_stays([damaged(torn=False)], "")
    assert other is not None
    assert f"{0:020d}.log at position 7: KR302: cut short" in other.why
    assert "--fix tail,recovery" in str(other.next_command)
    unknown = why_damage_stays([], "not all could be read")
    assert unknown is not None
    assert unknown.why == "not all could be read"


@pytest.mark.parametrize(
    ("segments", "start", "code"),
    [
        ([facts(0), facts(10)], 20, ""),
        ([facts(0, last_offset=10), facts(10)], 0, "overlap"),
        ([facts(0), facts(10)], 21, "checkpoint"),
        ([facts(0), facts(10, last_offset=-1)], 0, ""),
    ],
)
def test_ends_that_contradict_each_other_leave_the_partition_alone(
    segments: list[SegmentFacts], start: int, code: str
) -> None:
    left = why_ends_differ(segments, start)
    assert (left.code if left else "") == code
    assert ("--fix checkpoints,recovery " in (str(left.next_command) if left else "")) == (
        code == "checkpoint"
    )


def epochs(
    recorded: bytes | None, *segments: SegmentFacts, wrong: str = "", is_whole: bool = True
) -> EpochsAfter:
    log = epochs_of_log([one.summary for one in segments], 0, compacted=False)
    return choose_epochs(read_recorded(recorded), log, segments, (3, 9, 2), wrong, is_whole=is_whole)


def test_a_recovery_appends_the_epochs_of_what_it_reads() -> None:
    before = encode_epochs([EpochEntry(1, 0)])
    assert epochs(before, with_epochs(0, 9, (1, 0), (2, 5))).entries == (EpochEntry(1, 0), EpochEntry(2, 5))
    assert epochs(before, with_epochs(0, 9, (1, 0))) == EpochsAfter(None, None), "nothing new"


@pytest.mark.parametrize("recorded", [None, b"0\n0\n"])
def test_without_entries_a_recovery_of_the_last_segments_would_forget_the_epochs_before_them(
    recorded: bytes | None,
) -> None:
    range_of = with_epochs(10, 19, (1, 10), (2, 15))
    assert epochs(recorded, range_of).entries == (EpochEntry(1, 10), EpochEntry(2, 15))
    left = epochs(recorded, range_of, is_whole=False).left
    assert left is not None
    assert "--fix epochs,recovery" in str(left.next_command)


@pytest.mark.parametrize(("recorded", "wrong", "fix"), [(b"0\nx\n", "", True), (None, "it is a link", False)])
def test_epochs_that_cannot_be_told_are_left_to_their_own_fix_where_it_mends_them(
    recorded: bytes | None, wrong: str, fix: bool
) -> None:
    told = epochs(recorded, with_epochs(0, 9, (1, 0)), wrong=wrong)
    assert told.entries is None
    assert told.left is not None
    assert told.left.code == "epochs"
    assert ("--fix epochs,recovery" in str(told.left.next_command)) is fix


def test_why_epochs_cannot_be_told_is_said() -> None:
    segment = with_epochs(0, 9, (1, 0), (2, 5))
    contradicts = encode_epochs([EpochEntry(1, 0), EpochEntry(2, 7)])

    def why(recorded: bytes | None, *of: SegmentFacts, wrong: str = "") -> str:
        left = epochs(recorded, *(of or (segment,)), wrong=wrong).left
        return "" if left is None else left.why

    assert why(contradicts, wrong="it is a link") == "it is a link"
    assert why(b"0\nx\n") == "leader-epoch-checkpoint is damaged"
    assert "epoch 2" in why(contradicts)
    assert why(encode_epochs([EpochEntry(1, 0)])) == ""
    assert "older messages follow newer ones" in why(
        None, segment, facts(10, old_batches=1, last_old_position=0)
    )


@pytest.mark.parametrize(
    ("topic", "version", "rolled"),
    [
        ("__consumer_offsets", None, False),
        ("__consumer_offsets", (2, 3, 1), False),
        ("__consumer_offsets", (2, 4, 0), True),
        ("t", None, True),
    ],
)
def test_before_2_4_the_offsets_topic_gets_no_empty_segment(
    topic: str, version: tuple[int, int, int] | None, rolled: bool
) -> None:
    assert (why_not_rolled(topic, version) == "") == rolled


@pytest.mark.parametrize(
    ("recorded", "epoch_starts", "log_end", "after"),
    [
        ([], [(0, 0), (1, 10)], 20, {False: [(1, 10)], True: [(0, 0), (1, 10)]}),
        ([(0, 0)], [(0, 5), (1, 10)], 20, [(0, 0), (1, 10)]),
        ([(0, 0), (3, 10)], [(2, 15), (3, 16)], 20, [(0, 0), (3, 10)]),
        ([(0, 0), (3, 30)], [(4, 20)], 40, [(0, 0), (4, 20)]),
        ([(0, 0), (3, 20)], [(4, 20)], 40, [(0, 0), (4, 20)]),
        ([(0, 0), (3, 30)], [(4, 31)], 40, [(0, 0), (3, 30), (4, 31)]),
        ([(0, 0), (3, 30)], [(4, 40)], 40, [(0, 0), (3, 30), (4, 40)]),
        ([(0, 0), (3, 30)], [(4, 41)], 40, [(0, 0), (3, 30)]),
        ([(0, 0), (3, 300)], [(3, 7)], 40, [(0, 0), (3, 300)]),
    ],
    ids=[
        "epoch 0 of the log alone depends on the version",
        "epoch 0 that is recorded is not appended again",
        "an epoch that is not higher",
        "a higher epoch that begins below the last entry",
        "a higher epoch that begins where the last entry does",
        "a higher epoch that begins behind the last entry",
        "a higher epoch at the log end",
        "a higher epoch past the log end",
        "without a higher epoch the entries stay, also past the log end",
    ],
)
@pytest.mark.parametrize("with_zero", [True, False])
def test_recovery_appends_each_epoch_that_is_higher_than_the_last_entry(
    recorded: list[tuple[int, int]],
    epoch_starts: list[tuple[int, int]],
    log_end: int,
    after: list[tuple[int, int]] | dict[bool, list[tuple[int, int]]],
    with_zero: bool,
) -> None:
    expected = after[with_zero] if isinstance(after, dict) else after
    found = epochs_after_recovery(
        [EpochEntry(*one) for one in recorded],
        [EpochStart(epoch, first, first - 1) for epoch, first in epoch_starts],
        log_end,
        with_zero=with_zero,
    )
    assert [tuple(one) for one in found] == expected
