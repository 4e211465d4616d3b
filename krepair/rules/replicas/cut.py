"""Which other replicas have what a plan takes from a log, and which of them should lead. Pure: plain values.

A broker that comes up as the only member of the ISR leads, and all followers cut their logs to its end, whatever they
have above it. Source: ``ReplicaFetcherThread.scala`` (2.2.1, 3.9.2); run on clusters of 2.2.1, 3.9.2 and 4.3.1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from krepair.rules.replicas.model import ReplicaColumn

OPEN: Final = -1
"""The end of a range that goes on for as far as anybody has it."""


class CutPart(Enum):
    """Which part of a log goes."""

    END = "end"
    MIDDLE = "middle"
    START = "start"
    EPOCHS = "epochs"


class Gone(NamedTuple):
    """What a plan takes from one log.

    Attributes:
        part: where. Of ``EPOCHS`` no offset goes: the file of the leader epochs changes.
        first: first offset that goes.
        end: offset after the last one, or ``OPEN``.
    """

    part: CutPart
    first: int = 0
    end: int = 0


class Having(NamedTuple):
    """Who has what goes.

    Attributes:
        right: brokers that have all of it, and are called right.
        unsure: brokers that have all of it, and are not called right.
        lacking: the others.
    """

    right: tuple[int, ...] = ()
    unsure: tuple[int, ...] = ()
    lacking: tuple[int, ...] = ()


def who_has(gone: Gone, others: Iterable[ReplicaColumn], called_right: Collection[int]) -> Having:
    """Sort the other replicas by whether they have what goes.

    Args:
        gone: what goes.
        others: the other replicas.
        called_right: brokers whose replicas the comparison calls right.
    """
    right: list[int] = []
    unsure: list[int] = []
    lacking: list[int] = []
    for one in others:
        having = right if one.broker in called_right else unsure
        (having if _has(one, gone) else lacking).append(one.broker)
    return Having(tuple(right), tuple(unsure), tuple(lacking))


def _has(one: ReplicaColumn, gone: Gone) -> bool:
    if gone.part is CutPart.EPOCHS:
        return one.log_end > one.log_start
    if gone.end == OPEN:
        return one.log_start <= gone.first < one.log_end
    return one.log_start <= gone.first and one.log_end >= gone.end


def told(folder: str, gone: Gone, having: Having) -> tuple[str, ...]:
    """What the plan says about it, in sentences.

    Args:
        folder: ``topic-partition``.
        gone: what goes.
        having: who has it.
    """
    return (_what(folder, gone), *_who(gone, having), *_advice(gone, having))


def _what(folder: str, gone: Gone) -> str:
    if gone.part is CutPart.EPOCHS:
        return f"{folder}: its leader epochs change, and followers are cut by the epochs of their leader."
    if gone.end == OPEN:
        return f"{folder}: the log ends at offset {gone.first} after this plan, and what was above it is gone here."
    offsets = f"offsets {gone.first} to {gone.end - 1}"
    if gone.part is CutPart.END:
        return f"{folder}: the log ends at offset {gone.first} after this plan; {offsets} are gone here."
    if gone.part is CutPart.START:
        return f"{folder}: the log begins at offset {gone.end} after this plan; {offsets} are gone here."
    return f"{folder}: {offsets} go from the middle of the log."


def _who(gone: Gone, having: Having) -> Iterator[str]:
    if having.right:
        whom = "them" if len(having.right) > 1 else "it"
        yield f"{_has_it(gone, having.right)}, and krepair compare calls {whom} right."
    if having.unsure:
        whom = "them" if len(having.unsure) > 1 else "it"
        yield f"{_has_it(gone, having.unsure)}, but krepair compare does not call {whom} right."
    if having.lacking and gone.part is not CutPart.EPOCHS:
        many = len(having.lacking) > 1
        yield f"{_ids(having.lacking)} {'do' if many else 'does'} not have them."


def _has_it(gone: Gone, brokers: Sequence[int]) -> str:
    has = "have" if len(brokers) > 1 else "has"
    return f"{_ids(brokers)} {has} {'an intact log' if gone.part is CutPart.EPOCHS else 'them'}"


def _advice(gone: Gone, having: Having) -> Iterator[str]:
    if having.right:
        leader = having.right[0]
        if gone.part in (CutPart.MIDDLE, CutPart.START):
            yield f"This log never gets them back by itself: let broker {leader} lead, and fetch this replica anew."
        else:
            yield (
                f"Let broker {leader} lead before this broker starts: this one then follows it and fetches what it "
                "lacks."
            )
        yield "If this broker is alone in the ISR, it leads, and the others cut their logs to its end: do not start it."
    elif having.unsure:
        yield "Compare the replicas before you apply this plan."
    else:
        yield "No replica that was given has them: they are lost unless another one has them."


def _ids(brokers: Sequence[int]) -> str:
    return f"{'Replicas' if len(brokers) > 1 else 'Replica'} {' and '.join(map(str, brokers))}"
