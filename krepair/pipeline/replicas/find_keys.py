"""Finds named keys in one replica: the key itself, and what this replica would serve of it as leader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from msgspec import Struct

from krepair.derive.transactions import ABORTED, OPEN, TRANSACTION_COLUMNS, fates_of
from krepair.durable.tree import Tree
from krepair.formats.arrays import Int64s, Uint64s
from krepair.formats.damage import Damage
from krepair.kernels import replica_rows as h
from krepair.logdir.reading import opened_for_reading, read_into_from
from krepair.pipeline.dump.record import Shown, shown_of
from krepair.pipeline.items import Place
from krepair.pipeline.place import in_its_place
from krepair.pipeline.progress import shown
from krepair.pipeline.replicas.items import ReplicaItem
from krepair.pipeline.replicas.records import Differing, HashWalk

_CUT: Final = 256


class FindItem(Struct, frozen=True, kw_only=True):
    """Find keys in one replica.

    Attributes:
        replica: which, and its transactions and the secret of the hashes.
        hashes: both halves of the hashes of the keys; empty for all keys.
        log_start: records below it are not served.
        last_stable_offset: records at or above it are not served to ``read_committed`` readers.
    """

    replica: ReplicaItem
    hashes: tuple[tuple[int, int], ...]
    log_start: int
    last_stable_offset: int

    @property
    def place(self) -> Place:
        """Of the replica."""
        return self.replica.place

    @property
    def bytes_to_read(self) -> int:
        """All its logs."""
        return self.replica.bytes_to_read


class FoundKey(Struct, frozen=True, kw_only=True):
    """One key of a replica.

    Attributes:
        first: first half of its hash.
        second: second half.
        key: its bytes, perhaps only the first.
        offset: of the record that would be served last, -1 none.
        value: its value, perhaps only the first bytes; None for a tombstone or no record.
        value_size: all its bytes, -1 for a tombstone or no record.
    """

    first: int
    second: int
    key: bytes | None
    offset: int = -1
    value: bytes | None = None
    value_size: int = -1


class _Finder(HashWalk):
    """Looks at each record of the keys, and keeps of each key what is served last."""

    wanted: np.ndarray[Any, np.dtype[np.uint64]]
    found: dict[tuple[int, int], FoundKey]
    low: int
    high: int

    def _record_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        yield from ()
        out = self.hashed(buf, rows, counts, records)
        chosen = np.flatnonzero(self._chosen(out)).tolist()
        if not chosen:
            return
        fates, ends = self._fates_of(rows), np.cumsum(counts[: len(rows)])
        for place in chosen:
            batch = int(np.searchsorted(ends, place, "right"))
            self._take(out[place], int(fates[batch]), shown_of(rows[batch], records[place], buf))

    def _chosen(self, out: Uint64s) -> Any:
        return np.isin(out[:, h.H_FIRST], self.wanted) if len(self.wanted) else np.ones(len(out), bool)

    def _fates_of(self, rows: Any) -> Int64s:
        fates = np.empty(len(rows), np.int64)
        h.batch_fates(np.ascontiguousarray(rows), self._fates, fates)
        return fates

    def _damage_of(self, row: Any, found: Damage, rule: str) -> bytes:
        """A batch that cannot be read has no key to show."""
        return self._taken.damage(found, rule)

    def _one_record(self, row: Any, shown: Shown) -> Iterator[bytes]:
        yield from ()
        out = self._hashes_of(row, shown)
        if self._chosen(out)[0]:
            self._take(out[0], int(self._fates_of(row.reshape(1))[0]), shown)

    def _take(self, hashed: Any, fate: int, shown: Shown) -> None:
        if fate == h.MARKER:
            return
        pair = int(hashed[h.H_FIRST]), int(hashed[h.H_SECOND])
        known = self.found.get(pair)
        if known is None:
            known = self.found[pair] = FoundKey(first=pair[0], second=pair[1], key=_cut(shown.key))
        if fate not in {ABORTED, OPEN} and self.low <= shown.offset < self.high:
            self.found[pair] = FoundKey(
                first=pair[0],
                second=pair[1],
                key=known.key,
                offset=shown.offset,
                value=_cut(shown.value),
                value_size=shown.value_size,
            )


def _cut(data: bytes | None) -> bytes | None:
    return None if data is None else data[:_CUT]


@shown("keys")
@in_its_place
def find_keys(item: FindItem, tree: Tree) -> tuple[FoundKey, ...]:
    """Read the log once; of each key that is wanted keep what is served last."""
    replica = item.replica
    table: Int64s = np.frombuffer(replica.transactions, np.int64).reshape(-1, TRANSACTION_COLUMNS)
    fates, secret = fates_of(table), np.frombuffer(replica.secret, np.uint64).copy()
    none = Differing(b"")
    found: dict[tuple[int, int], FoundKey] = {}
    for base, size in replica.segments:
        with opened_for_reading(replica.file(base, ".log"), tree) as descriptor:
            finder = _Finder(read_into_from(descriptor), size, base, fates, secret, lambda *_: None, none)
            finder.wanted = np.array([first for first, _ in item.hashes], np.uint64)
            finder.found, finder.low, finder.high = found, item.log_start, item.last_stable_offset
            for _ in finder.lines():
                pass
    wanted = set(item.hashes)
    return tuple(one for pair, one in found.items() if not wanted or pair in wanted)
