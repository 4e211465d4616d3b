"""Real brokers on damaged checkpoints of the root: what check forecast happens, and mended they serve every record.

A broker goes on without the log directories that it cannot read. So one start of each version tells of all damages,
each in a log directory of its own, and one start of all mended directories.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.options import EngineName, Options
from tests.corpus.jbod import broker_on, read_everything
from tests.fixture_dirs import unpack
from tests.lab.broker import Broker, BrokerError, Topic
from tests.lab.jars import ENDS
from tests.lab.waiting import LIMIT_S
from tests.ops.conftest import memory_dir
from tests.twins.of_plan import twin_problems

__all__ = ["memory_dir"]
pytestmark = [pytest.mark.broker, pytest.mark.slow]

RECOVERY, HIGH_WATERMARK, LOG_START, CLEANER = ROOT_FILES = [
    f"{word}-offset-checkpoint" for word in ("recovery-point", "replication", "log-start", "cleaner")
]
END = 280
OPTIONS = Options(engine=EngineName.INLINE, now_ms=1_790_000_000_000, fixes=("checkpoints",))
OFFLINE = re.compile(
    r"(?:Stopping serving (?:logs|replicas) in (?:dir|directory)|Error while loading log dir) (/\S+)"
)


def lines(name: str, offset: int = END) -> bytes:
    """A good file of the root."""
    return f"0\n2\ndoomed-{name} 0 {offset}\nsafe-{name} 0 {offset}\n".encode()


class Damage(NamedTuple):
    """One damaged log directory of two partitions.

    Attributes:
        write: does it: log directory and its name in.
        expected: version -> what becomes of the two, ``doomed`` first; None: not judged before it is mended.
        clean: whether it was cleanly stopped.
    """

    write: Callable[[Path, str], object]
    expected: Callable[[str], tuple[str, str]] | None
    clean: bool = True


def _cut(file: str) -> Callable[[Path, str], object]:
    return lambda log_dir, name: (log_dir / file).write_bytes(
        lines(name, 0 if file == LOG_START else END)[:-4]
    )


def _past_the_end(log_dir: Path, name: str) -> None:
    for file in ROOT_FILES:
        (log_dir / file).write_bytes(lines(name, END + 1))


DAMAGES = {
    "sound": Damage(lambda log_dir, name: None, lambda version: ("start", "start")),
    **{
        f"cut-{file.partition('-')[0]}": Damage(_cut(file), lambda version: ("refuse", "refuse"))
        for file in ROOT_FILES
    },
    "start-past-the-end": Damage(
        lambda log_dir, name: (log_dir / LOG_START).write_bytes(
            f"0\n1\ndoomed-{name} 0 {END + 1}\n".encode()
        ),
        lambda version: ("delete", "start"),
    ),
    "count-minus-one": Damage(
        lambda log_dir, name: (log_dir / RECOVERY).write_bytes(lines(name).replace(b"\n2\n", b"\n-1\n")),
        lambda version: ("refuse", "refuse") if version == "2.2.1" else ("start", "start"),
    ),
    "all-past-the-end": Damage(_past_the_end, None),
    "all-past-the-end-killed": Damage(_past_the_end, None, clean=False),
}


def topics(names: list[str]) -> dict[str, Topic]:
    return {
        f"{one}-{name}": Topic(1, {"retention.ms": "-1"}, {0: 12})
        for name in names
        for one in ("doomed", "safe")
    }


def damaged(root: Path, name: str) -> Path:
    """Two partitions of 280 records, with what is damaged about their log directory."""
    log_dir = unpack("leader-epochs-2.2.1", root / name)
    for topic in topics([name]):
        shutil.copytree(log_dir / "e-all-0", log_dir / f"{topic}-0")
    for folder in ("e-all-0", "e-some-0", "e-none-0"):
        shutil.rmtree(log_dir / folder)
    for file in (RECOVERY, HIGH_WATERMARK):
        (log_dir / file).write_bytes(lines(name))
    if not DAMAGES[name].clean:
        (log_dir / ".kafka_cleanshutdown").unlink()
    DAMAGES[name].write(log_dir, name)
    return log_dir


def forecast(log_dir: Path, version: str) -> tuple[str, ...]:
    given = Options(engine=EngineName.INLINE, now_ms=OPTIONS.now_ms, broker_version=version)
    said = {line.partition: line.expected for line in check([str(log_dir)], given).log_dirs[0].forecast}
    return tuple(said[folder] for folder in sorted(said))


def mend(log_dir: Path) -> None:
    plan = make_plan(str(log_dir), OPTIONS)
    assert plan.root is not None
    assert apply(plan, OPTIONS).exit_code == ExitCode.DONE
    assert twin_problems(plan) == []


def read(broker: Broker, names: list[str]) -> dict[str, list[int]]:
    deadline = time.monotonic() + LIMIT_S
    found = read_everything(broker.bootstrap, topics(names), lambda: time.monotonic() > deadline)
    return {topic: [offset for offset, _, _ in records] for topic, records in found.items()}


def wait_until_offline(broker: Broker, wanted: set[Path]) -> None:
    """Some files are read some seconds after the start."""
    deadline = time.monotonic() + LIMIT_S
    while {Path(path) for path in OFFLINE.findall(broker.log())} != wanted and time.monotonic() < deadline:
        time.sleep(0.2)
    assert {Path(path) for path in OFFLINE.findall(broker.log())} == wanted


@pytest.mark.parametrize("version", ENDS)
def test_every_damage_does_what_is_forecast(memory_dir: Path, tmp_path: Path, version: str) -> None:
    expected = {name: damage.expected(version) for name, damage in DAMAGES.items() if damage.expected}
    dirs = {name: damaged(memory_dir, name) for name in expected}
    assert {name: forecast(log_dir, version) for name, log_dir in dirs.items()} == expected
    served = [name for name in expected if expected[name] != ("refuse", "refuse")]
    with broker_on(version, list(dirs.values()), topics(list(dirs)), tmp_path, cleaner=True) as broker:
        wait_until_offline(broker, {dirs[name] for name in expected if name not in served})
        left = read(broker, served)
    assert left == {
        f"{one}-{name}": [] if becomes == "delete" else list(range(END))
        for name in served
        for one, becomes in zip(("doomed", "safe"), expected[name], strict=True)
    }


@pytest.mark.parametrize("version", ENDS)
def test_broker_whose_only_log_directory_is_refused_does_not_start(
    memory_dir: Path, tmp_path: Path, version: str
) -> None:
    log_dir = damaged(memory_dir, "cut-recovery")
    with (
        pytest.raises(BrokerError),
        Broker(version, log_dir, topics=topics(["cut-recovery"]), work_dir=tmp_path),
    ):
        pass


@pytest.mark.parametrize("version", ENDS)
def test_every_mended_directory_is_served_whole(memory_dir: Path, tmp_path: Path, version: str) -> None:
    names = [name for name in DAMAGES if name not in {"sound", "count-minus-one"}]
    dirs = {name: damaged(memory_dir, name) for name in names}
    for name, log_dir in dirs.items():
        mend(log_dir)
        assert (log_dir / ".kafka_cleanshutdown").exists() is DAMAGES[name].clean
        if DAMAGES[name].clean:
            assert forecast(log_dir, version) == ("start", "start")
    with broker_on(version, list(dirs.values()), topics(names), tmp_path, cleaner=True) as broker:
        found = read(broker, names)
        assert OFFLINE.findall(broker.log()) == []
    assert found == {topic: list(range(END)) for topic in topics(names)}
