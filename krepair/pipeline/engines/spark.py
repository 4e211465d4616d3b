"""Tasks on Spark: a small DataFrame of work items in, Arrow rows of results out; bytes of logs never travel.

Only DataFrame calls, so that Spark Connect works too. Speculation is off: a doubled task would only waste work, since
tasks stage privately and one process commits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from krepair.errors import RefusedError
from krepair.pipeline.engines.bundles import bundled
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.engines.worker_watch import WHAT_TO_DO, WorkerWatch
from krepair.pipeline.jobs import Item, Result, Task, run_encoded
from krepair.pipeline.place import kept_open
from krepair.pipeline.progress import Progress

ITEM_SCHEMA = "bundle long, task string, items binary"
RESULT_SCHEMA = "index long, result binary"
_RESULT_ARROW = pa.schema([("index", pa.int64()), ("result", pa.binary())])
_WAVE: Final = 128
_WAVES_AT_ONCE: Final = 3
_LOOK_EVERY_S: Final = 1.0
_REACHING_SAID_AFTER_S: Final = 20.0
_LEAST_FREE_BYTES: Final = 64 << 20
_TEMPORARY_FOLDERS: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 -- Spark makes private folders in it
_LOG: Final = logging.getLogger("krepair.spark")

Bundle = tuple[int, str, bytearray]


def map_items(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the items of Arrow batches; what ``mapInArrow`` calls in a worker."""
    for row in (row for batch in batches for row in batch.to_pylist()):
        with kept_open():
            for index, item in msgspec.msgpack.decode(row["items"], type=list[tuple[int, bytes]]):
                result = run_encoded(row["task"], item)
                yield pa.RecordBatch.from_pylist([{"index": index, "result": result}], schema=_RESULT_ARROW)


def start_session(master: str) -> SparkSession:
    """One session: UTC, loopback on ``local``, no UI, no speculation, one row per Arrow batch."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_CONF_DIR", os.path.join(os.path.dirname(__file__), "spark_conf"))
    on_this_host = master.startswith(("local", "spark://127.", "spark://localhost"))
    if on_this_host:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.appName("krepair")
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.speculation", "false")
        # A host that is gone without a word is noticed in half a minute, not in two.
        .config("spark.executor.heartbeatInterval", "5s")
        .config("spark.network.timeout", "25s")
        .config("spark.network.timeoutInterval", "5s")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.maxResultSize", "2g")
        .config("spark.sql.warehouse.dir", os.path.join(folder_with_room(), "krepair-warehouse"))
    )
    if on_this_host:
        builder = builder.config("spark.driver.host", "127.0.0.1").config(
            "spark.driver.bindAddress", "127.0.0.1"
        )
        builder = builder.config("spark.local.dir", folder_with_room())
    return builder.getOrCreate()


def said_of_a_slow_start(master: str) -> str:
    """What is said when Spark takes long to start: a local one has no workers that somebody could start."""
    if master.startswith("local"):
        return (
            "Spark has not started yet: on a busy machine it takes a while; --engine inline does without it"
        )
    return f"the Spark master {master} does not answer yet; {WHAT_TO_DO}"


def folder_with_room() -> str:
    """A temporary folder that is not on the full disk, for what Spark writes; ``SPARK_LOCAL_DIRS`` goes before it."""
    first = tempfile.gettempdir()
    for path in dict.fromkeys([first, *_TEMPORARY_FOLDERS]):
        with contextlib.suppress(OSError):
            state = os.statvfs(path)
            room = state.f_bavail * state.f_frsize >= _LEAST_FREE_BYTES
            if room and os.access(path, os.W_OK | os.X_OK):
                return path
    return first


class SparkEngine(Engine):
    """Runs items on a Spark session.

    Args:
        master: Spark master URL.
        why: why Spark was taken, for the report.
        progress: see ``Engine``.
    """

    def __init__(self, master: str, why: str, progress: Progress | None = None) -> None:
        super().__init__(f"{why}, master {master}", progress)
        self.master = master
        with _said_after(_REACHING_SAID_AFTER_S, said_of_a_slow_start(master)):
            self.session = start_session(master)
        if self.session.conf.get("spark.speculation", "false") == "true":
            raise RefusedError("spark.speculation is on; krepair wants it off")

    def _results(self, task: Task[Item, Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Yield results as they come. Several waves are under way at once, so that none waits for another's last task.

        Raises:
            RefusedError: no worker is there for a long time, or Spark gave up.
        """
        bundles = self._bundles(task, items)
        waves = iter([bundles[first : first + _WAVE] for first in range(0, len(bundles), _WAVE)])
        watch = WorkerWatch(self.master, self._executors, _LOG.warning)
        with ThreadPoolExecutor(_WAVES_AT_ONCE, thread_name_prefix="krepair-wave") as threads:
            under_way = {threads.submit(self._wave, wave) for wave in islice(waves, _WAVES_AT_ONCE)}
            try:
                while under_way:
                    done, under_way = wait(under_way, _LOOK_EVERY_S, FIRST_COMPLETED)
                    watch.look()
                    for wave in islice(waves, len(done)):
                        under_way.add(threads.submit(self._wave, wave))
                    for finished in done:
                        yield from _decoded(task, finished)
            except BaseException:
                self._cancel()
                raise

    def _bundles(self, task: Task[Item, Result], items: Sequence[Item]) -> list[Bundle]:
        shared = bundled([item.bytes_to_read for item in items], self._parallelism())
        return [
            (number, task.name, bytearray(msgspec.msgpack.encode([(n, _encoded(items[n])) for n in members])))
            for number, members in enumerate(shared)
        ]

    def _wave(self, bundles: list[Bundle]) -> list[tuple[int, bytes]]:
        frame = self.session.createDataFrame(bundles, ITEM_SCHEMA).repartition(len(bundles))
        rows = frame.mapInArrow(map_items, RESULT_SCHEMA).select("index", "result").collect()
        return [(int(row["index"]), bytes(row["result"])) for row in rows]

    def _parallelism(self) -> int:
        with contextlib.suppress(Exception):  # Spark Connect does not tell
            return int(self.session.sparkContext.defaultParallelism)
        return 1

    def _executors(self) -> int:
        """How many workers the session has, -1 where that is not known or this process does the work."""
        if self.master.startswith("local"):
            return -1
        with contextlib.suppress(Exception):  # Spark Connect does not tell
            tracker = self.session.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001 - only the JVM knows
            return len(tracker.getExecutorInfos()) - 1  # one is this process
        return -1

    def _cancel(self) -> None:
        with contextlib.suppress(Exception):  # of a session that is gone nothing needs to be cancelled
            self.session.sparkContext.cancelAllJobs()

    def close(self) -> None:
        """Stop the session."""
        self.session.stop()


def _encoded(item: Any) -> bytes:
    return msgspec.msgpack.encode(item)


def _decoded(task: Task[Item, Result], wave: Future[list[tuple[int, bytes]]]) -> Iterator[tuple[int, Result]]:
    try:
        rows = wave.result()
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        raise RefusedError(
            f"Spark gave up: {first_line}; what was staged stays out of the way, and nothing was replaced",
            next_command="krepair ... --engine inline",
        ) from error
    for index, result in rows:
        yield index, msgspec.msgpack.decode(result, type=task.result)


@contextlib.contextmanager
def _said_after(seconds: float, text: str) -> Iterator[None]:
    """Say something if the body takes longer than that."""
    timer = threading.Timer(seconds, _LOG.warning, (f"krepair: {text}",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
