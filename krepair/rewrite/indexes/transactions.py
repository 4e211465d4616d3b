"""The transaction indexes of one partition: held against a replay of its log, and made anew.

A transaction may begin in an earlier segment, so a partition is replayed as a whole, as brokers of 2.8 and later do: an
entry for each aborted transaction with data, in the segment that holds its marker. Up to 2.7 a broker's recovery also
writes an entry for an abort marker without data (first offset = the marker's own; KAFKA-10702 ended that). Such an
entry hides nothing from a consumer, and ``empty_markers`` gives it too.

Where the log was compacted its first batches may be gone, and open transactions of others with them, so that the true
first offset and last stable offset cannot be told again: an entry on disk that agrees with the log is carried over.

Source: LogSegment.recover and updateTxnIndex, ProducerStateManager (2.2.1, 2.8.0, 3.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct, field

from krepair.durable.tree import Tree
from krepair.engine.items import LogsItem
from krepair.engine.place import in_its_place
from krepair.engine.progress import shown
from krepair.formats import txn_index
from krepair.formats.arrays import Int64s
from krepair.formats.filenames import log_name, segment_name
from krepair.formats.txn_index import AbortedTxn
from krepair.kernels.transactions import (
    E_FIRST,
    E_LAST,
    E_PREVIOUS_MARKER,
    E_PRODUCER,
    E_STABLE,
    TransactionReplay,
)
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import opened_for_reading, read_into_from, status_of
from krepair.scan.segment_files import read_entries


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


class TxnItem(LogsItem, frozen=True, kw_only=True):
    """Hold the transaction indexes of a partition against its log, of which all segments are needed.

    Attributes:
        present: base offsets of those that have a ``.txnindex``.
        make: base offsets of those whose bytes are wanted back, whether they are true or not.
    """

    present: tuple[int, ...]
    make: tuple[int, ...] = ()


class TxnProblem(Struct, frozen=True, kw_only=True):
    """One untrue ``.txnindex``.

    Attributes:
        base_offset: of the segment.
        position: byte in the file.
        text: evidence.
        size_before: bytes, -1 if there is no file.
        size_after: bytes of a true one.
        digest_after: 32 hex digits over them.
    """

    base_offset: int
    position: int
    text: str
    size_before: int
    size_after: int
    digest_after: str


class TxnResult(Struct, frozen=True, kw_only=True):
    """The result.

    Attributes:
        problems: one per untrue file; none of segments from a damaged one on.
        made: base offset -> bytes, for those in ``make``.
        damaged: base offset of the first segment whose log is no valid batches to its end, -1 if all are.
        bytes: of ``.log`` that were replayed.
    """

    problems: tuple[TxnProblem, ...] = ()
    made: dict[int, bytes] = field(default_factory=dict)
    damaged: int = -1
    bytes: int = 0


@shown("transactions")
@in_its_place
def inspect_txn(item: TxnItem, tree: Tree) -> TxnResult:
    """Replay one partition and hold its ``.txnindex`` files against it."""
    on_disk = {base: read_entries(item.place, base, tree) for base, _ in item.segments}
    segments = [
        TxnSegment(f"{item.place.path}/{log_name(base)}", size, base, on_disk[base])
        for base, size in item.segments
    ]
    problems = []
    made = {}
    damaged, read = -1, 0
    log_start = item.segments[0][0] if item.segments else 0
    for segment, found in zip(segments, regenerate_txn(segments, empty_markers=True, tree=tree), strict=True):
        read += found.valid_bytes
        if found.valid_bytes != segment.size:
            damaged = segment.base_offset
            break
        base = segment.base_offset
        true, text, position = judged(
            base, on_disk[base], found.txn_index, log_start=log_start, compacted=found.compacted
        )
        data = txn_index.encode(true)
        if base in item.make:
            made[base] = data
        if text:
            size = (
                status_of(f"{item.place.path}/{segment_name(base, '.txnindex')}", tree).st_size
                if base in item.present
                else -1
            )
            problems.append(
                TxnProblem(
                    base_offset=base,
                    position=position,
                    text=text,
                    size_before=size,
                    size_after=len(data),
                    digest_after=digest_bytes(data),
                )
            )
    return TxnResult(problems=tuple(problems), made=made, damaged=damaged, bytes=read)


def judged(
    base_offset: int, on_disk: bytes, replayed: bytes, *, log_start: int, compacted: bool
) -> tuple[Sequence[AbortedTxn], str, int]:
    """The true entries of a segment, and the first thing that is wrong with those on disk.

    An entry for an abort marker without data (first offset = the marker's own) hides nothing: brokers up to 2.7 write
    it, later ones do not, so it is neither missed nor minded. An entry whose transaction began below the log start
    keeps its first offset, which the log no longer shows; one that was written while another transaction was open from
    there keeps its last stable offset. Where batches were compacted away, first offset and last
    stable offset cannot be told again: an entry for the right marker is taken as it is.

    Args:
        base_offset: of the segment.
        on_disk: bytes of the ``.txnindex``, empty if there is none.
        replayed: bytes that a replay gives, entries for markers without data included.
        log_start: base offset of the partition's first segment.
        compacted: whether records are missing from the log, in this segment or one before it.

    Returns:
        The true entries, what is wrong (empty if nothing) and the byte of the file.
    """
    damage = txn_index.damage(on_disk, base_offset)
    disk = [] if damage else list(txn_index.decode(on_disk))
    by_marker = {(entry.producer_id, entry.last_offset): number for number, entry in enumerate(disk)}
    replay = txn_index.decode(replayed)
    text = f"{damage[0].expected} was expected, found {damage[0].found}" if damage else ""
    position = damage[0].position if damage else 0
    true = []
    for entry in replay:
        number = by_marker.pop((entry.producer_id, entry.last_offset), -1)
        empty = entry.first_offset == entry.last_offset
        if number < 0 and not empty:
            true.append(entry)
            text = text or f"the transaction of producer {_of(entry)} was aborted and is missing"
        elif number >= 0 and (empty or compacted or _agrees(disk[number], entry, log_start)):
            true.append(disk[number])
        elif number >= 0:
            true.append(entry)
            if not text:
                text, position = f"{_of(disk[number])} is not {_of(entry)}", number * txn_index.ENTRY_SIZE
    if by_marker and not text:
        number = min(by_marker.values())
        text = f"no abort marker of producer {_of(disk[number])}"
        position = number * txn_index.ENTRY_SIZE
    return true, text, position


def _agrees(found: AbortedTxn, replayed: AbortedTxn, log_start: int) -> bool:
    """Whether an entry is right, as far as the log shows: what lies below its start is not seen by a replay.

    Another transaction that was open from there lowered the last stable offset when the entry was written.
    """
    if found.first_offset != replayed.first_offset and found.first_offset >= log_start:
        return False
    if found.last_stable_offset == replayed.last_stable_offset:
        return True
    begins_below = min(found.first_offset, found.last_stable_offset) < log_start
    return begins_below and 0 <= found.last_stable_offset <= replayed.last_stable_offset


def _of(entry: AbortedTxn) -> str:
    return f"{entry.producer_id} at {entry.first_offset} to {entry.last_offset} (stable {entry.last_stable_offset})"
