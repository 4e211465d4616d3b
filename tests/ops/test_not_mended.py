"""What a plan says of what it did not look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.ops.plan import make_plan
from krepair.ops.room import not_mended
from krepair.options import EngineName, Options


@pytest.fixture
def ordinary_topics(tmp_path: Path) -> Path:
    """A log directory of which no topic is known to be compacted."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(b"")
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    return tmp_path


@pytest.mark.parametrize("fix", ["compact", "markers"])
def test_where_no_topic_is_known_to_be_compacted_the_plan_says_what_would_tell_it(
    ordinary_topics: Path, fix: str
) -> None:
    plan = make_plan(str(ordinary_topics), Options(fixes=(fix,), engine=EngineName.INLINE))
    (line, _) = not_mended(plan).lines
    assert line.startswith(f"No partition was looked at for --fix {fix}: it takes __consumer_offsets")
    assert "--topic-config FILE" in line


def test_a_fix_that_takes_every_partition_says_nothing_of_that_kind(ordinary_topics: Path) -> None:
    plan = make_plan(str(ordinary_topics), Options(fixes=("epochs",), engine=EngineName.INLINE))
    assert [line.partition(" ")[0] for line in not_mended(plan).lines] == ["This"]


def test_a_name_that_is_not_there_is_told_beside_one_that_is(ordinary_topics: Path) -> None:
    """A typing error in one name of two looked like a plan of both."""
    options = Options(
        fixes=("epochs",),
        engine=EngineName.INLINE,
        topics=("orders", "order", "b", "c"),
        partitions=(("orders", 0), ("orders", 7)),
    )
    line, *_ = not_mended(make_plan(str(ordinary_topics), options)).lines
    assert line == (
        "Nothing was looked at of topic order, topic b, topic c and 1 more: it is not in this directory, or "
        "--fix epochs does not take it."
    )
