"""Tasks of ``--fix leftovers`` on a ``.log.swap`` that a broker did not complete.

A plan reads the swap, ``apply`` builds its indexes, and both ``apply`` and ``verify`` check the completed segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from msgspec import Struct
from msgspec.structs import replace

from krepair.checks.index_judge import AbortedAudit
from krepair.checks.side_by_side import batches_of, side_by_side
from krepair.checks.walk import walk
from krepair.durable.attributes import read_attributes
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.engine.items import Failed, LogItem, PartitionItem, VerifyResult
from krepair.engine.place import open_log_dir, with_log_dir
from krepair.engine.progress import shown_as
from krepair.formats import txn_index
from krepair.formats.filenames import SWAP, TXN_INDEX, log_name, offset_name, segment_name
from krepair.formats.words import count_text
from krepair.kernels.scan import ReadInto
from krepair.kernels.transactions import TransactionReplay
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import opened_for_reading, read_into_from, read_whole, status_of, why
from krepair.plan.model import CompleteSwap, NewFile
from krepair.rewrite.segments.verify import below_base, companion_audit
from krepair.scan.segment_files import entry_pairs, rebuild_offset_and_time

RebuiltIndexes = dict[str, bytes]
"""Content of the built index files, by file name."""


class SwapItem(LogItem, frozen=True, kw_only=True):
    """Arguments of the task that reads one ``.log.swap``, whose size it holds as listed.

    Attributes:
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        segments: for a swap that brokers delete, (base offset, size of the ``.log``) of the segments with which the
            swap is compared; None for a swap that becomes a segment.
    """

    interval_bytes: int
    segments: tuple[tuple[int, int], ...] | None = None

    @property
    def bytes_to_read(self) -> int:
        """Size of the swap and of the logs that it is compared with."""
        return self.size + sum(size for _, size in self.segments or ())


class SwapResult(Struct, frozen=True, kw_only=True):
    """Content of a swap.

    Attributes:
        problem: reason why the swap is invalid or unreadable; empty if it is valid to its end.
        end_offset: offset after the swap's last batch; the base offset if the swap has no batch.
        batches: number of valid batches.
        missing: number of batches that none of ``SwapItem.segments`` has, by their last offsets; 0 if not compared.
        makes: indexes that a recovery would build for the swap, with the ``.txnindex`` that belongs to it.
    """

    problem: str = ""
    end_offset: int
    batches: int = 0
    missing: int = 0
    makes: tuple[NewFile, ...] = ()


# -- reading for the plan


@shown_as("swaps")
def inspect_swap(item: SwapItem) -> SwapResult:
    """Read a whole ``.log.swap`` and check every CRC; an unreadable file is a problem of the swap."""
    tree, wrong = open_log_dir(item.place)
    if wrong:
        return SwapResult(problem=wrong, end_offset=item.base_offset)
    result, made = _read_swap(item, tree)
    result = replace(result, makes=new_files(made))
    if result.problem:
        return result
    try:
        if item.segments is None:
            return replace(result, problem=_contradiction(item, made, tree))
        return replace(result, missing=_missing_batches(item, tree))
    except OSError as error:
        return replace(result, problem=f"it could not be read again: {why(error)}")


def _read_swap(item: SwapItem, tree: Tree) -> tuple[SwapResult, RebuiltIndexes]:
    """Return the content of a swap, and the indexes built for it; no indexes if its log has a problem."""
    base = item.base_offset
    path = f"{item.place.path}/{log_name(base)}{SWAP}"
    try:
        made = rebuild_offset_and_time(path, item.size, base, item.interval_bytes, tree=tree)
    except OSError as error:
        return SwapResult(problem=f"it could not be read: {why(error)}", end_offset=base), {}
    result = SwapResult(end_offset=made.last_offset + 1, batches=made.batches)
    if made.damage_text:
        text = f"position {made.valid_bytes} of {item.size}: {made.damage_text}"
        return replace(result, problem=text), {}
    files = {segment_name(base, ".index"): made.index, segment_name(base, ".timeindex"): made.time_index}
    if item.segments is not None:
        return result, files
    entries, problem = _aborted(f"{item.place.path}/{segment_name(base, TXN_INDEX)}{SWAP}", base, tree)
    if entries:
        files[segment_name(base, TXN_INDEX)] = entries
    return replace(result, problem=problem), files


def _contradiction(item: SwapItem, made: RebuiltIndexes, tree: Tree) -> str:
    """Return how the log of a swap contradicts its ``.txnindex``, or empty.

    If the ``.txnindex`` is missing although the swap has ABORT markers, krepair must not complete the swap. Only the
    earlier logs show which transactions those markers end. A start that finds no indexes replays these logs; a start
    that found new indexes without the entries would let consumers read aborted records.
    """
    entries = made.get(segment_name(item.base_offset, TXN_INDEX))
    with opened_for_reading(f"{item.place.path}/{log_name(item.base_offset)}{SWAP}", tree) as descriptor:
        if entries is None:
            replay = TransactionReplay(item.base_offset).segment(item.size, read_into_from(descriptor))
            text = f"it has abort markers and no .txnindex{SWAP}: only a start works out what was aborted"
            return text if len(replay.entries) else ""
        audit = AbortedAudit(entry_pairs(entries))
        for walked in walk(read_into_from(descriptor), item.size):
            audit.feed(walked)
    return next((f"its {suffix}{SWAP}, position {at}: {text}" for suffix, at, text in audit.finish()), "")


def _missing_batches(item: SwapItem, tree: Tree) -> int:
    """Count the batches of a swap that no segment has, by their last offsets, which cleaning keeps."""
    with ExitStack() as opened:
        path = f"{item.place.path}/{log_name(item.base_offset)}{SWAP}"
        pending = opened.enter_context(opened_for_reading(path, tree))

        def logs() -> Iterator[tuple[ReadInto, int]]:
            for base, size in item.segments or ():
                with opened_for_reading(f"{item.place.path}/{log_name(base)}", tree) as descriptor:
                    yield read_into_from(descriptor), size

        swap = batches_of([(read_into_from(pending), item.size)])
        counts = side_by_side(swap, batches_of(logs()))
    return counts.only_first + counts.after_second


def _aborted(path: str, base_offset: int, tree: Tree) -> tuple[bytes, str]:
    try:
        entries = read_whole(path, txn_index.AT_MOST_BYTES, tree)
    except FileNotFoundError:
        return b"", ""
    except OSError as error:
        return b"", f"its .txnindex{SWAP} could not be read: {why(error)}"
    damage = txn_index.damage(entries, base_offset)
    if damage:
        return b"", f"its .txnindex{SWAP}, position {damage[0].position}: {damage[0].text}"
    return entries, ""


def new_files(made: RebuiltIndexes) -> tuple[NewFile, ...]:
    """Convert the indexes to the form of a plan."""
    return tuple(
        NewFile(name=name, size=len(data), digest=digest_bytes(data)) for name, data in sorted(made.items())
    )


# -- staging


@shown_as("swaps")
@with_log_dir
def stage_swap(
    item: PartitionItem, tree: Tree, change: CompleteSwap, interval_bytes: int, stage: str
) -> Failed | None:
    """Rebuild the indexes of a swap, compare them with the plan, stage them, and verify them with other code.

    Args:
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        stage: absolute path of the folder for the indexes.
    """
    path = f"{item.place.path}/{log_name(change.base_offset)}{SWAP}"
    try:
        look = SwapItem(
            place=item.place,
            base_offset=change.base_offset,
            size=status_of(path, tree).st_size,
            interval_bytes=interval_bytes,
        )
    except OSError as error:
        return Failed("changed", f"{path}: {why(error)}")
    result, made = _read_swap(look, tree)
    if result.problem or new_files(made) != change.makes or result.batches != change.batches:
        text = f"{path}: the rebuilt indexes are not those of the plan {result.problem}".rstrip()
        return Failed("changed", text)
    try:
        # Verified before the segments that the swap replaces are removed: from 3.0 on no broker checks a swap
        # (KAFKA-12520).
        _write(stage, made, path, RealDisk(tree))
        wrong = _audit(path, f"{stage}/{offset_name(change.base_offset)}", change, interval_bytes, tree)
    except OSError as error:
        return Failed("disk", f"{error.filename or path}: {why(error)}")
    if wrong:
        return Failed("verify", f"{path}: {wrong}; nothing was changed")
    return None


def _write(stage: str, made: RebuiltIndexes, path: str, disk: RealDisk) -> None:
    like = read_attributes(path, disk.tree)
    for name, data in made.items():
        staged = f"{stage}/{name}"
        # The file may exist already: a task that is repeated finds the file of its first attempt.
        if disk.tree.is_there(staged):
            disk.unlink(staged)
        disk.create(staged, data, like=like)
    disk.sync_dir(stage)


def _audit(log: str, stem: str, change: CompleteSwap, interval_bytes: int, tree: Tree) -> str:
    """Verify a log and its indexes with independent code; return the first problem, or empty.

    Args:
        log: path of the log.
        stem: path of the indexes without their suffixes.
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        tree: tree that holds both.

    Raises:
        OSError: a file could not be read.
    """
    size, batches = status_of(log, tree).st_size, 0
    with opened_for_reading(log, tree) as descriptor:
        audit = companion_audit(stem, change.base_offset, size, tree)
        for walked in walk(read_into_from(descriptor), size):
            wrong = walked.problem or below_base(walked, change.base_offset)
            if wrong:
                return f"position {walked.position}: {wrong}"
            batches += len(walked.positions)
            audit.feed(walked)
    if batches != change.batches:
        return f"expected {count_text(change.batches, 'batch', 'batches')}, found {batches}"
    problems = audit.finish(size, interval_bytes)
    return next((f"{suffix}, position {position}: {text}" for suffix, position, text in problems), "")


# -- verification


@shown_as("verify")
@with_log_dir
def verify_swap(
    item: PartitionItem, tree: Tree, change: CompleteSwap, interval_bytes: int, mtime_ns: int
) -> VerifyResult | Failed:
    """Verify a completed swap: its whole log, its indexes, and that the replaced files no longer exist.

    Args:
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        mtime_ns: modification time of the ``.log.swap`` when the plan was made.
    """
    try:
        problem = _not_completed(item.place.path, change, interval_bytes, mtime_ns, tree)
    except OSError as error:
        return Failed("unreadable", f"{error.filename or item.place.path}: {why(error)}")
    if problem:
        return Failed("verify", problem)
    return VerifyResult(batches=change.batches, bytes=change.log_bytes)


def _not_completed(path: str, change: CompleteSwap, interval_bytes: int, mtime_ns: int, tree: Tree) -> str:
    name = log_name(change.base_offset)
    log_status = tree.status(f"{path}/{name}")
    if log_status is None or (log_status.st_size, log_status.st_mtime_ns) != (
        change.log_bytes,
        mtime_ns,
    ):
        return f"{name} is not the file of {change.log_bytes} bytes that was pending"
    for made in change.makes:
        try:
            data = read_whole(f"{path}/{made.name}", made.size + 1, tree)
        except OSError as error:
            return f"{made.name}: could not be read: {why(error)}"
        if (len(data), digest_bytes(data)) != (made.size, made.digest):
            return f"{made.name} is not the file of {made.size} bytes that the plan makes"
    own = {made.name for made in change.makes} | {name}
    remaining = next(
        (file for file in change.goes if file not in own and tree.is_there(f"{path}/{file}")), ""
    )
    if remaining:
        return f"{remaining} is there, although the swap replaces it"
    return _audit(f"{path}/{name}", f"{path}/{offset_name(change.base_offset)}", change, interval_bytes, tree)
