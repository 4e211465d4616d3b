"""``krepair facts``: what another host has to know of a broker's replicas to compare them, as one small file."""

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
    OpenSide,
    ReadReplica,
    Side,
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
from krepair.ops.reports import Report
from krepair.options import Options
from krepair.replicas.facts import write_headers, write_rows
from krepair.replicas.items import ReplicaItem, RowsResult

FACTS: Final = OutputKind(option="--out", what="facts", first=MAGIC)
_AT_ONCE: Final = 8
_ROWS_INLINE: Final = 1 << 16


class FactsReport(Report, frozen=True, kw_only=True):
    """What ``facts`` wrote.

    Attributes:
        path: absolute path of the file.
        digest: SHA-256 of its content, hex digits.
        broker_id: of ``meta.properties``, may be empty.
        cluster_id: likewise.
        host: of this run.
        taken_ms: when the reading began, epoch milliseconds.
        partitions: replicas that are in the file.
        log_bytes: of ``.log`` that were read.
        file_bytes: bytes of the file.
        not_read: log directories of the broker's configuration that were not given.
        failed: replicas that could not be read, and why.
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
        """UNREADABLE where a replica could not be read."""
        return ExitCode.UNREADABLE if self.failed else ExitCode.DONE


def facts(
    log_dirs: Sequence[str], out: str, options: Options, progress: Progress | None = None
) -> FactsReport:
    """Write the facts of one broker.

    Args:
        log_dirs: its log directories.
        out: where the file goes; a facts file that is there is replaced.
        options: partitions, engine, scratch.
        progress: told how far it is.

    Raises:
        NotALogDirError: a path is none.
        UsageError: the folder of ``out`` is not there, or its name does not end as that of a facts file.
        RefusedError: ``out`` is in a log directory, or another file is there; or the configuration is of another
            broker; or the log directories are of several clusters.
        UnreadableError: a log cannot be read.
    """
    target = output_file.check_place(FACTS, out, log_dirs)
    given = Side(broker_id=-1, log_dirs=tuple(os.path.abspath(path) for path in log_dirs))
    side = open_directories(given, options.now_ms, options.config)
    check_ids([(given, side.ids)])
    _check_config(side.views, options.config)
    total = sum(one.state.log_bytes for one in side.logs if one.state.kind == CURRENT)
    engine = choose_engine(
        options.engine, options.master, {WorkKind.RECORDS: total}, progress or SilentProgress()
    )
    work = _Work(side, engine, Scratch(options.scratch, log_dirs))
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
    state = side.broker
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
        not_read=tuple(one.path for one in state.directories if not one.was_read),
        failed=tuple(work.failed),
        engine=engine.why,
        next_command=Next.of("compare", "ID=LOGDIR", f"{who}={target}"),
    )


def _check_config(views: Sequence[LogDir], config: str | None) -> None:
    """Check that a configuration is of this broker: facts taken with it say that no other log directory was left out.

    Raises:
        RefusedError: it is of another broker, or does not name a log directory that was given.
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
                "with the paths of this host. Without --config it is your word that no log directory was left out",
                next_command=again,
            )


class _Work:
    """Reads the replicas of one side, a few at a time, and writes what they come to."""

    def __init__(self, side: OpenSide, engine: Engine, scratch: Scratch) -> None:
        self.side, self.engine, self.scratch = side, engine, scratch
        self.written = 0
        self.failed: list[str] = []

    def write(self, put: Put, options: Options) -> str:
        """Write the file; its digest."""
        writer = FactsWriter(put, self._header(options))
        places = {(one.folder, one.log_dir): number for number, one in enumerate(self.side.state.partitions)}
        replicas = sorted(
            read_current(self.engine, [self.side], options.wants), key=lambda one: one.log.state.folder
        )
        for first in range(0, len(replicas), _AT_ONCE):
            self._some(writer, replicas[first : first + _AT_ONCE], places)
        return writer.finish()

    def _header(self, options: Options) -> FactsHeader:
        return FactsHeader(
            tool_version=krepair.__version__,
            made_ms=options.now_ms,
            broker=msgspec.Raw(msgspec.json.encode(self.side.state)),
            secret=self.side.secret.hex(),
        )

    def _some(
        self, writer: FactsWriter, replicas: list[ReadReplica], places: dict[tuple[str, str], int]
    ) -> None:
        """Read the records of a few replicas, again where the files changed meanwhile, and write them."""
        for tries in itertools.count(1):
            good = [one for one in replicas if not one.replica.failure]
            with self._folder(good) as folder:
                found = self._records(good, folder)
                if read_changed_again(self.engine, replicas, last=tries >= TRIES):
                    continue
                for one in replicas:
                    if one.replica.failure:
                        self.failed.append(f"{one.log.state.folder}: {one.replica.failure}")
                for place, one in enumerate(good):
                    number = places[one.log.state.folder, one.log.state.log_dir]
                    wrong = self._written(writer, number, one, found[place])
                    if wrong:
                        self.failed.append(wrong)
                    else:
                        self.written += 1
                return

    def _records(self, replicas: Sequence[ReadReplica], folder: str) -> dict[int, RowsResult]:
        """Place of each replica -> what its records come to; in files of a folder if there is one."""
        from krepair.replicas.records import read_records_of_all

        inline = _ROWS_INLINE if folder else 2**62
        items = [
            replace(one.source, keys=True, scratch=folder, rows_inline=inline)
            for one in replicas
            if isinstance(one.source, ReplicaItem)
        ]
        return dict(read_records_of_all(self.engine, items))

    def _written(self, writer: FactsWriter, number: int, one: ReadReplica, rows: RowsResult) -> str:
        """Write one replica; why not, or empty.

        Raises:
            UnreadableError: this worker cannot do it at all.
        """
        if rows.failure in {"verify", "unreadable"}:
            return rows.why
        if rows.failure:
            raise UnreadableError(rows.why)
        too_large = write_headers(writer, number, one.replica.headers)
        if too_large:
            return f"{one.log.state.folder}: {too_large}"
        write_rows(writer, number, rows)
        return ""

    @contextmanager
    def _folder(self, replicas: Sequence[ReadReplica]) -> Iterator[str]:
        """A folder for the rows of a few replicas; empty if none is needed, or there is no place for one."""
        parent = (
            self.scratch.path if any(one.replica.headers.log_bytes > _ROWS_INLINE for one in replicas) else ""
        )
        folder = make_scratch(parent, (), asked=True) if parent else ""
        try:
            yield folder
        finally:
            if folder:
                remove_scratch(folder)
