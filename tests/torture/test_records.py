"""A sample of damaged journals, every verb on them, and the way out; ``make torture`` has all of them."""

from __future__ import annotations

import pytest

from tools.torture.power_loss import placed
from tools.torture.records import Damage, damaged, damages, moments_of, try_moment
from tools.torture.scenes import build

OF_EACH_MOMENT = 3
JOURNAL = b"00000000 {}\n11111111 {}\n22222222 {}\n"


def test_every_damage_changes_the_journal_or_only_exchanges_it_with_nothing() -> None:
    same = [damage for damage in damages(JOURNAL) if damaged(JOURNAL, damage) == JOURNAL]
    assert same == [Damage("exchanged", 2)]
    assert {damage.kind for damage in damages(JOURNAL)} == {
        "bit", "cut", "zeros", "lost", "doubled", "exchanged", "foreign", "gone",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "removals",
        pytest.param("markers", marks=pytest.mark.slow),
        pytest.param("leftovers-without-fence", marks=pytest.mark.slow),
        pytest.param("markers~until-verified", marks=pytest.mark.slow),
    ],
)
def test_a_damaged_journal_loses_nothing_and_the_way_out_gives_the_originals_back(name: str) -> None:
    tried = 0
    with placed(build(name)) as site:
        for number in moments_of(name):
            cases, wrong = try_moment(site, name, number, OF_EACH_MOMENT)
            assert wrong == []
            tried += cases
    assert tried >= 5 * OF_EACH_MOMENT
