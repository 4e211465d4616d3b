"""Partitions that wait for a start because their open transaction begins in segments that would change."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from krepair.formats.broker_version import Version
from krepair.rules.model import GroupDecision, ProducerSnapshotState, Skipped
from krepair.rules.open_snapshot import why_a_start_would_fail
from tests.rules.facts import POLICY

LOG_END = 500


def producer(first: int) -> ProducerSnapshotState:
    return ProducerSnapshotState(
        producer_id=7, epoch=0, last_data_offset=399, timestamp=0, open_first_offset=first
    )


def group(base: int, last: int) -> GroupDecision:
    source: Any = SimpleNamespace(base_offset=base)
    return GroupDecision((source,), last)


def asked(
    first: int = 250,
    *,
    snapshot_offset: int = 400,
    changed: tuple[GroupDecision, ...] = (group(200, 299),),
    version: Version = (2, 2, 1),
    clean: bool = True,
) -> Skipped | None:
    policy = replace(POLICY, snapshot_offset=snapshot_offset, snapshot=(producer(-1), producer(first)))
    return why_a_start_would_fail("t-0", policy, LOG_END, changed, version=version, clean_shutdown=clean)


def test_it_waits_where_the_segment_of_the_first_offset_would_change():
    left = asked()
    assert left is not None
    assert left.code == "open-snapshot"
    assert "producer 7 open from offset 250" in left.why


@pytest.mark.parametrize(
    ("first", "waits"), [(199, False), (200, True), (299, True), (300, False), (-1, False)]
)
def test_it_waits_at_both_limits_of_a_group_and_not_past_them(first: int, waits: bool):
    assert (asked(first) is not None) == waits


@pytest.mark.parametrize(("snapshot", "waits"), [(-1, False), (0, True), (499, True), (500, False)])
def test_only_a_snapshot_before_the_log_end_is_read_on_from(snapshot: int, waits: bool):
    assert (asked(snapshot_offset=snapshot) is not None) == waits


@pytest.mark.parametrize(("version", "waits"), [(None, True), ((2, 3, 1), True), ((2, 4, 0), False)])
def test_brokers_since_2_4_read_on_into_the_next_segment(version: Version, waits: bool):
    assert (asked(version=version) is not None) == waits


def test_a_start_after_an_unclean_stop_makes_a_snapshot_first():
    assert asked(clean=False) is None


def test_a_change_of_other_segments_does_not_wait():
    assert asked(changed=()) is None
    assert asked(changed=(group(0, 99), group(300, 399))) is None
    assert asked(changed=(group(0, 99), group(200, 299))) is not None
