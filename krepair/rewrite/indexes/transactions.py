"""The task that compares the transaction indexes (``.txnindex``) of a partition with a replay of its log.

A transaction may begin in an earlier segment, so a partition is replayed as a whole, as brokers of 2.8 and later do: an
entry for each aborted transaction with data, in the segment that holds its marker. Up to 2.7 a broker's recovery also
writes an entry for an ABORT marker without data (first offset = the marker's own; KAFKA-10702 ended that). Such an
entry hides nothing from a consumer.

In a compacted log the first batches of a transaction may be missing, and so may transactions of other producers that
were open at the time. Then first offset and last stable offset of an entry cannot be computed again, and an entry on
disk is kept if it is for the right marker and a broker may have written it. No entry of a damaged file is kept: the
entries of a replay hide every remaining aborted record, and a broker's recovery writes these same entries.

Source: LogSegment.recover and updateTxnIndex, ProducerStateManager (2.2.1, 2.8.0, 3.9);
TransactionIndex.collectAbortedTxns (3.9); Cleaner.cleanSegments (2.2.1, 3.9).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field

from krepair.durable.tree import Tree
from krepair.engine.items import LogsItem
from krepair.engine.place import with_log_dir
from krepair.engine.progress import shown_as
from krepair.formats import txn_index
from krepair.formats.filenames import log_name, segment_name
from krepair.formats.java_numbers import INT32_MAX
from krepair.formats.txn_index import AbortedTxn
from krepair.kernels.transactions import (
    E_FIRST,
    E_LAST,
    E_LATEST,
    E_MARKER,
    E_NEXT,
    E_PRODUCER,
    E_STABLE,
    TransactionReplay,
)
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import opened_for_reading, read_into_from
from krepair.scan.segment_files import read_entries

_NONE: Final = "; offsets before its marker are gone, and a later entry is there: the abort had no records"
_MAY_BE_NONE: Final = (
    "; offsets before its marker are gone. If that of a commit was among them, as cleaners up to 2.2.1 remove it, the "
    "abort had no records, and an entry from there on hides committed ones: krepair compare finds out from other "
    "replicas"
)


class EntryLimits(NamedTuple):
    """Limits within which the values of an entry may differ from those of the replay.

    Attributes:
        first: lowest possible first offset.
        latest: highest possible first offset.
        highest: highest possible last stable offset. A transaction that was open when the entry was written began in an
            append that ended in this segment.
        next_begins: first offset after the marker at which another producer begins a transaction in the same segment;
            -1 if none does. A follower appends many batches at once and only then computes the last stable offset, so
            the entry may have this offset if nothing else was open (``UnifiedLog.append``, 3.9).
    """

    first: int
    latest: int
    highest: int
    next_begins: int


class ReplayedSegment(NamedTuple):
    """Result of replaying one segment.

    Attributes:
        size: requested size of the ``.log`` in bytes.
        entries: entry of each ABORT marker in the segment, even of a marker without data.
        limits: limits of each entry.
        compacted: True if records are missing from the log, in this segment or an earlier one.
        valid_bytes: number of bytes that were replayed; less than the size if the log is invalid or its offsets
            decrease.
        end: base offset of the next segment; for the last segment an offset that no log reaches.
    """

    base_offset: int
    size: int
    entries: tuple[AbortedTxn, ...]
    limits: tuple[EntryLimits, ...]
    compacted: bool
    valid_bytes: int
    end: int


def replayed(
    folder: str, segments: Sequence[tuple[int, int]], tree: Tree | None = None
) -> Iterator[ReplayedSegment]:
    """Replay the segments of a partition.

    Args:
        folder: path of the partition folder.
        segments: (base offset, bytes of the ``.log`` that are valid batches), consecutive and ascending.
        tree: tree that holds the files; None to open the paths directly.

    Raises:
        OSError: a file cannot be read.
    """
    replay = TransactionReplay(segments[0][0] if segments else 0)
    compacted = False
    ends = [*(base for base, _ in segments[1:]), segments[-1][0] + INT32_MAX + 1] if segments else []
    for (base_offset, size), end in zip(segments, ends, strict=True):
        with opened_for_reading(f"{folder}/{log_name(base_offset)}", tree) as descriptor:
            segment_replay = replay.segment(size, read_into_from(descriptor))
        compacted = compacted or segment_replay.gaps > 0
        rows = segment_replay.entries.tolist()
        entries = tuple(
            AbortedTxn(txn_index.VERSION, row[E_PRODUCER], row[E_FIRST], row[E_LAST], row[E_STABLE])
            for row in rows
        )
        limits = tuple(EntryLimits(row[E_MARKER] + 1, row[E_LATEST], end, row[E_NEXT]) for row in rows)
        yield ReplayedSegment(base_offset, size, entries, limits, compacted, segment_replay.valid_bytes, end)


class TxnProblem(Struct, frozen=True, kw_only=True):
    """One wrong ``.txnindex``.

    Attributes:
        position: position of the error in the file.
        text: description of how the index contradicts the log, in one line.
        size_before: size of the file in bytes, -1 if there is none.
        size_after: size of the right file in bytes.
        digest_after: 32 hex digits over the right file.
        first_offset: lowest offset of the transactions whose entries change.
        last_offset: highest offset of these transactions.
    """

    base_offset: int
    position: int
    text: str
    size_before: int
    size_after: int
    digest_after: str
    first_offset: int
    last_offset: int


class TxnResult(Struct, frozen=True, kw_only=True):
    """Result for one partition.

    Attributes:
        problems: one problem for each wrong file; none from the first damaged segment on.
        left: reasons for not repairing wrong files, one line each.
        made: right content of the ``.txnindex`` by base offset, for the requested segments.
        damaged: base offset of the first segment whose log is not valid to its end, -1 if all are.
        bytes: bytes of ``.log`` that were replayed.
    """

    problems: tuple[TxnProblem, ...] = ()
    left: tuple[str, ...] = ()
    made: dict[int, bytes] = field(default_factory=dict)
    damaged: int = -1
    bytes: int = 0


@shown_as("transactions")
@with_log_dir
def inspect_txn(item: LogsItem, tree: Tree, make: Container[int] = ()) -> TxnResult:
    """Replay the log of a partition and compare its ``.txnindex`` files with the result.

    Args:
        make: base offsets of the segments whose right entries the result should hold.
    """
    problems, left = [], []
    made = {}
    damaged, read = -1, 0
    for segment in replayed(item.place.path, item.segments, tree):
        read += segment.valid_bytes
        base = segment.base_offset
        if segment.valid_bytes != segment.size:
            damaged = base
            break
        on_disk = read_entries(item.place.stem(base), tree)
        if txn_index.later_version(on_disk):
            left.append(f"{segment_name(base, '.txnindex')}: {txn_index.damage(on_disk)[0].text}")
            continue
        true, text, position = judged(on_disk, segment, log_start=item.segments[0][0])
        data = txn_index.encode(true)
        if base in make:
            made[base] = data
        if text:
            status = tree.status(f"{item.place.stem(base)}.txnindex")
            first, last = _changed_offsets(on_disk, true, segment)
            problems.append(
                TxnProblem(
                    base_offset=base,
                    position=position,
                    text=text,
                    size_before=-1 if status is None else status.st_size,
                    size_after=len(data),
                    digest_after=digest_bytes(data),
                    first_offset=first,
                    last_offset=last,
                )
            )
    return TxnResult(problems=tuple(problems), left=tuple(left), made=made, damaged=damaged, bytes=read)


def _changed_offsets(on_disk: bytes, true: Sequence[AbortedTxn], segment: ReplayedSegment) -> tuple[int, int]:
    """Return the lowest and the highest offset of the transactions whose entries change.

    In a damaged file all entries are included. If segments overlap, an entry can be an error and yet not change.
    """
    if txn_index.damage(on_disk, segment.base_offset):
        return min((entry.first_offset for entry in true), default=segment.base_offset), segment.end - 1
    changed = set(txn_index.decode(on_disk)) ^ set(true)
    first = min((entry.first_offset for entry in changed), default=segment.base_offset)
    return first, max((entry.last_offset for entry in changed), default=segment.end)


def judged(
    on_disk: bytes, segment: ReplayedSegment, *, log_start: int
) -> tuple[Sequence[AbortedTxn], str, int]:
    """Return the right entries of a segment, and the first error in the entries on disk.

    * An entry for an ABORT marker without data (its first offset is the marker's own) hides nothing. Brokers up to 2.7
      write such an entry, later brokers do not, so its absence is no error.
    * An entry of a transaction that began below the log start offset keeps its first offset, which the log no longer
      shows. If another transaction was open from below it, the entry keeps its last stable offset too.
    * In a compacted log an entry for the right marker is kept if a broker may have written it, see ``_may_be_right``.
    * An ABORT marker without an entry before a marker with an entry had no data, because brokers write entries in
      order. If a COMMIT marker may be missing before it, the ABORT marker gets an entry that hides nothing.

    Args:
        on_disk: content of the ``.txnindex``, empty if there is none.
        segment: replay of the segment.
        log_start: base offset of the partition's first segment.

    Returns:
        The right entries, the first error (empty if there is none) and its position in the file.
    """
    damage = txn_index.damage(on_disk, segment.base_offset)
    disk = [] if damage else list(txn_index.decode(on_disk))
    by_marker = {(entry.producer_id, entry.last_offset): number for number, entry in enumerate(disk)}
    markers = {(entry.producer_id, entry.last_offset) for entry in segment.entries}
    written = max((marker for _, marker in by_marker.keys() & markers), default=-1)
    text = damage[0].text if damage else ""
    position = damage[0].position if damage else 0
    true = []
    for entry, limits in zip(segment.entries, segment.limits, strict=True):
        number = by_marker.pop((entry.producer_id, entry.last_offset), -1)
        if number < 0:
            if entry.first_offset != entry.last_offset:
                missing, explanation = _missing_entry(entry, limits, written)
                true.append(missing)
                text = text or explanation
        elif _may_be_right(disk[number], entry, limits, log_start, compacted=segment.compacted):
            true.append(disk[number])
        else:
            true.append(entry)
            if not text:
                text, position = (
                    f"{_entry_text(disk[number])} is not {_entry_text(entry)}",
                    number * txn_index.ENTRY_SIZE,
                )
    if by_marker and not text:
        number = min(by_marker.values())
        text = f"no abort marker of producer {_entry_text(disk[number])}"
        position = number * txn_index.ENTRY_SIZE
    return true, text, position


def _missing_entry(entry: AbortedTxn, limits: EntryLimits, written: int) -> tuple[AbortedTxn, str]:
    """Build the entry of an aborted transaction that has none on disk, and describe the error.

    Args:
        entry: entry by the replay.
        limits: limits of the entry.
        written: offset of the last marker that has an entry on disk.
    """
    text = f"the transaction of producer {_entry_text(entry)} was aborted and is missing"
    if limits.latest != entry.last_offset:
        return entry, text
    if entry.last_offset < written:
        return entry._replace(first_offset=entry.last_offset), text + _NONE
    return entry, text + _MAY_BE_NONE


def _may_be_right(
    entry: AbortedTxn, replayed: AbortedTxn, limits: EntryLimits, log_start: int, *, compacted: bool
) -> bool:
    """Return whether an entry may be right, as far as the log shows.

    First offset: a transaction begins after the previous marker of its producer, so an entry that begins earlier hides
    committed records. An entry that begins after a batch of its transaction shows aborted records to consumers; but a
    batch certainly belongs to the transaction only if no marker in between can be missing.

    Last stable offset: another transaction may have been open from an offset that is deleted or compacted away now. It
    lowered the last stable offset of the entry, and the replay does not see it. A value that is too high shows aborted
    records to consumers: a fetch from below it reads no later entry.
    """
    if not limits.first <= entry.first_offset <= limits.latest or entry.last_stable_offset > limits.highest:
        return False
    if compacted:
        return True
    if entry.first_offset != replayed.first_offset and entry.first_offset >= log_start:
        return False
    if entry.last_stable_offset == replayed.last_stable_offset:
        return True
    if entry.last_stable_offset == limits.next_begins:
        return replayed.last_stable_offset == replayed.last_offset + 1
    begins_below = min(entry.first_offset, entry.last_stable_offset) < log_start
    return begins_below and 0 <= entry.last_stable_offset <= replayed.last_stable_offset


def _entry_text(entry: AbortedTxn) -> str:
    return f"{entry.producer_id} at {entry.first_offset} to {entry.last_offset} (stable {entry.last_stable_offset})"
