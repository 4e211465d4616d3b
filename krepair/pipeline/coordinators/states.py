"""Searches one partition of ``__transaction_state`` for the states of some producer ids.

It is searched for the bytes of the producer ids, and only the batches that have them are read record by record: 100 MB
took 1.2 s.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from typing import Final

import numpy as np

from krepair.checks.walk import walk
from krepair.durable.tree import Tree
from krepair.formats.arrays import Int64s, Uint8s
from krepair.formats.batch_v2 import batch_damage
from krepair.formats.damage import Damage
from krepair.formats.filenames import log_name
from krepair.formats.record import batch_records
from krepair.formats.transaction_state import TransactionValue, decode_value
from krepair.logdir.reading import opened_for_reading, read_into_from
from krepair.pipeline.items import LogsItem
from krepair.pipeline.place import reached
from krepair.pipeline.progress import shown

WINDOW_BYTES: Final = 8 << 20


class StatesItem(LogsItem, frozen=True, kw_only=True):
    """Search one partition.

    Attributes:
        producer_ids: ascending.
    """

    producer_ids: tuple[int, ...]


@shown("transactions")
def find_states(item: StatesItem) -> dict[int, TransactionValue]:
    """The newest state of each producer id that the partition tells of.

    A file that cannot be read says nothing; ``check`` names it (KR308).
    """
    tree, wrong = reached(item.place)
    if wrong:
        return {}
    search = re.compile(b"|".join(re.escape(struct.pack(">q", one)) for one in item.producer_ids))
    found: dict[int, TransactionValue] = {}
    for base_offset, _ in item.segments:
        for value in _values(f"{item.place.path}/{log_name(base_offset)}", search, tree):
            known = found.get(value.producer_id)
            if known is None or known.last_update_ms <= value.last_update_ms:
                found[value.producer_id] = value
    wanted = frozenset(item.producer_ids)
    return {producer_id: value for producer_id, value in found.items() if producer_id in wanted}


def _values(path: str, search: re.Pattern[bytes], tree: Tree) -> Iterator[TransactionValue]:
    try:
        with opened_for_reading(path, tree) as descriptor:
            yield from _values_of(descriptor, search)
    except OSError:
        return


def _values_of(descriptor: int, search: re.Pattern[bytes]) -> Iterator[TransactionValue]:
    found: list[TransactionValue] = []

    def look(window: Uint8s, places: Int64s, end: int) -> None:
        hits = np.array([hit.start() for hit in search.finditer(window.data, 0, end)], np.int64)
        for number in np.unique(np.searchsorted(places, hits, side="right")).tolist():
            found.extend(_values_in(window.data, int(places[number - 1])))

    size = os.fstat(descriptor).st_size
    for _ in walk(
        read_into_from(descriptor), size, window_bytes=WINDOW_BYTES, check_crc=False, on_places=look
    ):
        yield from found
        found.clear()


def _values_in(window: memoryview, place: int) -> Iterator[TransactionValue]:
    if batch_damage(window, place) is not None:
        return
    for record in batch_records(window, place):
        value = None if isinstance(record, Damage) or record.value is None else decode_value(record.value)
        if isinstance(value, TransactionValue):
            yield value
