"""Pre-recovery before real brokers: killed under load, started plainly and after krepair, killed again.

All versions: ``KREPAIR_EVERY_BROKER=1 make test ARGS=tests/brokers/test_recovery.py``.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from krepair.ops.check import check
from tests.brokers.killed import (
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
from tests.lab.broker import BrokerError
from tests.lab.waiting import LIMIT_S

pytestmark = [pytest.mark.broker, pytest.mark.slow]

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
        ends = ends_planned(made_ready(log_dir, version))
        assert len(ends) == PARTITIONS
        read = traced.start()
        assert recovered(broker) == ends
        assert_headers_alone(read, logs)
        assert Seen(broker, load.partitions) == plainly

        # Killed again before anything was flushed: again only the empty ones.
        broker.stop(kill=True)
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


@pytest.fixture
def small_ext4(tmp_path: Path) -> Iterator[Path]:
    """An ext4 of 96 MiB on a loop device; skipped where nothing may be mounted."""
    image, folder = tmp_path / "ext4", tmp_path / "disk"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(96 << 20)
    made = ["mkfs.ext4", "-q", "-F", "-m", "0", str(image)]
    if shutil.which("mkfs.ext4") is None or subprocess.run(made, check=False).returncode:
        pytest.skip("needs mkfs.ext4")
    if subprocess.run(["mount", "-o", "loop", image, folder], capture_output=True, check=False).returncode:
        pytest.skip("needs to mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_start_of_4_3_1_on_a_full_disk_after_krepair_loses_nothing(small_ext4: Path, tmp_path: Path) -> None:
    """Without krepair it loses whole partitions, in about half of its starts, so that is no test here.

    A plain start rebuilds indexes, which are mapped. Where there is no block for one, the JVM throws an InternalError,
    and the loader takes the next log for damaged: it empties its first segment and marks the others for deletion (seen
    with this broker in five of ten starts). After krepair it may stop, at the first file that it writes: that is a
    ``leader-epoch-checkpoint``.
    """
    with broker_for(jars.LATEST, small_ext4, work_dir=tmp_path / "work") as broker:
        Load(broker, 8)
        crash(broker)
        broker.timeout_s = 240  # it may stay there without being started
        made_ready(broker.log_dir, jars.LATEST)
        before = logs_of(broker.log_dir)
        with (small_ext4 / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096):
                pass
        with contextlib.suppress(BrokerError):
            broker.start()
        bases = recovered(broker).values()
        assert bases, broker.log()[-4000:]
        assert all(len(found) == 1 for found in bases)
        after = logs_of(broker.log_dir)
        assert {log: size for log, size in before.items() if after.get(log, -1) < size} == {}
        broker.stop(kill=True)
