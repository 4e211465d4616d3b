"""A pending swap whose base offset is not that of the segment that it replaces: the forecast names what is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.builders import NOW_MS, LogDir, Record, data
from tests.lab.jars import LATEST
from tests.lab.judge import Judge

pytestmark = pytest.mark.broker


def written(root: Path) -> Path:
    """Segments at 0, 10 and 20; the swap at 19 holds the last record of the second one too, which has lost it."""
    directory = LogDir(root)
    partition = directory.partition("t")
    records = [Record(b"k%d" % number, b"v") for number in range(10)]
    last = data(19, [Record(b"k9", b"v")])
    partition.segment(data(0, records))
    partition.segment(data(10, records[:9]))
    partition.segment(data(20, records))
    directory.write(clean_stop=False)
    rest = (partition.folder / f"{20:020d}.log").read_bytes()
    (partition.folder / f"{19:020d}.log.swap").write_bytes(last.raw + rest)
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    return root


@pytest.mark.parametrize("version", ["2.2.1", LATEST])
def test_the_forecast_names_the_segments_that_a_start_leaves(
    tmp_path: Path, judge: Callable[[str], Judge], version: str
) -> None:
    root = written(tmp_path / "logs")
    options = Options(engine=EngineName.INLINE, now_ms=NOW_MS, broker_version=version)
    (line,) = check([str(root)], options).log_dirs[0].forecast
    copy = tmp_path / "start" / "t-0"
    shutil.copytree(root / "t-0", copy)
    found = judge(version).start(copy, clean=False, recovery_point=0, log_start=0, now_ms=NOW_MS)
    there = tuple((one.base_offset, one.bytes) for one in found.segments)
    assert line.segments == tuple(base for base, _ in there), line.text
    assert line.log_bytes in ((), there), line.text
    assert line.bytes_read == sum(size for _, size in there)
