"""Compacts a partition with very many distinct keys, and reports seconds, memory and scratch bytes of each wave.

    python -m tools.many_keys FOLDER [--keys 100000000] [--again 25000000]

Every key is written once, and the first ``--again`` of them once more at the end; a record takes 84 bytes in the log.
The log, what is made of it and the scratch folder lie in FOLDER, which is made and removed: 35 GB for 10^8 keys.
Keys are laid out so that neighbours in the log are no neighbours as keys.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import crc32c
import numpy as np

from krepair.durable.scratch import make_scratch
from krepair.engine.engine import InlineEngine
from krepair.rewrite.compaction.partitions import CompactionInput, decide_compaction, prepare
from krepair.rules.model import Skipped
from tests import builders
from tests.builders import NOW_MS, Record
from tests.compaction.compacting import Compacted, proven, scanned, staged
from tests.places import place_of
from tests.rules.facts import POLICY

Answer = TypeVar("Answer")

RECORDS = 64
"""Number of records in a batch: every offset delta is one byte then, so that all batches have the same size."""
VALUE_BYTES = 60
KEY = b"key of a"
SEGMENT_BYTES = 1 << 30
BATCHES_AT_ONCE = 4096
_MIXED = np.uint64(0x9E3779B97F4A7C15)


def template() -> tuple[bytes, int, int]:
    """Return a batch, the position of its first key's number, and the bytes from there to the next key's number."""
    mark = b"\xf0NUMBER\xf1"
    records = [Record(KEY + mark, b"v" * VALUE_BYTES) for _ in range(RECORDS)]
    raw = builders.encode(0, records, base_timestamp=NOW_MS - 10**6, max_timestamp=NOW_MS - 10**6)
    first = raw.index(mark)
    return raw, first, raw.index(mark, first + 1) - first


def write_log(folder: Path, keys: int, again: int) -> int:
    """Write closed segments and a small active one; return the log end. ``again`` is at most ``keys``."""
    raw, first, step = template()
    batches = (keys + again) // RECORDS
    of_segment = SEGMENT_BYTES // len(raw)
    places = (first + step * np.arange(RECORDS))[:, None] + np.arange(8)
    for start in range(0, batches, of_segment):
        with (folder / f"{start * RECORDS:020d}.log").open("wb") as file:
            for at in range(start, min(start + of_segment, batches), BATCHES_AT_ONCE):
                after = min(at + BATCHES_AT_ONCE, start + of_segment, batches)
                numbers = np.arange(at * RECORDS, after * RECORDS, dtype=np.uint64)
                file.write(_batches(raw, at, after, numbers % np.uint64(keys), places))
    offset = batches * RECORDS
    (folder / f"{offset:020d}.log").write_bytes(builders.data(offset, 1).raw)
    for path in folder.glob("*.log"):
        os.utime(path, ns=(NOW_MS * 10**6, NOW_MS * 10**6))
    return offset + 1


def _batches(raw: bytes, at: int, after: int, numbers: Any, places: Any) -> bytearray:
    out = np.tile(np.frombuffer(raw, np.uint8), (after - at, 1))
    offsets = np.arange(at, after, dtype=np.int64) * RECORDS
    out[:, :8] = offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
    keys = (numbers * _MIXED).astype(">u8").view(np.uint8).reshape(after - at, RECORDS, 8)
    out[:, places.ravel()] = keys.reshape(after - at, -1)
    data = bytearray(out.tobytes())
    view, size = memoryview(data), len(raw)
    for start in range(0, len(data), size):
        struct.pack_into(">I", data, start + 17, crc32c.crc32c(view[start + 21 : start + size]))
    return data


class Watch:
    """Monitor of memory and scratch folder while a wave runs."""

    def __init__(self, scratch: str) -> None:
        self.scratch = scratch
        self._over = threading.Event()
        self.private_bytes = self.scratch_bytes = 0

    def look(self) -> None:
        """Measure every half second until the wave is over."""
        while not self._over.wait(0.5):
            status = Path("/proc/self/status").read_text(encoding="ascii")
            watched = {
                line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Rss")
            }
            self.private_bytes = max(self.private_bytes, int(watched["RssAnon"]) << 10)
            self.scratch_bytes = max(self.scratch_bytes, scratch_bytes(self.scratch))

    def timed(self, name: str, size: int, work: Callable[[], Answer]) -> Answer:
        """Run one wave and print its cost."""
        self._over.clear()
        self.private_bytes = 0
        watching = threading.Thread(target=self.look)
        watching.start()
        cpu, wall = time.process_time(), time.monotonic()
        try:
            return work()
        finally:
            cpu, wall = time.process_time() - cpu, time.monotonic() - wall
            self._over.set()
            watching.join()
            print(
                f"  {name:<20} {cpu:7.1f} s CPU {wall:7.1f} s {size / cpu / 1e9:6.2f} GB/s of CPU time, "
                f"{self.private_bytes >> 20} MiB of memory, {scratch_bytes(self.scratch) / 1e9:.2f} GB of scratch",
                flush=True,
            )


def scratch_bytes(folder: str) -> int:
    """Return the size in bytes of all files in a folder."""
    return sum(entry.stat().st_size for entry in os.scandir(folder))


def run(root: Path, keys: int, again: int) -> None:
    """Write the log, then plan, apply and verify its compaction."""
    folder = root / "t-0"
    folder.mkdir()
    began = time.monotonic()
    log_end = write_log(folder, keys, again)
    size = sum(path.stat().st_size for path in folder.glob("*.log"))
    print(
        f"{log_end - 1} records, {size / 1e9:.2f} GB, written in {time.monotonic() - began:.0f} s", flush=True
    )
    scratch = make_scratch(str(root), [], asked=True)
    watch = Watch(scratch)
    policy = replace(POLICY, high_watermark=log_end, segment_bytes=SEGMENT_BYTES)
    engine = InlineEngine("many keys")
    segments = watch.timed("scan", size, lambda: scanned(folder, policy, engine))
    inputs = [CompactionInput(place_of(folder), segments, policy, bytes(16))]
    prepared = watch.timed("keys and join", size, lambda: prepare(engine, inputs, scratch))
    outcome = watch.timed("compacted size", size, lambda: decide_compaction(engine, prepared))[0]
    assert not isinstance(outcome, Skipped), outcome
    assert outcome.keys == keys, outcome.keys
    assert outcome.total.superseded == log_end - 1 - keys, outcome.total
    target = root / "results"
    target.mkdir()

    def write() -> None:
        for group in outcome.decision.groups:
            staged(folder, prepared[0], outcome, group, engine, target)

    watch.timed("write, index, check", size, write)
    print(
        f"  {outcome.keys} keys, {sum(group.kept_bytes for group in outcome.decision.groups) / 1e9:.2f} GB left"
    )
    shutil.rmtree(scratch)
    os.mkdir(scratch)
    measured_run = watch.timed(
        "verify", size, lambda: proven(folder, Compacted(outcome, prepared[0]), target, scratch=scratch)
    )
    assert (measured_run.failure, measured_run.why, measured_run.keys) == ("", "", keys), measured_run
    print(f"  peak with mapped files {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")


def main() -> None:
    """Run the program from its command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keys", type=int, default=10**8)
    parser.add_argument("--again", type=int, default=25 * 10**6)
    options = parser.parse_args()
    options.folder.mkdir()
    try:
        run(options.folder, options.keys, options.again)
    finally:
        shutil.rmtree(options.folder)


if __name__ == "__main__":
    main()
