"""``auto`` chooses Spark only where it is clearly faster, its start included."""

from __future__ import annotations

import pytest

from krepair.engine import choice
from krepair.engine.choice import WorkKind


@pytest.mark.parametrize(
    ("kind", "gigabytes", "cores", "pays"),
    [
        (WorkKind.READ, 1, 2, False),
        (WorkKind.READ, 20, 2, False),  # 12 s of work: no start is repaid
        (WorkKind.READ, 200, 2, True),
        (WorkKind.READ, 60, 16, True),
        (WorkKind.KEYS, 5, 16, False),
        (WorkKind.KEYS, 20, 2, True),  # ten times less than of markers
        (WorkKind.KEYS, 10, 16, True),
        (WorkKind.READ, 10_000, 1, False),  # on one core nothing is gained
    ],
)
def test_spark_is_taken_where_it_pays(kind: WorkKind, gigabytes: int, cores: int, pays: bool) -> None:
    assert choice.spark_pays({kind: gigabytes * 10**9}, cores) is pays


def test_both_figures_are_said_in_seconds() -> None:
    assert (
        choice.cost_text({WorkKind.KEYS: 10 * 10**9}, 2)
        == "about 30 s of work, about 29 s with Spark on 2 cores"
    )
    assert choice.cost_text({}, 1) == "less than 1 s of work, about 12 s with Spark on 1 core"
