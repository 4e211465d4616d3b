"""What the pictures of a comparison show: where the replicas of a partition lie on one scale of offsets, and part."""

from __future__ import annotations

from typing import Final, NamedTuple

from krepair.ops.compare import CompareReport
from krepair.rules.replicas import model as m

_BAD: Final = frozenset({m.DIVERGED, m.DAMAGED, m.CANNOT_TELL})
_MOST: Final = 200


class ReplicaBar(NamedTuple):
    """One replica.

    Attributes:
        broker: whose.
        start: log start offset.
        end: log end offset.
        stands_at: last stable offset, where readers of committed records end.
        state: in a word.
        wrong_from: first offset at which it is wrong or in doubt, -1 none.
    """

    broker: int
    start: int
    end: int
    stands_at: int
    state: str
    wrong_from: int


class PartitionPicture(NamedTuple):
    """One partition that is not as it should be.

    Attributes:
        name: of the partition.
        verdict: on it.
        low: lowest offset of any replica.
        high: highest log end offset.
        bars: of its replicas.
    """

    name: str
    verdict: str
    low: int
    high: int
    bars: tuple[ReplicaBar, ...]


def compare_pictures(report: CompareReport) -> tuple[PartitionPicture, ...]:
    """The partitions to draw, in order."""
    bad = [one for one in report.partitions if one.verdict in _BAD and one.replicas]
    return tuple(map(_picture, bad[:_MOST]))


def _picture(one: m.PartitionVerdict) -> PartitionPicture:
    return PartitionPicture(
        name=one.name,
        verdict=one.verdict,
        low=min(column.log_start for column in one.replicas),
        high=max(column.log_end for column in one.replicas),
        bars=tuple(
            ReplicaBar(
                broker=column.broker,
                start=column.log_start,
                end=column.log_end,
                stands_at=column.last_stable_offset,
                state=column.state,
                wrong_from=min(
                    (
                        max(found.offset, column.log_start)
                        for found in one.disagreements
                        if column.broker in found.brokers and m.VERDICT_OF[found.kind] != m.IS_BEHIND
                    ),
                    default=-1,
                ),
            )
            for column in one.replicas
        ),
    )
