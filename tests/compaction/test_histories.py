"""Random histories: krepair, its slow twin, its verification, and the cleaner's own classes of four versions."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compaction import histories
from tests.compaction.trying import WAYS, twin_rules, with_kafka, with_twin
from tests.lab.judge import Judge


@pytest.mark.parametrize("codecs", [False, True], ids=["plain", "all codecs"])
def test_a_history_is_compacted_as_by_the_slow_twin_verified_and_then_at_rest(
    tmp_path: Path, *, codecs: bool
) -> None:
    changed = 0
    for seed in range(12):
        root = tmp_path / str(seed)
        tried = with_twin(root, histories.of_seed(seed, codecs=codecs), twin_rules(seed))
        changed += bool(tried.ours.done.changed)
        shutil.rmtree(root)
    assert changed >= 9


@pytest.mark.broker
@pytest.mark.parametrize("version", sorted(WAYS))
def test_a_history_is_compacted_as_by_the_cleaner_of_kafka(
    version: str, judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    allowed = sum(
        (
            with_kafka(judge(version), WAYS[version], tmp_path / str(seed), seed, codecs=seed % 2 == 1)
            for seed in range(5)
        ),
        start=Counter(),
    )
    assert allowed["histories with changes"] >= 3
    assert allowed["batches equal byte for byte"] >= 10
