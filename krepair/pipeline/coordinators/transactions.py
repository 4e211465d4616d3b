"""For ``krepair transactions``: reads one partition of ``__transaction_state``, first segment to last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from krepair.durable.tree import Tree
from krepair.formats import batch_v2
from krepair.kernels import dump_rows as r
from krepair.kernels.scan import ReadInto
from krepair.pipeline.coordinators.transaction_book import TransactionBook, TransactionState
from krepair.pipeline.coordinators.walk import DamagedPart, KeptDamage, RecordWalk, walk_segments
from krepair.pipeline.dump.log_walk import Wanted
from krepair.pipeline.items import LogsItem
from krepair.pipeline.place import in_its_place
from krepair.pipeline.progress import shown

_CUT_BYTES = 8 << 20  # a transaction of 100,000 partitions takes less


class TransactionsItem(LogsItem, frozen=True, kw_only=True):
    """One partition.

    Attributes:
        log_start: records of lower offsets do not count.
        high_watermark: batches that end at or behind it do not tell how far the log reaches.
        now_ms: times behind it tell nothing.
    """

    log_start: int = 0
    high_watermark: int = -1
    now_ms: int = 0


class TransactionsResult(Struct, frozen=True, kw_only=True):
    """What one partition says.

    Attributes:
        states: the newest of each transactional id, by id.
        newest_ms: newest time of a batch below the high watermark, by the coordinator's clock; -1 for none.
        damaged: what was passed over, the first ``MOST_RANGES``.
        damages: how many such parts there are.
        unknown: records with a key that krepair does not know, or none.
    """

    states: tuple[TransactionState, ...] = ()
    newest_ms: int = -1
    damaged: tuple[DamagedPart, ...] = ()
    damages: int = 0
    unknown: int = 0


class _TransactionWalk(RecordWalk):
    """Hands every record of a log to the book."""

    def __init__(
        self,
        read_into: ReadInto,
        size: int,
        base_offset: int,
        wanted: Wanted,
        book: TransactionBook,
        item: TransactionsItem,
    ) -> None:
        super().__init__(read_into, size, base_offset, wanted)
        self._book, self._item = book, item

    def _record_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        view = buf.data
        batches = rows[["base_offset", "last_offset", "max_timestamp", "attributes"]].tolist()
        columns = [r.R_OFFSET_DELTA, r.R_KEY, r.R_KEY_SIZE, r.R_VALUE, r.R_VALUE_SIZE]
        of_each = counts[: len(rows)].tolist()
        fields = iter(records[: sum(of_each), columns].tolist())
        for (base_offset, last_offset, time_ms, attributes), count in zip(batches, of_each, strict=True):
            if last_offset < self._item.high_watermark and time_ms <= self._item.now_ms:
                self._book.newest_ms = max(self._book.newest_ms, time_ms)
            for _ in range(count):
                delta, key, key_size, value, value_size = next(fields)
                if attributes & batch_v2.CONTROL or base_offset + delta < self._item.log_start:
                    continue
                self._book.take(
                    bytes(view[key : key + key_size]) if key_size >= 0 else None,
                    bytes(view[value : value + value_size]) if value_size >= 0 else None,
                    base_offset + delta,
                )
        yield from ()


@shown("transactions")
@in_its_place
def read_transactions(item: TransactionsItem, tree: Tree) -> TransactionsResult:
    """Read one partition."""
    book, kept = TransactionBook(item.place.folder), KeptDamage(_CUT_BYTES)

    def walk_of(read_into: ReadInto, size: int, base_offset: int) -> _TransactionWalk:
        return _TransactionWalk(read_into, size, base_offset, kept, book, item)

    walk_segments(item, tree, kept, walk_of)
    return TransactionsResult(
        states=tuple(book.states()),
        newest_ms=book.newest_ms,
        damaged=tuple(kept.parts),
        damages=kept.damages,
        unknown=book.unknown,
    )
