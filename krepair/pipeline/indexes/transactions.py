"""The transaction indexes of one partition: held against a replay of its log, and made anew.

A transaction may begin in an earlier segment, so a partition is replayed as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from krepair.durable.tree import Tree
from krepair.formats import txn_index
from krepair.formats.filenames import log_name, segment_name
from krepair.formats.txn_index import AbortedTxn
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import status_of
from krepair.pipeline.indexes.regenerate_txn import TxnSegment, regenerate_txn
from krepair.pipeline.items import LogsItem
from krepair.pipeline.place import in_its_place
from krepair.pipeline.progress import shown
from krepair.pipeline.segment_files import read_entries


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
