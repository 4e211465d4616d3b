"""The ``.txnindex`` of each segment made anew by a replay of the log, as brokers of 2.8 and later make it.

An entry for each aborted transaction with data, in the segment that holds its marker. Up to 2.7 a broker's recovery
also writes an entry for an abort marker without data (first offset = the marker's own; KAFKA-10702 ended that); such an
entry hides nothing from a consumer, and ``empty_markers`` gives it too.

Where the log was compacted its first batches may be gone, and open transactions of others with them, so that the true
first offset and last stable offset cannot be told again: an entry on disk that agrees with the log is carried over.

Source: LogSegment.recover and updateTxnIndex, ProducerStateManager (2.2.1, 2.8.0, 3.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from krepair.durable.tree import Tree
from krepair.formats import txn_index
from krepair.formats.arrays import Int64s
from krepair.formats.txn_index import AbortedTxn
from krepair.kernels.transactions import (
    E_FIRST,
    E_LAST,
    E_PREVIOUS_MARKER,
    E_PRODUCER,
    E_STABLE,
    TransactionReplay,
)
from krepair.logdir.reading import opened_for_reading, read_into_from


@dataclass(frozen=True)
class TxnSegment:
    """One segment to replay.

    Attributes:
        path: of its ``.log``.
        size: bytes of it that are valid batches.
        base_offset: of the segment.
        on_disk: bytes of its ``.txnindex`` as it is, empty if there is none or nothing in it shall be carried over.
    """

    path: str
    size: int
    base_offset: int
    on_disk: bytes = b""


@dataclass(frozen=True)
class RegeneratedTxn:
    """The ``.txnindex`` of one segment.

    Attributes:
        base_offset: of the segment.
        txn_index: bytes of the file; empty means that no file is needed.
        compacted: whether records are missing from the log, in this segment or one before it.
        valid_bytes: bytes that were replayed; less than the size where the log is not valid, or its offsets go back.
    """

    base_offset: int
    txn_index: bytes
    compacted: bool
    valid_bytes: int


def regenerate_txn(
    segments: Sequence[TxnSegment], *, empty_markers: bool = False, tree: Tree | None = None
) -> list[RegeneratedTxn]:
    """The ``.txnindex`` of the segments of a partition.

    Args:
        segments: consecutive and ascending, from the log start on.
        empty_markers: as brokers up to 2.7 do, give entries for abort markers without data too.
        tree: below which the files are; None: anywhere.

    Raises:
        OSError: a file cannot be read.
    """
    if not segments:
        return []
    replay = TransactionReplay(segments[0].base_offset, empty_markers=empty_markers)
    done: list[RegeneratedTxn] = []
    compacted = False
    for segment in segments:
        with opened_for_reading(segment.path, tree) as descriptor:
            found = replay.segment(segment.size, read_into_from(descriptor))
        compacted = compacted or found.gaps > 0
        # Where nothing is missing, what is on disk is not believed.
        entries = carried_over(found.entries, segment.on_disk if compacted else b"")
        done.append(
            RegeneratedTxn(
                base_offset=segment.base_offset,
                txn_index=txn_index.encode(entries),
                compacted=compacted,
                valid_bytes=found.valid_bytes,
            )
        )
    return done


def _entry(row: Sequence[int]) -> AbortedTxn:
    return AbortedTxn(txn_index.VERSION, row[E_PRODUCER], row[E_FIRST], row[E_LAST], row[E_STABLE])


def carried_over(found: Int64s, on_disk: bytes) -> list[AbortedTxn]:
    """The replay's entries, each replaced by the one on disk for the same marker if that agrees with the log.

    It agrees when it names the same producer, begins after that producer's marker before it and not after the first
    batch that is left, and its last stable offset is not above what the log shows: compaction takes away, and never
    adds.

    Args:
        found: int64[N, 6] entries of the replay.
        on_disk: bytes of the ``.txnindex``; damaged entries agree with nothing.
    """
    known = {(entry.producer_id, entry.last_offset): entry for entry in txn_index.decode(on_disk)}
    entries = []
    for row in found.tolist():
        rebuilt = _entry(row)
        entry = known.get((rebuilt.producer_id, rebuilt.last_offset), rebuilt)
        agrees = (
            entry.version == txn_index.VERSION
            and max(row[E_PREVIOUS_MARKER], -1) < entry.first_offset <= rebuilt.first_offset
            and 0 <= entry.last_stable_offset <= rebuilt.last_stable_offset
        )
        entries.append(entry if agrees else rebuilt)
    return entries
