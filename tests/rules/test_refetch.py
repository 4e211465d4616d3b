"""May a replica be emptied: every single thing that speaks against it is enough, alone and with any other."""

from __future__ import annotations

from itertools import combinations

import pytest
from msgspec.structs import replace

from krepair.rules.refetch import AHEAD_MS, MAX_AGE_MS, RefetchProof, why_not, why_too_old

NOW = 10_000_000
GOOD = RefetchProof(
    broker_id=3,
    source="metadata-log",
    digest="0" * 32,
    as_of_ms=NOW - 1000,
    stopped_ms=NOW - 5000,
    topic_id="a" * 22,
    own_topic_id="a" * 22,
    replicas=(1, 2, 3),
    isr=(1, 2),
    elr=(),
    kraft=True,
    may_have_elr=True,
    leader=1,
    moving=False,
    unclean="off",
    unclean_from="server.properties",
    right=(1, 2),
    verdict="tombstone-missed",
    wrong=True,
)

AGAINST: dict[str, tuple[dict[str, object], str]] = {
    "asked ZooKeeper": ({"source": "describe-zookeeper"}, "--zookeeper"),
    "own metadata log": ({"own_log": True}, "own metadata log"),
    "not the active controller": ({"outdated": "is the copy of node 7"}, "copy of node 7"),
    "taken before the stop": ({"stopped_ms": NOW - 1000}, "not later than this broker's last write"),
    "in the future": ({"as_of_ms": NOW + AHEAD_MS + 1}, "in the future"),
    "another topic": ({"topic_id": "b" * 22}, "it is another topic"),
    "no partition.metadata": ({"own_topic_id": ""}, "partition.metadata is missing"),
    "not assigned": ({"replicas": (1, 2)}, "is not assigned"),
    "in the ISR": ({"isr": (1, 2, 3)}, "is in the ISR"),
    "in the ELR": ({"elr": (3,)}, "is in the ELR"),
    "ELR not known": ({"elr": None}, "does not say who is in the ELR"),
    "nobody leads": ({"leader": -1}, "has no leader"),
    "it leads": ({"leader": 3}, "is its leader"),
    "leader not in sync": ({"isr": (2,)}, "is not in the ISR"),
    "moving": ({"moving": True}, "reassignment is under way"),
    "moving not known": ({"moving": None}, "does not say whether a reassignment"),
    "unclean": ({"unclean": "on"}, "unclean leader election is on"),
    "unclean not known": ({"unclean": "unknown"}, "--cluster-config"),
    "another one aside": ({"aside": (2,)}, "one replica at a time"),
    "not wrong": ({"wrong": False}, "does not call this replica wrong"),
    "leader wrong too": ({"right": (2,)}, "does not call the leader's replica right"),
    "other directories not known": ({"dirs_unknown": "give --config"}, "give --config"),
    "in another directory too": ({"elsewhere": "/d2/t-0: is here as well"}, "/d2/t-0"),
    "leader compared by old facts": ({"too_old": (1,)}, "of the leader 1 is from before"),
}


def test_with_everything_known_and_in_its_favour_it_may() -> None:
    assert why_not(GOOD, NOW) == ()


@pytest.mark.parametrize("name", AGAINST)
def test_one_thing_against_it_is_enough_and_is_named(name: str) -> None:
    changed, says = AGAINST[name]
    assert any(says in reason for reason in why_not(replace(GOOD, **changed), NOW))


@pytest.mark.parametrize("pair", combinations(AGAINST, 2), ids=" and ".join)
def test_two_things_never_cancel_out(pair: tuple[str, str]) -> None:
    both = AGAINST[pair[0]][0] | AGAINST[pair[1]][0]
    assert why_not(replace(GOOD, **both), NOW)


def test_a_broker_without_an_elr_needs_no_word_about_it() -> None:
    assert why_not(replace(GOOD, elr=None, may_have_elr=False), NOW) == ()


def test_with_zookeeper_a_folder_needs_no_partition_metadata() -> None:
    assert why_not(replace(GOOD, kraft=False, own_topic_id="", elr=None, may_have_elr=False), NOW) == ()


def test_old_facts_of_a_broker_that_does_not_lead_do_not_matter() -> None:
    assert why_not(replace(GOOD, too_old=(2,)), NOW) == ()


def test_what_cannot_be_seen_of_others_is_a_note_and_no_reason() -> None:
    assert why_not(replace(GOOD, unseen=(2,)), NOW) == ()


def test_its_own_earlier_journal_is_not_another_replica() -> None:
    assert why_not(replace(GOOD, aside=(3,)), NOW) == ()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"as_of_ms": NOW + AHEAD_MS}, ()),
        ({"as_of_ms": NOW + 1_234_567}, ("1234 s in the future",)),
        ({"stopped_ms": NOW - 1001}, ()),
        ({"stopped_ms": NOW - 1000 + 1_234_567}, ("(by 1234 s)",)),
    ],
)
def test_how_late_a_proof_may_be_and_by_how_much_it_is_not(
    changed: dict[str, object], says: tuple[str, ...]
) -> None:
    reasons = why_not(replace(GOOD, **changed), NOW)
    assert len(reasons) == len(says)
    assert all(said in reason for said, reason in zip(says, reasons, strict=True))


@pytest.mark.parametrize(("age", "old"), [(0, False), (MAX_AGE_MS, False), (MAX_AGE_MS + 1, True)])
def test_apply_takes_a_proof_of_ten_minutes_at_most(age: int, old: bool) -> None:
    assert bool(why_too_old(replace(GOOD, as_of_ms=NOW - age), NOW)) == old
