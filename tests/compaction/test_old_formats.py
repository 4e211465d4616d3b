"""A partition with messages of v0 or v1 in the compaction range is not compacted by key, with a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from krepair.formats import message_set as ms
from krepair.rules.model import Skipped
from tests import encoders
from tests.builders import NOW_MS, Batch, LogDir, data
from tests.compaction.compacting import Compacted, compacted
from tests.compaction.directories import Verbs, options
from tests.compaction.old_formats import policy
from tests.old_messages import plain
from tests.ops.scene import tree


def wrapper(offset: int, magic: int) -> Batch:
    message = ms.Message(offset, magic, 0, NOW_MS if magic else ms.NO_TIMESTAMP, b"key", None)
    return replace(plain(offset, magic=magic), raw=encoders.encode_message(encoders.wrapped((message,), 1)))


def left(root: Path, *segments: list[Batch]) -> Compacted:
    partition = LogDir(root).partition("t")
    for batches in segments:
        partition.segment(*batches)
    return compacted(partition.write(snapshots=False), policy(partition.log_end))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_message_of_an_old_format_leaves_the_partition_alone_and_is_named(
    magic: int, wrapped: bool, tmp_path: Path
) -> None:
    first = data(0, 1)
    old = wrapper(1, magic) if wrapped else plain(1, magic=magic)
    found = left(tmp_path, [first, old], [data(2, 1)], [data(3, 1)]).compaction
    assert isinstance(found, Skipped)
    assert (found.code, found.damaged) == ("compacted-old-format", False)
    assert f"00000000000000000000.log, position {len(first.raw)}: a message of v0 or v1" in found.why


def test_one_in_the_active_segment_is_not_looked_at(tmp_path: Path) -> None:
    assert not isinstance(left(tmp_path, [data(0, 2)], [plain(2)]).compaction, Skipped)


def test_the_verbs_leave_such_a_partition_as_it_is(tmp_path: Path) -> None:
    directory = LogDir(tmp_path / "logs")
    partition = directory.partition("t", index_interval_bytes=200)
    partition.segment(plain(0), plain(1))
    partition.segment(data(2, 1))
    directory.write()
    before = tree(tmp_path / "logs")
    plan = Verbs(tmp_path / "logs", options(tmp_path)).plan()
    assert [(one.status, one.code) for one in plan.partitions] == [("left alone", "compacted-old-format")]
    assert tree(tmp_path / "logs") == before
