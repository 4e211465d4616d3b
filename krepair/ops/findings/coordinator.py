"""What the transaction coordinator's own log says of transactions, where it lies in a directory that was given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from krepair.fixes.context import place_of
from krepair.formats.filenames import TRANSACTIONS_TOPIC
from krepair.formats.transaction_state import TransactionValue
from krepair.logdir.values import LogDir
from krepair.pipeline.engines.engine import Engine

MOST_PRODUCERS: Final = 2000
"""Beyond that the log is not asked."""


def coordinator_states(
    views: Sequence[LogDir], producer_ids: Iterable[int], engine: Engine
) -> dict[int, TransactionValue]:
    """The newest state of each producer id, as far as it is there.

    A file that cannot be read says nothing here; ``check`` names it (KR308). Tombstones and states of the same
    transactional id under a newer producer id are not looked for.

    Args:
        views: the log directories.
        producer_ids: asked for.
        engine: where ``__transaction_state`` is searched.
    """
    wanted = tuple(sorted(set(producer_ids)))
    if not wanted or len(wanted) > MOST_PRODUCERS:
        return {}
    from krepair.pipeline.coordinators.states import StatesItem, find_states

    items = [
        StatesItem(
            place=place_of(view, partition),
            segments=partition.log_sizes,
            producer_ids=wanted,
        )
        for view in views
        for partition in view.partitions
        if partition.topic == TRANSACTIONS_TOPIC
    ]
    results = dict(engine.map(find_states, items))
    found: dict[int, TransactionValue] = {}
    for index in range(len(items)):
        for producer_id, value in results[index].items():
            known = found.get(producer_id)
            if known is None or known.last_update_ms <= value.last_update_ms:
                found[producer_id] = value
    return found
