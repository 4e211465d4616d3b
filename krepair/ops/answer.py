"""``krepair facts --answer``: answers the question of another broker, so that its tombstones may go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from krepair.durable.scratch import Scratch, make_scratch, remove_scratch
from krepair.errors import RefusedError, UnreadableError
from krepair.fixes.other_facts import NotKnownError
from krepair.fixes.other_logs import ListedLog, listed, rows_elsewhere
from krepair.formats.facts_file import FactsDamagedError, FactsReader, FactsWriter
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.question_file import (
    QUESTION,
    QUESTION_MAGIC,
    Answered,
    AnswerMore,
    AskedPartition,
    QuestionMore,
    read_asked,
    write_answered,
)
from krepair.logdir.lock import is_locked
from krepair.logdir.replica import CURRENT, FUTURE, BrokerState, ReplicaState
from krepair.logdir.view import read_partition
from krepair.ops.side_reading import OpenSide
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.replicas.open_facts import opened_whole, read_as_input
from krepair.pipeline.replicas.questions import write_answer

_AGAIN: Final = "krepair plan LOGDIR --fix compact --ask FILE"
_TRIES: Final = 3


@dataclass(frozen=True, eq=False)
class Question:
    """A question, open.

    Attributes:
        path: of the file.
        reader: of it.
        broker_id: of who asks.
        cluster_id: likewise; it may be empty.
        secret: key of its hashes.
        partitions: that are asked for.
    """

    path: str
    reader: FactsReader
    broker_id: str
    cluster_id: str
    secret: bytes
    partitions: tuple[AskedPartition, ...]

    @property
    def more(self) -> AnswerMore:
        """What an answer says of it."""
        return AnswerMore(
            question=self.reader.digest,
            secret=self.secret.hex(),
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            partitions=self.partitions,
        )


@contextmanager
def opened_question(path: str, cluster_id: str) -> Iterator[Question]:
    """Open a question.

    Args:
        path: of the file.
        cluster_id: of who answers; it may be empty.

    Raises:
        RefusedError: it is of another cluster, or of a version that is not known.
        UnreadableError: it cannot be read, is cut or was changed.
    """
    with opened_whole(path, _AGAIN, QUESTION_MAGIC) as reader:
        with read_as_input(path, _AGAIN):
            broker = msgspec.json.decode(reader.header.broker, type=BrokerState)
            more = msgspec.json.decode(reader.header.more, type=QuestionMore)
            partitions, secret = read_asked(reader), bytes.fromhex(more.secret)
        if reader.header.purpose != QUESTION:
            raise UnreadableError(f"{path}: a question was expected, found {reader.header.purpose!r}")
        if broker.cluster_id and cluster_id and broker.cluster_id != cluster_id:
            raise RefusedError(f"{path}: it asks cluster {broker.cluster_id}, this is cluster {cluster_id}")
        yield Question(path, reader, broker.broker_id, broker.cluster_id, secret, partitions)


def write_answers(
    writer: FactsWriter, engine: Engine, side: OpenSide, question: Question, scratch: Scratch
) -> list[Answered]:
    """Write, for each asked key that has a record here, the lowest offset of such a record.

    Returns:
        What was answered, one for each partition of the question.

    Raises:
        UnreadableError: the question cannot be read any more.
        OSError: a file fails.
    """
    found = []
    by_name: dict[tuple[str, int], list[ReplicaState]] = {}
    for state in side.state.partitions:
        if state.kind in (CURRENT, FUTURE):
            by_name.setdefault((state.topic, state.partition), []).append(state)
    for number, one in enumerate(question.partitions):
        folders = by_name.get((one.topic, one.partition), [])
        folder = make_scratch(scratch.path, (), asked=True) if scratch.path else ""
        try:
            found.append(_answered(writer, engine, side, question, number, folders, folder))
        except NotKnownError as error:
            found.append(Answered(number=number, why=str(error)))
        except FactsDamagedError as error:
            raise UnreadableError(f"{question.path}: {error}", next_command=_AGAIN) from None
        finally:
            if folder:
                remove_scratch(folder)
    write_answered(writer, found)
    return found


def _answered(
    writer: FactsWriter,
    engine: Engine,
    side: OpenSide,
    question: Question,
    number: int,
    folders: list[ReplicaState],
    scratch: str,
) -> Answered:
    """The answer for one partition.

    Raises:
        NotKnownError: it is not here, damaged, or changed each time it was read.
    """
    if [state.kind for state in folders].count(CURRENT) != 1:
        raise NotKnownError(f"one folder of it was expected, found {len(folders)}")
    asked = question.partitions[number]
    for state in folders:
        if state.topic_id and asked.topic_id and state.topic_id != asked.topic_id:
            raise NotKnownError(f"{state.folder} has topic id {state.topic_id}, asked was {asked.topic_id}")
    for tried in range(_TRIES):
        before = [_log_of(side, state, closed=tried > 0) for state in folders]
        files = rows_elsewhere(engine, [log for log, _ in before], question.secret, scratch)
        after = [_log_of(side, state, closed=tried > 0) for state in folders]
        if [log.log.digest for log, _ in before] == [log.log.digest for log, _ in after]:
            held = write_answer(writer, number, question.reader, files)
            return Answered(number=number, end=min(end for _, end in before), held=held)
    raise NotKnownError("its segments changed each time they were read: its broker is running")


def _log_of(side: OpenSide, state: ReplicaState, *, closed: bool) -> tuple[ListedLog, int]:
    """(the log as it is now, the offset up to which it is listed).

    The active segment is left out if ``closed``, or if a broker holds the lock: it may grow.
    """
    view = side.views[state.log_dir]
    partition = read_partition(view, state.folder)
    end = INT64_MAX
    if state.kind == CURRENT and partition.segments and (closed or is_locked(view.path) is not None):
        end = partition.segments[-1].base_offset
        partition = partition._replace(segments=partition.segments[:-1])
    return listed(0, view, partition), end
