"""Pre-recovery of a broker with several log directories, and of one that meets a folder of another user.

All versions and scenes: ``KREPAIR_EVERY_BROKER=1 make test ARGS=tests/brokers/test_recovery_places.py``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from tests.brokers.killed import (
    RECOVERY_POINTS,
    Load,
    Seen,
    Traced,
    assert_headers_alone,
    broker_for,
    bytes_of,
    crash,
    ends_planned,
    logs_of,
    made_ready,
    options,
    put_back,
    recovered,
    send,
    set_aside,
)
from tests.lab import jars
from tests.lab.broker import BrokerError
from tests.lab.client import read_partitions
from tests.lab.waiting import LIMIT_S

pytestmark = [pytest.mark.broker, pytest.mark.slow]

EVERY = os.environ.get("KREPAIR_EVERY_BROKER") == "1"
VERSIONS = jars.LOADER_VERSIONS if EVERY else (jars.LATEST,)
MARKER = ".kafka_cleanshutdown"
PARTITIONS = 8


def folders(log_dir: Path) -> set[str]:
    return {path.name for path in log_dir.glob("t-*")}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_of_two_log_dirs_is_made_ready_for_itself_whatever_the_other_one_is(
    version: str, tmp_path: Path
) -> None:
    with broker_for(version, tmp_path, more_dirs=[tmp_path / "other"]) as broker:
        load, (first, second) = Load(broker, PARTITIONS), broker.log_dirs
        traced = Traced(broker, tmp_path / "strace")
        crash(broker)
        assert len(folders(first)) == len(folders(second)) == PARTITIONS // 2
        set_aside(tmp_path / "kept", first, second)
        logs, others = logs_of(first), logs_of(second)

        broker.start()
        assert set(recovered(broker)) == folders(first) | folders(second)
        plainly = Seen(broker, load.partitions)

        # Stopped cleanly, but for the second one: as where it had failed while the broker ran.
        broker.stop()
        (second / MARKER).unlink()
        (second / RECOVERY_POINTS).unlink()
        reports = check([str(first), str(second)], options(version)).log_dirs
        told = ["KR801" in {finding.rule for finding in report.findings} for report in reports]
        assert told == [False, True]
        nothing = make_plan(str(first), options(version))
        assert nothing.root is None
        assert all(part.changes == () for part in nothing.partitions)
        ends = ends_planned(made_ready(second, version))
        assert set(ends) == folders(second)
        broker.start()
        assert recovered(broker) == ends
        assert Seen(broker, load.partitions) == plainly
        broker.stop(kill=True)

        # Both killed, both made ready, the first one taken back.
        put_back(tmp_path / "kept", first, second)
        plan, ends = made_ready(first, version), ends_planned(made_ready(second, version))
        assert {one.outcome for one in undo(plan, options(version)).results} == {"undone"}
        read = traced.start()
        found = recovered(broker)
        assert {folder: found[folder] for folder in ends} == ends
        assert all(len(found[folder]) >= 3 for folder in folders(first))
        assert_headers_alone(read, others)
        assert bytes_of(read, logs) >= sum(logs.values())
        assert Seen(broker, load.partitions) == plainly
        broker.stop(kill=True)

        # Both made ready.
        put_back(tmp_path / "kept", first, second)
        ends = ends_planned(made_ready(first, version), made_ready(second, version))
        assert set(ends) == folders(first) | folders(second)
        read = traced.start()
        assert recovered(broker) == ends
        assert_headers_alone(read, logs | others)
        assert Seen(broker, load.partitions) == plainly
        for sender, partitions in ((load.plain, load.of_plain), (load.ready, load.of_ready)):
            send(sender, partitions, 50, "goes on")
        load.open.commit_transaction(LIMIT_S)
        for later in (load.later_plain, load.later_ready):
            later.abort_transaction(LIMIT_S)
        goes_on = {number: {"goes on": 50} for number in load.partitions}
        load.wait_for_counts(broker, load.expected(goes_on, {"open": 5}))


USER = 4242
AS_USER = (
    *("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"),
    # The jars may lie in root's home: the user may look into closed folders, and write into none.
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that any user can reach; skipped where no broker can run as another user."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to run a broker as another user")
    folder = Path(tempfile.mkdtemp(prefix="krepair-user-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def give(path: Path, user: int) -> None:
    """A folder, or what is in it, to a user; its mode lets others read."""
    os.chown(path, user, user)
    path.chmod(0o755 if path.is_dir() else 0o644)


def records(broker: object, load: Load) -> dict[int, list[int]]:
    found = read_partitions(broker.bootstrap, "t", load.partitions)  # type: ignore[attr-defined]
    return {number: [record.offset for record in of] for number, of in found.items()}


@pytest.mark.every_broker
@pytest.mark.parametrize("what", ["folder", "snapshots", "epochs"])
@pytest.mark.parametrize("version", VERSIONS)
def test_whole_broker_of_4_3_1_loses_a_segment_in_a_folder_of_another_user_and_after_krepair_it_does_not(
    version: str, what: str, open_place: Path
) -> None:
    with broker_for(version, open_place, before=AS_USER, user=USER) as broker:
        load, log_dir = Load(broker, 4), broker.log_dir
        crash(broker)
        partition = log_dir / "t-1"
        places = {
            "folder": [partition],
            "snapshots": sorted(partition.glob("*.snapshot")),
            "epochs": [partition / "leader-epoch-checkpoint"],
        }[what]
        assert places
        for place in places:
            give(place, 0)
        set_aside(open_place / "kept", log_dir)
        before = logs_of(log_dir)
        firsts = sorted(log for log in before if log.parent == partition)

        told = {one.rule for one in check([str(log_dir)], options(version)).log_dirs[0].findings}
        loses = version in jars.SINCE_4 and what == "folder"
        assert ("KR804" in told, "KR605" in told) == (loses, True)

        with contextlib.suppress(BrokerError):
            broker.start()
        after = logs_of(log_dir)
        assert {log for log in before if after.get(log, 0) < before[log]} == ({firsts[0]} if loses else set())

        # The folder is given back to the broker. It starts, and the records are gone.
        broker.stop(kill=True)
        for place in places:
            if place.exists():
                give(place, USER)
        broker.start()
        found = records(broker, load)
        assert (found[1][0], found[0][0]) == (int(firsts[1].stem) if loses else 0, 0)
        broker.stop(kill=True)

        put_back(open_place / "kept", log_dir)
        ends = ends_planned(made_ready(log_dir, version))
        # In that folder it may end all the same, at the first file that it writes there: ``leader-epoch-checkpoint``.
        try:
            broker.start()
        except BrokerError:
            assert what == "folder"
        assert all(bases == ends[folder] for folder, bases in recovered(broker).items())
        assert logs_of(log_dir) == before
        broker.stop(kill=True)
        for place in places:
            if place.exists():
                give(place, USER)
        broker.start()
        served = records(broker, load)
        assert [len(served[number]) for number in load.partitions] == [len(served[0])] * len(load.partitions)
        assert (served[0], served[1][0]) == (found[0], 0)
