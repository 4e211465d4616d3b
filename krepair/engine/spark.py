"""Functions on Spark: a small DataFrame of work items in, Arrow rows of results out; bytes of logs never travel.

Only DataFrame calls. Speculation is off: a doubled task would only waste work, since
tasks stage privately and one process commits.
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

from krepair.engine.engine import Engine, Item, Result
from krepair.engine.items import Failed, WorkItem
from krepair.engine.place import kept_open
from krepair.engine.progress import Progress
from krepair.engine.same_files import Listed, Nonce, has_come, new_nonce, seen_here
from krepair.engine.spark_worker import RESULT_SCHEMA, Bundle, ItemDone, map_items
from krepair.errors import RefusedError
from krepair.next_command import INLINE

_EACH_BYTES: Final = 1 << 20
"""What an item costs beside its bytes, in bytes: files are opened, results travel."""
_TASK_BYTES: Final = 64 << 20
_LEAST_TASKS: Final = 64
_TASKS_PER_CORE: Final = 4


def bundled(sizes: Sequence[int], cores: int) -> list[range]:
    """Share items out to tasks, in order.

    Args:
        sizes: bytes that each item reads, see ``WorkItem.bytes_to_read``.
        cores: that work at the same time.

    Returns:
        Of each task the places of its items. There are enough tasks for all cores and for one to be done again at
        little cost; beyond that a task has about 64 MiB, an item counting as 1 MiB more than its bytes.
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
    for place, weight in enumerate(weights):
        held += weight
        if held * tasks >= total:
            bundles.append(range(first, place + 1))
            first, held = place + 1, 0
    if first < len(sizes):
        bundles.append(range(first, len(sizes)))
    return bundles


AT_ONCE: Final = 3
LOOK_EVERY_S: Final = 1.0
_Answer = TypeVar("_Answer")


def run_waves(
    waves: Iterator[Callable[[], _Answer]], look: Callable[[], None], cancel: Callable[[], None]
) -> Iterator[Future[_Answer]]:
    """Yield the waves that have ended, in the order in which they end.

    Args:
        waves: calls that wait for Spark; one is taken when it is sent.
        look: called every second while waves are under way; may raise.
        cancel: ends the jobs that Spark has at that moment.

    Raises:
        Exception: what ``look`` or the caller raised, after all waves have ended.
    """
    under_way: set[Future[_Answer]] = set()

    def send(count: int) -> None:
        under_way.update(threads.submit(wave) for wave in islice(waves, count))

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="krepair-wave") as threads:
        try:
            send(AT_ONCE)
            while under_way:
                done, _ = wait(under_way, LOOK_EVERY_S, FIRST_COMPLETED)
                look()
                under_way.difference_update(done)
                send(len(done))
                yield from done
        except BaseException:
            _end_all(under_way, cancel)
            raise


def _end_all(under_way: set[Future[_Answer]], cancel: Callable[[], None]) -> None:
    """Cancel until all have ended: a wave whose job begins after a cancel would wait for workers for ever."""
    while under_way:
        cancel()
        _, under_way = wait(under_way, LOOK_EVERY_S)


SAID_AFTER_S: Final = 20.0
GIVEN_UP_AFTER_S: Final = 60.0
"""Where none has come at all."""
LOST_AFTER_S: Final = 300.0
"""Where all are gone: their hosts may be starting again."""
WHAT_TO_DO: Final = "start a worker that has a free core and {memory} of memory, and can reach this host"
"""``memory`` is what each executor asks for."""
OR_STOP: Final = ", or stop this command (Ctrl-C) and type it again with --engine inline"


class WorkerWatch:
    """Looks at how many workers there are while work is under way.

    Args:
        master: Spark master URL, for the words.
        count: tells how many workers there are, -1 where that is not known.
        say: takes one line for a person.
        memory: that each executor asks for, for the words.
        clock: seconds; a test may give another one.
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
        self._said = False
        self._patience = GIVEN_UP_AFTER_S

    def look(self) -> None:
        """Compare with what was there before.

        Raises:
            RefusedError: none has come in a minute, or there has been none any more for five.
        """
        found = self._count()
        if found < 0:
            return
        now = self._clock()
        if found:
            if found < self._last:
                self._say(
                    f"krepair: {self._last - found} of {self._last} Spark workers are gone; the others do their work "
                    "again, and nothing is lost"
                )
            elif self._said:
                self._say(f"krepair: {found} Spark workers are there; the work goes on")
            self._none_since, self._said, self._patience = now, False, LOST_AFTER_S
        elif self._last:
            self._none_since = now
        self._last = found
        waited = now - self._none_since
        if found:
            return
        if waited >= self._patience:
            raise RefusedError(
                f"no worker of {self._master} has been there for {waited:.0f} s; nothing was replaced; "
                f"{self._what_to_do}",
                next_command=INLINE,
            )
        if waited >= SAID_AFTER_S and not self._said:
            self._said = True
            self._say(
                f"krepair: no worker of {self._master} has been there for {waited:.0f} s; {self._what_to_do}"
                f"{OR_STOP}. krepair "
                f"gives up after {self._patience:.0f} s"
            )


_WAVE: Final = 128
_READING: Final = frozenset({"unreadable", "elsewhere"})
_MANY_FAILURES: Final = 1000
_REACHING_SAID_AFTER_S: Final = 20.0
_DEFAULT_MEMORY: Final = "1g"
"""``spark.executor.memory`` where nobody has set it."""
_LEAST_FREE_BYTES: Final = 64 << 20
_TEMPORARY_FOLDERS: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 -- Spark makes private folders in it
_PYTHON_ERROR: Final = re.compile(r"[A-Za-z_.]*(Error|Exception): \S")
_JAVA_ERROR: Final = re.compile(r"(?:^|: )java(?:\.\w+)*\.\w*(?:Exception|Error): (\S.*)")
_LOG: Final = logging.getLogger("krepair.spark")

_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.adaptive.enabled": "false",
    # The rows of a wave are shared out one to a task when they are sent, so that nothing has to be exchanged.
    "spark.sql.leafNodeDefaultParallelism": str(_WAVE),
}

ITEM_ARROW: Final = pa.schema([("bundle", pa.binary())])
Row = tuple[int, bytes]
"""Index of an item, and its ``ItemDone``, pickled."""


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
        # A worker that cannot do anything (no Python, no krepair, no memory) must not end what others can do. So a task
        # that failed twice on an executor goes to another one. The job ends when no executor is left for a task.
        .config("spark.excludeOnFailure.enabled", "true")
        .config("spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor", "2")
        .config("spark.excludeOnFailure.task.maxTaskAttemptsPerNode", str(_MANY_FAILURES))
        .config("spark.excludeOnFailure.stage.maxFailedExecutorsPerNode", str(_MANY_FAILURES))
        .config("spark.excludeOnFailure.application.maxFailedExecutorsPerNode", str(_MANY_FAILURES))
        .config("spark.task.maxFailures", str(_MANY_FAILURES + 1))
        # A host that is gone without a word is noticed in half a minute, not in two.
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


def said_of_a_slow_start(master: str) -> str:
    """What is said when Spark takes long to start: a local one has no workers that somebody could start."""
    if master.startswith("local"):
        return (
            "Spark has not started yet: on a busy machine it takes a while; --engine inline does without it"
        )
    what_to_do = WHAT_TO_DO.format(memory=_DEFAULT_MEMORY)
    return f"the Spark master {master} does not answer yet; {what_to_do}{OR_STOP}"


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
        self._is_local = master.startswith("local")
        self._nonce: Nonce | None = None
        self._blind = set[str]()
        with _said_after(_REACHING_SAID_AFTER_S, said_of_a_slow_start(master)):
            self.session = start_session(master)
        if self.session.conf.get("spark.speculation", "false") == "true":
            raise RefusedError("spark.speculation is on: set it to false", next_command=INLINE)

    def _results(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        """Yield results as they come. This host does itself what a worker could not do, or did with other files.

        Raises:
            RefusedError: no worker is there for a long time, locks do not reach one that is to write, or Spark gave up.
        """
        bundles = self._bundles([item.bytes_to_read for item in items])
        waves = [bundles[first : first + _WAVE] for first in range(0, len(bundles), _WAVE)]
        memory = self.session.conf.get("spark.executor.memory", _DEFAULT_MEMORY) or _DEFAULT_MEMORY
        watch = WorkerWatch(self.master, self._executors, _LOG.warning, memory)
        sent = (partial(self._wave, self._table(function, items, wave)) for wave in waves)
        # Several waves are under way at once, so that none waits for another's last task.
        for ended in run_waves(sent, watch.look, self._cancel):
            for index, done in _rows(ended):
                if self._is_local or self._counts(done):
                    yield index, done.result
                else:
                    with kept_open():
                        yield index, function(items[index])

    def _counts(self, done: ItemDone) -> bool:
        """Whether what a worker gave is what this host would give.

        Raises:
            RefusedError: locks do not reach that worker: a broker that is started there would be kept away by nothing.
        """
        result = done.result
        if _could_not_read(result):
            return False
        if not isinstance(result, Failed):
            return all(map(has_come, done.written))
        if result.kind == "sees no lock":
            raise RefusedError(
                f"host {result.host}: {result.why}; nothing was replaced",
                next_command=INLINE,
            )
        if result.kind != "sees other files":
            return True
        if result.host not in self._blind:
            self._blind.add(result.host)
            _LOG.warning("krepair: host %s: %s; this host does its work", result.host, result.why)
        return False

    @contextlib.contextmanager
    def writing(self, log_dir: str, make_folder: Callable[[], str]) -> Iterator[None]:
        """While the body runs, workers write only where they see what this host has just written, and its lock."""
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
        """Which items share a task, the largest bundles first, so that no large one is left alone at the end."""
        return sorted(
            bundled(sizes, self._parallelism()),
            key=lambda members: -sum(sizes[member] for member in members),
        )

    def _table(
        self, function: Callable[[Any], Any], items: Sequence[WorkItem], wave: Sequence[range]
    ) -> pa.Table:
        """One row a bundle. A wave is pickled when it is sent, so that the driver holds few of them."""
        rows, listed = [], Listed()
        for places in wave:
            some = [(place, items[place]) for place in places]
            seen = None if self._is_local else seen_here((item for _, item in some), self._nonce, listed)
            rows.append({"bundle": pickle.dumps(Bundle(function, some, seen))})
        return pa.Table.from_pylist(rows, schema=ITEM_ARROW)

    def frame(self, table: pa.Table) -> DataFrame:
        """Results of the bundles of a wave, one bundle a task: nothing is exchanged between tasks."""
        return self.session.createDataFrame(table).mapInArrow(map_items, RESULT_SCHEMA)

    def _wave(self, table: pa.Table) -> list[Row]:
        return [(int(row["index"]), bytes(row["done"])) for row in self.frame(table).collect()]

    def _parallelism(self) -> int:
        return int(self.session.sparkContext.defaultParallelism)

    def _executors(self) -> int:
        """How many workers the session has, -1 where that is not known or this process does the work."""
        if self.master.startswith("local"):
            return -1
        with contextlib.suppress(Exception):  # the session may be gone
            tracker = self.session.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001 - only the JVM knows
            return len(tracker.getExecutorInfos()) - 1  # one is this process
        return -1

    def _cancel(self) -> None:
        with contextlib.suppress(Exception):  # of a session that is gone nothing needs to be cancelled
            self.session.sparkContext.cancelAllJobs()

    def close(self) -> None:
        """Stop the session."""
        self.session.stop()


def _could_not_read(result: Any, depth: int = 2) -> bool:
    """Whether a worker could not read a file: a lost mount looks like a bad disk to whoever lost it."""
    if isinstance(result, Failed):
        return result.kind in _READING
    if isinstance(result, tuple):
        return any(_could_not_read(one, depth - 1) for one in result) if depth else False
    if not depth or not isinstance(result, Struct):
        return False
    fields = (getattr(result, name) for name in result.__struct_fields__)
    return getattr(result, "failure", "") in _READING or any(
        _could_not_read(one, depth - 1) for one in fields
    )


def _rows(wave: Future[list[Row]]) -> Iterator[tuple[int, ItemDone]]:
    try:
        rows = wave.result()
    except Exception as error:
        raise RefusedError(
            f"Spark gave up: {_reason(error)}; what was staged stays out of the way, and nothing was replaced",
            next_command=INLINE,
        ) from error
    for index, done in rows:
        yield index, pickle.loads(done)  # noqa: S301 - of our own worker


def _reason(error: Exception) -> str:
    """What names the cause in a Spark error: the last error of Python in it, else of Java, else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if _PYTHON_ERROR.match(line)]
    causes = causes or [found[1] for line in lines if (found := _JAVA_ERROR.search(line))]
    return causes[-1] if causes else lines[0] if lines else type(error).__name__


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
