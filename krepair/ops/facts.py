"""``krepair facts``: write one small file from which another host can compare a broker's replicas."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

import msgspec
from msgspec.structs import replace

import krepair
from krepair.durable import output_file
from krepair.durable.output_file import OutputKind, Put
from krepair.durable.scratch import Scratch, make_scratch, remove_scratch
from krepair.engine.choice import WorkKind, choose_engine
from krepair.engine.engine import Engine
from krepair.engine.progress import Progress, SilentProgress
from krepair.errors import ExitCode, RefusedError, UnreadableError
from krepair.fixes.replicas import (
    TRIES,
    GivenBroker,
    OpenBroker,
    ReadReplica,
    check_ids,
    open_directories,
    read_changed_again,
    read_current,
)
from krepair.formats.facts_file import MAGIC, FactsHeader, FactsWriter
from krepair.logdir.config import DEFAULT_LOG_DIR, configured_log_dirs, why_of_another_broker
from krepair.logdir.values import LogDir
from krepair.logdir.view import CURRENT
from krepair.next_command import Next
from krepair.options import Options
from krepair.replicas.facts import write_headers, write_rows
from krepair.replicas.items import ReplicaItem, RowsResult
from krepair.report import Report

FACTS: Final = OutputKind(option="--out", what="facts", first=MAGIC)
_AT_ONCE: Final = 8
_ROWS_INLINE: Final = 1 << 16


class FactsReport(Report, frozen=True, kw_only=True):
    """Result of ``facts``.

    Attributes:
        path: absolute path of the facts file.
        digest: SHA-256 of the file's content, hex digits.
        broker_id: broker id in ``meta.properties``, may be empty.
        cluster_id: cluster id in ``meta.properties``, may be empty.
        host: host of this run.
        taken_ms: time when reading began, epoch milliseconds.
        partitions: number of replicas in the file.
        log_bytes: bytes of ``.log`` files that were read.
        file_bytes: size of the facts file in bytes.
        not_read: log directories in the broker's configuration that were not given.
        failed: replicas that could not be read, each with the reason.
    """

    path: str
    digest: str
    broker_id: str
    cluster_id: str
    host: str
    taken_ms: int
    partitions: int
    log_bytes: int
    file_bytes: int
    not_read: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """UNREADABLE if a replica could not be read, else DONE."""
        return ExitCode.UNREADABLE if self.failed else ExitCode.DONE


def facts(
    log_dirs: Sequence[str], out: str, options: Options, progress: Progress | None = None
) -> FactsReport:
    """Write the facts of one broker.

    Args:
        log_dirs: paths of the broker's log directories.
        out: path of the new file; an existing facts file is replaced.
        options: partitions, engine and scratch.
        progress: receiver of the bytes done so far.

    Raises:
        NotALogDirError: a path is no log directory.
        UsageError: the folder of ``out`` does not exist, or the name lacks the ending of facts files.
        RefusedError: ``out`` is in a log directory or an unrelated file; the configuration belongs to another broker;
            or the log directories belong to several clusters.
        UnreadableError: a log cannot be read.
    """
    target = output_file.check_place(FACTS, out, log_dirs)
    named = GivenBroker(broker_id=-1, log_dirs=tuple(os.path.abspath(path) for path in log_dirs))
    opened = open_directories(named, options.now_ms, options.config)
    check_ids([(named, opened.ids)])
    _check_config(opened.views, options.config)
    total = sum(log.state.log_bytes for log in opened.logs if log.state.kind == CURRENT)
    engine = choose_engine(
        options.engine, options.master, {WorkKind.RECORDS: total}, progress or SilentProgress()
    )
    work = _Work(opened, engine, Scratch(options.scratch, log_dirs))
    with ExitStack() as stack:
        stack.callback(engine.close)
        stack.callback(work.scratch.close)
        digest = ""

        def fill(put: Put) -> None:
            nonlocal digest
            digest = work.write(put, options)

        try:
            output_file.write_streamed(FACTS, target, fill)
        except OSError as error:
            raise output_file.not_written(FACTS, target, error) from None
    state = opened.figures
    who = state.broker_id or "ID"
    return FactsReport(
        path=target,
        digest=digest,
        broker_id=state.broker_id,
        cluster_id=state.cluster_id,
        host=state.host,
        taken_ms=state.taken_ms,
        partitions=work.written,
        log_bytes=total,
        file_bytes=os.path.getsize(target),
        not_read=tuple(directory.path for directory in state.directories if not directory.was_read),
        failed=tuple(work.failed),
        engine=engine.why,
        next_command=Next.of("compare", "ID=LOGDIR", f"{who}={target}"),
    )


def _check_config(views: Sequence[LogDir], config: str | None) -> None:
    """Check that a configuration belongs to this broker: the facts then promise that no log directory is missing.

    Raises:
        RefusedError: the configuration belongs to another broker, or does not name a given log directory.
    """
    if config is None:
        return
    again = Next.of("facts", *(view.path for view in views), "--config", "FILE", out="FACTS")
    named = configured_log_dirs(config)
    known = {os.path.realpath(path) for path in named or (DEFAULT_LOG_DIR,)}
    says = f"its log.dirs are {', '.join(named)}" if named else f"without log.dirs it means {DEFAULT_LOG_DIR}"
    for view in views:
        of_another = why_of_another_broker(config, view.path, view.broker_id)
        if of_another:
            raise RefusedError(
                f"--config: {of_another}; give the server.properties of broker {view.broker_id}",
                next_command=again,
            )
        if os.path.realpath(view.path) not in known:
            raise RefusedError(
                f"--config: {config} does not name {view.path}: {says}. Give the server.properties of this broker, "
                "with the paths of this host. Without --config it is your statement that no log directory was left out",
                next_command=again,
            )


class _Work:
    """Reader of one broker's replicas, a few at a time, that writes their facts."""

    def __init__(self, opened: OpenBroker, engine: Engine, scratch: Scratch) -> None:
        self.opened, self.engine, self.scratch = opened, engine, scratch
        self.written = 0
        self.failed: list[str] = []

    def write(self, put: Put, options: Options) -> str:
        """Write the facts file and return its digest."""
        writer = FactsWriter(put, self._header(options))
        places = {
            (partition.folder, partition.log_dir): number
            for number, partition in enumerate(self.opened.state.partitions)
        }
        replicas = sorted(
            read_current(self.engine, [self.opened], options.wants), key=lambda read: read.log.state.folder
        )
        for first in range(0, len(replicas), _AT_ONCE):
            self._some(writer, replicas[first : first + _AT_ONCE], places)
        return writer.finish()

    def _header(self, options: Options) -> FactsHeader:
        return FactsHeader(
            tool_version=krepair.__version__,
            made_ms=options.now_ms,
            broker=msgspec.Raw(msgspec.json.encode(self.opened.state)),
            secret=self.opened.secret.hex(),
        )

    def _some(
        self, writer: FactsWriter, replicas: list[ReadReplica], places: dict[tuple[str, str], int]
    ) -> None:
        """Read the records of a few replicas, again if the files changed during reading, and write them."""
        for tries in itertools.count(1):
            good = [read for read in replicas if not read.replica.failure]
            with self._folder(good) as folder:
                records = self._records(good, folder)
                if read_changed_again(self.engine, replicas, last=tries >= TRIES):
                    continue
                for read in replicas:
                    if read.replica.failure:
                        self.failed.append(f"{read.log.state.folder}: {read.replica.failure}")
                for place, read in enumerate(good):
                    number = places[read.log.state.folder, read.log.state.log_dir]
                    failure = self._written(writer, number, read, records[place])
                    if failure:
                        self.failed.append(failure)
                    else:
                        self.written += 1
                return

    def _records(self, replicas: Sequence[ReadReplica], folder: str) -> dict[int, RowsResult]:
        """Return place of each replica -> its records, in files of a folder if there is one."""
        from krepair.replicas.records import read_records_of_all

        inline = _ROWS_INLINE if folder else 2**62
        items = [
            replace(read.source, keys=True, scratch=folder, rows_inline=inline)
            for read in replicas
            if isinstance(read.source, ReplicaItem)
        ]
        return dict(read_records_of_all(self.engine, items))

    def _written(self, writer: FactsWriter, number: int, read: ReadReplica, rows: RowsResult) -> str:
        """Write one replica; return why it failed, or an empty text.

        Raises:
            UnreadableError: this worker cannot read any records.
        """
        if rows.failure in {"verify", "unreadable"}:
            return rows.why
        if rows.failure:
            raise UnreadableError(rows.why)
        too_large = write_headers(writer, number, read.replica.headers)
        if too_large:
            return f"{read.log.state.folder}: {too_large}"
        write_rows(writer, number, rows)
        return ""

    @contextmanager
    def _folder(self, replicas: Sequence[ReadReplica]) -> Iterator[str]:
        """Provide a folder for rows of a few replicas, or an empty path if none is needed or possible."""
        parent = (
            self.scratch.path
            if any(read.replica.headers.log_bytes > _ROWS_INLINE for read in replicas)
            else ""
        )
        folder = make_scratch(parent, (), asked=True) if parent else ""
        try:
            yield folder
        finally:
            if folder:
                remove_scratch(folder)
