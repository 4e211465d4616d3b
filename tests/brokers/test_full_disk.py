"""A full disk end to end: at most four commands, and a real 2.2.1 broker starts on it and serves every record."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.kernels.cache import CACHE_VARIABLE, user_folders
from tests.brokers.serving import PASSIVE
from tests.lab import client
from tests.lab.broker import Broker, Topic
from tests.ops.disk_scene import BROKER, FOLDER, MIB, Host, as_user, commands_in, open_dir
from tests.ops.full_disks import file_system, fill, fill_up, free_of

__all__ = ["open_dir"]
pytestmark = [pytest.mark.broker, pytest.mark.slow]
PARTITION_BYTES = 1_900_000
"""On the disk, of one partition of the fixture, rounded up."""
TWIN = "twin"
"""A topic with the same bytes that no plan is about: what it serves, the others have to serve."""
CONFIG = {"cleanup.policy": "compact", "delete.retention.ms": "1000", "segment.bytes": "100000"}
EVERY = bool(os.environ.get("KREPAIR_EVERY_STATE"))
GATE = [("ext4", 5, 34)]
MORE = [("ext4", 0, 44), ("xfs", 0, 34), ("ext4", 5, 44)]


@pytest.mark.parametrize(("kind", "reserve", "partitions"), [*GATE, *MORE] if EVERY else GATE)
def test_one_plan_frees_a_full_disk_and_a_broker_serves_what_it_did(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch, kind: str, reserve: int, partitions: int
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, user_folders()[0])
    work = open_dir / "work"
    work.mkdir()
    size = (partitions + 1) * PARTITION_BYTES + 24 * MIB
    with file_system(kind, open_dir, size, reserve, 100 * partitions + 6000) as mount:
        host = Host(mount, work, partitions, None)
        shutil.copytree(host.path / FOLDER, host.path / f"{TWIN}-0")
        (host.path / "meta.properties").unlink()  # of another cluster than the lab's
        (host.path / ".kafka_cleanshutdown").unlink(missing_ok=True)
        for path in [host.path, *host.path.rglob("*")]:
            os.chown(path, *BROKER)
        if kind == "xfs" or not reserve:
            fill_up(mount)
        else:
            fill(mount, 0)
        typed: list[str] = []

        def typing(command: str, code: ExitCode = ExitCode.DONE) -> str:
            typed.append(command)
            ended, said = host.type(*shlex.split(command)[1:])
            assert ended == code, said
            return said

        words = f"{shlex.join(host.words())} --fix markers,index,recovery --broker-version 2.2.1"
        plan = f"krepair plan {words} --keep auto --out a.krplan"
        said = typing(plan, ExitCode.FOUND)
        if "It does NOT fit" in said:
            # Where even root has nothing, the page says how much: somebody makes that room.
            missing = int(
                re.search(r"At least ([\d,]+) KiB more", " ".join(said.split()))[1].replace(",", "")
            )
            os.truncate(mount / "filler", (mount / "filler").stat().st_size - (missing + 4) * 1024)
            typed.clear()
            said = typing(plan, ExitCode.FOUND)
        assert "krepair apply a.krplan" in commands_in(said)
        before = free_of(mount)
        typing("krepair apply a.krplan")
        typing("krepair verify a.krplan")
        assert free_of(mount) > before
        _a_broker_serves_all(partitions, host.path, open_dir / "broker")
        typing("krepair purge a.krplan")
        assert len(typed) == 4
        assert list(host.path.glob("*/krepair~*")) == []


def _a_broker_serves_all(partitions: int, log_dir: Path, work: Path) -> None:
    """A broker of the directory's user starts, and serves of some partitions what it serves of the untouched one."""
    work.mkdir(mode=0o755)
    topics = {"__consumer_offsets": Topic(partitions, CONFIG), TWIN: Topic(1, CONFIG)}
    settings = PASSIVE | {"offsets.topic.num.partitions": partitions}
    with Broker(
        "2.2.1", log_dir, settings, topics, work_dir=work, before=as_user(BROKER), timeout_s=240
    ) as broker:
        for isolation in ("read_uncommitted", "read_committed"):
            (twin,) = client.read_partitions(broker.bootstrap, TWIN, [0], isolation).values()
            assert twin
            served = client.read_partitions(
                broker.bootstrap, "__consumer_offsets", list(range(partitions)), isolation
            )
            end = twin[-1].offset
            assert {
                number: [one for one in found if one.offset <= end] for number, found in served.items()
            } == dict.fromkeys(range(partitions), twin)
        assert client.fetch_group_offsets(broker.bootstrap)
