"""How many calls of the operating system a verb makes for each partition: many small ones are most of its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.ops.check import check
from krepair.options import Engine, Options
from tests import calls
from tests.builders import NOW_MS, LogDir, data

OPTIONS = Options(engine=Engine.INLINE, now_ms=NOW_MS)


def write(root: Path, partitions: int, *, clean: bool) -> Path:
    """A log directory of partitions with three small segments, nine files; unclean: above their recovery points."""
    made = LogDir(root)
    for number in range(partitions):
        partition = made.partition("t", number)
        for base in range(0, 36, 12):
            partition.segment(*(data(offset, 3) for offset in range(base, base + 12, 3)))
    made.write(clean_stop=clean)
    if not clean:
        (root / "recovery-point-offset-checkpoint").write_text("0\n0\n")
        for snapshot in root.glob("*/*.snapshot"):
            snapshot.unlink()
    return root


@pytest.mark.parametrize("clean", [True, False])
def test_check_opens_each_file_once_and_once_more_to_play_the_start(tmp_path: Path, clean: bool) -> None:
    roots = {number: write(tmp_path / str(number), number, clean=clean) for number in (2, 6)}
    found = calls.for_each(lambda number: check([str(roots[number])], OPTIONS))
    # the folder, three logs, six indexes, the epochs; clean: three snapshots; unclean: logs and time indexes again
    assert found["open"] == found["close"] == (14 if clean else 17)
    # each open file is looked at once; and the log directory, once for each of the items
    assert found["stat"] == (17 if clean else 21)
