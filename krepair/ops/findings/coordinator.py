"""What the transaction coordinator's own log says of transactions, where it lies in a directory that was given.

``__transaction_state`` is searched for the bytes of the producer ids asked for, and only the batches that have them are
read record by record: so a large one takes seconds.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from krepair.checks.walk import find_batches
from krepair.formats.batch_v2 import batch_damage
from krepair.formats.damage import Damage
from krepair.formats.record import batch_records
from krepair.formats.transaction_state import TransactionValue, decode_value
from krepair.logdir.config import TRANSACTIONS_TOPIC
from krepair.logdir.reading import opened_for_reading
from krepair.logdir.values import LogDir

WINDOW_BYTES: Final = 8 << 20
MOST_PRODUCERS: Final = 200
"""Each is searched for by itself; beyond that the log is not asked."""


def coordinator_states(views: Sequence[LogDir], producer_ids: Iterable[int]) -> dict[int, TransactionValue]:
    """The newest state of each producer id, as far as it is there.

    A file that cannot be read says nothing here; ``check`` names it (KR308). Tombstones and states of the same
    transactional id under a newer producer id are not looked for.
    """
    wanted = {struct.pack(">q", producer_id) for producer_id in producer_ids}
    found: dict[int, TransactionValue] = {}
    if not wanted or len(wanted) > MOST_PRODUCERS:
        return found
    for view in views:
        for partition in view.partitions:
            if partition.topic == TRANSACTIONS_TOPIC:
                for segment in partition.segments:
                    for value in _values(segment.log.path, wanted):
                        known = found.get(value.producer_id)
                        if known is None or known.last_update_ms <= value.last_update_ms:
                            found[value.producer_id] = value
    return found


def _values(path: str, wanted: set[bytes]) -> Iterator[TransactionValue]:
    try:
        with opened_for_reading(path) as descriptor:
            yield from _values_of(descriptor, wanted)
    except OSError:
        return


def _values_of(descriptor: int, wanted: set[bytes]) -> Iterator[TransactionValue]:
    position = 0
    while window := os.pread(descriptor, WINDOW_BYTES, position):
        places, end, _ = find_batches(np.frombuffer(window, np.uint8), final=len(window) < WINDOW_BYTES)
        if len(places) == 0:
            return  # damage, messages without transactions, or a batch beyond all that a coordinator writes
        for place in np.unique(np.searchsorted(places, _hits(window[:end], wanted), side="right")).tolist():
            if place > 0:
                yield from _values_in(window, int(places[place - 1]), wanted)
        position += end


def _hits(window: bytes, wanted: set[bytes]) -> list[int]:
    hits = []
    for each in wanted:
        place = window.find(each)
        while place >= 0:
            hits.append(place)
            place = window.find(each, place + 1)
    return hits


def _values_in(window: bytes, place: int, wanted: set[bytes]) -> Iterator[TransactionValue]:
    if batch_damage(window, place) is not None:
        return
    for record in batch_records(window, place):
        if isinstance(record, Damage) or record.value is None:
            continue
        value = decode_value(record.value)
        if not isinstance(value, Damage) and struct.pack(">q", value.producer_id) in wanted:
            yield value
