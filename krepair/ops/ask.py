"""``krepair plan --ask``: writes the question that other brokers answer, so that tombstones may go by their facts."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import msgspec
from msgspec import Struct

import krepair
from krepair.durable.scratch import Scratch, make_scratch, remove_scratch
from krepair.errors import ExitCode, RefusedError, UsageError
from krepair.fixes.answers import log_below
from krepair.fixes.compact import surveys_to_ask
from krepair.fixes.context import Context, place_of
from krepair.fixes.evidence import read_clusters
from krepair.fixes.markers import policy_or_left
from krepair.fixes.survey import Survey
from krepair.fixes.table import asked
from krepair.formats.facts_file import FactsHeader, FactsWriter
from krepair.formats.question_file import (
    QUESTION,
    QUESTION_MAGIC,
    SECRET_BYTES,
    AskedPartition,
    QuestionMore,
    write_asked,
)
from krepair.logdir.config import load_settings
from krepair.logdir.replica import read_broker, replica_state
from krepair.logdir.view import read_log_dir
from krepair.ops import output_file
from krepair.ops.log_dirs_given import check_consents
from krepair.ops.output_file import OutputKind, Put
from krepair.ops.plan import partitions_named, refuse_if_locked, work_of
from krepair.options import Options
from krepair.pipeline.engines.choice import choose_engine
from krepair.pipeline.progress import Progress
from krepair.pipeline.replicas.questions import Log, NotReadError, tombstones_of, write_question
from krepair.rules.model import LeftAlone

ASK: Final = OutputKind(option="--ask", what="a question", first=QUESTION_MAGIC)


class AskReport(Struct, frozen=True, kw_only=True):
    """What ``plan --ask`` wrote.

    Attributes:
        question: absolute path of the file.
        digest: SHA-256 of its content, hex digits.
        broker_id: of who asks.
        cluster_id: likewise; it may be empty.
        partitions: that are asked for.
        keys: of tombstones that are asked for.
        file_bytes: bytes of the file.
        left: partitions that are not asked for, and why.
        engine: which engine was used, and why, one line.
        next_command: what to type next, on the host of each other broker.
    """

    question: str
    digest: str
    broker_id: str
    cluster_id: str
    partitions: int
    keys: int
    file_bytes: int
    left: tuple[str, ...] = ()
    engine: str = ""
    next_command: str = ""

    @property
    def exit_code(self) -> ExitCode:
        """DONE."""
        return ExitCode.DONE


def ask(log_dir: str, out: str, options: Options, progress: Progress | None = None) -> AskReport:
    """Write a question: which records of the keys of these tombstones are left elsewhere?

    Args:
        log_dir: of the broker that is to be repaired.
        out: where the question goes; a question that is there is replaced.
        options: as of the plan.
        progress: told how far it is.

    Raises:
        NotALogDirError: it is none.
        LockedError: a broker, or another krepair, is using it.
        UsageError: no fix removes tombstones, or an option is wrong.
        RefusedError: ``out`` is in the log directory, or another file is there.
    """
    fixes = asked(options.fixes)
    if all(fix.name != "compact" for fix in fixes):
        raise UsageError(
            "--ask asks for the keys of tombstones, and only --fix compact removes these; for markers facts do "
            "without a question",
            next_command=f"krepair plan {shlex.quote(log_dir)} --fix compact --ask FILE",
        )
    view = read_log_dir(log_dir)
    target = output_file.check_place(ASK, out, [view.path])
    refuse_if_locked(view.path)
    settings = load_settings(options.config, options.topic_config, dict(options.settings))
    partitions = partitions_named(view, options)
    check_consents([view], options)
    clusters = read_clusters(options, view)
    with ExitStack() as stack:
        engine = choose_engine(options.engine, options.master, work_of(fixes, partitions, options), progress)
        stack.callback(engine.close)
        scratch = Scratch(options.scratch, (view.path,))
        stack.callback(scratch.close)
        context = Context(view, settings, options, engine, scratch)
        context.cluster, context.own_metadata = clusters
        asking = _Asking(context, surveys_to_ask(context, partitions))
        digest = ""

        def fill(put: Put) -> None:
            nonlocal digest
            digest = asking.write(put)

        try:
            output_file.write_streamed(ASK, target, fill)
        except OSError as error:
            raise RefusedError(f"{out}: cannot write the question: {error.strerror or error}") from None
        return AskReport(
            question=target,
            digest=digest,
            broker_id=view.broker_id,
            cluster_id=view.cluster_id,
            partitions=len(asking.done),
            keys=sum(one.keys for one in asking.done),
            file_bytes=os.path.getsize(target),
            left=tuple(asking.left),
            engine=engine.why,
            next_command=f"krepair facts --answer {shlex.quote(target)} --out FILE LOGDIR...",
        )


class _Asking:
    """Writes one question, partition by partition."""

    def __init__(self, context: Context, surveys: list[Survey]) -> None:
        self._context, self._surveys = context, surveys
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self.done: list[AskedPartition] = []
        self.left: list[str] = []

    def write(self, put: Put) -> str:
        """Write the file; its digest."""
        context = self._context
        header = FactsHeader(
            tool_version=krepair.__version__,
            made_ms=context.options.now_ms,
            purpose=QUESTION,
            broker=msgspec.Raw(msgspec.json.encode(_asker(context))),
            more=msgspec.Raw(msgspec.json.encode(QuestionMore(secret=self._secret.hex()))),
        )
        writer = FactsWriter(put, header, QUESTION_MAGIC)
        for survey, log, end in self._logs():
            self._one(writer, survey, log, end)
        write_asked(writer, self.done)
        return writer.finish()

    def _logs(self) -> Iterator[tuple[Survey, Log, int]]:
        for survey in self._surveys:
            problem = None if survey.log is None else survey.log.problem
            policy = problem or policy_or_left(self._context, survey)
            place = place_of(self._context.view, survey.partition)
            found = policy if isinstance(policy, LeftAlone) else log_below(place, survey.segments, policy)
            if isinstance(found, LeftAlone):
                self.left.append(f"{survey.partition.folder}: {found.why}")
            else:
                yield survey, *found

    def _one(self, writer: FactsWriter, survey: Survey, log: Log, end: int) -> None:
        context, partition = self._context, survey.partition
        parent = context.scratch.path
        folder = make_scratch(parent, (), asked=True) if parent else ""
        try:
            files = tombstones_of(context.engine, log, self._secret, folder)
            one = AskedPartition(
                topic=partition.topic,
                partition=partition.number,
                topic_id=replica_state(context.view, partition).topic_id,
                end=end,
            )
            rows = [file for found in files.values() for file in found]
            self.done.append(write_question(writer, len(self.done), one, self._secret, rows))
        except NotReadError as error:
            self.left.append(f"{partition.folder}: {error}")
        finally:
            if folder:
                remove_scratch(folder)


def _asker(context: Context) -> object:
    """Who asks; the list of its partitions is nobody's business."""
    state = read_broker([context.view], context.options.now_ms)
    return msgspec.structs.replace(state, partitions=())
