"""Facts files of other brokers as evidence: what they say of a partition, and below which offset they speak.

The rule: facts speak for a tombstone or marker at an offset only if the log end, the recorded high watermark and the
recovery point of the replica were above it when they were taken. Else it could still fetch an older record from a third
replica. What is not there, was not read or is damaged counts as missing, never as "holds nothing".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec

from krepair.errors import RefusedError, StalePlanError, UnreadableError, UsageError
from krepair.formats.question_file import ANSWER, Answered, AnswerMore, AskedPartition, read_answered
from krepair.logdir.cluster import Assignment
from krepair.logdir.replica import CURRENT, FUTURE, BrokerState, ReplicaState
from krepair.rules.evidence import OtherFacts, reach_of
from krepair.rules.replicas.epochs import History

if TYPE_CHECKING:
    from krepair.formats.facts_file import FactsReader
    from krepair.pipeline.replicas.held_sections import Holding
    from krepair.pipeline.replicas.holdings import Pairs

AGAIN: Final = "krepair facts LOGDIR... --out FILE"


class NotKnownError(Exception):
    """Why the other replicas of a partition are not known, so that everything has to stay."""


@dataclass(frozen=True, eq=False)
class FactsSide:
    """The facts of one broker, open.

    Attributes:
        broker_id: as typed.
        path: absolute path of the file.
        reader: of it.
        state: of its broker.
        holdings: by index of a folder in ``state.partitions``.
        places: (topic, number) -> indexes of its folders.
        answer: to which question they are an answer, None if to none.
        answered: number of a partition in the question -> what was answered.
    """

    broker_id: int
    path: str
    reader: FactsReader
    state: BrokerState
    holdings: Mapping[int, Holding]
    places: Mapping[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    answer: AnswerMore | None = None
    answered: Mapping[int, Answered] = field(default_factory=dict)

    @property
    def not_read(self) -> tuple[str, ...]:
        """Log directories of the broker that were not read."""
        return tuple(one.path for one in self.state.directories if not one.was_read)

    @cached_property
    def asked(self) -> Mapping[tuple[str, int, str], int]:
        """(topic, number, topic id) -> number in the question of a partition that it asks for; the first if of many."""
        partitions = () if self.answer is None else self.answer.partitions
        numbers = reversed(list(enumerate(partitions)))
        return {(one.topic, one.partition, one.topic_id): number for number, one in numbers}


@dataclass(frozen=True)
class AnswerLog:
    """What one broker has answered for one partition.

    Attributes:
        reader: of its facts.
        secret: of the question.
        number: of the partition in the question.
        asked: the partition as it was asked for.
        answered: what was answered.
    """

    reader: FactsReader
    secret: bytes
    number: int
    asked: AskedPartition
    answered: Answered


@dataclass(frozen=True)
class FactsLog:
    """What the facts of one broker say of one partition.

    Attributes:
        side: the facts.
        indexes: of its folders: the replica, and what is about to become it.
        reach: the facts speak for offsets below it.
        answer: what they say of the keys of tombstones, None if nothing.
        not_answered: why they say nothing of these although they answer a question, or empty.
    """

    side: FactsSide
    indexes: tuple[int, ...]
    reach: int
    answer: AnswerLog | None = None
    not_answered: str = ""

    def pairs(self, scratch: str) -> Iterator[Pairs]:
        """The transactions of which its folders hold a batch.

        Args:
            scratch: path of a scratch folder, empty if there is none.

        Raises:
            UnreadableError: the file cannot be read any more, or has changed.
        """
        from krepair.formats.facts_file import BAD_CONTENT
        from krepair.pipeline.replicas.held_sections import read_pairs

        try:
            for index in self.indexes:
                yield read_pairs(self.side.reader, self.side.holdings[index], scratch)
        except (*BAD_CONTENT, OSError) as error:
            raise UnreadableError(f"{self.side.path}: {error}", next_command=AGAIN) from None

    def histories(self) -> Iterator[History]:
        """The leader epochs of its folders; none of facts that were taken before these stood there.

        Raises:
            UnreadableError: the file cannot be read any more, or has changed.
        """
        from krepair.formats.facts_file import BAD_CONTENT
        from krepair.pipeline.replicas.held_sections import read_history

        who = f"replica {self.side.broker_id}, {self.side.path}"
        try:
            for index in self.indexes:
                found = read_history(self.side.reader, index, who)
                if found is not None:
                    yield found
        except (*BAD_CONTENT, OSError) as error:
            raise UnreadableError(f"{self.side.path}: {error}", next_command=AGAIN) from None

    def as_evidence(self) -> OtherFacts:
        """As a plan names it."""
        state = self.side.state
        return OtherFacts(
            broker_id=self.side.broker_id,
            path=self.side.path,
            digest=self.side.reader.digest,
            host=state.host,
            taken_ms=state.taken_ms,
            reach=self.reach,
            question="" if self.answer is None or self.side.answer is None else self.side.answer.question,
            asked=0 if self.answer is None else self.answer.asked.keys,
        )


@contextmanager
def opened_side(broker_id: int, path: str, cluster_id: str) -> Iterator[FactsSide]:
    """Open the facts of one broker.

    Args:
        broker_id: as typed.
        path: absolute path of the file.
        cluster_id: of the log directory that is planned for; it may be empty.

    Raises:
        UsageError: they are of another broker.
        RefusedError: they are of another cluster, or of a version that is not known.
        UnreadableError: the file cannot be read, is cut or was changed.
    """
    from krepair.pipeline.replicas.held_sections import read_holdings
    from krepair.pipeline.replicas.open_facts import opened_whole, read_as_input

    with opened_whole(path, AGAIN) as reader:
        with read_as_input(path, AGAIN):
            state = msgspec.json.decode(reader.header.broker, type=BrokerState)
            holdings = read_holdings(reader)
            answer, answered = None, dict[int, Answered]()
            if reader.header.purpose == ANSWER:
                answer = msgspec.json.decode(reader.header.more, type=AnswerMore)
                bytes.fromhex(answer.secret)
                answered = read_answered(reader)
        typed = f"--replicas {broker_id}={path}"
        if state.broker_id not in ("", str(broker_id)):
            raise UsageError(f"{typed}: the facts are of broker {state.broker_id}, not {broker_id}")
        if state.cluster_id and cluster_id and state.cluster_id != cluster_id:
            raise RefusedError(f"{typed}: the facts are of cluster {state.cluster_id}, expected {cluster_id}")
        places: dict[tuple[str, int], tuple[int, ...]] = {}
        for index, one in enumerate(state.partitions):
            if one.kind in (CURRENT, FUTURE):
                name = (one.topic, one.partition)
                places[name] = (*places.get(name, ()), index)
        yield FactsSide(broker_id, path, reader, state, holdings, places, answer, answered)


def facts_log(side: FactsSide, mine: ReplicaState, line: Assignment | None) -> FactsLog:
    """What facts say of a partition.

    Args:
        side: of another broker.
        mine: this broker's replica.
        line: what the cluster says of the partition; None at apply, which has checked it when it planned.

    Raises:
        NotKnownError: they say nothing of it, or nothing that counts.
    """
    who = f"replica {side.broker_id}, {side.path}"
    if side.not_read:
        raise NotKnownError(f"{who}: the broker's log directory {side.not_read[0]} was not read")
    indexes = side.places.get((mine.topic, mine.partition), ())
    current = [index for index in indexes if side.state.partitions[index].kind == CURRENT]
    if len(current) != 1:
        raise NotKnownError(f"{who}: {len(current)} folders of it were found, one was expected")
    for index in indexes:
        _check(side, index, mine, line, who)
    state, holding = side.state.partitions[current[0]], side.holdings[current[0]]
    log_end = holding.log_end
    if max(state.high_watermark, state.recovery_point) > log_end and not holding.limited:
        raise NotKnownError(f"{who}: it is cut: it ends at {log_end}")
    reach = reach_of(log_end, state.high_watermark, state.recovery_point)
    answer = _answer(side, mine)
    return (
        FactsLog(side, indexes, reach, not_answered=answer)
        if isinstance(answer, str)
        else FactsLog(side, indexes, reach, answer)
    )


def _answer(side: FactsSide, mine: ReplicaState) -> AnswerLog | str | None:
    """What was answered for a partition; why it was not; None if there is no answer."""
    if side.answer is None:
        return None
    number = side.asked.get((mine.topic, mine.partition, mine.topic_id))
    if number is None:
        return f"{side.path}: the question does not ask for {mine.name}"
    answered = side.answered.get(number)
    if answered is None or answered.why:
        return f"{side.path}: not answered: {'' if answered is None else answered.why}"
    secret = bytes.fromhex(side.answer.secret)
    return AnswerLog(side.reader, secret, number, side.answer.partitions[number], answered)


def _check(side: FactsSide, index: int, mine: ReplicaState, line: Assignment | None, who: str) -> None:
    state, holding = side.state.partitions[index], side.holdings.get(index)
    if holding is None:
        raise NotKnownError(
            f"{who}: nothing is said of the transactions of {state.folder}; take the facts again"
        )
    if holding.why:
        raise NotKnownError(f"{who}: {state.folder}: {holding.why}")
    for other in (mine.topic_id, "" if line is None else line.topic_id):
        if state.topic_id and other and state.topic_id != other:
            raise NotKnownError(f"{who}: {state.folder} has topic id {state.topic_id}, expected {other}")
    assigned = directory_of(line, side.broker_id)
    here = next((one.directory_id for one in side.state.directories if one.path == state.log_dir), "")
    if state.kind == CURRENT and assigned and here and assigned != here:
        raise NotKnownError(
            f"{who}: {state.folder} is in directory {here}, since then it was assigned to {assigned}"
        )


def directory_of(line: Assignment | None, broker_id: int) -> str:
    """Id of the log directory that a broker's replica is assigned to; empty where it is not known (KIP-858)."""
    if line is None or len(line.directories) != len(line.replicas) or broker_id not in line.replicas:
        return ""
    found = line.directories[line.replicas.index(broker_id)]
    return "" if found in _RESERVED else found


_RESERVED: Final = frozenset({"AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"})
"""Ids 0, 1 and 2: migrating, unassigned, lost. Source: DirectoryId.java (3.9.2)."""


def facts_again(
    known: tuple[OtherFacts, ...], sides: Mapping[str, FactsSide], mine: ReplicaState
) -> list[FactsLog]:
    """The facts that a plan names, as ``apply`` has opened them.

    Raises:
        StalePlanError: they are not those of the plan.
    """
    found = []
    for one in known:
        side = sides[one.path]
        try:
            log = facts_log(side, mine, None)
        except NotKnownError as error:
            raise StalePlanError(str(error)) from error
        if log.as_evidence() != one:
            raise StalePlanError(f"{one.path}: it says now {log.as_evidence()}, the plan has {one}")
        found.append(log)
    return found
