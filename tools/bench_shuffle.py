"""The join of keys on Spark in two ways: through files in a scratch folder, and as a shuffle of a DataFrame.

    python -m tools.bench_shuffle FOLDER [--keys 6000000] [--again 2000000] [--master URL] [--hosts N] [--rounds N]

FOLDER is made and removed. Both ways walk the same log with the same kernel and end with the offsets that stay, sorted
for each segment, where a task can read them; the second way throws them away there. See ADR 0015.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from krepair.durable.scratch import make_scratch
from krepair.formats.arrays import Int64s
from krepair.logdir.reading import opened_for_reading, read_into_from
from krepair.pipeline.compaction.items import KeysItem
from krepair.pipeline.compaction.keys import TABLE_ROWS, KeyWalk, Rows
from krepair.pipeline.compaction.partitions import CompactionInput, prepare
from krepair.pipeline.engines.engine import InlineEngine
from krepair.pipeline.engines.spark import SparkEngine
from krepair.pipeline.place import reached
from tests.compaction.compacting import place_of, scanned
from tests.pipeline.cluster import Cluster
from tests.rules.facts import POLICY
from tools import many_keys

_ROWS = pa.schema([("first", pa.int64()), ("second", pa.int64()), ("offset", pa.int64())])


def emit(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows (two halves of the hash, last offset) of the keys of segments."""
    for item in (row["item"] for batch in batches for row in batch.to_pylist()):
        asked = msgspec.msgpack.decode(item, type=KeysItem)
        tree, wrong = reached(asked.place)
        assert not wrong
        found: list[Rows] = []

        def on_rows(rows: Rows, _starts: Int64s, found: list[Rows] = found) -> None:
            found.append(rows)

        with opened_for_reading(f"{asked.place.path}/{asked.base_offset:020d}.log", tree) as descriptor:
            secret = np.frombuffer(asked.secret, np.uint64)
            none = np.empty((0, 3), np.int64)
            KeyWalk(read_into_from(descriptor), asked.size, none, secret, on_rows, TABLE_ROWS).run()
        for rows in found:
            columns = [pa.array(rows[:, number].view(np.int64)) for number in range(3)]
            yield pa.RecordBatch.from_arrays(columns, schema=_ROWS)


def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """How many offsets came, in order."""
    total = 0
    for batch in batches:
        total += batch.num_rows
    yield pa.RecordBatch.from_pydict({"keys": [total]})


def by_shuffle(engine: SparkEngine, items: list[KeysItem]) -> int:
    """The join with DataFrame calls alone; gives how many keys there are."""
    session = engine.session
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
    session.conf.set("spark.sql.shuffle.partitions", "16")
    rows = [(number, bytearray(msgspec.msgpack.encode(item))) for number, item in enumerate(items)]
    frame = session.createDataFrame(rows, "number long, item binary").repartition(len(rows))
    keys = frame.mapInArrow(emit, "first long, second long, offset long")
    stays = keys.groupBy("first", "second").agg(F.max("offset").alias("offset"))
    segment: Any = sum((F.col("offset") > item.base_offset).cast("int") for item in items)
    sorted_ = (
        stays.select("offset", segment.alias("segment")).repartition("segment").sortWithinPartitions("offset")
    )
    return sum(row["keys"] for row in sorted_.mapInArrow(count, "keys long").collect())


def measured(name: str, work: Callable[[], int]) -> None:
    """Run and print seconds and the memory of all processes of this one's session."""
    before = _cpu()
    watch, over = Memory(), threading.Event()
    thread = threading.Thread(target=watch.look, args=(over,))
    thread.start()
    wall = time.monotonic()
    try:
        found = work()
    finally:
        over.set()
        thread.join()
    print(
        f"{name:<28} {found} keys, {time.monotonic() - wall:6.1f} s, {_cpu() - before:6.1f} s CPU, "
        f"{watch.most >> 20} MiB of memory (JVM and workers)",
        flush=True,
    )


class Memory:
    """Memory of this process and all below it."""

    def __init__(self) -> None:
        self.most = 0

    def look(self, over: threading.Event) -> None:
        """Twice a second until it is over."""
        while not over.wait(0.5):
            self.most = max(self.most, sum(_resident(process) for process in _family()))


def _family() -> list[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = Path(f"/proc/{name}/stat").read_text(encoding="utf-8")
            except OSError:
                continue
            parents[int(name)] = int(text.rpartition(")")[2].split()[1])
    family = [os.getpid()]
    for process in family:
        family += [child for child, parent in parents.items() if parent == process]
    return family


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * 4096
    except OSError:
        return 0


def _cpu() -> float:
    ticks = 0
    for process in _family():
        try:
            fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keys", type=int, default=6 * 10**6)
    parser.add_argument("--again", type=int, default=2 * 10**6)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--hosts", type=int, help="a cluster of so many workers with host names of their own")
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    folder = asked.folder / "t-0"
    folder.mkdir(parents=True)
    try:
        if asked.hosts:
            names = {f"host-{number}": "" for number in range(1, asked.hosts + 1)}
            with Cluster(asked.folder, hosts=names) as cluster:
                both_ways(folder, asked, cluster.url)
        else:
            both_ways(folder, asked, asked.master)
    finally:
        shutil.rmtree(asked.folder)


def both_ways(folder: Path, asked: argparse.Namespace, master: str) -> None:
    """Write a log, and join its keys inline, and on Spark in both ways in turn."""
    many_keys.SEGMENT_BYTES = 1 << 27
    engine = None
    try:
        log_end = many_keys.write_log(folder, asked.keys, asked.again)
        inline = InlineEngine("bench")
        policy = many_keys.replace(POLICY, high_watermark=log_end)
        inputs = [CompactionInput(place_of(folder), scanned(folder, policy, inline), policy, bytes(16))]
        scratch = make_scratch(str(asked.folder), [], asked=True)
        measured("inline, scratch files", lambda: prepare(inline, inputs, scratch)[0].keys)
        engine = SparkEngine(master, "bench")
        for number in range(asked.rounds):
            print(f"round {number + 1}")
            measured("Spark, scratch files", lambda: prepare(engine, inputs, scratch)[0].keys)
            items = [
                KeysItem(
                    place=place_of(folder), base_offset=facts.base_offset, size=facts.summary.file_size,
                    aborted=b"", secret=bytes(16), rows_inline=0, scratch="",
                )
                for facts in inputs[0].segments[:-1]
            ]  # fmt: skip
            measured("Spark, shuffle", lambda items=items: by_shuffle(engine, items))
            engine.session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
        print(f"scratch: {many_keys.scratch_bytes(scratch) / 3e6:.0f} MB for each run")
        print(f"peak of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")
    finally:
        if engine is not None:
            engine.close()


if __name__ == "__main__":
    main()
