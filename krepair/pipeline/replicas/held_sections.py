"""What replicas hold of transactions, and their leader epochs, as sections of a facts file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import numpy as np
from msgspec import Struct

from krepair.formats.arrays import Int64s
from krepair.formats.facts_file import FactsDamagedError, FactsReader, FactsWriter
from krepair.formats.facts_tables import Table, packed, unpacked
from krepair.formats.words import count_text
from krepair.pipeline.replicas.histories import EPOCH_COLUMNS, START_COLUMNS
from krepair.pipeline.replicas.holdings import COLUMNS, HeldResult, Pairs, kept_pairs
from krepair.rules.replicas.epochs import History

_LIST: Final = "runs"
_RUNS: Final = "epochs"
_STARTS: Final = "epoch-starts"
_EPOCHS_AT_MOST: Final = 1 << 26
"""Bytes of the leader epochs of one replica: those of two million changes of leader."""
_PIECE: Final = 1 << 16


class Holding(Struct, frozen=True, kw_only=True):
    """What one partition folder of a facts file holds of transactions.

    Attributes:
        index: of the folder in ``BrokerState.partitions``.
        why: why nothing is known of it, or empty.
        log_end: offset after the last batch that was read.
        pairs: how many runs of data there are in its section.
        limited: whether the active segment was left out, since a running broker writes it.
    """

    index: int
    why: str = ""
    log_end: int = 0
    pairs: int = 0
    limited: bool = False


def write_pairs(writer: FactsWriter, index: int, pairs: Pairs) -> None:
    """Write the transactions of one folder.

    Raises:
        OSError: the scratch file or the facts file fails.
    """
    writer.section(f"{_LIST}/{index}", packed(_pieces(pairs)))


def _pieces(pairs: Pairs) -> Iterator[Table]:
    rows = pairs.rows
    for first in range(0, len(rows), _PIECE):
        yield np.array(rows[first : first + _PIECE])


def write_epochs(writer: FactsWriter, index: int, result: HeldResult) -> None:
    """Write the leader epochs of one folder.

    Raises:
        OSError: the facts file fails.
    """
    for name, data, columns in (
        (_RUNS, result.epochs, EPOCH_COLUMNS),
        (_STARTS, result.epoch_starts, START_COLUMNS),
    ):
        writer.section(f"{name}/{index}", packed([np.frombuffer(data, np.int64).reshape(-1, columns)]))


def write_holdings(writer: FactsWriter, holdings: Iterable[Holding]) -> None:
    """Write the list, once all folders were read."""
    writer.section(_LIST, [msgspec.msgpack.encode(tuple(holdings))])


def read_holdings(reader: FactsReader) -> dict[int, Holding]:
    """Index of a folder -> what it holds; empty of a file without them.

    Raises:
        FactsDamagedError: a block is not as the file says.
        OSError: the file cannot be read.
        msgspec.MsgspecError: the list is of another form.
    """
    data = reader.whole(_LIST)
    found = msgspec.msgpack.decode(data, type=tuple[Holding, ...]) if data else ()
    return {one.index: one for one in found}


def read_pairs(reader: FactsReader, holding: Holding, scratch: str) -> Pairs:
    """The transactions of one folder; many go to the scratch folder.

    Raises:
        FactsDamagedError: a block is not as the file says.
        OSError: a file fails.
    """
    name = f"{_LIST}/{holding.index}"
    place = reader.sections.get(name)
    if place is None or place.bytes != holding.pairs * COLUMNS * 8:
        raise FactsDamagedError(
            f"{name}: expected {count_text(holding.pairs, 'transaction')}, found another number"
        )
    return kept_pairs(unpacked(reader.blocks(name), COLUMNS), scratch)


def read_history(reader: FactsReader, index: int, who: str) -> History | None:
    """The leader epochs of one folder; None of a file that was written before they stood there.

    Args:
        reader: of the facts.
        index: of the folder.
        who: whose they are, for messages.

    Raises:
        FactsDamagedError: a block is not as the file says.
        OSError: the file cannot be read.
    """
    runs, starts = f"{_RUNS}/{index}", f"{_STARTS}/{index}"
    if runs not in reader.sections:
        return None
    return History(who, _rows(reader, runs, EPOCH_COLUMNS), _rows(reader, starts, START_COLUMNS))


def _rows(reader: FactsReader, name: str, columns: int) -> Int64s:
    place = reader.sections.get(name)
    if place is None or place.bytes > _EPOCHS_AT_MOST:
        found = "none" if place is None else count_text(place.bytes, "byte")
        raise FactsDamagedError(f"{name}: expected at most {_EPOCHS_AT_MOST} bytes, found {found}")
    empty = np.empty((0, columns), np.int64)
    return np.concatenate([empty, *unpacked(reader.blocks(name), columns)])
