"""Time of check, plan, apply and undo on padded indexes of many segments: file operations count, not log bytes.

    python -m tools.bench_indexes [--segments 10000] [--partitions 100] [--log-bytes 20000] [--work FOLDER]

Each segment has its own ``.log`` of batches of 1 kB; its ``.index`` and ``.timeindex`` are sparse and padded to 10 MiB,
as a broker leaves them where they were never trimmed. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from krepair.errors import ExitCode
from krepair.formats import batch_v2
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.options import EngineName, Options
from krepair.pipeline.indexes.regenerate import regenerate_offset_and_time

PADDED = {".index": 10_485_760, ".timeindex": 10_485_756}
BATCH_BYTES = 1000
NOW_MS = 1_795_000_000_000


def log_of(base_offset: int, count: int) -> bytes:
    """``count`` batches of ten records, one second apart; their records are never looked into."""
    header = batch_v2.BatchHeader(
        base_offset=0, batch_length=0, partition_leader_epoch=0, magic=2, crc=0, attributes=0,
        last_offset_delta=9, base_timestamp=NOW_MS, max_timestamp=NOW_MS, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, record_count=10,
    )  # fmt: skip
    body = os.urandom(BATCH_BYTES - batch_v2.HEADER.size)
    return b"".join(
        batch_v2.encode_batch(
            header._replace(
                base_offset=offset, base_timestamp=NOW_MS + offset * 100, max_timestamp=NOW_MS + offset * 100
            ),
            body,
        )
        for offset in range(base_offset, base_offset + count * 10, 10)
    )


def make(root: Path, segments: int, partitions: int, log_bytes: int) -> None:
    """Write the log directory."""
    count = max(1, log_bytes // BATCH_BYTES)
    root.mkdir(parents=True)
    (root / "meta.properties").write_text("version=0\nbroker.id=0\n")
    (root / ".kafka_cleanshutdown").touch()
    for number in range(partitions):
        folder = root / f"events-{number}"
        folder.mkdir()
        for base_offset in range(0, segments // partitions * count * 10, count * 10):
            stem = folder / f"{base_offset:020d}"
            data = log_of(base_offset, count)
            Path(f"{stem}.log").write_bytes(data)
            made = regenerate_offset_and_time(f"{stem}.log", len(data), base_offset, 4096)
            for suffix, entries in ((".index", made.index), (".timeindex", made.time_index)):
                with open(f"{stem}{suffix}", "wb") as file:
                    file.write(entries)
                    file.truncate(PADDED[suffix])


def main() -> int:
    """Run it."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--segments", type=int, default=10_000)
    words.add_argument("--partitions", type=int, default=100)
    words.add_argument("--log-bytes", type=int, default=20_000)
    words.add_argument("--work", default=tempfile.gettempdir())
    given = words.parse_args()
    work = Path(tempfile.mkdtemp(prefix="krepair-bench-", dir=given.work))
    figures: dict[str, float] = {}

    def timed(name: str, do: Callable[[], Any]) -> Any:
        before = time.monotonic()
        result = do()
        figures[f"{name}_s"] = round(time.monotonic() - before, 2)
        return result

    try:
        root = work / "logs"
        timed("make", lambda: make(root, given.segments, given.partitions, given.log_bytes))
        options = Options(now_ms=NOW_MS + 10**9, engine=EngineName.INLINE, fixes=("index",))
        report = timed("check", lambda: check([str(root)], options))
        plan = timed("plan", lambda: make_plan(str(root), options))
        done = timed("apply", lambda: apply(plan, options))
        again = timed("second_plan", lambda: make_plan(str(root), options))
        undone = timed("undo", lambda: undo(plan, options))
        figures["segments"] = sum(each.segments for each in report.log_dirs[0].partitions)
        figures["findings"] = len(report.log_dirs[0].findings)
        figures["files_replaced"] = sum(each.outcome == "committed" for each in done.results)
        figures["left_to_do"] = sum(len(each.changes) for each in again.partitions)
        figures["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps(vars(given) | figures))
        return 0 if done.exit_code == undone.exit_code == ExitCode.DONE else 1
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main())
