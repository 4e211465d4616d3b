"""The review of records that go by key: a plan of the planner passes, and each thing that it can show is looked at."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from krepair.logdir.config import Setting
from krepair.plan.actions.rewrite import Rewrite
from krepair.plan.build import LogDirFacts, build_plan
from krepair.plan.model import Plan, RewriteSegments, SourceSegment
from krepair.plan.planfile import dumps, loads
from krepair.plan.review import review
from tests.compaction.cases import small
from tests.compaction.directories import Verbs, keys_of, options


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Two groups, of which the first has two sources."""
    root = tmp_path_factory.mktemp("keys")
    log_dir = small(root)
    settings = {"segment.bytes": "160"}
    made = Verbs(log_dir, options(root, settings=settings)).plan()
    assert [len(group.sources) for group in groups(made)] == [2, 1]
    return made


def groups(plan: Plan) -> list[RewriteSegments]:
    return [change for change in plan.partitions[0].changes if isinstance(change, RewriteSegments)]


def rebuilt(plan: Plan, **fields: Any) -> Plan:
    """The plan with other fields of its partition; figures and sums that follow are right."""
    facts = LogDirFacts(host=plan.host, path=plan.log_dir, inode=plan.log_dir_inode)
    policy = fields.pop("policy", plan.policy)
    return build_plan(facts, policy, [replace(plan.partitions[0], **fields)], plan.commit)


def with_keys(plan: Plan, **fields: Any) -> Plan:
    """Other figures of the partition's keys."""
    return rebuilt(plan, compaction=replace(keys_of(plan.partitions[0]), **fields))


def with_source(plan: Plan, of_keys: dict[str, Any], **fields: Any) -> Plan:
    """Another first source of the second group."""
    first, second = groups(plan)
    (source,) = second.sources
    assert source.by_key is not None
    compacted = replace(source.by_key, **of_keys)
    return rebuilt(
        plan, changes=(first, replace(second, sources=(replace(source, compacted=compacted, **fields),)))
    )


def with_policy(plan: Plan, **fields: Any) -> Plan:
    return rebuilt(plan, policy=replace(plan.policy, **fields))


def with_setting(plan: Plan, value: str, source: str) -> Plan:
    rows = tuple(
        Setting("cleanup.policy", value, source) if row.key == "cleanup.policy" else row
        for row in plan.policy.settings["t"]
    )
    return with_policy(plan, settings=plan.policy.settings | {"t": rows})


def codes(plan: Plan) -> set[str]:
    return {objection.code for objection in review(plan)}


def test_plan_of_the_planner_passes_and_reads_back_as_it_was_written(plan: Plan) -> None:
    assert codes(plan) == set()
    assert loads(dumps(plan), "plan") == plan
    assert codes(rebuilt(plan)) == set()


def test_the_summary_says_what_goes_and_says_so_too_where_no_record_goes(plan: Plan) -> None:
    changes = groups(plan)
    assert "records of keys that have a newer record, or were deleted: removed. Every" in next(
        Rewrite().summary(changes)
    )
    none = dict.fromkeys(("superseded", "tombstones", "aborted"), 0)
    kept = [
        replace(
            change,
            sources=tuple(
                replace(one, compacted=replace(one.by_key, **none)) if one.by_key else one
                for one in change.sources
            ),
        )
        for change in changes
    ]
    said = next(Rewrite().summary(kept))
    assert "No record is removed. Every record that stays" in said


def test_plan_without_compact_is_written_as_before_there_was_one(plan: Plan) -> None:
    first, second = groups(plan)
    sources = tuple(replace(source, compacted=UNSET) for source in first.sources)
    bare = rebuilt(plan, changes=(replace(first, sources=sources),), compaction=UNSET)
    assert second.sources[0].by_key is not None
    for name in (b'"compacted"', b'"compaction"'):
        assert name in dumps(plan)
        assert name not in dumps(bare)


@pytest.mark.parametrize(
    "fields",
    [
        {"superseded": 3},
        {"superseded": 5},
        {"tombstones_dropped": 1},
        {"aborted": 1},
        {"emptied": 0},
        {"emptied": 99},
        {"records": 11},
        {"records": 5, "kept": -1},
        {"kept": 5},
        {"keyless": -1},
        {"keys": 5},
        {"keys": 7},
        {"bytes_before": 1},
        {"bytes_after": 1},
        {"scratch_bytes": -1},
    ],
    ids=str,
)
def test_figure_of_keys_that_does_not_follow_from_the_groups_is_refused(
    plan: Plan, fields: dict[str, Any]
) -> None:
    assert codes(with_keys(plan, **fields)) == {"RV32"}


def test_source_of_a_group_without_figures_of_its_keys_is_named(plan: Plan) -> None:
    first, second = groups(plan)
    sources = (replace(first.sources[0], compacted=UNSET), *first.sources[1:])
    objections = review(rebuilt(plan, changes=(replace(first, sources=sources), second)))
    assert "a source of a group says nothing of its keys" in {one.text for one in objections}


@pytest.mark.parametrize(
    ("of_keys", "fields", "found"),
    [
        ({"records": 3}, {}, {"RV32"}),
        ({"superseded": -1, "tombstones": 2}, {}, {"RV32"}),
        ({"keyless": 2}, {}, {"RV32"}),
        ({"records": 1, "kept": 0}, {}, {"RV32"}),
        ({"kept": -1}, {}, {"RV32"}),
        ({"emptied": 9}, {}, {"RV32"}),
        ({"emptied": -1}, {}, {"RV32"}),
        ({"headers": ""}, {}, {"RV24"}),
        ({"file_bytes": 3}, {}, {"RV24", "RV32"}),
        ({"stays": ""}, {}, {"RV32"}),
        ({"stays": "AAAA"}, {}, {"RV32"}),
        ({"stays": "not base64"}, {}, {"RV32"}),
        ({}, {"drop_unstamped": False}, {"RV26"}),
    ],
    ids=lambda value: str(sorted(value)),
)
def test_source_whose_keys_do_not_add_up_is_refused(
    plan: Plan, of_keys: dict[str, Any], fields: dict[str, Any], found: set[str]
) -> None:
    assert codes(with_source(plan, of_keys, **fields)) == found


def test_a_negative_count_is_called_that(plan: Plan) -> None:
    assert "a count is negative" in [one.text for one in review(with_source(plan, {"emptied": -1}))]
    assert "a count is negative" not in [one.text for one in review(with_source(plan, {"emptied": 9}))]


def test_record_at_or_above_the_bound_never_goes(plan: Plan) -> None:
    span = plan.partitions[0].span
    assert span is not None
    assert "RV16" in codes(rebuilt(plan, span=replace(span, end_offset=8)))
    assert "RV18" in codes(rebuilt(plan, changes=(_of_the_active_segment(plan),)))


def _of_the_active_segment(plan: Plan) -> RewriteSegments:
    second = groups(plan)[1]
    source: SourceSegment = replace(second.sources[0], base_offset=10)
    return replace(second, sources=(source,), base_offset=10, change_id="t-0/00000000000000000010")


@pytest.mark.parametrize(
    ("value", "source"),
    [
        ("compact", "default"),
        ("compact", "--set"),
        ("compact", "server.properties: log.cleanup.policy"),
        ("delete", "topic-config topics.json"),
        ("", "topic-config topics.json"),
    ],
)
def test_topic_whose_own_configuration_does_not_say_compact_is_refused(
    plan: Plan, value: str, source: str
) -> None:
    assert "RV14" in codes(with_setting(plan, value, source))


def test_compact_that_was_not_asked_for_is_refused(plan: Plan) -> None:
    assert codes(with_policy(plan, fixes=("markers",))) == {"RV14"}


def test_groups_with_and_without_keys_are_not_mixed_in_one_partition(plan: Plan) -> None:
    first, second = groups(plan)
    bare = tuple(replace(source, compacted=UNSET) for source in first.sources)
    mixed = (replace(first, sources=bare), second)
    assert "RV32" in codes(rebuilt(plan, changes=mixed))
    half = replace(first, sources=(replace(first.sources[0], compacted=UNSET), first.sources[1]))
    assert "RV32" in codes(rebuilt(plan, changes=(half, second)))
    told, *_ = Rewrite().summary((half,))
    known = first.sources[1].by_key
    assert known is not None
    assert known.gone == 0
    assert "No record is removed. " in told


def test_keys_go_only_where_the_plan_says_how_many(plan: Plan) -> None:
    assert codes(rebuilt(plan, compaction=UNSET)) == {"RV32"}
