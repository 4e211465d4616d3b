"""The engine that runs tasks on Spark: bundles of work items go to the workers, and results come back as Arrow rows.

Workers read the log files themselves. Each job of Spark is a *wave* of bundles; several waves run at once. Speculation
is off, since a duplicated task would only repeat the same writes into a work folder.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from krepair.engine.engine import Engine, Result
from krepair.engine.items import Failed, arguments_of, bytes_to_read
from krepair.engine.place import keep_log_dir_open
from krepair.engine.progress import Progress
from krepair.engine.same_files import Listed, Nonce, files_seen_here, is_visible_here, new_nonce
from krepair.engine.spark_worker import RESULT_SCHEMA, Bundle, ItemDone, map_items
from krepair.errors import RefusedError
from krepair.next_command import INLINE

_EACH_BYTES: Final = 1 << 20
"""Bytes of log that take as long to read as an item's fixed cost: opening files, sending the result."""
_TASK_BYTES: Final = 64 << 20
"""Bytes of log of a usual task: a lost one is repeated in seconds."""
_LEAST_TASKS: Final = 64
"""Smallest number of tasks, so that progress is shown and a lost task costs little, even for few cores."""
_TASKS_PER_CORE: Final = 4
"""Number of tasks for each core, so that no core idles while a slow task ends."""


def bundled(sizes: Sequence[int], cores: int) -> list[range]:
    """Divide the items, in order, into bundles of about equal work, one for each Spark task.

    Args:
        sizes: bytes that each item reads, see ``WorkItem.bytes_to_read``.
        cores: number of cores that work at the same time.

    Returns:
        The item indexes of each task. There are enough tasks to use all cores, and a lost task costs little to
        repeat: it has about 64 MiB, where each item counts 1 MiB more than its bytes.
    """
    if not sizes:
        return []
    weights = [size + _EACH_BYTES for size in sizes]
    total = sum(weights)
    tasks = min(len(sizes), max(_LEAST_TASKS, _TASKS_PER_CORE * cores, -(-total // _TASK_BYTES)))
    if tasks == len(sizes):
        return [range(n, n + 1) for n in range(len(sizes))]
    bundles: list[range] = []
    first, held = 0, 0
    for index, weight in enumerate(weights):
        held += weight
        if held * tasks >= total:
            bundles.append(range(first, index + 1))
            first, held = index + 1, 0
    if first < len(sizes):
        bundles.append(range(first, len(sizes)))
    return bundles


AT_ONCE: Final = 3
"""Number of waves that run at the same time, so that no core idles while a wave's last task runs."""
CHECK_EVERY_S: Final = 1.0
_Answer = TypeVar("_Answer")


def run_waves(
    waves: Iterator[Callable[[], _Answer]], check: Callable[[], None], cancel: Callable[[], None]
) -> Iterator[Future[_Answer]]:
    """Run waves in threads, several at once, and yield each when it has finished.

    Args:
        waves: functions that send a wave and wait for its results; the next one is taken when a thread is free.
        check: function that is called every second while waves are running; it may raise.
        cancel: function that ends Spark's current jobs.

    Raises:
        Exception: the error that ``check`` or the caller raised, after all waves have ended.
    """
    running: set[Future[_Answer]] = set()

    def send(count: int) -> None:
        running.update(threads.submit(wave) for wave in islice(waves, count))

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="krepair-wave") as threads:
        try:
            send(AT_ONCE)
            while running:
                done, _ = wait(running, CHECK_EVERY_S, FIRST_COMPLETED)
                check()
                running.difference_update(done)
                send(len(done))
                yield from done
        except BaseException:
            _cancel_until_ended(running, cancel)
            raise


def _cancel_until_ended(running: set[Future[_Answer]], cancel: Callable[[], None]) -> None:
    """Cancel repeatedly until all waves have ended, since a job that begins after a cancel would wait forever."""
    while running:
        cancel()
        _, running = wait(running, CHECK_EVERY_S)


SAID_AFTER_S: Final = 20.0
"""Seconds without a worker after which the operator is told."""
GIVEN_UP_AFTER_S: Final = 60.0
"""Seconds after which the run gives up if no worker has appeared yet."""
LOST_AFTER_S: Final = 300.0
"""Seconds after which the run gives up if all workers are lost. It is long, since their hosts may be restarting."""
WHAT_TO_DO: Final = "start a worker that has a free core and {memory} of memory, and can reach this host"
"""Advice for the operator; ``memory`` is what each executor requests."""
OR_STOP: Final = ", or stop this command (Ctrl-C) and type it again with --engine inline"


class WorkerWatch:
    """Watch over the number of workers, which tells the operator if the work cannot continue.

    Args:
        master: Spark master URL, for messages.
        count: function that returns the number of workers, -1 if unknown.
        say: function that shows one line to the operator.
        memory: memory that each executor requests, for messages.
        clock: function that returns seconds; tests replace it.
    """

    def __init__(
        self,
        master: str,
        count: Callable[[], int],
        say: Callable[[str], None],
        memory: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._master = master
        self._count = count
        self._say = say
        self._what_to_do = WHAT_TO_DO.format(memory=memory)
        self._clock = clock
        self._last = 0
        self._none_since = clock()
        self._was_reported = False
        self._patience = GIVEN_UP_AFTER_S

    def look(self) -> None:
        """Compare the number of workers with the previous one, and report changes.

        Raises:
            RefusedError: no worker appeared within a minute, or all have been gone for five minutes.
        """
        workers = self._count()
        if workers < 0:
            return
        now = self._clock()
        if workers:
            if workers < self._last:
                self._say(
                    f"krepair: {self._last - workers} of {self._last} Spark workers are gone; the others repeat "
                    "their work, and nothing is lost"
                )
            elif self._was_reported:
                self._say(f"krepair: {workers} Spark workers are available; work resumes")
            self._none_since, self._was_reported, self._patience = now, False, LOST_AFTER_S
        elif self._last:
            self._none_since = now
        self._last = workers
        waited = now - self._none_since
        if workers:
            return
        if waited >= self._patience:
            raise RefusedError(
                f"{self._master} has had no worker for {waited:.0f} s; nothing was replaced; "
                f"{self._what_to_do}",
                next_command=INLINE,
            )
        if waited >= SAID_AFTER_S and not self._was_reported:
            self._was_reported = True
            self._say(
                f"krepair: {self._master} has had no worker for {waited:.0f} s; {self._what_to_do}"
                f"{OR_STOP}. krepair "
                f"gives up after {self._patience:.0f} s"
            )


_WAVE: Final = 128
"""Number of tasks in a wave. The driver holds the items and results of few waves."""
_READING: Final = frozenset({"unreadable", "elsewhere"})
_MANY_FAILURES: Final = 1000
"""Limit of failures that is never reached: failures must not exclude a whole node."""
_REACHING_LOGGED_AFTER_S: Final = 20.0
_DEFAULT_MEMORY: Final = "1g"
"""Value of ``spark.executor.memory`` if nobody has set it."""
_LEAST_FREE_BYTES: Final = 64 << 20
"""Free bytes that a folder must have for Spark's temporary files."""
_TEMPORARY_FOLDERS: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 -- Spark makes private folders in it
_PYTHON_ERROR: Final = re.compile(r"[A-Za-z_.]*(Error|Exception): \S")
_JAVA_ERROR: Final = re.compile(r"(?:^|: )java(?:\.\w+)*\.\w*(?:Exception|Error): (\S.*)")
_LOG: Final = logging.getLogger("krepair.spark")

_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.adaptive.enabled": "false",
    # One row per task from the start, so that Spark has nothing to shuffle.
    "spark.sql.leafNodeDefaultParallelism": str(_WAVE),
}

ITEM_ARROW: Final = pa.schema([("bundle", pa.binary())])
Row = tuple[int, bytes]
"""Index of an item, and its pickled ``ItemDone``."""


def start_session(master: str) -> SparkSession:
    """Start a session: UTC, loopback on ``local``, no UI, no speculation, one row per Arrow batch."""
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
        # A worker that cannot work at all (no Python, no krepair, no memory) must not fail the others' job. So a task
        # that failed twice on an executor moves to another one. The job fails when no executor is left for a task.
        .config("spark.excludeOnFailure.enabled", "true")
        .config("spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor", "2")
        .config("spark.excludeOnFailure.task.maxTaskAttemptsPerNode", str(_MANY_FAILURES))
        .config("spark.excludeOnFailure.stage.maxFailedExecutorsPerNode", str(_MANY_FAILURES))
        .config("spark.excludeOnFailure.application.maxFailedExecutorsPerNode", str(_MANY_FAILURES))
        .config("spark.task.maxFailures", str(_MANY_FAILURES + 1))
        # A host that disappears silently is noticed within half a minute instead of two.
        .config("spark.executor.heartbeatInterval", "5s")
        .config("spark.network.timeout", "25s")
        .config("spark.network.timeoutInterval", "5s")
        .config(map=_SETTINGS)
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


def slow_start_text(master: str) -> str:
    """Return the message for a slow start of Spark; a local session has no workers to start."""
    if master.startswith("local"):
        return (
            "Spark has not started yet: on a busy machine it takes a while; --engine inline does without it"
        )
    what_to_do = WHAT_TO_DO.format(memory=_DEFAULT_MEMORY)
    return f"the Spark master {master} does not answer yet; {what_to_do}{OR_STOP}"


def folder_with_room() -> str:
    """Return a temporary folder with free space for Spark's files; ``SPARK_LOCAL_DIRS`` takes precedence."""
    first = tempfile.gettempdir()
    for path in dict.fromkeys([first, *_TEMPORARY_FOLDERS]):
        with contextlib.suppress(OSError):
            state = os.statvfs(path)
            room = state.f_bavail * state.f_frsize >= _LEAST_FREE_BYTES
            if room and os.access(path, os.W_OK | os.X_OK):
                return path
    return first


class SparkEngine(Engine):
    """Engine that runs items on a Spark session.

    Args:
        master: URL of the Spark master.
        why: reason why Spark is used, for the report.
        progress: receiver of each job's progress, see ``Engine``.
    """

    def __init__(self, master: str, why: str, progress: Progress | None = None) -> None:
        super().__init__(f"{why}, master {master}", progress)
        self.master = master
        self._is_local = master.startswith("local")
        self._nonce: Nonce | None = None
        self._hosts_without_files = set[str]()
        with _warn_if_slower(_REACHING_LOGGED_AFTER_S, slow_start_text(master)):
            self.session = start_session(master)
        # Asked once: if the JVM is killed later, a wave fails, and the error says so.
        self._parallelism = int(self.session.sparkContext.defaultParallelism)
        self._memory = self.session.conf.get("spark.executor.memory", _DEFAULT_MEMORY) or _DEFAULT_MEMORY
        if self.session.conf.get("spark.speculation", "false") == "true":
            raise RefusedError("spark.speculation is on: set it to false", next_command=INLINE)

    def _results(self, function: Callable[..., Result], items: Sequence[Any]) -> Iterator[tuple[int, Result]]:
        """Yield results as they arrive; the driver itself repeats an item that a worker failed to do on the same files.

        Raises:
            RefusedError: no worker was available for a long time, a worker that must write does not see the locks, or
                Spark failed.
        """
        bundles = self._bundles([bytes_to_read(item) for item in items])
        waves = [bundles[first : first + _WAVE] for first in range(0, len(bundles), _WAVE)]
        watch = WorkerWatch(self.master, self._executors, _LOG.warning, self._memory)
        sent = (partial(self._wave, self._table(function, items, wave)) for wave in waves)
        # Several waves run at once, so that no core idles while a wave's last task runs.
        for ended in run_waves(sent, watch.look, self._cancel):
            for index, done in _rows(ended):
                if self._is_local or self._is_valid(done):
                    yield index, done.result
                else:
                    with keep_log_dir_open():
                        yield index, function(*arguments_of(items[index]))

    def _is_valid(self, done: ItemDone) -> bool:
        """Return whether a worker's result counts: it saw the same files, and this host sees what it wrote.

        Raises:
            RefusedError: the worker does not see the locks, so nothing would stop a broker that is started there.
        """
        result = done.result
        if _failed_to_read(result):
            return False
        if not isinstance(result, Failed):
            return all(map(is_visible_here, done.written))
        if result.kind == "sees no lock":
            raise RefusedError(
                f"host {result.host}: {result.why}; nothing was replaced",
                next_command=INLINE,
            )
        if result.kind != "sees other files":
            return True
        if result.host not in self._hosts_without_files:
            self._hosts_without_files.add(result.host)
            _LOG.warning("krepair: host %s: %s; this host does its work", result.host, result.why)
        return False

    @contextlib.contextmanager
    def writing(self, log_dir: str, make_folder: Callable[[], str]) -> Iterator[None]:
        """Let workers write while the body runs, but only if they see the nonce and the lock of this host."""
        folder = "" if self._is_local else make_folder()
        if not folder:
            yield
            return
        with new_nonce(log_dir, folder) as self._nonce:
            try:
                yield
            finally:
                self._nonce = None

    def _bundles(self, sizes: Sequence[int]) -> list[range]:
        """Bundle items into tasks, the largest first, so that no large task runs alone at the end."""
        return sorted(
            bundled(sizes, self._parallelism),
            key=lambda members: -sum(sizes[member] for member in members),
        )

    def _table(self, function: Callable[..., Any], items: Sequence[Any], wave: Sequence[range]) -> pa.Table:
        """Build the table of a wave, one row per bundle. It is built when the wave is sent, so the driver holds few."""
        rows, listed = [], Listed()
        for indexes in wave:
            bundle_items = [(index, items[index]) for index in indexes]
            expected = (
                None
                if self._is_local
                else files_seen_here((item for _, item in bundle_items), self._nonce, listed)
            )
            rows.append({"bundle": pickle.dumps(Bundle(function, bundle_items, expected))})
        return pa.Table.from_pylist(rows, schema=ITEM_ARROW)

    def frame(self, table: pa.Table) -> DataFrame:
        """Run the bundles of a wave, one per task and without a shuffle."""
        return self.session.createDataFrame(table).mapInArrow(map_items, RESULT_SCHEMA)

    def _wave(self, table: pa.Table) -> list[Row]:
        return [(int(row["index"]), bytes(row["done"])) for row in self.frame(table).collect()]

    def _executors(self) -> int:
        """Count the session's workers; -1 if unknown or if this process does the work."""
        if self.master.startswith("local"):
            return -1
        with contextlib.suppress(Exception):  # the session may be gone
            tracker = self.session.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001 - only the JVM knows
            return len(tracker.getExecutorInfos()) - 1  # the driver counts as one
        return -1

    def _cancel(self) -> None:
        with contextlib.suppress(Exception):  # a session that is gone has nothing to cancel
            self.session.sparkContext.cancelAllJobs()

    def close(self) -> None:
        """Stop the session."""
        with contextlib.suppress(
            Exception
        ):  # a JVM that is gone has stopped, and must not hide why the work failed
            self.session.stop()


def _failed_to_read(result: Any, depth: int = 2) -> bool:
    """Return whether a worker could not read a file. This host reads it then: the worker may have lost its mount."""
    if isinstance(result, Failed):
        return result.kind in _READING
    if isinstance(result, tuple):
        return any(_failed_to_read(part, depth - 1) for part in result) if depth else False
    if not depth or not isinstance(result, Struct):
        return False
    fields = (getattr(result, name) for name in result.__struct_fields__)
    return getattr(result, "failure", "") in _READING or any(
        _failed_to_read(part, depth - 1) for part in fields
    )


def _rows(wave: Future[list[Row]]) -> Iterator[tuple[int, ItemDone]]:
    try:
        rows = wave.result()
    except Exception as error:
        raise RefusedError(
            f"Spark failed: {_reason(error)}; staged files do no harm, and nothing was replaced",
            next_command=INLINE,
        ) from error
    for index, done in rows:
        yield index, pickle.loads(done)  # noqa: S301 - of our own worker


def _reason(error: Exception) -> str:
    """Extract the cause from a text of Spark: its last Python error, else its last Java error, else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if _PYTHON_ERROR.match(line)]
    causes = causes or [java_error[1] for line in lines if (java_error := _JAVA_ERROR.search(line))]
    return causes[-1] if causes else lines[0] if lines else type(error).__name__


@contextlib.contextmanager
def _warn_if_slower(seconds: float, text: str) -> Iterator[None]:
    """Log a warning if the body takes longer than ``seconds``."""
    timer = threading.Timer(seconds, _LOG.warning, (f"krepair: {text}",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
