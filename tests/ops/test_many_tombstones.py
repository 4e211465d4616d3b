"""A question about many tombstones, and its answer: streamed on all sides, in bounded memory.

``KREPAIR_TOMBSTONES=10000000`` tries that many and prints seconds, memory and sizes.
"""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from krepair.formats.castagnoli import crc32c
from tests.builders import NOW_MS, LogDir, Record, data

pytestmark = pytest.mark.replicas
COUNT = int(os.environ.get("KREPAIR_TOMBSTONES", "20000"))
AT_ONCE = 64
"""Records of a batch: their offset deltas fit into one byte."""
PER_SEGMENT = 1 << 16
OLD = NOW_MS - 10 * 86_400_000
HELD_EVERY = 10


def batches(first: int, keys: range, *, tombstones: bool) -> Iterator[bytes]:
    """Batches of records with keys of 8 bytes, from an offset on."""
    value = [1] if tombstones else [2, 0x2E]
    size = 1 + 4 + 8 + len(value) + 1
    for start in range(0, len(keys), AT_ONCE):
        numbers = np.array(keys[start : start + AT_ONCE], ">i8")
        rows = np.zeros((len(numbers), size), np.uint8)
        rows[:, 0] = 2 * (size - 1)
        rows[:, 3] = 2 * np.arange(len(numbers))
        rows[:, 4] = 16
        rows[:, 5:13] = numbers.view(np.uint8).reshape(-1, 8)
        rows[:, 13 : 13 + len(value)] = value
        yield _batch(first + start, rows)


def _batch(base: int, rows: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    tail = np.zeros(40, np.uint8)
    tail[2:6] = np.array([len(rows) - 1], ">i4").view(np.uint8)
    tail[6:22] = np.array([OLD, OLD], ">i8").view(np.uint8)
    tail[22:36] = 0xFF
    tail[36:40] = np.array([len(rows)], ">i4").view(np.uint8)
    body = tail.tobytes() + rows.tobytes()
    return struct.pack(">qiibI", base, len(body) + 9, 0, 2, crc32c(body)) + body


def log_dir(root: Path, broker: int, *, older: bool) -> Path:
    """Tombstones of all keys; before them, perhaps, a value of some."""
    path = root / f"b{broker}"
    made = LogDir(path)
    made.partition("t").segment(data(3 * COUNT, [Record(b"end", b"1")]), mtime_ms=NOW_MS)
    made.write()
    runs = [(COUNT, range(COUNT), True)]
    if older:
        runs.insert(0, (0, range(0, COUNT, HELD_EVERY), False))
    for base, keys, tombstones in runs:
        for start in range(0, len(keys), PER_SEGMENT * AT_ONCE):
            log = path / "t-0" / f"{base + start:020d}.log"
            part = keys[start : start + PER_SEGMENT * AT_ONCE]
            with log.open("wb") as file:
                file.writelines(batches(base + start, part, tombstones=tombstones))
            os.utime(log, ns=(OLD * 1_000_000, OLD * 1_000_000))
    (path / "meta.properties").write_text(f"version=0\nbroker.id={broker}\ncluster.id=c\n")
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (path / name).write_text(f"0\n1\nt 0 {3 * COUNT + 1}\n")
    return path


@dataclass(frozen=True)
class Run:
    """What a command gave, and what it took."""

    document: Any
    seconds: float
    megabytes: int


# What wait4 tells of a child's memory counts that of the test process, too, from which it was forked.
MEASURED = """
import runpy, sys
status = sys.argv.pop(1)
try:
    runpy.run_module("krepair", run_name="__main__", alter_sys=True)
finally:
    with open("/proc/self/status") as found, open(status, "w") as told:
        told.write(found.read())
"""


def krepair(*words: str, codes: tuple[int, ...] = (0, 2)) -> Run:
    start = time.monotonic()
    with tempfile.NamedTemporaryFile() as status:
        command = [
            sys.executable,
            "-c",
            MEASURED,
            status.name,
            *words,
            "--engine",
            "inline",
            "--json",
            "--quiet",
        ]
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode in codes, done.stderr.decode()
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(status.name).read_text())
    assert peak is not None
    return Run(json.loads(done.stdout)["report"], time.monotonic() - start, int(peak[1]) // 1024)


@pytest.mark.slow
def test_a_question_about_many_tombstones_is_answered_in_bounded_memory(tmp_path: Path) -> None:
    one, two = log_dir(tmp_path, 1, older=False), log_dir(tmp_path, 2, older=True)
    cluster, config, scratch = tmp_path / "cluster.txt", tmp_path / "topics.json", tmp_path / "scratch"
    scratch.mkdir()
    cluster.write_text(
        "Topic: t\tPartitionCount: 1\tReplicationFactor: 2\tConfigs: a=1\n"
        "\tTopic: t\tPartition: 0\tLeader: 2\tReplicas: 1,2\tIsr: 1,2\n"
    )
    config.write_text(json.dumps({"t": {"cleanup.policy": "compact"}}))
    question, answer, plan = (str(tmp_path / name) for name in ("question", "answer", "plan"))
    common = ("--scratch", str(scratch))
    asking = (
        "plan", str(one), "--fix", "compact", "--topic-config", str(config), "--cluster", str(cluster),
        "--delete-horizon", str(NOW_MS), *common,
    )  # fmt: skip
    asked = krepair(*asking, "--ask", question)
    answered = krepair("facts", str(two), "--answer", question, "--out", answer, *common)
    planned = krepair(*asking, "--replicas", f"2={answer}", "--out", plan)
    applied = krepair("apply", plan, *common)
    held = len(range(0, COUNT, HELD_EVERY))
    assert (asked.document["keys"], answered.document["held"]) == (COUNT, held)
    found = planned.document["partitions"][0]["compaction"]
    assert (found["tombstones_dropped"], found["tombstones_kept"]) == (COUNT - held, held)
    for name, run, path in (
        ("plan --ask", asked, question),
        ("facts --answer", answered, answer),
        ("plan", planned, plan),
        ("apply", applied, ""),
    ):
        size = os.path.getsize(path) if path else 0
        print(f"{COUNT} {name}: {run.seconds:.1f} s, {run.megabytes} MB, file of {size} bytes")
        assert run.megabytes < 1500
