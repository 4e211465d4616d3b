"""Damaged logs by bare facts: torn tails, the loss of each option, what is removed, what waits for consent."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from krepair.kernels import classes as c
from krepair.rules import damage
from krepair.rules.damage import (
    DamagedLogs,
    DamagedRange,
    DamageMap,
    Loss,
    ValidRange,
    WriteProgress,
    broker_loss,
    damages_of,
    why_not_mapped,
)
from krepair.rules.model import SegmentFacts
from krepair.rules.tail import (
    LogEnd,
    TailChoice,
    TailLog,
    TailMode,
    choose_cuts,
    notes_on_end,
    parts_of_consent,
    wrong_consent,
)
from tests.rules.facts import facts

SIZE = 1000
LISTED = [TailLog(0, SIZE, 1), TailLog(100, SIZE, 1), TailLog(200, SIZE, 1)]


def good(start: int, end: int, first: int, last: int) -> ValidRange:
    count = last - first + 1
    return ValidRange(start=start, end=end, first_offset=first, last_offset=last, batches=1, records=count)


def bad(start: int, end: int, first_lost: int, **fields: Any) -> DamagedRange:
    named = {
        "damage": c.D_CRC,
        "text": "wrong",
        "next_offset": -1,
        "records": -1,
        "last_lost": -1,
        "zeros": False,
    }
    return DamagedRange(start=start, end=end, first_lost=first_lost, **{**named, **fields})


MIDDLE = DamageMap(
    valid=(good(0, 400, 0, 39), good(500, SIZE, 50, 99)), damaged=(bad(400, 500, 40, next_offset=50),)
)
TWICE = DamageMap(
    valid=(good(0, 200, 100, 119), good(300, 400, 130, 139)),
    damaged=(bad(200, 300, 120, next_offset=130), bad(400, SIZE, 140, last_lost=199)),
)
TORN = DamageMap(valid=(good(0, 900, 200, 289),), damaged=(bad(900, SIZE, 290, damage=c.D_TORN),))


def logs(*maps: DamageMap | None, listed: int = -1) -> DamagedLogs:
    segments = [
        facts(number * 100, file_size=SIZE, valid_bytes=SIZE, last_offset=number * 100 + 99)
        for number, _ in enumerate(maps)
    ]
    known = {number * 100: one for number, one in enumerate(maps) if one is not None}
    return DamagedLogs("t-0", segments, known, len(maps) if listed < 0 else listed)


def chosen(of: DamagedLogs, *consents: str, way: TailMode = "excise", names: int = 1) -> TailChoice:
    listed = [one._replace(names=names) for one in LISTED[: len(of.segments)]]
    return choose_cuts(damages_of(of, WriteProgress(0 if way == "excise" else 2**62)), listed, consents, way)


@pytest.mark.parametrize(
    ("fields", "flushed", "torn"),
    [
        ({"damage": c.D_TORN}, 2**62, True),
        ({"zeros": True}, 2**62, True),
        ({}, 290, True),
        ({}, 291, False),
        ({"next_offset": 299}, 0, False),
        ({"next_offset": 0}, 0, False),
        ({"damage": c.D_OFFSET_ORDER}, 0, False),
    ],
)
def test_a_torn_tail_is_cut_short_or_was_not_flushed_and_nothing_valid_is_behind_it(
    fields: dict[str, Any], flushed: int, torn: bool
) -> None:
    tail = DamageMap(valid=TORN.valid, damaged=(bad(900, SIZE, 290, **fields),))
    assert [one.torn for one in damages_of(logs(None, None, tail), WriteProgress(flushed))] == [torn]
    assert [one.torn for one in damages_of(logs(None, tail, None), WriteProgress(flushed))] == [False], (
        "it is not the active log"
    )


ACTIVE, CLOSED = "active", "closed"


@pytest.mark.parametrize(
    ("situation", "where", "fields", "written", "seen"),
    [
        (
            "killed, preallocate is on",
            ACTIVE,
            {},
            WriteProgress(0, 0, preallocated=True),
            ("KR305", True, ""),
        ),
        ("killed, nothing is known of it", ACTIVE, {}, WriteProgress(0, 0), ("KR301", False, "")),
        ("killed, more was flushed", ACTIVE, {}, WriteProgress(291, 291), ("KR305", False, "")),
        (
            "killed, the high watermark is higher",
            ACTIVE,
            {},
            WriteProgress(0, 291, preallocated=True),
            ("KR305", False, ""),
        ),
        (
            "cleanly stopped",
            ACTIVE,
            {},
            WriteProgress(2**62, 2**62, preallocated=True),
            ("KR305", False, ""),
        ),
        ("the next segment goes on", CLOSED, {}, WriteProgress(2**62, 2**62), ("KR305", True, "")),
        ("the next segment goes on, killed", CLOSED, {}, WriteProgress(0, 0), ("KR305", True, "")),
        (
            "offsets are missing before the next segment",
            CLOSED,
            {"first_lost": 199},
            WriteProgress(0, 0, preallocated=True),
            ("KR305", False, "KR305:t-0:199"),
        ),
        (
            "a batch follows the zeros",
            CLOSED,
            {"next_offset": 200},
            WriteProgress(0, 0),
            ("KR305", False, "KR305:t-0:200"),
        ),
        ("not only zeros", CLOSED, {"zeros": False}, WriteProgress(0, 0), ("KR305", False, "KR305:t-0:200")),
    ],
)
def test_zeros_are_padding_only_where_nothing_can_be_missing(
    situation: str, where: str, fields: dict[str, Any], written: WriteProgress, seen: tuple[str, bool, str]
) -> None:
    active = where == ACTIVE
    first_lost = 290 if active else 200
    named = {"damage": c.D_ZEROS, "zeros": True, "first_lost": first_lost, **fields}
    zeros = bad(900, SIZE, named.pop("first_lost"), **named)
    base = 200 if active else 100
    padded = DamageMap(valid=(good(0, 900, base, first_lost - 1),), damaged=(zeros,))
    of = logs(None, None, padded) if active else logs(None, padded, None)
    (one,) = damages_of(of, written)
    assert (one.rule, one.padding, one.consent) == seen, situation
    assert bool(choose_cuts([one], LISTED, (), "excise").cuts) is not bool(one.consent)
    assert ("may be lost" in one.description) is (one.rule == "KR301")


def test_what_each_way_out_costs() -> None:
    (one,) = damages_of(logs(MIDDLE, None, None), WriteProgress(0))
    assert one.consent == "KR302:t-0:40"
    assert one.loss_if_excised == Loss(100, 40, 49, 10, True)
    assert one.loss_if_truncated[:4] == (SIZE - 400 + 2 * SIZE, 40, 299, 60), (
        "10 by the offsets, and 50 that are valid"
    )
    assert broker_loss(logs(MIDDLE, None, None), 0, 400, alone=True).bytes == SIZE - 400


def test_a_cut_at_the_end_of_the_file_loses_no_record_and_says_so() -> None:
    whole = DamageMap(valid=(good(0, SIZE, 0, 99),))
    assert broker_loss(logs(whole), 0, SIZE) == Loss(0, 100, -1, 0, False)


def test_damage_that_is_not_known_to_its_end_is_no_ground_for_a_cut() -> None:
    assert why_not_mapped(logs(MIDDLE)) == ""
    assert "not all of its segments" in why_not_mapped(logs(MIDDLE, listed=2))
    assert why_not_mapped(logs(DamageMap(why="it cannot be read"))) == "it cannot be read"
    given_up = logs(DamageMap(damaged=TORN.damaged, complete=False))
    assert "krepair stopped searching" in why_not_mapped(given_up)
    assert damages_of(given_up, WriteProgress(0)) == ()


def test_a_torn_tail_goes_without_a_consent() -> None:
    found = chosen(logs(None, None, TORN))
    (cut,) = found.cuts
    assert (cut.log.base_offset, cut.bounds, cut.at_end) == (200, ((900, SIZE),), True)
    assert cut.reason == "torn tail: wrong"
    assert (found.aside, found.notes, found.left) == ((), (), None)


def test_without_a_consent_nothing_goes_and_what_would_be_typed_is_told() -> None:
    found = chosen(logs(MIDDLE, None, None))
    assert found.cuts == ()
    assert found.left is not None
    assert "--accept-data-loss KR302:t-0:40" in str(found.left.next_command)
    assert found.notes[0].startswith(f"{0:020d}.log at position 400: KR302: wrong")


@pytest.mark.parametrize(("count", "more"), [(20, ""), (21, "1 more"), (23, "3 more")])
def test_of_many_damages_twenty_are_told_and_how_many_more_there_are(count: int, more: str) -> None:
    ranges = tuple(bad(10 * n, 10 * n + 5, n, next_offset=n + 1) for n in range(count))
    notes = chosen(logs(DamageMap(damaged=ranges))).notes
    assert len(notes) == 20 + bool(more)
    assert notes[19].startswith(f"{0:020d}.log at position 190")
    assert notes[20:] == ((f"{more} damaged ranges; krepair check names them all",) if more else ())


WRONG_OFFSETS = bad(400, 500, 40, damage=c.D_OFFSET_ORDER, next_offset=50)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"recovery": "splits"}, "a broker's recovery splits the segment there and loses nothing"),
        (
            {"recovery": "empties"},
            "a broker's recovery meets an index entry with a lower offset than before, and truncates the segment to 0:",
        ),
        (
            {"recovery": "jumps"},
            "a broker's recovery splits the segment, and the log end jumps there; cutting",
        ),
        (
            {"recovery": "stops"},
            "recovery fails there, and the broker does not start; cutting here costs 600 bytes",
        ),
        ({"cut": 400}, "a broker's recovery does not notice it; cutting here costs 600 bytes"),
        (
            {"cut": 401},
            "a broker's recovery does not notice it, and cuts at position 401: 599 bytes, offsets 40 to 99",
        ),
        (
            {"cut": 499},
            "a broker's recovery does not notice it, and cuts at position 499: 501 bytes, offsets 40 to 99",
        ),
        ({"cut": 500}, "a broker's recovery does not notice it; cutting here costs 600 bytes"),
    ],
)
def test_what_a_recovery_makes_of_wrong_offsets_is_told(fields: dict[str, Any], says: str) -> None:
    (one,) = damages_of(
        logs(DamageMap(valid=MIDDLE.valid, damaged=(WRONG_OFFSETS,), **fields)), WriteProgress(0)
    )
    assert one.recovery.startswith(says), one.recovery


@pytest.mark.parametrize(
    ("fields", "records", "bound"),
    [
        ({"records": 0, "last_lost": 7}, 0, False),
        ({"last_lost": 0}, 1, True),
        ({"last_lost": 4}, 5, True),
        ({"zeros": True}, 0, False),
        ({}, -1, True),
    ],
)
def test_records_of_a_damage_are_counted_or_bounded_by_its_offsets(
    fields: dict[str, Any], records: int, bound: bool
) -> None:
    (one,) = damages_of(logs(DamageMap(damaged=(bad(0, SIZE, 0, **fields),))), WriteProgress(0))
    assert (one.loss_if_excised.records, one.loss_if_excised.at_most) == (records, bound)


def test_by_consent_only_the_damage_goes() -> None:
    found = chosen(logs(MIDDLE, None, None), "KR302:t-0:40")
    (cut,) = found.cuts
    assert (cut.bounds, cut.at_end, cut.losses[0].bytes) == (((400, 500),), False, 100)
    assert cut.reason == "only the damage, by consent: wrong"
    assert found.left is None


def test_a_log_with_two_damages_needs_both_consents() -> None:
    both = logs(None, TWICE, None)
    one = chosen(both, "KR302:t-0:120")
    assert one.cuts == ()
    assert (
        "nothing is cut yet, since it has other damage: it needs --accept-data-loss KR302:t-0:140"
        in one.notes[-1]
    )
    (cut,) = chosen(both, "KR302:t-0:120", "KR302:t-0:140").cuts
    assert cut.bounds == ((200, 300), (400, SIZE))
    assert cut.reason.endswith("wrong (and 1 more)")


def test_as_a_broker_later_segments_are_set_aside_from_the_end() -> None:
    found = chosen(logs(MIDDLE, None, None), "KR302:t-0:40", way="broker")
    (cut,) = found.cuts
    assert (cut.bounds, cut.at_end) == (((400, SIZE),), True)
    assert found.aside == (200, 100)
    assert cut.losses[0].segments == 2
    assert ", 2 later segments among them, " in cut.losses[0].text()
    assert cut.reason == "as a broker would, by consent: wrong"


def test_as_a_broker_nothing_goes_behind_a_damage_that_stays() -> None:
    found = chosen(logs(None, TWICE, None), "KR302:t-0:140", way="broker")
    assert (found.cuts, found.aside) == ((), ())
    assert "its first damage is at position 200 (KR302:t-0:120)" in found.notes[-1]


def test_a_file_with_two_names_is_never_cut_in_its_place_but_may_be_written_anew() -> None:
    shared = chosen(logs(None, None, TORN), names=2)
    assert shared.cuts == ()
    assert "2 names (hard links)" in shared.notes[-1]
    assert chosen(logs(MIDDLE, None, None), "KR302:t-0:40", names=2).cuts
    aside = chosen(logs(MIDDLE, None, None), "KR302:t-0:40", way="broker", names=2)
    assert (aside.cuts, aside.aside) == ((), ())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("KR302:t-0:40", ""),
        (
            "KR302:t-0:41",
            "KR302 at offset 41 is not a first lost offset in t-0: type --accept-data-loss KR302:t-0:40",
        ),
        ("KR303:t-0:40", "KR303 at offset 40 is not its damage"),
        ("KR302:u-0:40", "u-0 is not among the partitions"),
        ("KR302:v-0:40", "v-0 has no damage that needs a consent"),
    ],
)
def test_a_consent_that_names_nothing_is_told_what_it_could_name(text: str, why: str) -> None:
    found = {"t-0": damages_of(logs(MIDDLE), WriteProgress(0)), "v-0": ()}
    assert why in wrong_consent(text, found)
    assert bool(wrong_consent(text, found)) == bool(why)
    assert parts_of_consent(text) == tuple(text.split(":"))


def test_of_many_damages_five_consents_are_told() -> None:
    found = {"t-0": damages_of(logs(*[MIDDLE] * 7), WriteProgress(0))}
    assert len(found["t-0"]) == 7
    assert wrong_consent("KR302:t-0:41", found).count("type --accept-data-loss") == 5


def test_what_lies_past_the_new_end_is_told_unless_a_fix_takes_it() -> None:
    torn = chosen(logs(None, None, TORN))
    ends = LogEnd(290, {"recovery point": 290, "high watermark": 295}, {290: "a.snapshot", 299: "b.snapshot"})
    (told,) = notes_on_end(torn, ends, ("tail",), writers=True)
    assert "high watermark 295" in told
    assert "b.snapshot" in told
    assert "recovery point" not in told
    assert "a.snapshot" not in told
    assert not list(notes_on_end(torn, ends, ("tail", "checkpoints", "snapshots"), writers=True))
    assert not list(notes_on_end(torn, None, ("tail",), writers=True))


def test_lost_bytes_with_writers_may_have_held_the_end_of_a_transaction() -> None:
    by_consent = chosen(logs(MIDDLE, None, None), "KR302:t-0:40")
    assert "KR103" in " ".join(notes_on_end(by_consent, None, (), writers=True))
    assert not list(notes_on_end(by_consent, None, (), writers=False))


def test_a_last_offset_that_is_only_a_bound_is_told_as_one() -> None:
    found = Loss(100, 40, 49, 10, at_most=False)
    assert found.text() == "100 bytes, offsets 40 to 49, 10 records"
    assert found._replace(last=-1).text() == "100 bytes, offsets from 40 on, 10 records"
    assert found._replace(first=1, last=0).text() == "100 bytes, no offsets, 10 records"
    assert found._replace(last_at_most=True).text() == "100 bytes, offsets 40 to at most 49, 10 records"


def test_segments_are_gone_through_as_often_for_many_damaged_ranges_as_for_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: Counter[int] = Counter()
    real = damage.valid_ranges

    def counting(logs: DamagedLogs, facts: SegmentFacts) -> tuple[ValidRange, ...]:
        asked[len(logs.segments)] += 1
        return real(logs, facts)

    monkeypatch.setattr(damage, "valid_ranges", counting)
    for number in (2, 6):
        assert len(damages_of(logs(*[TWICE] * number), WriteProgress(0))) == 2 * number
    assert asked == {2: 2 * 2, 6: 6 * 2}, "twice, however many ranges it has"
