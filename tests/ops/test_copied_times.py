"""KR106: file times that a copy has reset are told by what brokers wrote into files, not by the times of records."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests import builders
from tests.builders import NOW_MS, Batch, commit, data

MINUTE, DAY = 60_000, 86_400_000
OFFSETS = "__consumer_offsets"


def told(log_dir: Path) -> bool:
    given = Options(engine=EngineName.INLINE, now_ms=NOW_MS, settings=(("retention.ms", "-1"),))
    return any(each.rule == "KR106" for each in check([str(log_dir)], given).log_dirs[0].findings)


def made(root: Path, topic: str, ages: list[int], file_ages: list[int], *, markers: bool = False) -> Path:
    """One segment per age in minutes: of its records or, with ``markers``, of the marker behind each."""
    directory = builders.LogDir(root)
    partition = directory.partition(topic)
    for number, (age, file_age) in enumerate(zip(ages, file_ages, strict=True)):
        stamp = NOW_MS - age * MINUTE
        batches: list[Batch] = [data(2 * number, pid=7, sequence=number, txn=markers, timestamp=stamp)]
        batches += (
            [commit(2 * number + 1, pid=7, timestamp=stamp)]
            if markers
            else [data(2 * number + 1, timestamp=stamp)]
        )
        partition.segment(*batches, mtime_ms=NOW_MS - file_age * MINUTE)
    return directory.write()


SPREAD = [4000, 3000, 2000, 1000]
LONG_AGO = [100 * 1440 + number for number in range(4)]
TOGETHER, AS_WRITTEN = [5, 4, 3, 2], SPREAD


@pytest.mark.parametrize("ages", [SPREAD, LONG_AGO])
def test_old_records_that_were_written_today_are_no_copy(tmp_path: Path, ages: list[int]) -> None:
    assert not told(made(tmp_path / "logs", "t", ages, TOGETHER))


@pytest.mark.parametrize(("topic", "markers"), [(OFFSETS, False), ("t", True)])
@pytest.mark.parametrize("ages", [SPREAD, LONG_AGO])
def test_files_whose_markers_or_commits_are_older_than_they_are_were_copied(
    tmp_path: Path, topic: str, markers: bool, ages: list[int]
) -> None:
    assert told(made(tmp_path / "logs", topic, ages, TOGETHER, markers=markers))


@pytest.mark.parametrize(("topic", "markers"), [(OFFSETS, False), ("t", True)])
def test_files_with_the_times_of_their_writing_were_not(tmp_path: Path, topic: str, markers: bool) -> None:
    assert not told(made(tmp_path / "logs", topic, SPREAD, AS_WRITTEN, markers=markers))
