"""Files directly in a log directory, of odd names, owners and modes: what a broker makes of them is what check says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.brokers.starts import AS_NOBODY_SPECIAL, checked
from tests.builders import LogDir, data
from tests.lab.broker import Broker, BrokerError, Topic
from tests.lab.jars import LATEST

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away"),
]

EVERY = os.environ.get("KREPAIR_EVERY_BROKER") == "1"
SOON = {
    "log.flush.offset.checkpoint.interval.ms": 1000,
    "log.flush.start.offset.checkpoint.interval.ms": 1000,
}
NEVER_OPENED = (
    "notes.txt", "server.log", f"{0:020d}.log", f"{0:020d}.index", "old.txnindex", "orders-7",
    "orders-7.0123456789abcdef0123456789abcdef-delete", "partition.metadata", "leader-epoch-checkpoint",
    ".kafka_cleanshutdown",
)  # fmt: skip
CASES = {
    NEVER_OPENED: (0o000, "start"),
    ("t-0/leader-epoch-checkpoint.tmp",): (0o644, "refuse"),
    ("replication-offset-checkpoint.tmp",): (0o644, "refuse"),
    ("recovery-point-offset-checkpoint.tmp",): (0o644, "refuse"),
    ("log-start-offset-checkpoint.tmp",): (0o644, "refuse"),
    ("meta.properties.tmp", "cleaner-offset-checkpoint.tmp", "t-0/partition.metadata.tmp"): (0o644, "start"),
    (".lock",): (0o644, "refuse"),
    ("link to a folder",): (0o644, "refuse"),
    ("link to nothing",): (0o644, "start"),
}
"""Names -> their mode, and what a start comes to. What is refused ends at the start, or at its first write."""
TRIED = [
    pytest.param(version, names, id=f"{version}, {names[0]}")
    for version in ("2.2.1", "3.9.2", LATEST)
    for names in (CASES if EVERY else list(CASES)[:2])
    if EVERY or version == LATEST
]


def owned(log_dir: Path, strange: tuple[str, ...], user: int, stranger: int) -> None:
    """All of a user, but for these files."""
    for path in (log_dir, *log_dir.rglob("*")):
        owner = stranger if str(path.relative_to(log_dir)) in strange else user
        os.chown(path, owner, owner, follow_symlinks=False)


@pytest.mark.parametrize(("version", "names"), TRIED)
def test_files_of_another_user_end_the_broker_only_where_check_says_so(
    version: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    mode, outcome = CASES[names]
    made = LogDir(tmp_path / "logs")
    made.partition("t").segment(data(0, 10))
    log_dir = made.write()
    for name in names:
        if name.startswith("link"):
            (log_dir / name).symlink_to(tmp_path if "folder" in name else tmp_path / "nothing")
        else:
            (log_dir / name).touch()
            (log_dir / name).chmod(mode)
    owned(log_dir, names, 4242, 0)
    said = {line.expected for line in checked(log_dir, version).forecast}
    # A broker can run as root without its rights over files of others: the same with the owners changed over.
    owned(log_dir, names, 0, 4242)
    props = SOON | ({} if version == "2.2.1" else {"log.initial.task.delay.ms": 1000})
    topics = {"t": Topic(1, {"retention.ms": "-1"})}
    assert (said, seen(version, log_dir, props, topics)) == ({outcome}, outcome)


def seen(version: str, log_dir: Path, props: dict[str, int], topics: dict[str, Topic]) -> str:
    """What a broker's start came to, and the seconds after it."""
    try:
        with Broker(version, log_dir, props, topics, before=AS_NOBODY_SPECIAL) as broker:
            return "refuse" if broker.ends_within(45 if version == "2.2.1" else 8) else "start"
    except BrokerError:
        return "refuse"
