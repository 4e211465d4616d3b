"""Pre-recovery before real brokers: killed under load, started plainly and after krepair, killed again.

A folder that cannot be written, and a full disk: ``tests/recovery/test_show.py``.

All versions: ``KREPAIR_EVERY_BROKER=1 make test ARGS=tests/brokers/test_recovery.py``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
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
    transactional,
)
from tests.lab import jars
from tests.lab.waiting import LIMIT_S

pytestmark = [pytest.mark.broker, pytest.mark.slow]

EVERY = os.environ.get("KREPAIR_EVERY_BROKER") == "1"
MARKER = ".kafka_cleanshutdown"
PARTITIONS = 16


@pytest.mark.parametrize("version", jars.OLDEST_AND_LATEST)
def test_killed_broker_serves_the_same_after_krepair_as_after_a_plain_start_and_reads_nothing(
    version: str, tmp_path: Path
) -> None:
    with broker_for(version, tmp_path) as broker:
        load, log_dir = Load(broker, PARTITIONS), broker.log_dir
        traced = Traced(broker, tmp_path / "strace")
        crash(broker)
        set_aside(tmp_path / "kept", log_dir)
        logs = logs_of(log_dir)

        read = traced.start()
        old = recovered(broker)
        assert len(old) == PARTITIONS
        assert all(len(bases) >= 3 for bases in old.values())
        assert bytes_of(read, logs) >= sum(logs.values())
        plainly = Seen(broker, load.partitions)
        assert plainly.offsets == load.offsets
        send(load.plain, load.of_plain, 50, "goes on")
        transactional(broker, "open")
        load.later_plain.commit_transaction(LIMIT_S)
        load.wait_for_counts(broker, load.expected({}, {"later_plain": 5}))
        broker.stop(kill=True)

        put_back(tmp_path / "kept", log_dir)
        said = check([str(log_dir)], options(version))
        assert "recovery" in str(said.next_command)
        plan = made_ready(log_dir, version)
        ends = ends_planned(plan)
        assert len(ends) == PARTITIONS
        read = traced.start()
        assert recovered(broker) == ends
        assert_headers_alone(read, logs)
        assert Seen(broker, load.partitions) == plainly

        # Killed again before anything was flushed: again only the empty ones.
        broker.stop(kill=True)
        looked = verify_plan(plan, options(version))
        assert looked.problems == ()
        assert looked.of_the_broker
        assert str(looked.next_command).startswith("krepair purge PLAN")
        broker.start()
        assert recovered(broker) == ends
        # The broker leads when this has been read; before, a client gives up an idempotent producer now and then.
        assert Seen(broker, load.partitions) == plainly
        send(load.ready, load.of_ready, 50, "goes on")
        load.later_ready.commit_transaction(LIMIT_S)
        opened = transactional(broker, "open")
        opened.begin_transaction()
        send(opened, load.partitions, 5, "open again")
        opened.commit_transaction(LIMIT_S)
        ended = transactional(broker, "later_plain")
        ended.begin_transaction()
        send(ended, load.partitions, 5, "given up")
        ended.abort_transaction(LIMIT_S)
        goes_on = {number: {"goes on": 50} for number in load.of_ready}
        load.wait_for_counts(broker, load.expected(goes_on, {"later_ready": 5, "open again": 5}))

        # And once more, with what was written since.
        seen = Seen(broker, load.partitions)
        broker.stop(kill=True)
        ends = ends_planned(made_ready(log_dir, version))
        broker.start()
        assert recovered(broker) == ends
        assert Seen(broker, load.partitions) == seen


def folders(log_dir: Path) -> set[str]:
    return {path.name for path in log_dir.glob("t-*")}


@pytest.mark.parametrize("version", jars.LOADER_VERSIONS if EVERY else (jars.LATEST,))
def test_each_of_two_log_dirs_is_made_ready_for_itself_whatever_the_other_one_is(
    version: str, tmp_path: Path
) -> None:
    with broker_for(version, tmp_path, more_dirs=[tmp_path / "other"]) as broker:
        load, (first, second) = Load(broker, 8), broker.log_dirs
        traced = Traced(broker, tmp_path / "strace")
        crash(broker)
        assert len(folders(first)) == len(folders(second)) == 4
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
