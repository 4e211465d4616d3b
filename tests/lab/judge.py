"""Kafka's own loader, recovery and cleaner on one partition folder: one JVM per version, driven over pipes.

``Judge("2.2.1").load(folder)`` opens the folder as a broker of that version would and reads everything back;
``recover`` rebuilds its indexes; ``clean`` and ``fixpoint`` run its cleaner. All work in place: copy first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from tests.lab.classes import compiled
from tests.lab.jars import release
from tests.lab.jvm import java
from tests.lab.waiting import LIMIT_S

TEMPLATE = Path(__file__).parent / "java" / "Judge.java.tmpl"
UNLIMITED = 2**62

_OLD = {
    "RECORD": "org.apache.kafka.common.record",
    "IMPORTS": "import kafka.log.*; import kafka.server.*; import kafka.utils.*;",
    "LOG": "Log",
    "EXPIRATION": "604800000",
    "DEDUPE": "8388608",
    "STEP": "0L",
    "SCHEDULER": '1, "lab-", true',
    "CONFIG": "new LogConfig(settings, scala.collection.immutable.Set$.MODULE$.<String>empty())",
    "THROTTLER": 'new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, true, "cleaner-io", "bytes", Time.SYSTEM)',
    "CHECK_DONE": "(TopicPartition tp) -> BoxedUnit.UNIT",
    "LOG_TO_CLEAN": "new LogToClean(log.topicPartition(), log, dirty, end, false)",
    "CLEAN": 'scala.Tuple2<Object, CleanerStats> r = horizon.equals("real") ? cleaner.clean(task)'
    " : cleaner.doClean(task, Long.parseLong(horizon));"
    " Object next = r._1(); CleanerStats stats = r._2();",
    "CLOSE": "log.close();",
    "LEAVE": "closeHandlers",
}
_OPEN_OLD = (
    "Log.apply(dir, lc, logStart, recoveryPoint, scheduler, new BrokerTopicStats(), time, expiration(),"
    " 600000, new LogDirFailureChannel(1)"
)
_2_3 = _OLD | {
    "OPEN": _OPEN_OLD + ")",
    "HIGH_WATERMARK": "onHighWatermarkIncremented",
    "LSO": "log.firstUnstableOffset().isDefined() ? log.firstUnstableOffset().get().messageOffset()"
    " : log.logEndOffset()",
    "READ": "log.read(next, fetch, committed ? scala.Option.<Object>apply(lso)"
    " : scala.Option.<Object>apply(null), true, committed)",
}
_2_2 = _2_3 | {"LOG_TO_CLEAN": "new LogToClean(log.topicPartition(), log, dirty, end)"}
_2_8 = _OLD | {
    "OPEN": _OPEN_OLD + ", clean, true)",
    "HIGH_WATERMARK": "updateHighWatermark",
    "LSO": "log.lastStableOffset()",
    "READ": "log.read(next, fetch, committed ? FetchTxnCommitted$.MODULE$ : FetchLogEnd$.MODULE$, true)",
}
_3_0 = _2_8 | {"OPEN": _OPEN_OLD + ", clean, scala.Option.empty(), true)"}
_OPEN_NEW = (
    "(dir, lc, logStart, recoveryPoint, scheduler, new BrokerTopicStats(false), time, 900000,"
    " new ProducerStateManagerConfig(expiration(), false), 600000, new LogDirFailureChannel(1), clean,"
)
_3_9 = _2_8 | {
    "IMPORTS": "import kafka.log.*; import kafka.server.BrokerTopicStats;"
    " import org.apache.kafka.server.util.KafkaScheduler; import org.apache.kafka.storage.internals.log.*;"
    " import org.apache.kafka.storage.internals.utils.Throttler;",
    "LOG": "UnifiedLog",
    "EXPIRATION": "86400000",
    "STEP": '(1 + Long.parseLong((String) c.settings.getOrDefault("delete.retention.ms", "86400000")))',
    "SCHEDULER": '1, true, "lab-"',
    "CONFIG": "new LogConfig(settings)",
    "THROTTLER": 'new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner-io", "bytes", Time.SYSTEM)',
    "OPEN": "UnifiedLog.apply" + _OPEN_NEW + " scala.Option.empty(), true,"
    " new java.util.concurrent.ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER)",
    "READ": "log.read(next, fetch, committed ? FetchIsolation.TXN_COMMITTED : FetchIsolation.LOG_END, true)",
    "CLEAN": "scala.Tuple2<Object, CleanerStats> r = cleaner.doClean(task,"
    ' horizon.equals("real") ? c.time.milliseconds() : Long.parseLong(horizon));'
    " Object next = r._1(); CleanerStats stats = r._2();",
}
_4_3 = _3_9 | {
    "RECORD": "org.apache.kafka.common.record.internal",
    "IMPORTS": "import org.apache.kafka.storage.log.metrics.BrokerTopicStats;"
    " import org.apache.kafka.server.util.KafkaScheduler; import org.apache.kafka.storage.internals.log.*;"
    " import org.apache.kafka.server.storage.log.FetchIsolation;"
    " import org.apache.kafka.storage.internals.utils.Throttler;",
    "OPEN": "UnifiedLog.create" + _OPEN_NEW + " java.util.Optional.empty(),"
    " new java.util.concurrent.ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER)",
    "CHECK_DONE": "(TopicPartition tp) -> { }",
    "LOG_TO_CLEAN": "new LogToClean(log, dirty, end, false)",
    "CLEAN": "Map.Entry<Long, CleanerStats> r = cleaner.doClean(task,"
    ' horizon.equals("real") ? c.time.milliseconds() : Long.parseLong(horizon));'
    " Object next = r.getKey(); CleanerStats stats = r.getValue();",
}
# From 4.4 on only what its manager of logs does before brings an active segment's indexes to their end.
_4_4 = _4_3 | {
    "CLOSE": "log.prepareActiveSegmentForClose(); log.flush(true); log.close();",
    "LEAVE": "closeQuietly",
}
FAMILIES = {
    (2, 2): _2_2,
    (2, 3): _2_3,
    (2, 8): _2_8,
    (3, 0): _3_0,
    (3, 9): _3_9,
    (4, 3): _4_3,
    (4, 4): _4_4,
}


class JudgeError(RuntimeError):
    """Kafka's classes threw, died, or did not answer in time; the message holds what they said."""


class Record(Struct, frozen=True, array_like=True):
    """One record as a consumer gets it. Key, value and header values as hex, or None."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...]


class Reading(Struct, frozen=True):
    """What one isolation level gives: count, digest, and (``list_records``) the records themselves."""

    count: int
    digest: str
    repeats: int
    stuck: str
    records: tuple[Record, ...]


class SegmentState(Struct, frozen=True):
    """A segment as loaded."""

    base_offset: int
    bytes: int


class ProducerState(Struct, frozen=True):
    """A producer as loaded; ``last_data_offset`` is -1 when it has none."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_data_offset: int
    coordinator_epoch: int
    last_timestamp: int
    open_from: int | None


class Loaded(Struct, frozen=True):
    """What a broker knows after opening the folder, and what it serves."""

    log_start: int
    log_end: int
    stable_offset: int
    segments: tuple[SegmentState, ...]
    producers: tuple[ProducerState, ...]
    aborted: tuple[tuple[int, int, int, int], ...]
    uncommitted: Reading
    committed: Reading
    committed_in_small_fetches: str
    complaints: tuple[str, ...]

    @property
    def served(self) -> tuple[str, str, str]:
        """Digests of what a consumer reads: uncommitted, committed, committed in small fetches."""
        return self.uncommitted.digest, self.committed.digest, self.committed_in_small_fetches


class Cleaned(Struct, frozen=True):
    """One pass of the cleaner; ``seconds`` by its own clock, ``cpu_seconds`` of its thread."""

    first_dirty: int
    end: int
    next_dirty: int
    messages_read: int
    messages_written: int
    bytes_read: int
    bytes_written: int
    complaints: tuple[str, ...]
    seconds: float = 0.0
    cpu_seconds: float = 0.0


class Fixpoint(Struct, frozen=True):
    """Repeated passes; the last one changed nothing when ``reached``."""

    passes: int
    reached: bool
    end: int
    complaints: tuple[str, ...]


class Recovered(Struct, frozen=True):
    """A recovery from recovery point 0."""

    log_end: int
    complaints: tuple[str, ...]


class Started(Struct, frozen=True):
    """What a start did to the segments; ``recovered`` as the log lines of the start name them."""

    log_end: int
    segments: tuple[SegmentState, ...]
    recovered: tuple[int, ...]
    complaints: tuple[str, ...]


class ReadPast(Struct, frozen=True):
    """What can be read: (offset, checksum) of each record; and where nothing can be: (offset, why)."""

    got: tuple[tuple[int, int], ...]
    failed: tuple[tuple[int, str], ...]


class Told(Struct, frozen=True):
    """All that a broker knows and serves after a start, whatever is damaged.

    Attributes:
        producers: (producer id, epoch, last sequence, first offset of the open transaction).
        epochs: (leader epoch, start offset).
        found: offset of the first record at or after each timestamp, or the exception.
        answers: to each batch of a producer: ``taken``, ``duplicate`` or the exception.
    """

    log_start: int
    log_end: int
    stable_offset: int
    segments: tuple[SegmentState, ...]
    recovered: tuple[int, ...]
    producers: tuple[tuple[int, int, int, int | None], ...]
    epochs: tuple[tuple[int, int], ...]
    uncommitted: ReadPast
    committed: ReadPast
    committed_in_small_fetches: ReadPast
    found: tuple[int | str, ...]
    answers: tuple[str, ...]
    complaints: tuple[str, ...]


class ReadCheckpoint(Struct, frozen=True):
    """A checkpoint of the root as a broker reads it; ``offline`` if what is wrong takes the directory offline."""

    lines: int
    problem: str
    offline: bool
    complaints: tuple[str, ...]


class Served(Struct, frozen=True):
    """What a broker serves through its indexes; -1: nothing, a word: the exception that it throws.

    Attributes:
        fetched: last offset of the first batch that a fetch from each offset gives.
        found: offset of the first record at or after each timestamp.
    """

    fetched: tuple[int | str, ...]
    found: tuple[int | str, ...]
    complaints: tuple[str, ...]


Answer = TypeVar("Answer", Loaded, Cleaned, Fixpoint, Recovered, Started, Told, ReadCheckpoint, Served)


def digest_of(records: Iterable[Record]) -> str:
    """The digest that a judge gives for these records; comparable with what a real consumer read."""
    state = hashlib.sha256()

    def blob(data: bytes | None) -> None:
        state.update(struct.pack(">q", -1 if data is None else len(data)) + (data or b""))

    def unhex(text: str | None) -> bytes | None:
        return None if text is None else bytes.fromhex(text)

    for record in records:
        state.update(struct.pack(">qq", record.offset, record.timestamp))
        blob(unhex(record.key))
        blob(unhex(record.value))
        state.update(struct.pack(">q", len(record.headers)))
        for name, value in record.headers:
            blob(name.encode())
            blob(unhex(value))
    return state.hexdigest()


def harness(version: str) -> tuple[str, Path]:
    """Class name and folder of the harness for that version."""
    if release(version) not in FAMILIES:
        raise JudgeError(f"no harness for Kafka {version}: {sorted(FAMILIES)} are known")
    source = TEMPLATE.read_text(encoding="utf-8")
    name = "Judge" + version.replace(".", "_")
    for word, text in (FAMILIES[release(version)] | {"CLASS": name}).items():
        source = source.replace(f"@{word}@", text)
    return name, compiled(version, name, source)


class Judge:
    """One JVM with the log classes of one Kafka version, started at the first question.

    Args:
        version: e.g. ``2.2.1``; its jars are fetched if need be.
        heap: of the JVM.
        timeout_s: longest wait for one answer; then the JVM is ended and ``JudgeError`` raised.
        before: words before the JVM's own, as ``setpriv ...`` to run it as another user would.
    """

    def __init__(
        self, version: str, *, heap: str = "768m", timeout_s: float = LIMIT_S, before: Sequence[str] = ()
    ) -> None:
        self.version = version
        self.before = tuple(before)
        self.heap = heap
        self.timeout_s = timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()
        self._stderr: Any = None

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    # -- questions --------------------------------------------------------------------------------
    def recover(
        self, folder: Path, settings: Mapping[str, object] | None = None, *, now_ms: int | None = None
    ) -> Recovered:
        """Open as after an unclean stop with recovery point 0 (all indexes are rebuilt), and close."""
        return self._ask(Recovered, "recover", folder, settings=settings, now_ms=now_ms)

    def load(
        self,
        folder: Path,
        *,
        clean: bool = True,
        recovery_point: int = UNLIMITED,
        log_start: int = 0,
        settings: Mapping[str, object] | None = None,
        now_ms: int | None = None,
        list_records: bool = False,
    ) -> Loaded:
        """Open, read everything back in both isolation levels, tell the state, close."""
        extra = {"list.records": "true"} if list_records else {}
        return self._ask(
            Loaded,
            "load",
            folder,
            int(clean),
            recovery_point,
            log_start,
            settings=settings,
            now_ms=now_ms,
            extra=extra,
        )

    def start(
        self,
        folder: Path,
        *,
        clean: bool,
        recovery_point: int,
        log_start: int,
        settings: Mapping[str, object] | None = None,
        now_ms: int | None = None,
    ) -> Started:
        """Open as a broker that starts, and tell only what became of the segments.

        Raises:
            JudgeError: the loader throws: a broker would not start.
        """
        return self._ask(
            Started,
            "start",
            folder,
            int(clean),
            recovery_point,
            log_start,
            settings=settings,
            now_ms=now_ms,
        )

    def tell(
        self,
        folder: Path,
        *,
        clean: bool,
        recovery_point: int,
        log_start: int,
        timestamps: Sequence[int] = (),
        batches: Sequence[bytes] = (),
        settings: Mapping[str, object] | None = None,
        now_ms: int | None = None,
    ) -> Told:
        """Open as a broker that starts, read what can be read, search timestamps, append batches as a leader.

        Raises:
            JudgeError: the loader throws: a broker would not start.
        """
        words = [int(clean), recovery_point, log_start, ",".join(map(str, timestamps))]
        words.append(",".join(raw.hex() for raw in batches))
        return self._ask(Told, "tell", folder, *words, settings=settings, now_ms=now_ms)

    def serve(
        self,
        folder: Path,
        offsets: Sequence[int],
        timestamps: Sequence[int] = (),
        *,
        settings: Mapping[str, object] | None = None,
        now_ms: int | None = None,
    ) -> Served:
        """Open after a clean stop, fetch from each offset and search each timestamp, close."""
        words = [",".join(map(str, values)) for values in (offsets, timestamps)]
        return self._ask(Served, "serve", folder, *words, settings=settings, now_ms=now_ms)

    def checkpoint(self, file: Path) -> ReadCheckpoint:
        """Read one checkpoint of the root."""
        return self._ask(ReadCheckpoint, "checkpoint", file, settings=None)

    def clean(
        self,
        folder: Path,
        *,
        first_dirty: int | str = 0,
        end: int | str = "auto",
        horizon: int | str = 0,
        settings: Mapping[str, object] | None = None,
        now_ms: int | None = None,
        expire_producers: bool = False,
    ) -> Cleaned:
        """One pass. ``horizon``: before 3.1 the delete horizon, from 3.1 the cleaner's now, or ``real``."""
        extra = {"expire.producers": "true"} if expire_producers else {}
        return self._ask(
            Cleaned, "clean", folder, first_dirty, end, horizon, settings=settings, now_ms=now_ms, extra=extra
        )

    def fixpoint(
        self,
        folder: Path,
        *,
        horizon: int,
        end: int | str = "auto",
        max_passes: int = 12,
        settings: Mapping[str, object] | None = None,
        now_ms: int | None = None,
        expire_producers: bool = False,
    ) -> Fixpoint:
        """Passes from offset 0 with that horizon until the ``.log`` files stay as they are."""
        extra = {"expire.producers": "true"} if expire_producers else {}
        return self._ask(
            Fixpoint,
            "fixpoint",
            folder,
            end,
            horizon,
            max_passes,
            settings=settings,
            now_ms=now_ms,
            extra=extra,
        )

    def topic_settings(self, settings: Mapping[str, object]) -> dict[str, str]:
        """The same topic settings under the names and limits of this version."""
        out = {key: str(value) for key, value in settings.items()}
        if release(self.version) >= (4, 0):
            out.pop("message.format.version", None)
            if int(out.get("segment.bytes", 1 << 30)) < 1 << 20:  # 4.x takes no less under that name
                out["internal.segment.bytes"] = out.pop("segment.bytes")
        return out

    # -- the process ------------------------------------------------------------------------------
    def cpu_seconds(self) -> float:
        """CPU time of the JVM so far, all its threads; 0 before its first answer."""
        if self._process is None:
            return 0.0
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def process_id(self) -> int:
        """Of its JVM, which is started if it does not run."""
        return self._started().pid

    def _ask(
        self,
        kind: type[Answer],
        verb: str,
        folder: Path,
        *words: object,
        settings: Mapping[str, object] | None,
        now_ms: int | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> Answer:
        own = dict(extra or {}) | ({} if now_ms is None else {"now.ms": str(now_ms)})
        cfg = ";".join(f"{k}={v}" for k, v in (self.topic_settings(settings or {}) | own).items())
        line = "\t".join([verb, os.fspath(folder.absolute()), *map(str, words), cfg])
        answer = msgspec.json.decode(self._exchange(line))
        if "error" in answer:
            raise JudgeError(
                f"Kafka {self.version} {verb} {folder}: {answer['error']}\n{answer.get('trace', '')[:4000]}"
            )
        return msgspec.convert(answer, kind)

    def _exchange(self, line: str) -> str:
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = self._answers.get(timeout=self.timeout_s)
        except (queue.Empty, BrokenPipeError):
            answer = ""
        if not answer:
            said = self._said()
            self.close(kill=True)
            raise JudgeError(f"Kafka {self.version} gave no answer in {self.timeout_s} s to {line!r}: {said}")
        return answer

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self.close()  # what is left of one that ended by itself
            name, folder = harness(self.version)
            self._answers = queue.Queue()
            self._stderr = tempfile.TemporaryFile("w+b")  # noqa: SIM115  it lives as long as the process
            argv = [*self.before, *java(self.version, name, heap=self.heap, extra_path=str(folder))]
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True
            )
            threading.Thread(target=self._listen, args=(self._process, self._answers), daemon=True).start()
        return self._process

    @staticmethod
    def _listen(process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                answers.put(line)
        answers.put("")  # the process ended: whoever waits shall not wait longer

    def _said(self) -> str:
        if self._stderr is None:
            return ""
        self._stderr.seek(0)
        return bytes(self._stderr.read())[-3000:].decode("utf-8", "replace")

    def close(self, *, kill: bool = False) -> None:
        """End the JVM."""
        if self._process is not None:
            assert self._process.stdin is not None
            if kill:
                self._process.kill()
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None
