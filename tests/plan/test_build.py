"""The builder sums, orders, estimates and warns; all of it from its arguments alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from krepair.formats.broker_version import version_of
from krepair.plan.build import build_plan
from krepair.plan.model import Evidence, KeepOriginal, PartitionPlan, Risk
from krepair.plan.planfile import dumps, seal
from krepair.plan.space import apply_order, extra_space_of_all, plan_copy_bytes
from tests.plan.plans import (
    COMMIT,
    FACTS,
    FOLDER,
    good_plan,
    left_alone,
    nothing,
    numbered,
    partition,
    policy,
)


def risk_codes(*, copied: tuple[str, ...] = (), dead: tuple[str, ...] = (), **fields: object) -> list[str]:
    plan = build_plan(FACTS, policy(**fields), [partition()], COMMIT, copied_mtimes=copied, dead_cleaner=dead)
    return [risk.code for risk in plan.risks]


def test_partitions_are_sorted_by_topic_and_number_whatever_their_order():
    assert good_plan(left_alone(), partition(), nothing()) == good_plan(nothing(), left_alone(), partition())
    ten = nothing(partition=10, folder="__consumer_offsets-10")
    assert [part.partition for part in good_plan(ten, nothing(), partition()).partitions] == [1, 3, 10]


def test_sums_are_those_of_the_partitions():
    plan = good_plan()
    assert (plan.uncleanable_partitions, plan.uncleanable_bytes) == (1, 4096)
    assert (plan.freed_at_purge, plan.freed_at_apply) == (24_576, -8192)
    # two blocks, one for the folder entry of each of four files, and 64 KiB for the journal
    assert plan.peak_extra_bytes - plan_copy_bytes(plan) == 90_112


def test_the_peak_has_room_for_the_copy_of_the_plan_whatever_its_own_figures():
    for plan in (good_plan(), seal(replace(good_plan(), peak_extra_bytes=2**63 - 1))):
        assert len(dumps(plan)) < plan_copy_bytes(plan) <= len(dumps(plan)) + 64 * 1024 + 4096
    assert plan_copy_bytes(good_plan(nothing(), left_alone())) == 0


def test_a_plan_names_earlier_plans_whose_originals_are_kept():
    kept = Risk(code="kept-originals", text="Plan 12 still keeps 7 bytes.")
    plan = build_plan(FACTS, policy(), [partition()], COMMIT, kept=[kept])
    assert [risk for risk in plan.risks if risk.code == "kept-originals"] == [kept]


def test_figures_given_with_a_partition_are_worked_out_anew():
    assert good_plan(partition(freed_at_purge=10**12, log_bytes_after=1)) == good_plan(partition())


def test_a_plan_for_nothing_has_no_risk_and_no_cost():
    plan = good_plan(nothing(), left_alone())
    assert (plan.risks, plan.freed_at_purge, plan.peak_extra_bytes, plan.expected_seconds) == ((), 0, 0, 0.0)


def test_a_plan_warns_of_other_replicas_and_kept_originals():
    by_time = partition(evidence=Evidence(kind="as-broker", why="test"))
    codes = [risk.code for risk in good_plan(by_time).risks]
    assert codes == ["every-replica", "lagging-replica", "keep-inplace"]


def test_where_a_consent_says_that_there_is_no_other_replica_no_risk_speaks_of_one():
    assert risk_codes() == ["keep-inplace"]


@pytest.mark.parametrize(
    ("version", "dead", "comes_back"),
    [
        ("2.2.0", (), True),
        ("1.1", (), True),
        ("2.2.1", (), False),
        ("3.9.2", (), False),
        ("", (), True),
        ("3.9.2", (FOLDER,), True),
        ("3.9.2", ("other-1",), False),
    ],
)
def test_it_comes_back_on_old_brokers_and_where_the_cleaner_is_dead(
    version: str, dead: tuple[str, ...], comes_back: bool
):
    assert ("comes-back" in risk_codes(broker_version=version, dead=dead)) is comes_back


@pytest.mark.parametrize(
    ("horizon", "forced"),
    [("newest", False), ("next-pass", False), ("1700000000000", False), ("1700000000001", True)],
)
def test_a_horizon_later_than_now_minus_retention_is_told(horizon: str, forced: bool):
    assert ("horizon-forced" in risk_codes(horizon=horizon)) is forced


def test_copied_times_are_told_only_of_partitions_that_change():
    assert "mtimes-copied" in risk_codes(copied=(FOLDER,))
    assert "mtimes-copied" not in risk_codes(copied=("__consumer_offsets-1",))


def test_an_assumed_high_watermark_is_told():
    assert "assumed-high-watermark" in risk_codes(assume_high_watermark="log-end")


def test_a_retention_that_is_no_number_does_not_stop_the_plan():
    from krepair.plan.model import Setting

    rows = (Setting(key="delete.retention.ms", value="soon", source="--set"),)
    assert "horizon-forced" not in risk_codes(horizon="5", settings={"": rows})


def test_apply_takes_first_what_frees_most_for_least_space():
    change = partition().changes[0]
    small = partition(
        partition=4,
        folder="__consumer_offsets-4",
        changes=(replace(change, change_id="__consumer_offsets-4/0", index_bytes_at_most=0, log_bytes=61),),
    )
    plan = good_plan(partition(), small, nothing())
    assert [part.partition for part in apply_order(plan)] == [4, 3]


def test_twelve_gigabytes_to_read_and_two_to_write_take_fifty_seconds():
    """Each byte is read twice at 600 MB/s, and written once at 200 MB/s."""
    change = partition().changes[0]
    huge = tuple(replace(part, log_bytes=6 * 10**9) for part in change.sources)
    plan = good_plan(
        partition(changes=(replace(change, sources=huge, log_bytes=0, index_bytes_at_most=2 * 10**9),))
    )
    assert plan.expected_seconds == pytest.approx(50, abs=1)


def test_many_small_partitions_take_their_time_for_flushes():
    """Of 100 partitions of 1.3 MB: 29.9 s and 3,802 flushes, on ext4 on a virtual disk; of 2,000 elsewhere: 330 s."""
    assert 330 <= good_plan(*map(numbered, range(2000))).expected_seconds <= 660


def test_two_builds_give_the_same_bytes():
    assert dumps(good_plan()) == dumps(good_plan())


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.2.1", (2, 2, 1)), ("4.3", (4, 3, 0)), ("3.9.0-rc3", (3, 9, 0)), ("", None), ("new", None)],
)
def test_versions_are_numbers(text: str, version: tuple[int, int, int] | None):
    assert version_of(text) == version


def in_order(*parts: PartitionPlan, keep: str = "until-verified") -> list[int]:
    given = good_plan(*parts)
    plan = build_plan(FACTS, replace(given.policy, keep=keep), parts, given.commit)
    assert all(
        not isinstance(change.undo, KeepOriginal) for part in plan.partitions for change in part.changes
    )
    return [part.partition for part in apply_order(plan)]


def of_size(number: int, log_bytes: int) -> PartitionPlan:
    """A partition whose new segment has so many bytes and whose old ones had a hundred million more."""
    change = partition().changes[0]
    sources = tuple(replace(one, log_bytes=log_bytes + 10**8) for one in change.sources[:1])
    folder, log = f"__consumer_offsets-{number}", f"{sources[0].base_offset:020d}.log"
    return partition(
        partition=number,
        folder=folder,
        files=tuple(
            replace(file, disk=log_bytes + 10**8) if file.name == log else file for file in partition().files
        ),
        changes=(replace(change, change_id=f"{folder}/0", sources=sources, log_bytes=log_bytes),),
    )


def test_where_apply_frees_those_that_need_least_come_first_and_those_that_free_nothing_last():
    fat = replace(partition().changes[0], change_id="__consumer_offsets-9/0", log_bytes=10**6)
    nothing_freed = partition(partition=9, folder="__consumer_offsets-9", changes=(fat,))
    parts = (of_size(5, 30_000), of_size(6, 10_000), nothing_freed, of_size(7, 20_000))
    assert in_order(*parts) == [6, 7, 5, 9]


def test_the_peak_of_groups_that_make_room_is_that_of_the_largest_and_not_their_sum():
    one, three = of_size(5, 3000), (of_size(5, 3000), of_size(6, 1000), of_size(7, 2000))

    def peak(*parts: PartitionPlan, keep: str) -> int:
        given = good_plan(*parts)
        plan = build_plan(FACTS, replace(given.policy, keep=keep), parts, given.commit)
        return extra_space_of_all(apply_order(plan), plan.policy).peak

    assert peak(*three, keep="until-verified") < peak(*three, keep="inplace")
    assert peak(*three, keep="until-verified") <= peak(one, keep="until-verified")
