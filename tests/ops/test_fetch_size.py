"""KR309 by way of ``check``, with a response that holds little."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.checks import fetch_size
from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.ops.scene import TV2, scene


def test_a_topic_with_more_than_one_response_holds_is_named(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = scene(memory_dir, TV2)
    options = Options(engine=EngineName.INLINE)
    found = [each for each in check([str(one.path)], options).log_dirs[0].findings if each.rule == "KR309"]
    assert found == []
    monkeypatch.setattr(fetch_size, "MOST_RESPONSE_BYTES", 0)
    found = [each for each in check([str(one.path)], options).log_dirs[0].findings if each.rule == "KR309"]
    with_batches = {
        log.parent.name.rpartition("-")[0] for log in one.path.glob("*/*.log") if log.stat().st_size
    }
    assert [each.evidence.split(":")[0] for each in found] == [
        f"topic {name}" for name in sorted(with_batches)
    ]
    assert "__consumer_offsets" in with_batches
