"""What a client of a broker on a log directory sees: records in both isolation levels, and group offsets."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests import naive
from tests.lab import client
from tests.lab.broker import Broker, Topic

PASSIVE = {"log.cleaner.enable": "false", "offsets.retention.minutes": "5256000"}
# The lab's new cluster leads at epoch 0, the fixture's own had led at a later one; a broker that is stopped no longer
# writes the metadata of a group without members.
OF_THE_LAB = re.compile(r"caused truncation of conflicting entries|Failed to write empty metadata for group")


Ends = dict[tuple[str, int, str], int]
"""Topic, partition, isolation level -> offset."""
Records = dict[tuple[str, int, str], list[client.Consumed]]


@dataclass(frozen=True)
class Served:
    """Per partition and isolation level the records; per group its committed offsets; what the broker minded."""

    records: Records
    offsets: dict[str, dict[tuple[str, int], tuple[int, str]]]
    complaints: tuple[str, ...]


def topics_of(log_dir: Path) -> dict[str, Topic]:
    """The topics of a fixture under the settings that its own broker had."""
    manifest = msgspec.json.decode((log_dir / "lab-manifest.json").read_bytes())
    out = {}
    for name, topic in manifest["topics"].items():
        config = {key: value for key, value in topic["config"].items() if "unclean" not in key}
        out[name] = Topic(topic["partitions"], config)
    return out


def ends_of(log_dir: Path) -> Ends:
    """The offsets before which a reading must not change.

    A broker ends open transactions and writes group metadata of its own soon after it has started.
    """
    out = {}
    for name, topic in topics_of(log_dir).items():
        for number in range(topic.partitions):
            segments, _ = naive.read_partition(log_dir / f"{name}-{number}")
            batches = [batch for segment in segments for batch in naive.parse(segment.log)]
            end = max((batch.last_offset + 1 for batch in batches), default=0)
            if not end:
                continue
            opened = [p.open_from for p in naive.replay(batches).values() if p.open_from is not None]
            out[name, number, "read_uncommitted"] = end
            out[name, number, "read_committed"] = min([end, *opened])
    return out


def read_all_of(broker: Broker, ends: Ends) -> Records:
    """The records of each partition in each isolation level, up to where the directory ended."""

    def read(key: tuple[str, int, Any]) -> list[client.Consumed]:
        return [record for record in client.read_all(broker.bootstrap, *key) if record.offset < ends[key]]

    with ThreadPoolExecutor(4) as readers:
        return dict(zip(ends, readers.map(read, ends), strict=True))


def serve(version: str, log_dir: Path, work: Path) -> Served:
    """Start a broker of that version on a copy, read all as clients do, and stop it cleanly."""
    copy = Path(shutil.copytree(log_dir, work / "logs"))
    ends = ends_of(copy)
    with Broker(version, copy, PASSIVE, topics_of(copy)) as broker:
        records = read_all_of(broker, ends)
        offsets = client.fetch_group_offsets(broker.bootstrap)
        broker.stop()
        complaints = tuple(line for line in broker.complaints() if not OF_THE_LAB.search(line))
    shutil.rmtree(work)
    return Served(records, offsets, complaints)
