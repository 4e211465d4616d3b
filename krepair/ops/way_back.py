"""The way back for wrong replicas, in Kafka's own words: a replica is moved away from its broker, and comes back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from krepair.rules.replicas import model as m

_AT_ONCE: Final = 40
"""Partitions in one pair of files; those that are left get theirs when the replicas are compared again."""


class WayBack(Struct, frozen=True, kw_only=True):
    """Two files for ``kafka-reassign-partitions.sh``.

    Attributes:
        away: content of the first: the wrong replicas go.
        back: content of the second: their brokers get the partitions again.
        wrong: ``topic-partition`` -> brokers whose replica is wrong.
        right: ``topic-partition`` -> brokers of which one has to lead.
        left: partitions with a wrong replica that are not in the files.
    """

    away: str
    back: str
    wrong: dict[str, tuple[int, ...]]
    right: dict[str, tuple[int, ...]]
    left: int = 0


def way_back(verdicts: Iterable[m.PartitionVerdict]) -> WayBack | None:
    """The way back for all replicas that are wrong while another one is right; None if there are none."""
    found = [(one, wrong) for one in verdicts if (wrong := _wrong(one))]
    if not found:
        return None
    away, back = [], []
    for one, wrong in found[:_AT_ONCE]:
        others = [column.broker for column in one.replicas if column.broker not in {*one.right, *wrong}]
        away.append(_row(one, (*one.right, *others)))
        back.append(_row(one, (*one.right, *others, *wrong)))
    return WayBack(
        away=_file(away),
        back=_file(back),
        wrong={one.name: wrong for one, wrong in found[:_AT_ONCE]},
        right={one.name: one.right for one, _ in found[:_AT_ONCE]},
        left=len(found[_AT_ONCE:]),
    )


def _wrong(verdict: m.PartitionVerdict) -> tuple[int, ...]:
    """Brokers whose replica is wrong by what others are right about, or that no other one can lead without harm."""
    brokers = {
        broker
        for one in verdict.disagreements
        if one.right or (one.kind == m.LEADER_DECIDES and not one.may_lead)
        for broker in one.brokers
    }
    return tuple(sorted(brokers)) if verdict.right else ()


def _row(one: m.PartitionVerdict, brokers: Sequence[int]) -> dict[str, object]:
    return {"topic": one.topic, "partition": one.partition, "replicas": list(brokers)}


def _file(rows: Sequence[dict[str, object]]) -> str:
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))
