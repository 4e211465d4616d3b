"""Kafka's own classes on some trees of power losses; ``make torture`` has all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.jars import VERSIONS
from tests.lab.judge import Judge
from tests.ops.conftest import memory_dir
from tools.torture.loads import Loader, loader_of, starts_of_state
from tools.torture.power_loss import HISTORIES, Case, Site, placed, trials
from tools.torture.scenes import build

__all__ = ["memory_dir"]
pytestmark = [pytest.mark.broker, pytest.mark.slow]


def wrong_of(site: Site, loader: Loader, history: str, most: int) -> Iterator[str]:
    case = Case(site.scene.name, 0, history, per_point=3)
    states = trials(site, site.record(HISTORIES[history]), seed=case.words, per_point=case.per_point)
    for trial, _ in zip(states, range(most), strict=False):
        for wrong in loader.check(starts_of_state(trial.state)):
            yield f"{trial.point}:{trial.choice} {wrong}"


@pytest.mark.parametrize("name", ["markers", "leftovers"])
def test_after_a_power_loss_every_version_serves_the_records_of_before(
    judge: Callable[[str], Judge], memory_dir: Path, name: str
) -> None:
    judges = {version: judge(version) for version in VERSIONS}
    with placed(build(name)) as site:
        loader = loader_of(site, judges, memory_dir / "loads")
        assert None not in {served for allowed in loader.allowed.values() for served in allowed}
        assert [*wrong_of(site, loader, "apply", 1000), *wrong_of(site, loader, "undo", 1000)] == []
        assert loader.figures["different partitions"] > 15


def test_the_order_of_2_2_without_the_fence_is_seen_to_be_wrong_on_3_9(
    judge: Callable[[str], Judge], memory_dir: Path
) -> None:
    """The judge can tell: aborted records are served (KIP-98)."""
    with placed(build("without-fence-2.2")) as site:
        loader = loader_of(site, {version: judge(version) for version in VERSIONS}, memory_dir / "loads")
        assert list(wrong_of(site, loader, "apply", 1000)) == []
        loader = Loader(
            site.scene,
            site.original,
            site.record(("apply",)).end,
            {"3.9.2": judge("3.9.2")},
            memory_dir / "loads",
            versions=("3.9.2",),
        )
        assert any("3.9.2 on b-0" in wrong for wrong in wrong_of(site, loader, "apply", 1000))
