"""Writes down what the replicas of a broker hold of transactions, for the facts that another broker's plan rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from krepair.durable.scratch import Scratch
from krepair.fixes.context import place_of
from krepair.fixes.other_logs import why_no_evidence
from krepair.formats.facts_file import FactsWriter
from krepair.logdir.replica import CURRENT, FUTURE, ReplicaState
from krepair.logdir.values import Partition
from krepair.logdir.view import read_partition
from krepair.ops.side_reading import OpenSide
from krepair.options import Options
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.jobs import FIND_HELD
from krepair.pipeline.replicas.held_sections import Holding, write_epochs, write_holdings, write_pairs
from krepair.pipeline.replicas.holdings import HeldItem, HeldResult

_TRIES: Final = 3
_CHANGED: Final = "its segments changed each time they were read: its broker is running"


def write_what_is_held(
    writer: FactsWriter, engine: Engine, side: OpenSide, options: Options, scratch: Scratch
) -> None:
    """Write the transactions of every replica, and of every folder that is about to become one.

    Of a running broker the active segment may grow meanwhile. Then it is left out, and the log ends where it begins.
    """
    waiting = dict(folders_of(side, options))
    holdings: list[Holding] = []
    for number in range(_TRIES):
        work = [
            (index, before, _item(side, state, before, closed=number > 0, scratch=scratch.path))
            for index, state in waiting.items()
            if (before := _listed(side, state)) is not None
        ]
        for place, result in engine.run(FIND_HELD, [item for _, _, item in work]):
            index, before, item = work[place]
            after = _listed(side, waiting[index])
            if after is not None and _files(before, item) == _files(after, item):
                holdings.append(
                    _written(writer, index, waiting.pop(index), after, result, limited=number > 0)
                )
        if not waiting:
            break
    holdings += [Holding(index=index, why=_CHANGED) for index in waiting]
    write_holdings(writer, sorted(holdings, key=lambda one: one.index))


def folders_of(side: OpenSide, options: Options) -> Iterator[tuple[int, ReplicaState]]:
    """The replicas that were asked for, and what is about to become one, with their index in ``BrokerState``."""
    for index, state in enumerate(side.state.partitions):
        if state.kind in (CURRENT, FUTURE) and options.wants(state.topic, state.partition):
            yield index, state


def _written(
    writer: FactsWriter,
    index: int,
    state: ReplicaState,
    partition: Partition,
    result: HeldResult,
    *,
    limited: bool,
) -> Holding:
    reason = partition.unreadable or why_no_evidence(partition, state) or result.why
    if reason:
        return Holding(index=index, why=reason)
    write_pairs(writer, index, result.transactions)
    write_epochs(writer, index, result)
    return Holding(index=index, log_end=result.log_end, pairs=len(result.transactions.rows), limited=limited)


def _listed(side: OpenSide, state: ReplicaState) -> Partition | None:
    """A folder as it is now, None if it is not there any more."""
    try:
        found = read_partition(side.views[state.log_dir], state.folder)
    except OSError:
        return None
    return found


def _item(
    side: OpenSide, state: ReplicaState, partition: Partition, *, closed: bool, scratch: str
) -> HeldItem:
    view = side.views[state.log_dir]
    return HeldItem(
        place=place_of(view, partition),
        segments=partition.log_sizes[:-1] if closed else partition.log_sizes,
        scratch=scratch,
    )


def _files(partition: Partition, item: HeldItem) -> list[tuple[str, int, int]]:
    """Name, inode and size of the logs that were read."""
    wanted = {base for base, _ in item.segments}
    return [
        (one.log.name, one.log.inode, one.log.size) for one in partition.segments if one.base_offset in wanted
    ]
