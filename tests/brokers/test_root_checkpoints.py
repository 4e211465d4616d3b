"""Real brokers on damaged checkpoints of the root: what check forecast happens, and mended they serve every record."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.options import Engine, Options
from tests.fixture_dirs import unpack
from tests.lab import client
from tests.lab.broker import Broker, BrokerError, Topic, wait_for

pytestmark = [pytest.mark.broker, pytest.mark.slow]

VERSIONS = ("2.2.1", "3.9.2", "4.3.1")
RECOVERY, HIGH_WATERMARK, LOG_START, CLEANER = (
    f"{word}-offset-checkpoint" for word in ("recovery-point", "replication", "log-start", "cleaner")
)
NAMES = ("doomed", "safe")
END = 280
EVERY_RECORD = {name: list(range(END)) for name in NAMES}
GOOD = f"0\n2\ndoomed 0 {END}\nsafe 0 {END}\n".encode()
PAST_END = f"0\n2\ndoomed 0 {END + 1}\nsafe 0 {END + 1}\n".encode()
OPTIONS = Options(engine=Engine.INLINE, now_ms=1_790_000_000_000, fixes=("checkpoints",))
TOPICS = {name: Topic(1, {"retention.ms": "-1"}, {0: 12}) for name in NAMES}
PROPERTIES = {"log.cleaner.enable": "true"}


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Two partitions of 280 records, cleanly stopped, with good checkpoints."""
    path = unpack("leader-epochs-2.2.1", tmp_path)
    for name in NAMES:
        shutil.copytree(path / "e-all-0", path / f"{name}-0")
    for folder in ("e-all-0", "e-some-0", "e-none-0"):
        shutil.rmtree(path / folder)
    for name in (RECOVERY, HIGH_WATERMARK):
        (path / name).write_bytes(GOOD)
    return path


def forecast(log_dir: Path, version: str) -> dict[str, str]:
    given = Options(engine=Engine.INLINE, now_ms=OPTIONS.now_ms, broker_version=version)
    return {line.partition: line.expected for line in check([str(log_dir)], given).log_dirs[0].forecast}


def mend(log_dir: Path) -> None:
    plan = make_plan(str(log_dir), OPTIONS)
    assert plan.root is not None
    assert apply(plan, OPTIONS).exit_code == ExitCode.DONE


def read(broker: Broker) -> dict[str, list[int]]:
    return {name: [one.offset for one in client.read_all(broker.bootstrap, name)] for name in NAMES}


@pytest.mark.parametrize("version", VERSIONS)
def test_log_start_past_the_end_deletes_the_partition_as_forecast_and_mended_it_does_not(
    log_dir: Path, tmp_path: Path, version: str
) -> None:
    (log_dir / LOG_START).write_bytes(f"0\n1\ndoomed 0 {END + 1}\n".encode())
    ours = tmp_path / "ours"
    shutil.copytree(log_dir, ours)
    assert forecast(log_dir, version) == {"doomed-0": "delete", "safe-0": "start"}
    with Broker(version, log_dir, PROPERTIES, TOPICS) as broker:
        assert [len(offsets) for offsets in read(broker).values()] == [0, END]

    mend(ours)
    assert forecast(ours, version) == {"doomed-0": "start", "safe-0": "start"}
    with Broker(version, ours, PROPERTIES, TOPICS) as broker:
        assert read(broker) == EVERY_RECORD


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", [RECOVERY, LOG_START, CLEANER, HIGH_WATERMARK])
def test_broker_refuses_a_truncated_file_as_forecast_and_starts_on_the_mended_one(
    log_dir: Path, tmp_path: Path, version: str, name: str
) -> None:
    whole = GOOD.replace(b"280", b"0") if name == LOG_START else GOOD
    (log_dir / name).write_bytes(whole[:-4])
    ours = tmp_path / "ours"
    shutil.copytree(log_dir, ours)
    assert forecast(log_dir, version) == {"doomed-0": "refuse", "safe-0": "refuse"}
    if name == HIGH_WATERMARK and version == "2.2.1":
        with Broker(version, log_dir, PROPERTIES, TOPICS, timeout_s=40) as broker:
            wait_for(lambda: "have failed" in broker.log(), timeout_s=40)
    else:
        with pytest.raises(BrokerError), Broker(version, log_dir, PROPERTIES, TOPICS, timeout_s=40):
            pass

    mend(ours)
    with Broker(version, ours, PROPERTIES, TOPICS) as broker:
        assert read(broker) == EVERY_RECORD


@pytest.mark.parametrize("version", VERSIONS)
def test_count_of_minus_one_does_what_is_forecast_for_the_version(
    log_dir: Path, tmp_path: Path, version: str
) -> None:
    data = GOOD.replace(b"0\n2\n", b"0\n-1\n")
    (log_dir / RECOVERY).write_bytes(data)
    expected = "refuse" if version == "2.2.1" else "start"
    assert set(forecast(log_dir, version).values()) == {expected}
    if expected == "refuse":
        with pytest.raises(BrokerError), Broker(version, log_dir, PROPERTIES, TOPICS, timeout_s=40):
            pass
    else:
        with Broker(version, log_dir, PROPERTIES, TOPICS) as broker:
            assert read(broker) == EVERY_RECORD


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("clean", [True, False])
def test_all_four_past_the_end_mended_serve_every_record_after_any_stop(
    log_dir: Path, version: str, clean: bool
) -> None:
    for name in (RECOVERY, HIGH_WATERMARK, LOG_START, CLEANER):
        (log_dir / name).write_bytes(PAST_END)
    if not clean:
        (log_dir / ".kafka_cleanshutdown").unlink()
    mend(log_dir)
    assert (log_dir / ".kafka_cleanshutdown").exists() is clean
    with Broker(version, log_dir, PROPERTIES, TOPICS) as broker:
        assert read(broker) == EVERY_RECORD
