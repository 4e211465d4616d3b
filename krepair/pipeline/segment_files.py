"""What mapped functions take from the files of a segment: its ``.txnindex``, as kernels want it."""

from __future__ import annotations

import numpy as np

from krepair.durable.tree import Tree
from krepair.formats import txn_index
from krepair.formats.arrays import Int64s
from krepair.formats.filenames import segment_name
from krepair.logdir.reading import opened_for_reading, read_open
from krepair.pipeline.index_files import index_bytes_needed
from krepair.pipeline.items import Place

TXN_INDEX_AT_MOST_BYTES = 1 << 30


def read_entries(place: Place, base_offset: int, tree: Tree) -> bytes:
    """The bytes of a segment's ``.txnindex``, empty if there is none; no more than its log could need."""
    stem = place.stem(base_offset)
    try:
        with opened_for_reading(f"{stem}.txnindex", tree) as descriptor:
            return read_open(descriptor, index_bytes_needed(stem, txn_index.ENTRY_SIZE, tree))
    except FileNotFoundError:
        return b""


def sound_entries(place: Place, base_offset: int, tree: Tree) -> tuple[bytes, str]:
    """As ``read_entries``; none if the index is damaged, and then what is wrong with it, else nothing."""
    entries = read_entries(place, base_offset, tree)
    damage = txn_index.damage(entries, base_offset) if entries else []
    if not damage:
        return entries, ""
    first, name = damage[0], segment_name(base_offset, ".txnindex")
    return b"", f"{name}, position {first.position}: {first.expected} was expected, found {first.found}"


def entry_pairs(entries: bytes) -> Int64s:
    """(producer id, offset of the abort marker) of each entry."""
    if not entries:
        return np.empty((0, 2), np.int64)
    view = txn_index.view(entries)
    return np.column_stack([view["producer_id"], view["last_offset"]]).astype(np.int64)


def pairs(values: tuple[tuple[int, int], ...]) -> Int64s:
    """Pairs as int64[N, 2]."""
    return np.array(values, np.int64).reshape(-1, 2)
