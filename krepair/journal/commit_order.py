"""Which order of renames, and whether with the fence: decided before anything is touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from krepair.errors import PersonDecidesError, UsageError
from krepair.formats.broker_version import version_of
from krepair.formats.filenames import log_name
from krepair.plan.model import Commit

_LAST_WITH_P1 = (2, 8)


class DamagedSegment(NamedTuple):
    """A segment that a recovery would cut.

    Attributes:
        folder: name of its partition folder.
        base_offset: its base offset.
        active: whether it is the last of its partition.
    """

    folder: str
    base_offset: int
    active: bool


def damage_in_reach(
    lowest_groups: Mapping[str, int], damaged: Iterable[DamagedSegment]
) -> list[DamagedSegment]:
    """The damaged segments that a recovery under the fence would meet, and cut together with all behind them.

    Args:
        lowest_groups: partition folder -> base offset of its first group.
        damaged: every damaged segment of the log directory that is known.
    """
    return sorted(
        segment
        for segment in damaged
        if segment.active
        or (segment.folder in lowest_groups and segment.base_offset >= lowest_groups[segment.folder])
    )


def choose_commit(
    lowest_groups: Mapping[str, int], damaged: Iterable[DamagedSegment], broker_version: str
) -> Commit:
    """P1 with the fence; the version's own order without it where recovery would meet damage.

    Args:
        lowest_groups: partition folder -> base offset of its first group.
        damaged: every damaged segment of the log directory that is known.
        broker_version: of the broker that would be started on the directory next, as ``3.9.2``; empty if unknown.

    Raises:
        PersonDecidesError: the fence would meet damage and the version is not known.
        UsageError: the version is malformed.
    """
    reach = damage_in_reach(lowest_groups, damaged)
    if not reach:
        why = "safe at every moment on every version, since the fence is up"
        return Commit(order="P1", fence=True, why=why)
    first = f"{reach[0].folder}/{log_name(reach[0].base_offset)}"
    if not broker_version:
        message = (
            f"{first} is damaged. Under the fence (with a lowered recovery point) a broker that is started meanwhile "
            "would cut it there. Without the fence the safe order of renames depends on the broker's version, and that "
            "is not known"
        )
        raise PersonDecidesError(message, next_command="krepair plan --broker-version VERSION ...")
    version = version_of(broker_version)
    if version is None:
        raise UsageError(f"--broker-version {broker_version}: expected a version like 3.9.2")
    why = f"without the fence, since recovery would meet damage in {first}; the order for broker {broker_version}"
    return Commit(order="P1" if version[:2] <= _LAST_WITH_P1 else "P2", fence=False, why=why)
