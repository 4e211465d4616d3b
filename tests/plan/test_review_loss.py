"""The review of changes that lose data: none passes without the consent that names it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from krepair.cli.views.writers import markdown
from krepair.plan.build import build_plan
from krepair.plan.facts import OnDisk
from krepair.plan.model import MendLog, NewCompanion, Plan
from krepair.plan.planfile import dumps, loads, seal
from krepair.plan.render import plan_view
from krepair.plan.review import review
from krepair.plan.space import space_of
from tests.plan.plans import COMMIT, DIGEST, FACTS, policy, rewritten, source
from tests.plan.reviewed_loss import CONSENT, FOLDER, MTIME_NS, aside, log, partition_with, removed, replaced


def torn(**fields: Any) -> MendLog:
    one = removed(start=500, end=600, rule="KR301", consent="", first_lost=250, last_lost=-1, records=-1)
    return log(200, 600, **({"removed": (one,), "method": "cut", "last_offset": 249} | fields))


def cut() -> MendLog:
    return log(removed=(removed(end=1000, last_lost=299),), method="cut", last_offset=39)


def plan(*changes: Any, **fields: Any) -> Plan:
    given = {"fixes": ("tail",), "accepted_losses": (CONSENT,), "settings": {}}
    return build_plan(FACTS, policy(**(given | fields)), [partition_with(*changes)], COMMIT)


def codes(made: Plan) -> set[str]:
    return {objection.code for objection in review(made)}


def test_torn_tail_needs_no_consent_and_the_others_pass_with_theirs() -> None:
    assert codes(plan(torn(), accepted_losses=())) == set()
    assert codes(plan(log())) == set()
    assert codes(plan(log(), torn())) == set()
    assert codes(plan(aside(200), aside(100), cut())) == set()


def test_plan_is_read_back_as_it_was_written_and_its_page_tells_what_goes() -> None:
    made = plan(aside(200), aside(100), cut())
    assert loads(dumps(made), "p") == made
    page = markdown(plan_view(made))
    assert "Data that goes" in page
    assert CONSENT in page
    assert made.partitions[0].log_bytes_after == 300
    assert made.freed_at_purge == 7 * 4096


BROKEN: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    ("RV29", "no consent given", (log(),), {"accepted_losses": ()}),
    ("RV29", "consent for another offset", (log(),), {"accepted_losses": ("KR302:t-0:41",)}),
    ("RV29", "no fix", (log(),), {"fixes": ("index",)}),
    ("RV29", "consent of another partition", (log(removed=(removed(consent="KR302:t-1:40"),)),), {}),
    ("RV29", "middle of a log without consent", (log(removed=(removed(consent="", rule="KR301"),)),), {}),
    (
        "RV29",
        "end of a segment that is not the last, without consent",
        (log(removed=(removed(end=1000, consent="", rule="KR301"),), method="cut"),),
        {},
    ),
    (
        "RV29",
        "tail that is not torn, without consent",
        (torn(removed=(removed(start=500, end=600, consent=""),)),),
        {},
    ),
    ("RV30", "wrong size before", (log(size=999),), {}),
    ("RV30", "wrong size after", (log(size_after=901),), {}),
    ("RV30", "another modification time", (log(mtime_ns=7),), {}),
    ("RV30", "ranges that overlap", (log(removed=(removed(), removed(start=350, end=500))),), {}),
    ("RV30", "no ranges", (log(removed=(), size_after=1000),), {}),
    ("RV30", "cut in the middle", (log(method="cut"),), {}),
    ("RV30", "no digest", (log(digest_after=""),), {}),
    ("RV30", "front larger than the index", (log(front_bytes=24),), {}),
    ("RV30", "front within an entry", (log(front_bytes=7),), {}),
    (
        "RV30",
        "index of another segment",
        (log(companions=(NewCompanion(name="x.index", size_before=-1, size_after=0, digest_after=DIGEST),)),),
        {},
    ),
    ("RV30", "segment without a cut", (aside(200),), {}),
    ("RV30", "a gap between cut and what goes", (aside(100), cut()), {}),
    ("RV30", "lowest segment first", (aside(100), aside(200), cut()), {}),
    ("RV30", "cut before what lies behind it", (cut(), aside(200), aside(100)), {}),
    ("RV30", "file left behind", (aside(200), aside(100, names=(f"{100:020d}.log",), bytes=800), cut()), {}),
    ("RV09", "log of another name", (log(name=f"{100:020d}.log"),), {}),
]


@pytest.mark.parametrize(
    ("code", "name", "changes", "given"), BROKEN, ids=[f"{row[0]} {row[1]}" for row in BROKEN]
)
def test_broken_plan_is_objected_to(
    code: str, name: str, changes: tuple[Any, ...], given: dict[str, Any]
) -> None:
    assert code in codes(plan(*changes, **given))


def index(**fields: Any) -> NewCompanion:
    values: dict[str, Any] = {
        "name": f"{0:020d}.index",
        "size_before": 8,
        "size_after": 16,
        "digest_after": DIGEST,
    }
    return NewCompanion(**(values | fields))


TIMES = index(name=f"{0:020d}.timeindex", size_before=12, size_after=0)
OTHER = "KR302:t-0:41"
BELOW = f"{100:020d}.index"


def second_cut() -> MendLog:
    """The second segment is cut, by a consent of its own."""
    one = removed(start=300, end=800, consent=OTHER, first_lost=41, last_lost=299)
    return log(100, 800, removed=(one,), method="cut", last_offset=40)


WORDS: list[tuple[str, tuple[str, ...], tuple[Any, ...], dict[str, Any]]] = [
    ("log of another segment", ("RV09",), (log(base_offset=1, companions=(), front_bytes=0),), {}),
    ("id of another file", ("RV09",), (log(change_id=f"{FOLDER}/x"),), {}),
    ("range before the file", ("RV30 the removed ranges",), (log(removed=(removed(start=-1, end=9),)),), {}),
    ("range behind the file", ("RV30 the removed ranges",), (log(removed=(removed(end=1001),)),), {}),
    ("range of nothing", ("RV30 the removed ranges",), (log(removed=(removed(end=300),)),), {}),
    ("no digest of what goes", ("RV30 a digest",), (log(digest_removed=""),), {}),
    ("excised at its end", ("RV30 method 'excise'",), (log(removed=(removed(end=1000),)),), {}),
    (
        "index twice",
        ("RV30 a replaced index is not one",),
        (log(companions=(index(), index())),),
        {},
    ),
    (
        "index of another size",
        ("RV30 00000000000000000000.index: size",),
        (log(companions=(index(size_before=9),)),),
        {},
    ),
    (
        "cut that says another first lost offset",
        ("RV30 offset 38 is the last that stays, 40 the first lost",),
        (replace(cut(), last_offset=38),),
        {},
    ),
    (
        "fewer lost records than none",
        ("RV30 a lost offset or a number",),
        (log(removed=(removed(records=-2),)),),
        {},
    ),
    (
        "index of negative size",
        ("RV30 00000000000000000000.index: size", "RV30 00000000000000000000.index: its front"),
        (log(companions=(index(size_after=-8),)),),
        {},
    ),
    (
        "index without digest",
        ("RV30 00000000000000000000.index: digest",),
        (log(companions=(index(digest_after="0"),)),),
        {},
    ),
    ("front before the index", ("RV30 00000000000000000000.index: its front",), (log(front_bytes=-8),), {}),
    (
        "segment with another id",
        ("RV30 the files of segment 200",),
        (aside(200, change_id="x"), aside(100), cut()),
        {},
    ),
    ("segment of other bytes", ("RV30 bytes are not",), (aside(200, bytes=7), aside(100), cut()), {}),
    (
        "segment with a consent that is no consent",
        ("RV30 segments are set aside without", "RV29 a segment is set aside without"),
        (aside(200, rule="KR301"), aside(100, consent="x"), cut()),
        {"accepted_losses": (CONSENT, "x")},
    ),
    (
        "segment by a rule that takes no consent",
        ("RV29 a segment is set aside without",),
        (aside(200, rule="KR301"), aside(100), cut()),
        {},
    ),
    (
        "range by a rule that takes no consent",
        ("RV29 consent 'KR301:t-0:40'",),
        (log(removed=(removed(rule="KR301", consent="KR301:t-0:40"),)),),
        {"accepted_losses": ("KR301:t-0:40",)},
    ),
    (
        "segments whose consent was not given",
        (
            "RV29 a segment is set aside",
            "RV29 a segment is set aside",
            "RV29 consent 'KR302:t-0:40' is not among",
        ),
        (aside(200), aside(100), cut()),
        {"accepted_losses": ()},
    ),
    (
        "torn tail that is not at the end",
        ("RV30 method 'cut'", "RV29 bytes from position 500 are removed without consent"),
        (torn(removed=(removed(start=500, end=550, rule="KR301", consent=""),), last_offset=39),),
        {},
    ),
    (
        "consent of another partition, though it was given",
        ("RV29 consent 'KR302:t-1:40' is not the one",),
        (log(removed=(removed(consent="KR302:t-1:40"),)),),
        {"accepted_losses": ("KR302:t-1:40",)},
    ),
    (
        "more than the file goes",
        ("RV30 the removed ranges", "RV30 1001 bytes are removed, but the size changes from 1000 to -1"),
        (log(removed=(removed(start=0, end=1001),), method="excise"),),
        {},
    ),
    (
        "index of the next segment",
        ("RV30 a replaced index is not one",),
        (log(companions=(index(name=BELOW),)),),
        {},
    ),
    (
        "segment with a file that is not there",
        ("RV30 the files of segment 200",),
        (aside(200, names=(*aside(200).names, "x")), aside(100), cut()),
        {},
    ),
    (
        "segments behind a log that is not cut",
        ("RV30 segments are set aside without a cut",),
        (aside(200), aside(100), log()),
        {},
    ),
    (
        "segments by another consent than the cut",
        ("RV30 segments are set aside without a cut",),
        (aside(200, consent=OTHER), aside(100, consent=OTHER), cut()),
        {"accepted_losses": (CONSENT, OTHER)},
    ),
    (
        "segment touched by another change too",
        ("RV30 00000000000000000100.index is touched",),
        (aside(200), aside(100), cut(), replaced(f"{100:020d}.index")),
        {"fixes": ("index", "tail")},
    ),
]
FINE: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("first byte goes", (log(removed=(removed(start=0, end=9),)),), {}),
    (
        "everything goes",
        (
            log(
                removed=(removed(start=0, end=1000),),
                method="cut",
                last_offset=39,
                companions=(),
                front_bytes=0,
            ),
        ),
        {},
    ),
    ("two ranges go", (log(removed=(removed(), removed(start=500, end=501))),), {}),
    ("index as large as its front", (log(front_bytes=16),), {}),
    ("index that is emptied", (log(companions=(index(size_after=0),), front_bytes=0),), {}),
    ("time index smaller than the front of the other", (log(companions=(index(), TIMES)),), {}),
    (
        "index that was not there",
        (log(companions=(index(), index(name=f"{0:020d}.txnindex", size_before=-1))),),
        {},
    ),
    (
        "torn in an unfinished batch",
        (torn(removed=(removed(start=500, end=600, rule="KR305", consent=""),), last_offset=39),),
        {"accepted_losses": ()},
    ),
    ("a fix with a choice of its own", (log(),), {"fixes": ("tail=excise",)}),
    *[
        (
            f"consent for {rule}",
            (log(removed=(removed(rule=rule, consent=f"{rule}:t-0:40"),)),),
            {"accepted_losses": (f"{rule}:t-0:40",)},
        )
        for rule in ("KR302", "KR303", "KR304", "KR305")
    ],
    (
        "all indexes",
        (log(companions=(index(), TIMES, index(name=f"{0:020d}.txnindex", size_before=-1))),),
        {},
    ),
    (
        "one log is excised, another one cut",
        (log(), aside(200, consent=OTHER), second_cut()),
        {"accepted_losses": (CONSENT, OTHER)},
    ),
    (
        "other changes beside a cut",
        (aside(200), replaced(f"{0:020d}.timeindex", 12), aside(100), cut()),
        {"fixes": ("index", "tail")},
    ),
]


def told(made: Plan) -> list[str]:
    return [f"{objection.code} {objection.text}" for objection in review(made)]


@pytest.mark.parametrize(
    ("words", "changes", "given"), [row[1:] for row in WORDS], ids=[row[0] for row in WORDS]
)
def test_plan_past_one_limit_is_objected_to_in_these_words_alone(
    words: tuple[str, ...], changes: tuple[Any, ...], given: dict[str, Any]
) -> None:
    found = told(plan(*changes, **given))
    assert len(found) == len(words), found
    for text, part in zip(found, words, strict=True):
        assert part in text


@pytest.mark.parametrize(("changes", "given"), [row[1:] for row in FINE], ids=[row[0] for row in FINE])
def test_plan_just_within_the_limit_passes(changes: tuple[Any, ...], given: dict[str, Any]) -> None:
    assert told(plan(*changes, **given)) == []


def test_plan_that_loses_records_tells_of_other_replicas() -> None:
    assert [risk.code for risk in plan(log()).risks] == ["another-replica", "keep-inplace"]
    assert [risk.code for risk in plan(torn()).risks] == ["keep-inplace"]


def test_one_range_by_consent_beside_a_torn_tail_is_enough_to_tell_of_other_replicas() -> None:
    tail = removed(start=900, end=1000, rule="KR301", consent="")
    assert log(removed=(removed(), tail)).consents
    assert not log(removed=(tail,)).consents


def test_file_that_two_changes_touch_is_objected_to() -> None:
    other = replaced(f"{0:020d}.index")
    assert codes(plan(other, log(), fixes=("index", "tail"))) == {"RV30"}


def test_log_that_is_not_in_its_folder_is_objected_to_and_nothing_fails() -> None:
    found = told(plan(log(50)))
    assert "RV30 size or modification time is not that of its fingerprint" in found
    bare = plan(torn())
    empty = replace(bare.partitions[0], files=())
    assert "RV29" in codes(seal(replace(bare, partitions=(empty,))))


def test_snapshot_that_goes_twice_is_objected_to() -> None:
    name = f"{100:020d}.snapshot"
    removal = replace(replaced(name, 40), method="remove", rule="KR501", size_after=-1, digest_after="")
    rewrite = rewritten(source(0), folder=FOLDER, mtime_ns=MTIME_NS, removes_snapshots=(name,))
    found = told(plan(removal, rewrite, torn(), fixes=("markers", "snapshots", "tail")))
    assert f"RV30 {name} is touched by two changes" in found


def test_log_that_is_cut_and_rewritten_is_objected_to() -> None:
    rewrite = rewritten(source(0), folder=FOLDER, mtime_ns=MTIME_NS)
    of_log = told(plan(rewrite, log(), fixes=("markers", "tail")))
    assert f"RV30 {0:020d}.index is touched by two changes" in of_log


def test_only_bytes_at_the_end_of_the_last_log_may_move_the_log_end() -> None:
    bases = (0, 100, 200)
    inside = log(200, 600, removed=(removed(first_lost=240, last_lost=249),))
    assert torn().may_move_log_end(bases)
    assert not inside.may_move_log_end(bases)
    assert not cut().may_move_log_end(bases)


def test_only_a_range_that_something_follows_is_lost_inside() -> None:
    assert list(log().lost_inside()) == [(40, 50)]
    assert list(cut().lost_inside()) == []
    assert list(log(removed=(removed(last_lost=-1),)).lost_inside()) == []


@pytest.mark.parametrize(("there", "back"), [(0, 4096), (8192, 12288)])
def test_an_index_that_was_not_there_gives_nothing_back(there: int, back: int) -> None:
    """The log keeps 4,096 of its 5,000 bytes: a whole block, of two."""
    new = NewCompanion(name=f"{0:020d}.index", size_before=8, size_after=16, digest_after=DIGEST)
    change = log(companions=(new,), method="cut", size_before=5000, size_after=4096)
    space = space_of(change, OnDisk({change.name: 5000}, {change.name: 8192, new.name: there}, 4096))
    assert (space.back, space.made, space.kept_anew) == (back, 4096, 0)
