"""KR309 by way of ``check``, with a response that holds little."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.checks import fetch_size
from krepair.ops.check import check
from krepair.ops.options import Engine, Options
from tests.ops.scene import TV2, scene


def test_a_topic_with_more_than_one_response_holds_is_named(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = scene(memory_dir, TV2)
    options = Options(engine=Engine.INLINE)
    found = [each for each in check([str(one.path)], options).log_dirs[0].findings if each.rule == "KR309"]
    assert found == []
    monkeypatch.setattr(fetch_size, "MOST_RESPONSE_BYTES", 100)
    found = [each for each in check([str(one.path)], options).log_dirs[0].findings if each.rule == "KR309"]
    topics = {partition.name.rpartition("-")[0] for partition in one.path.iterdir() if partition.is_dir()}
    assert [each.evidence.split(":")[0] for each in found] == [f"topic {topic}" for topic in sorted(topics)]
