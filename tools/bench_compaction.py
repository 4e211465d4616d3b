"""Times key compaction, wave by wave, and one pass of Kafka's cleaner over the same log.

    python -m tools.bench_compaction [--kind records|commits] [--codec 0..4] [--mb 400] [--keys 5000] [--own 0.3]
                                     [--peer 2.2.1]

CPU seconds of this process and wall seconds; a busy machine changes mostly the second. The peer's are those of its
cleaning thread, all keys in one map. The log lies in a temporary folder (TMPDIR).
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import shutil
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import crc32c

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


def write_log(folder: Path, kind: str, codec: int, size: int, keys: int, own: float = 0.0) -> int:
    """Two closed segments of many batches and a small active one; gives the log end."""
    chance = random.Random(1)
    count = 16 if kind == "records" else 1
    batches = []
    for _ in range(2000):
        raw = builders.encode(0, [record(kind, keys, chance) for _ in range(count)])
        batches.append(bytearray(twin.packed(raw, codec) if codec and not own else raw))
    offset = 0
    for _ in range(2):
        with (folder / f"{offset:020d}.log").open("wb") as file:
            written = 0
            while written < size // 2:
                # neither the offset nor the leader epoch is covered by a batch's CRC
                raw = chance.choice(batches)
                if own:
                    raw = with_own_keys(raw, offset, own, chance, codec)
                struct.pack_into(">q", raw, 0, offset)
                file.write(raw)
                written += len(raw)
                offset += count
    (folder / f"{offset:020d}.log").write_bytes(builders.data(offset, 1).raw)
    for path in folder.glob("*.log"):
        os.utime(path, ns=(NOW_MS * 10**6, NOW_MS * 10**6))
    return offset + 1


def with_own_keys(raw: bytes, offset: int, own: float, chance: random.Random, codec: int) -> bytearray:
    """A batch of which a share of the records have keys that no other record has."""
    new = bytearray(raw)
    for number, found in enumerate(re.finditer(rb"(key-|consumer-group-)[0-9]{5}", raw)):
        if chance.random() < own:
            new[found.end() - 9 : found.end()] = b"%09d" % (offset + number)
    struct.pack_into(">I", new, 17, crc32c.crc32c(new[21:]))
    return bytearray(twin.packed(bytes(new), codec)) if codec else new


def timed(name: str, size: int, work: Callable[[], Answer]) -> Answer:
    """Run and print CPU and wall seconds, and bytes of CPU time."""
    cpu, wall = time.process_time(), time.monotonic()
    answer = work()
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    print(f"  {name:<24} {cpu:7.2f} s CPU {wall:7.2f} s  {size / max(cpu, 1e-9) / 1e9:6.2f} GB/s of CPU time")
    return answer


def ours(folder: Path, log_end: int) -> float:
    """Every wave several times, so that nothing is compiled in the last ones; gives the least sum of CPU seconds."""
    size = sum(path.stat().st_size for path in folder.glob("*.log"))
    sums = []
    for number in range(1 + PASSES):
        print("with compiling" if number == 0 else f"{size / 1e6:.0f} MB")
        began = time.process_time()
        one_round(folder, log_end, size)
        sums.append(time.process_time() - began)
    print(f"  peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")
    return min(sums)


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


def peer(version: str, folder: Path) -> float:
    """The least CPU seconds of several passes of Kafka's cleaner, each over a copy of its own.

    The first pass also warms the machine's code; what its collector does on other threads is not counted.
    """
    settings = {"cleanup.policy": "compact", "segment.bytes": 1 << 30, "io.buffer": 1 << 20}
    passes = []
    with Judge(version, heap="2g", timeout_s=3600) as judge:
        for number in range(PASSES):
            copy = folder.parent / f"peer-{version}-{number}" / folder.name
            shutil.copytree(folder, copy)
            judge.recover(copy, settings)
            size = sum(path.stat().st_size for path in copy.glob("*.log"))
            passes.append(judge.clean(copy, first_dirty=0, horizon=1, settings=settings, now_ms=NOW_MS))
            shutil.rmtree(copy.parent)
    cpu = min(found.cpu_seconds for found in passes)
    wall = min(found.seconds for found in passes)
    print(f"Kafka {version:<18} {cpu:7.2f} s CPU {wall:7.2f} s  {size / cpu / 1e9:6.2f} GB/s of CPU time")
    return cpu


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["records", "commits"], default="records")
    parser.add_argument("--codec", type=int, default=0)
    parser.add_argument("--mb", type=int, default=400)
    parser.add_argument("--keys", type=int, default=5000)
    parser.add_argument(
        "--own", type=float, default=0.0, help="share of the records that stay: their key is their own"
    )
    parser.add_argument("--peer", action="append", default=[])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "t-0"
        folder.mkdir()
        log_end = write_log(folder, asked.kind, asked.codec, asked.mb * 10**6, asked.keys, asked.own)
        cpu = ours(folder, log_end)
        for version in asked.peer:
            print(f"  {peer(version, folder) / cpu:.1f} times as fast: every wave once against one pass")


if __name__ == "__main__":
    main()
