"""Real brokers on a disk that is full: they fail where check says so, and start with exactly the bytes it asks for."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.starts import TOPICS, checked, gathered, small_disk
from tests.lab.broker import Broker, BrokerError
from tests.lab.jars import ENDS

__all__ = ["small_disk"]

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.mark.parametrize("version", ENDS)
def test_start_on_a_full_disk_fails_as_told_and_with_the_bytes_told_it_does_not(
    small_disk: Callable[[int], Path], version: str
) -> None:
    disk = small_disk(8 << 20)
    log_dir = gathered(disk)
    with Broker(version, log_dir, {"log.cleaner.enable": "false"}, TOPICS) as broker:
        broker.stop(kill=True)
        for path in log_dir.rglob("*.index"):
            path.unlink()  # so that blocks are needed that are not there yet
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096):
                pass
        report = checked(log_dir, version)
        assert [finding.rule for finding in report.findings if finding.rule == "KR703"] == ["KR703"]
        assert report.free_bytes == 0
        with pytest.raises(BrokerError):
            broker.start()
        assert re.search("No space left on device|unsafe memory access", broker.log())

        filler.unlink()
        # The start that failed has written some of it: what is needed now is less.
        left = checked(log_dir, version)
        assert left.start_needs_bytes <= report.start_needs_bytes
        filler.write_bytes(b"x" * (left.free_bytes - left.start_needs_bytes))
        report = checked(log_dir, version)
        assert report.free_bytes == report.start_needs_bytes
        assert [finding.rule for finding in report.findings if finding.rule == "KR703"] == []
        broker.start()
