"""The forecast of the next start equals Kafka's loader classes on a hand-made table.

Random damages: ``tools/torture/truths.py``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import NOW_MS
from tests.lab.jars import LOADER_VERSIONS
from tests.lab.judge import Judge, JudgeError
from tests.ops.starts_by_version import INTERVAL, TABLE, line, written

pytestmark = pytest.mark.broker

JudgeOf = Callable[[str], Judge]


@pytest.mark.parametrize("version", LOADER_VERSIONS)
def test_loader_classes_do_what_the_table_says(tmp_path: Path, judge: JudgeOf, version: str) -> None:
    for number, one in enumerate(TABLE):
        log_dir = written(tmp_path / str(number) / "logs", one)
        said = line(log_dir, version)
        copy = tmp_path / str(number) / "copy" / "t-0"
        shutil.copytree(log_dir / "t-0", copy)
        try:
            done = judge(version).start(
                copy,
                clean=one.clean,
                recovery_point=0,
                log_start=0,
                settings=INTERVAL,
                now_ms=NOW_MS + 60_000,
            )
        except JudgeError:
            assert one.expected[version] == "refuse", one.name
            continue
        assert one.expected[version] != "refuse", one.name
        before = {int(path.stem): path.stat().st_size for path in (log_dir / "t-0").glob("*.log")}
        after = tuple((segment.base_offset, segment.bytes) for segment in done.segments)
        assert (said.log_bytes or tuple(sorted(before.items()))) == after, one.name
        assert set(done.recovered) <= set(said.segments), one.name


CONTENTS = (
    b"0\n0\n",
    b"0\n1\nt 0 5\n",
    b"",
    b"0\n",
    b"1\n0\n",
    b"x\n0\n",
    b"0\n2\nt 0 5\n",
    b"0\n1\nt 0 5 6\n",
    b"0\n1\nt 0\n",
    b"0\n1\nt x 5\n",
    b"0\n-1\n",
    b"0\nx\n",
    b"0\n1\n\nt 0 5\n",
)


def test_root_checkpoint_that_takes_the_directory_offline_is_forecast(tmp_path: Path, judge: JudgeOf) -> None:
    name = "recovery-point-offset-checkpoint"
    log_dir = written(tmp_path / "logs", next(one for one in TABLE if one.expected["2.2.1"] == "start"))
    seen = set()
    for content in CONTENTS:
        (log_dir / name).write_bytes(content)
        for version in LOADER_VERSIONS:
            offline = judge(version).checkpoint(log_dir / name).offline
            assert (line(log_dir, version).expected == "refuse") is offline, (content, version)
            seen.add((version, offline))
    assert len(seen) == 2 * len(LOADER_VERSIONS)


NAMES = (
    "x.log", "x.index.swap", "x.snapshot", "x.snapshot.swap", "x.cleaned", "x.swap", "x.deleted", "x", "-5.swap",
    ".swap",
)  # fmt: skip
"""Every kind and state was tried once, 31 names on four versions."""


def test_file_names_without_an_offset_end_a_start_where_it_is_forecast(
    tmp_path: Path, judge: JudgeOf
) -> None:
    log_dir = written(tmp_path / "logs", next(one for one in TABLE if one.expected["2.2.1"] == "start"))
    for number, name in enumerate(NAMES):
        (log_dir / "t-0" / name).touch()
        for version in (LOADER_VERSIONS[0], LOADER_VERSIONS[-1]):
            copy = tmp_path / f"{number}-{version}" / "t-0"
            shutil.copytree(log_dir / "t-0", copy)
            refused = line(log_dir, version).expected == "refuse"
            try:
                judge(version).start(copy, clean=True, recovery_point=0, log_start=0, settings=INTERVAL)
            except JudgeError:
                assert refused, (version, name)
            else:
                assert not refused, (version, name)
        (log_dir / "t-0" / name).unlink()
