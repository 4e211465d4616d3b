"""The review compares what a plan removes with its evidence about other replicas, without a log directory."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from krepair.plan.model import Evidence, Others, Plan, RewriteSegments, SearchedDir, SourceSegment
from krepair.plan.review import review
from krepair.rules.evidence import Kind, OtherLog
from tests.plan.plans import DIGEST, FOLDER, good_plan, last_source, partition, source, tally

TOPIC = "__consumer_offsets"
DAY_MS = 86_400_000


def rewrite(*sources: SourceSegment, **fields: Any) -> RewriteSegments:
    change = partition().changes[0]
    assert isinstance(change, RewriteSegments)
    return replace(change, sources=sources, **fields)


def sources(*, keeps_all: bool | None) -> tuple[SourceSegment, SourceSegment]:
    kept = UNSET if keeps_all is None else keeps_all
    return replace(source(0), keeps_all=kept), replace(last_source(), keeps_all=kept)


def plan(evidence: Evidence | None, others: Others, *, keeps_all: bool | None = False, **fields: Any) -> Plan:
    part = partition(
        changes=(rewrite(*sources(keeps_all=keeps_all)),),
        evidence=UNSET if evidence is None else evidence,
        **fields,
    )
    return good_plan(part, others=others)


def told(made: Plan) -> list[str]:
    return [f"{one.code} {one.where}: {one.text}" for one in review(made)]


def known(kind: Kind) -> Evidence:
    return Evidence(kind=kind, why="test")


ASKED: dict[Kind, Others] = {
    "in-sync": Others(cluster_digest=DIGEST, cluster_source="describe"),
    "replicas": Others(cluster_digest=DIGEST, replicas=("2=/x",)),
    "only-replica": Others(only_replica=(TOPIC,)),
    "as-broker": Others(as_broker=True),
}
NOT_ASKED: list[tuple[Kind, Others]] = [
    ("in-sync", Others()),
    ("in-sync", Others(cluster_digest=DIGEST, cluster_source="metadata-log")),
    ("in-sync", Others(cluster_source="describe")),
    ("replicas", Others(cluster_digest=DIGEST)),
    ("replicas", Others(replicas=("2=/x",))),
    ("only-replica", Others(only_replica=("t",))),
    ("as-broker", Others(only_replica=(TOPIC,))),
]


@pytest.mark.parametrize(
    ("kind", "others"),
    [
        *ASKED.items(),
        ("only-replica", Others(only_replica=("*",))),
        ("only-replica", Others(own_metadata=("/m/__cluster_metadata-0",))),
    ],
)
def test_evidence_that_an_option_gives_passes(kind: Kind, others: Others) -> None:
    assert told(plan(known(kind), others)) == []


@pytest.mark.parametrize(("kind", "others"), NOT_ASKED)
def test_evidence_that_no_option_gives_is_objected_to(kind: Kind, others: Others) -> None:
    words = f"RV33 {FOLDER}: its evidence is {kind!r}, but no option of the plan says so"
    assert told(plan(known(kind), others)) == [words]


def test_without_evidence_nothing_goes_and_that_needs_no_option() -> None:
    bytes_kept = source(
        0,
        kept_bytes=300 + 78 + 310,
        kept_batches=6,
        kept_markers=1,
        reasons=(tally("K01", 1, 300), tally("K02", 1, 78), tally("E01", 4, 310), tally("D04", 4, 312)),
        keeps_all=True,
        drop_unstamped=False,
    )
    found = told(
        good_plan(
            partition(changes=(rewrite(bytes_kept),), evidence=known("none"), horizon_ms=0), others=Others()
        )
    )
    assert not [text for text in found if "no option of the plan" in text], found
    goes = told(plan(known("none"), Others(), keeps_all=True))
    assert f"RV33 {FOLDER}/{0:020d}: 4 markers would go, but nothing is known" in " ".join(goes)
    stamped = rewrite(replace(source(0), keeps_all=True, drop_unstamped=False))
    goes = told(good_plan(partition(changes=(stamped,), evidence=known("none")), others=Others()))
    assert f"RV33 {FOLDER}/{0:020d}: 4 markers would go, but nothing is known" in " ".join(goes)


def test_plan_that_says_nothing_of_what_was_asked_is_objected_to() -> None:
    why = f"RV33 {FOLDER}: segments are rewritten, but nothing is said of other replicas"
    assert told(plan(None, Others())) == [why]


def test_horizon_is_never_later_than_the_evidence_allows() -> None:
    now = good_plan().policy.now_ms
    for kind in ("in-sync", "as-broker"):
        assert told(plan(known(kind), ASKED[kind], horizon_ms=now - DAY_MS)) == []
        late = told(plan(known(kind), ASKED[kind], horizon_ms=now - DAY_MS + 1))
        assert [text for text in late if text.startswith("RV33")] == [
            f"RV33 {FOLDER}: the delete horizon {now - DAY_MS + 1} is later than {kind!r} allows: {now - DAY_MS}"
        ]


# -- where a replica in the making would be seen


def in_dirs(searched: tuple[str, ...], *log_dirs: str) -> list[str]:
    logs = tuple(OtherLog(broker_id=2, log_dir=path, folder=FOLDER, digest=DIGEST) for path in log_dirs)
    dirs = tuple(SearchedDir(broker_id=2, path=path) for path in searched)
    others = replace(ASKED["replicas"], searched=dirs)
    return told(plan(replace(known("replicas"), logs=logs), others))


def test_every_log_is_in_a_directory_that_was_searched_or_in_the_plans_own() -> None:
    own = good_plan().log_dir
    assert in_dirs(("/b2", "/b3"), "/b2", "/b3", own) == []
    assert in_dirs(("/b2", "/b22"), "/b2") == []
    missing = "the plan rests on a log in '/b3', which is not among the directories that were searched"
    assert in_dirs(("/b2",), "/b2", "/b3") == [f"RV33 {FOLDER}: {missing}"]
    assert in_dirs((), "/b3") == [f"RV33 {FOLDER}: {missing}"]


@pytest.mark.parametrize(
    ("searched", "text"),
    [
        (("/b3", "/b2"), "the log directories that were searched are not by path, each once"),
        (("/b2", "/b2", "/b3"), "the log directories that were searched are not by path, each once"),
        (("/b2", "/b3", "b4"), "'b4' was searched, which is not an absolute, plain path"),
        (("/b2", "/b3", "/x/../b3"), "'/x/../b3' was searched, which is not an absolute, plain path"),
        (("/b2", "/b3", "/b3/"), "'/b3/' was searched, which is not an absolute, plain path"),
    ],
)
def test_searched_directories_are_plain_paths_each_once(searched: tuple[str, ...], text: str) -> None:
    assert in_dirs(searched, "/b2", "/b3") == [f"RV33 : {text}"]
