"""Real brokers on the whole corpus: one start of each version on what krepair mended, one on the damaged root files."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.brokers.epochs import end_offsets_for_epochs
from tests.corpus.bases import Made
from tests.corpus.case import Case
from tests.corpus.cases import CASES
from tests.corpus.conftest import Mended
from tests.corpus.harness import made
from tests.corpus.jbod import broker_on, gather, healthy_name, read_everything, topic_of
from tests.lab.broker import Broker, Topic
from tests.lab.jars import ENDS, VERSIONS
from tests.lab.waiting import LIMIT_S
from tests.ops.conftest import memory_dir

__all__ = ["memory_dir"]
pytestmark = [pytest.mark.broker, pytest.mark.slow]

MENDED = [case for case in CASES if case.mended]
IN_ROOT = [case for case in CASES if not case.in_partition]
USED = sorted({case.base for case in MENDED})
OFFLINE = re.compile(
    r"(?:Stopping serving (?:logs|replicas) in (?:dir|directory)|Error while loading log dir) (/\S+)"
)
# On 3.9 and 4.3 a count of 2147483647 takes the memory of the whole broker; a number that is none ends the cleaner's
# thread, or the publishing of all metadata after it. 2.2.1 stops at a leader epoch file that it cannot read, if it
# comes to it before the log directory is offline for something else.
NEWER = "int-max|(?:cleaner|replication)-(?:count-minus-1|offset-past-64-bits)"
CONTAGIOUS = dict.fromkeys(VERSIONS, NEWER) | {"2.2.1": "and-everything"}


def topics(cases: list[Case]) -> dict[str, Topic]:
    found = {case.name: topic_of(case.base) for case in cases}
    return found | {healthy_name(base): topic_of(base) for base in USED}


@pytest.mark.parametrize("version", ENDS)
def test_broker_starts_on_everything_that_was_mended_and_serves_every_record(
    memory_dir: Path, tmp_path: Path, mended: Mended, version: str
) -> None:
    directories = [(case, mended.copy(case, memory_dir / case.name)) for case in MENDED]
    moved = [pair for pair in directories if pair[0].in_partition]
    dirs = gather(memory_dir / "gathered", moved, USED)
    dirs += [directory.log_dir for case, directory in directories if not case.in_partition]
    with broker_on(version, dirs, topics(MENDED), tmp_path) as broker:
        assert OFFLINE.findall(broker.log()) == []
        deadline = time.monotonic() + LIMIT_S
        records = read_everything(broker.bootstrap, topics(MENDED), lambda: time.monotonic() > deadline)
        epochs = {}
        if not broker.kraft:  # a KRaft broker leads at epoch 0 and cuts the history to it
            epochs = {name: end_offsets_for_epochs(broker, name) for name in topics(MENDED)}
        broker.stop()
    for base in USED:
        assert len(records[healthy_name(base)]) > 0
    for what, found in (("records", records), ("epochs", epochs)):
        other = {case.name for case in MENDED if found.get(case.name) != found.get(healthy_name(case.base))}
        assert other == {case.name for case in MENDED if what in case.differs and found}, what


@pytest.mark.parametrize("version", ENDS)
def test_damaged_files_of_the_root_do_what_check_forecast(
    memory_dir: Path, tmp_path: Path, version: str
) -> None:
    """A broker goes on without the log directories that it cannot read, so one start tells of all.

    But for what brings down more than its own directory, see ``CONTAGIOUS``.
    """
    cases = [case for case in IN_ROOT if not re.search(CONTAGIOUS[version], case.name)]
    directories = {case.name: made(case, memory_dir / case.name) for case in cases}
    sound = gather(memory_dir / "gathered", [], USED)[:1]
    dirs = [*sound, *(directory.log_dir for directory in directories.values())]
    sizes = {name: log_bytes(directory) for name, directory in directories.items()}
    forecast: dict[str, set[str]] = {}
    for case in cases:
        forecast.setdefault(case.before.of(version), set()).add(case.name)
    with broker_on(version, dirs, topics(cases), tmp_path, cleaner=True) as broker:
        deadline = time.monotonic() + LIMIT_S
        while offline(broker, directories) != forecast["refuse"] and time.monotonic() < deadline:
            time.sleep(0.2)
        records = read_everything(broker.bootstrap, topics([]), lambda: time.monotonic() > deadline)
        assert offline(broker, directories) == forecast["refuse"]
        broker.stop()
    assert {name for name, records in records.items() if not records} == set()
    emptied = {name for name, directory in directories.items() if log_bytes(directory) < sizes[name]}
    assert emptied == forecast["delete"]


def log_bytes(directory: Made) -> int:
    return sum(path.stat().st_size for path in directory.folder.glob("*.log"))


def offline(broker: Broker, directories: dict[str, Made]) -> set[str]:
    """Names of the log directories that the broker goes on without."""
    stopped = set(OFFLINE.findall(broker.log()))
    return {name for name, directory in directories.items() if str(directory.log_dir) in stopped}
