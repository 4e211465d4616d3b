"""Each objection is raised by a plan that breaks exactly its rule; a valid plan raises none."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from krepair.errors import KrepairError
from krepair.plan.change_review import REVIEWS
from krepair.plan.document import PlanDocument, join_unchanged
from krepair.plan.facts import setting
from krepair.plan.model import (
    ChangeLines,
    Commit,
    FreeWhenVerified,
    KeepOriginal,
    NewFile,
    NotReversible,
    Plan,
)
from krepair.plan.objection import OBJECTIONS
from krepair.plan.planfile import dumps, loads, seal
from krepair.plan.review import review
from krepair.plan.space import with_figures
from krepair.rules.changed_entries import ChangedLine
from tests.plan.plans import (
    DIGEST,
    FOLDER,
    fingerprint,
    good_plan,
    laid_out,
    left_alone,
    partition,
    policy,
    source,
)
from tests.plan.reviewed import (
    Breaker,
    policy_with,
    raw,
    refigured,
    removal,
    replacement,
    rewrite,
    root_change,
    setting_with,
    swap,
    whole,
    with_change,
    with_first,
    with_root,
)


def without_fix() -> Breaker:
    return lambda plan: seal(replace(with_root()(plan), policy=plan.policy))


def of_topic(topic: str) -> Breaker:
    """The same partition under another topic, which is compacted too."""
    change = replace(rewrite(), change_id=f"{topic}-3/{0:020d}")
    part = partition(topic=topic, folder=f"{topic}-3", changes=(change,))
    rows = good_plan().policy.settings["__consumer_offsets"]
    return lambda plan: good_plan(part, settings={topic: rows})


CASES: list[tuple[str, str, Breaker]] = [
    ("RV04", "P2 with the fence", whole(commit=Commit(order="P2", fence=True, why="x"))),
    ("RV04", "P2 without fence for 2.2.1", whole(commit=Commit(order="P2", fence=False, why="x"))),
    ("RV05", "keep none", policy_with(keep="none")),
    ("RV05", "keep a folder", policy_with(keep="/backup")),
    ("RV05", "group kept although it is to be freed", policy_with(keep="until-verified")),
    ("RV05", "group freed although it is to be kept", with_change(undo=FreeWhenVerified())),
    ("RV05", "group not kept", with_change(undo=NotReversible(why="x"))),
    ("RV09", "folder outside", raw(folder="../x")),
    ("RV09", "folder twice", lambda plan: seal(replace(plan, partitions=plan.partitions * 2))),
    ("RV09", "log directory with a detour", whole(log_dir="/data/x/../kafka")),
    ("RV09", "log directory without a beginning", whole(log_dir="kafka")),
    ("RV09", "topic that Kafka has not", of_topic("a b")),
    ("RV09", "change id of another partition", with_change(change_id=f"x-1/{0:020d}")),
    ("RV13", "cluster metadata", of_topic("__cluster_metadata")),
    ("RV13", "tiered topic", setting_with("remote.storage.enable", "true")),
    ("RV14", "topic that is not compacted", setting_with("cleanup.policy", "delete")),
    ("RV16", "past the high watermark", refigured(partition(high_watermark=199))),
    ("RV16", "no high watermark", refigured(partition(high_watermark=-1))),
    ("RV16", "no span", refigured(partition(span=None))),
    (
        "RV16",
        "span ends before the group",
        refigured(partition(span=replace(partition().span, end_offset=199))),
    ),
    ("RV16", "span past the log end", refigured(partition(log_end_offset=199))),
    ("RV17", "base of another segment", with_change(base_offset=1, change_id=f"{FOLDER}/{1:020d}")),
    ("RV21", "bytes that its sources do not give", with_first(kept_bytes=379)),
    ("RV21", "no sources", with_change(sources=())),
    ("RV21", "nothing that is left", with_change(log_bytes=0, batches=0)),
    ("RV21", "last offset below its segment", with_change(last_offset=99)),
    ("RV23", "a name that is no snapshot", with_change(removes_snapshots=("../../x",))),
    ("RV23", "the snapshot of a merged segment that stays", with_change(removes_snapshots=())),
    ("RV23", "snapshot of the first source", with_change(removes_snapshots=(f"{0:020d}.snapshot",))),
    ("RV24", "time of another segment", with_change(mtime_ns=5)),
    ("RV25", "a rule that is no rule", replacement(rule="KR999")),
    (
        "RV25",
        "a log file",
        replacement(name=f"{0:020d}.log", change_id=f"{FOLDER}/{0:020d}.log", size_before=1000),
    ),
    ("RV09", "replacement outside", replacement(change_id="x/y")),
    ("RV31", "a swap that is not there", swap(base_offset=0)),
    ("RV31", "a swap that replaces nothing", swap(replaces=())),
    ("RV31", "a swap that ends before it begins", swap(last_offset=99)),
    ("RV31", "a swap whose indexes stay", swap(goes=(f"{100:020d}.log",))),
    ("RV31", "a void swap", swap(files=(fingerprint(f"{100:020d}.log.cleaned", 1),))),
    (
        "RV31",
        "an index of another segment",
        swap(makes=(NewFile(name=f"{0:020d}.index", size=8, digest=DIGEST),)),
    ),
    ("RV31", "a copy of what is not replaced", swap(copied=(0,))),
    ("RV31", "a swap for another rule", swap(rule="KR205")),
    ("RV25", "a swap that goes", removal(f"{0:020d}.log.swap")),
    ("RV25", "an index that has its log", removal(f"{100:020d}.index")),
    ("RV25", "a snapshot that is no leftover", removal(f"{100:020d}.snapshot")),
    ("RV25", "a leftover that is no snapshot", removal(f"{9:020d}.log.deleted", "KR501", "snapshots")),
    ("RV28", "keeper that is no partition", with_root(keeper="..")),
    ("RV28", "no change of the root", with_root(changes=(), files=())),
    ("RV28", "root without its fingerprint", with_root(files=())),
    (
        "RV28",
        "file of the root that is no checkpoint",
        root_change(name="meta.properties", change_id="./meta.properties"),
    ),
    ("RV28", "rule of another checkpoint", root_change(rule="KR404")),
    ("RV28", "root file cut", root_change(method="truncate")),
    ("RV28", "root file without digest", root_change(digest_after="")),
    ("RV28", "wrong size of a root file before", root_change(size_before=3)),
    ("RV28", "root file that would be empty", root_change(size_after=0)),
    ("RV28", "root file that is not kept", root_change(undo=NotReversible(why="x"))),
    ("RV28", "root without its fix", without_fix()),
]


def codes(plan: Plan) -> set[str]:
    return {objection.code for objection in review(plan)}


def test_good_plans_pass():
    assert review(good_plan()) == []
    assert review(good_plan(left_alone())) == []
    assert review(replacement()(good_plan())) == []
    assert review(with_root()(good_plan())) == []
    assert review(swap()(good_plan())) == []
    assert review(removal(f"{9:020d}.log.deleted")(good_plan())) == []
    assert review(removal(f"{9:020d}.timeindex")(good_plan())) == []
    assert review(removal(f"{150:020d}.snapshot", "KR501", "snapshots")(good_plan())) == []


@pytest.mark.parametrize(
    ("code", "name", "breaker"), CASES, ids=[f"{code} {name}" for code, name, _ in CASES]
)
def test_one_broken_rule_gives_its_code_alone(code: str, name: str, breaker: Breaker):
    assert codes(breaker(good_plan())) == {code}, name


def test_active_segment_in_a_group_is_told():
    """The last source becomes the active one, so other rules speak too; this one must be among them."""
    files = tuple(file for file in partition().files if not file.name.startswith(f"{200:020d}"))
    assert "RV18" in codes(good_plan(partition(files=files, log_bytes_before=2000)))


def test_the_newest_snapshot_is_never_removed():
    files = tuple(file for file in partition().files if file.name != f"{200:020d}.snapshot")
    assert codes(good_plan(partition(files=files))) == {"RV23"}


def test_every_code_of_the_table_is_raised_by_some_test():
    told = {code for code, _, _ in CASES} | {"RV18"}
    told |= {"RV29", "RV30"}  # see test_review_loss
    told |= {"RV33"}  # see tests/ops/test_other_replicas.py
    assert told == set(OBJECTIONS)


def test_a_setting_that_is_missing_has_the_default_of_kafka() -> None:
    assert setting(replace(good_plan().policy, settings={}), "t", "index.interval.bytes") == "4096"
    assert setting(replace(good_plan().policy, settings={}), "t", "segment.index.bytes") == "10485760"


def numbers_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all whole numbers in a JSON value."""
    if isinstance(value, bool):
        return []
    if isinstance(value, int):
        return [path]
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in numbers_of(item, (*path, key))]
    if isinstance(value, list):
        return [found for place, item in enumerate(value) for found in numbers_of(item, (*path, place))]
    return []


DOCUMENT = json.loads(dumps(good_plan()))
CHANGES = numbers_of(DOCUMENT["partitions"][0]["changes"], ("partitions", 0, "changes"))


def mutated(path: tuple[Any, ...], delta: int) -> Any:
    document = json.loads(dumps(good_plan()))
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] += delta
    return document


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(numbers_of(DOCUMENT)), st.integers(-(2**40), 2**40).filter(bool))
def test_no_number_of_the_file_can_be_changed_unnoticed(path: tuple[Any, ...], delta: int):
    data = laid_out(mutated(path, delta))
    with pytest.raises(KrepairError):
        loads(data, "p")


@settings(max_examples=60, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(CHANGES))
def test_the_review_of_any_number_ends_without_an_error(value: int, path: tuple[Any, ...]):
    document = json.loads(dumps(good_plan()))
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    plan = join_unchanged(msgspec.convert(document, PlanDocument))
    assert all(objection.text for objection in review(plan))


def test_figures_of_the_good_plan_are_those_worked_out_by_hand():
    part = with_figures(partition(), policy())
    old, new = 8 * 4096, 2 * 4096
    assert part.freed_at_purge == old - new
    assert part.peak_extra_bytes == new + 4 * 4096 + 64 * 1024
    assert part.freed_at_apply == -new
    assert part.log_bytes_after == 2500 - 2000 + 578


@pytest.mark.slow
def test_many_groups_are_reviewed_in_time_that_grows_with_their_number():
    """20,000 single groups: a search through all segments for each would take minutes."""
    count = 20_000
    first = source(0)
    changes = tuple(
        replace(
            rewrite(),
            change_id=f"{FOLDER}/{base:020d}",
            base_offset=base,
            sources=(replace(first, base_offset=base, aborted_kept=()),),
            log_bytes=378,
            batches=2,
            mtime_ns=1_700_000_000_000_000_000,
            last_offset=base + 99,
            removes_snapshots=(),
        )
        for base in range(0, count * 100, 100)
    )
    files = tuple(fingerprint(f"{base:020d}.log", 1000) for base in range(0, count * 100 + 1, 100))
    end = count * 100
    span = replace(partition().span, end_offset=end)
    part = partition(
        files=files,
        changes=changes,
        span=span,
        log_end_offset=end + 1,
        high_watermark=end + 1,
        log_bytes_before=1000 * (count + 1),
    )
    plan = good_plan(part)
    started = time.process_time()
    assert review(plan) == []
    assert time.process_time() - started < 30


@pytest.mark.parametrize(
    ("old", "new", "ok"), [(3, 2, True), (3, 0, True), (3, None, True), (3, 3, False), (3, -1, False)]
)
def test_a_line_of_a_checkpoint_that_changes_becomes_another_possible_offset(
    old: int, new: int | None, ok: bool
) -> None:
    file = fingerprint("recovery-point-offset-checkpoint", 20)
    change = ChangeLines(
        change_id=f"./{file.name}",
        name=file.name,
        rule="KR403",
        lines=(ChangedLine(topic="t", partition=0, old=old, new=new),),
        size_before=20,
        reason="test",
        undo=KeepOriginal(),
    )
    told = [objection.text for objection in REVIEWS[ChangeLines].in_root(change, file)]
    assert told == ([] if ok else [f"t-0: {old} becomes {new}"])
