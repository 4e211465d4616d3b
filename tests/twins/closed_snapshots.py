"""The twin of a producer snapshot whose open transactions were ended, because the log has forgotten them.

The new file is its original but for first offsets that are gone. Of each of these transactions the log has no batch
from its first offset on, but for control batches without records.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from krepair.durable.tree import Tree
from krepair.formats import batch_v2, producer_snapshot
from krepair.formats.damage import Damage
from krepair.formats.filenames import log_name
from krepair.formats.producer_snapshot import ProducerSnapshot
from tests.twins.logs import LogBatches, LogPath, parts_of


def closed_problems(data: bytes, before: bytes, logs: tuple[LogPath, ...], tree: Tree) -> list[str]:
    """What the original, and the logs of all segments, have against the bytes of the new file."""
    new, old = producer_snapshot.decode(data), producer_snapshot.decode(before)
    if isinstance(new, Damage) or isinstance(old, Damage):
        return ["it or its original cannot be read as a producer snapshot"]
    ended, problems = _ended(old, new)
    if problems:
        return problems
    since = min(ended.values())
    if logs[0].base_offset > since:
        problems.append(f"the log begins at offset {logs[0].base_offset}, a transaction at {since} was ended")
    for part in parts_of(logs, tree, check_crc=True):
        problems += _batches_of(part, ended)
    return problems


def _ended(old: ProducerSnapshot, new: ProducerSnapshot) -> tuple[dict[int, int], list[str]]:
    """The transactions that were ended, as producer id -> first offset; and what else has changed."""
    if len(old.entries) != len(new.entries):
        return {}, [f"{len(old.entries)} producers were expected, found {len(new.entries)}"]
    ended: dict[int, int] = {}
    for one, other in zip(old.entries, new.entries, strict=True):
        if one == other:
            continue
        if not one.has_open_txn or one._replace(current_txn_first_offset=-1) != other:
            return {}, [f"producer {one.producer_id}: more has changed than that its transaction is not open"]
        ended[one.producer_id] = one.current_txn_first_offset
    return ended, [] if ended else ["no transaction was ended in it"]


def _batches_of(part: LogBatches, ended: dict[int, int]) -> Iterator[str]:
    """Batches that speak against the end of a transaction."""
    headers = part.walked.headers
    emptied_control = ((headers["attributes"] & batch_v2.CONTROL) != 0) & (headers["record_count"] == 0)
    for producer_id, first in ended.items():
        mine = part.is_v2 & (headers["producer_id"] == producer_id) & (part.lasts >= first) & ~emptied_control
        for place in np.flatnonzero(mine)[:1].tolist():
            yield (
                f"{log_name(part.base_offset)}, position {int(part.walked.positions[place])}: a batch of producer "
                f"{producer_id}, whose transaction from offset {first} on was ended"
            )
