"""Real brokers do what check says of the next start: the segments they read, the bytes they take, what stops them."""

from __future__ import annotations

import contextlib
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.starts import POINTS, TOPICS, checked, gathered
from tests.lab.broker import Broker, BrokerError
from tests.lab.jars import ENDS
from tests.lab.judge import Judge, JudgeError
from tests.ops.next_start import KILLS, compacted

pytestmark = [pytest.mark.broker, pytest.mark.slow]

RECOVERING = re.compile(r"partition=(\S+), .*Recovering unflushed segment (\d+)")


def sizes(log_dir: Path) -> tuple[int, int]:
    """Bytes of length and of blocks of all its files, but for those that a broker just renames."""
    found = []
    for path in log_dir.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            found.append(path.stat())
    found = [each for each in found if stat.S_ISREG(each.st_mode)]
    return sum(each.st_size for each in found), sum(each.st_blocks * 512 for each in found)


def read_by(broker: Broker, said: re.Pattern[str]) -> dict[str, set[int]]:
    out: dict[str, set[int]] = {}
    for folder, segment in said.findall(broker.log()):
        if folder.rpartition("-")[0] in POINTS:
            out.setdefault(folder, set()).add(int(Path(segment.rstrip(",.")).stem))
    return out


@pytest.mark.parametrize("version", ENDS)
def test_broker_recovers_the_segments_and_takes_the_bytes_that_check_says(
    tmp_path: Path, version: str
) -> None:
    log_dir = gathered(tmp_path)
    report = checked(log_dir, version)
    forecast = {line.partition: set(line.segments) for line in report.forecast}
    assert {folder: len(bases) for folder, bases in forecast.items()} == {
        "all-0": 10,
        "half-0": 5,
        "last-0": 1,
    }
    length, blocks = sizes(log_dir)
    with Broker(version, log_dir, {"log.cleaner.enable": "false"}, TOPICS) as broker:
        assert read_by(broker, RECOVERING) == forecast
        longer, more = sizes(log_dir)
        broker.stop()
    assert 0 <= more - blocks <= report.start_needs_bytes
    assert 0 <= longer - length - report.start_reserves_bytes < report.start_needs_bytes


@pytest.mark.parametrize("version", ENDS)
def test_meta_properties_that_check_says_keep_a_broker_down_do(tmp_path: Path, version: str) -> None:
    log_dir = gathered(tmp_path)
    with Broker(version, log_dir, topics=TOPICS) as broker:
        broker.stop()
        path = log_dir / "meta.properties"
        good = path.read_bytes()
        damages = (
            b"",
            good.replace(b"version=", b"version=9"),
            good.replace(b".id=0", b".id=x"),
            good.replace(b".id=0", b".no=0"),
        )
        for damage in damages:
            path.write_bytes(damage)
            assert {line.expected for line in checked(log_dir, version).forecast} == {"refuse"}
            with pytest.raises(BrokerError):
                broker.start()
        path.unlink()
        expected = {line.expected for line in checked(log_dir, version).forecast}
        if version == "2.2.1":
            assert "refuse" not in expected
            broker.start()
        else:
            assert expected == {"refuse"}
            with pytest.raises(BrokerError):
                broker.start()


@pytest.mark.parametrize("version", ENDS)
@pytest.mark.parametrize("damage", KILLS)
def test_kafkas_cleaner_ends_at_what_check_names_and_passes_what_it_does_not(
    tmp_path: Path, judge: Callable[[str], Judge], version: str, damage: str
) -> None:
    folder = compacted(tmp_path / "logs", damage) / "c-0"
    settings = {"cleanup.policy": "compact", "max.message.bytes": "1000"}
    if KILLS[damage] and damage != "large":
        with pytest.raises(JudgeError):
            judge(version).clean(folder, settings=settings)
    else:
        assert judge(version).clean(folder, settings=settings).next_dirty == 7
