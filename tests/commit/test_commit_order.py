"""Which order is taken, and whether with the fence."""

from __future__ import annotations

import pytest

from krepair.errors import PersonDecidesError, UsageError
from krepair.fixes.order import DamagedSegment, choose_commit

LOWEST = {"t-0": 100, "t-1": 0}


@pytest.mark.parametrize(
    "damaged",
    [[], [DamagedSegment("t-0", 99, active=False)], [DamagedSegment("u-0", 5, active=False)]],
    ids=["none", "before the group", "closed segment of another partition"],
)
@pytest.mark.parametrize("version", ["", "2.2.1", "4.3.1"])
def test_without_damage_in_reach_it_is_p1_under_the_fence(
    damaged: list[DamagedSegment], version: str
) -> None:
    commit = choose_commit(LOWEST, damaged, version)
    assert (commit.order, commit.fence) == ("P1", True)


@pytest.mark.parametrize(
    "damaged",
    [
        DamagedSegment("t-0", 100, active=False),
        DamagedSegment("u-0", 5, active=True),
        DamagedSegment("t-1", 0, active=True),
    ],
    ids=["in the group", "active segment of another partition", "active segment"],
)
@pytest.mark.parametrize(
    ("version", "order"),
    [
        ("0.11.0.3", "P1"),
        ("2.2.1", "P1"),
        ("2.8", "P1"),
        ("3.0.0-IV1", "P2"),
        ("3.9.2", "P2"),
        ("4.3.1", "P2"),
    ],
)
def test_with_damage_in_reach_the_version_decides_without_the_fence(
    damaged: DamagedSegment, version: str, order: str
) -> None:
    commit = choose_commit(LOWEST, [damaged], version)
    assert (commit.order, commit.fence) == (order, False)
    assert damaged.folder in commit.why


def test_with_damage_in_reach_and_no_version_a_person_decides() -> None:
    with pytest.raises(PersonDecidesError, match=r"u-0/00000000000000000005\.log is damaged"):
        choose_commit(LOWEST, [DamagedSegment("u-0", 5, active=True)], "")


@pytest.mark.parametrize("version", ["latest", "3", "3.", "-1.2", "3.9" * 99])
def test_a_version_that_is_none_is_wrong_use(version: str) -> None:
    with pytest.raises(UsageError, match="expected a version"):
        choose_commit(LOWEST, [DamagedSegment("u-0", 5, active=True)], version)
