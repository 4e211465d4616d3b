"""Times key compaction, wave by wave, and one pass of Kafka's cleaner over the same log.

    python -m tools.bench_compaction [--kind records|commits] [--codec 0..4] [--mb 400] [--peer 2.2.1] [--keys 5000]

CPU seconds of this process and wall seconds; a busy machine changes only the second. The peer's are those of its own
clock, all keys in one map. The log lies in a temporary folder (TMPDIR).
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from krepair.pipeline.compaction import CompactionInput, decide_compaction, prepare
from krepair.pipeline.engine import InlineEngine
from krepair.rules.model import LeftAlone
from tests import builders
from tests.builders import NOW_MS, Record
from tests.compaction import twin
from tests.compaction.compacting import Compacted, place_of, proven, scanned, staged
from tests.lab.judge import Judge
from tests.rules.facts import POLICY

Answer = TypeVar("Answer")
PASSES = 3


def record(kind: str, keys: int, chance: random.Random) -> Record:
    """A record of 1 kB, or an offset commit."""
    if kind == "records":
        return Record(b"key-%08d" % chance.randrange(keys), chance.randbytes(500) + b"x" * 480)
    name = b"consumer-group-%05d" % chance.randrange(max(keys // 20, 1))
    key = struct.pack(">hh", 1, len(name)) + name + b"\0\x0btopic-%05d" % chance.randrange(20) + bytes(4)
    return Record(key, struct.pack(">hqihqq", 3, chance.randrange(10**9), -1, 0, NOW_MS, 0)[:28])


def write_log(folder: Path, kind: str, codec: int, size: int, keys: int) -> int:
    """Two closed segments of many batches and a small active one; gives the log end."""
    chance = random.Random(1)
    count = 16 if kind == "records" else 1
    batches = []
    for _ in range(2000):
        raw = builders.encode(0, [record(kind, keys, chance) for _ in range(count)])
        batches.append(bytearray(twin.packed(raw, codec) if codec else raw))
    offset = 0
    for _ in range(2):
        with (folder / f"{offset:020d}.log").open("wb") as file:
            written = 0
            while written < size // 2:
                # neither the offset nor the leader epoch is covered by a batch's CRC
                raw = chance.choice(batches)
                struct.pack_into(">q", raw, 0, offset)
                file.write(raw)
                written += len(raw)
                offset += count
    (folder / f"{offset:020d}.log").write_bytes(builders.data(offset, 1).raw)
    for path in folder.glob("*.log"):
        os.utime(path, ns=(NOW_MS * 10**6, NOW_MS * 10**6))
    return offset + 1


def timed(name: str, size: int, work: Callable[[], Answer]) -> Answer:
    """Run and print CPU and wall seconds, and bytes of CPU time."""
    cpu, wall = time.process_time(), time.monotonic()
    answer = work()
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    print(f"  {name:<24} {cpu:7.2f} s CPU {wall:7.2f} s  {size / max(cpu, 1e-9) / 1e9:6.2f} GB/s of CPU time")
    return answer


def ours(folder: Path, log_end: int) -> None:
    """Every wave twice, so that nothing is compiled in the second round."""
    size = sum(path.stat().st_size for path in folder.glob("*.log"))
    for number in range(2):
        print("with compiling" if number == 0 else f"{size / 1e6:.0f} MB")
        one_round(folder, log_end, size)
    print(f"  peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")


def one_round(folder: Path, log_end: int, size: int) -> None:
    """Every wave once."""
    policy = replace(POLICY, high_watermark=log_end, segment_bytes=1 << 30)
    engine = InlineEngine("bench")
    segments = timed("scan", size, lambda: scanned(folder, policy, engine))
    inputs = [CompactionInput(place_of(folder), segments, policy, bytes(16))]
    prepared = timed("keys and join", size, lambda: prepare(engine, inputs, ""))
    outcome = timed("compacted size", size, lambda: decide_compaction(engine, prepared))[0]
    assert not isinstance(outcome, LeftAlone), outcome
    target = folder / "krepair~bench"
    target.mkdir()

    def write() -> None:
        for group in outcome.decision.groups:
            staged(folder, prepared[0], outcome, group, engine, target)

    timed("write, index, check", size, write)
    found = timed("verify", size, lambda: proven(folder, Compacted(outcome, prepared[0]), target))
    assert found.failure == "", found.why
    shutil.rmtree(target)
    left = sum(group.kept_bytes for group in outcome.decision.groups)
    print(f"  {outcome.keys} keys, {left / 1e6:.1f} MB left")


def peer(version: str, folder: Path) -> None:
    """Passes of Kafka's cleaner, each over a copy of its own; the first one also warms the machine's code."""
    settings = {"cleanup.policy": "compact", "segment.bytes": 1 << 30, "io.buffer": 1 << 20}
    seconds = []
    with Judge(version, heap="2g", timeout_s=3600) as judge:
        for number in range(PASSES):
            copy = folder.parent / f"peer-{version}-{number}" / folder.name
            shutil.copytree(folder, copy)
            judge.recover(copy, settings)
            size = sum(path.stat().st_size for path in copy.glob("*.log"))
            seconds.append(
                judge.clean(copy, first_dirty=0, horizon=1, settings=settings, now_ms=NOW_MS).seconds
            )
            shutil.rmtree(copy.parent)
    print(
        f"Kafka {version}: {min(seconds):.2f} s, {size / min(seconds) / 1e9:.2f} GB/s, best of {PASSES} passes"
    )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["records", "commits"], default="records")
    parser.add_argument("--codec", type=int, default=0)
    parser.add_argument("--mb", type=int, default=400)
    parser.add_argument("--keys", type=int, default=5000)
    parser.add_argument("--peer", action="append", default=[])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "t-0"
        folder.mkdir()
        log_end = write_log(folder, asked.kind, asked.codec, asked.mb * 10**6, asked.keys)
        ours(folder, log_end)
        for version in asked.peer:
            peer(version, folder)


if __name__ == "__main__":
    main()
