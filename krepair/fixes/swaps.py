"""The pending swaps of a partition: what they hold, the indexes made for them, and whether they were completed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Literal, NamedTuple

from krepair.checks.side_by_side import batches_of, side_by_side
from krepair.checks.walk import walk
from krepair.durable.attributes import read_attributes
from krepair.durable.disk import Disk
from krepair.errors import StalePlanError, VerifyFailedError
from krepair.formats import txn_index
from krepair.journal.folder import PartitionFolder
from krepair.kernels.scan import ReadInto
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import is_there, opened_for_reading, read_whole, why
from krepair.logdir.values import FileRef, Leftover, Partition
from krepair.pipeline.regenerate import read_into_from, regenerate_offset_and_time
from krepair.pipeline.tasks import TXN_INDEX_AT_MOST_BYTES
from krepair.pipeline.verify import companion_audit
from krepair.plan.model import CompleteSwap, NewFile, PartitionPlan
from krepair.rules.leftovers import PendingSwap, SwapDecision

SWAP = ".swap"

MadeIndexes = dict[str, bytes]
"""File name -> bytes."""


class Removal(NamedTuple):
    """A file that the next start would delete.

    Attributes:
        kind: what it is.
        file: it.
        why: one line.
    """

    kind: Literal["void swap", "index swap", "deleted", "cleaned", "orphan"]
    file: FileRef
    why: str


class SeenLeftovers(NamedTuple):
    """The leftovers of one partition, looked at.

    Attributes:
        swaps: what becomes of its swaps.
        makes: base offset of a swap -> the indexes made for it.
        removals: files that go, in the order in which they go.
        left: why nothing is done in this partition, or empty.
        damaged: base offsets of live segments that are not valid to their ends.
    """

    swaps: SwapDecision = SwapDecision()
    makes: dict[int, tuple[NewFile, ...]] = {}  # noqa: RUF012
    removals: tuple[Removal, ...] = ()
    left: str = ""
    damaged: frozenset[int] = frozenset()


def log_swaps(partition: Partition) -> list[Leftover]:
    """The ``.log.swap`` files of a partition that a broker would name so, ascending."""
    found = [
        each
        for each in partition.leftovers
        if each.kind == "swap" and each.file.name == f"{max(each.base_offset, 0):020d}.log{SWAP}"
    ]
    return sorted(found, key=lambda each: each.base_offset)


def read_swap(path: str, base_offset: int, size: int, interval_bytes: int) -> tuple[PendingSwap, MadeIndexes]:
    """Read a ``.log.swap`` whole, every CRC checked, and make its indexes.

    Args:
        path: of the partition folder.
        base_offset: of the swap.
        size: bytes of its ``.log.swap``.
        interval_bytes: the topic's ``index.interval.bytes``.

    Returns:
        What it holds, and the indexes that a recovery would make, with the ``.txnindex`` that belongs to the swap.
        What cannot be read is a problem of the swap.
    """
    base = base_offset
    pending = PendingSwap(base_offset=base, end_offset=base, log_bytes=size, batches=0)
    try:
        made = regenerate_offset_and_time(f"{path}/{base:020d}.log{SWAP}", size, base, interval_bytes)
    except OSError as error:
        return pending._replace(problem=f"it could not be read: {why(error)}"), {}
    pending = pending._replace(end_offset=made.last_offset + 1, batches=made.batches)
    if made.damage_text:
        text = f"position {made.valid_bytes} of {size}: {made.damage_text}"
        return pending._replace(problem=text), {}
    files = {f"{base:020d}.index": made.index, f"{base:020d}.timeindex": made.time_index}
    entries, problem = _aborted(f"{path}/{base:020d}.txnindex{SWAP}", base)
    if entries:
        files[f"{base:020d}.txnindex"] = entries
    return pending._replace(problem=problem), files


def missing_batches(partition: Partition, base_offset: int) -> int:
    """Batches of a ``.log.swap`` that no segment of the partition has, by their last offsets.

    Cleaning may rewrite a batch, but it keeps its offsets.

    Raises:
        OSError: a file could not be read.
    """
    name = f"{base_offset:020d}.log{SWAP}"
    with ExitStack() as opened:
        pending = opened.enter_context(opened_for_reading(f"{partition.path}/{name}"))

        def logs() -> Iterator[tuple[ReadInto, int]]:
            for segment in partition.segments:
                with opened_for_reading(segment.log.path) as descriptor:
                    yield read_into_from(descriptor), segment.log.size

        swap = batches_of([(read_into_from(pending), os.fstat(pending).st_size)])
        seen = side_by_side(swap, batches_of(logs()))
    return seen.only_first + seen.after_second


def _aborted(path: str, base_offset: int) -> tuple[bytes, str]:
    try:
        entries = read_whole(path, TXN_INDEX_AT_MOST_BYTES)
    except FileNotFoundError:
        return b"", ""
    except OSError as error:
        return b"", f"its .txnindex{SWAP} could not be read: {why(error)}"
    damage = txn_index.damage(entries, base_offset)
    if damage:
        text = f"expected {damage[0].expected}, found {damage[0].found}"
        return b"", f"its .txnindex{SWAP}, position {damage[0].position}: {text}"
    return entries, ""


def new_files(made: MadeIndexes) -> tuple[NewFile, ...]:
    """The indexes as a plan names them."""
    return tuple(
        NewFile(name=name, size=len(data), digest=digest_bytes(data)) for name, data in sorted(made.items())
    )


def stage_swap(disk: Disk, folder: PartitionFolder, change: CompleteSwap, interval_bytes: int) -> None:
    """Make the indexes of a swap anew and stage them.

    Raises:
        StalePlanError: they are not those of the plan.
        VerifyFailedError: an independent reading has something against them.
        OSError: a file could not be read or written.
    """
    name = f"{change.base_offset:020d}.log{SWAP}"
    path = folder.at(name)
    found = folder.state(name)
    if found is None:
        raise StalePlanError(f"{path}: is gone since the plan was made")
    pending, made = read_swap(folder.path, change.base_offset, found.size, interval_bytes)
    if pending.problem or new_files(made) != change.makes or pending.batches != change.batches:
        raise StalePlanError(
            f"{path}: the indexes made anew are not the plan's {pending.problem}".rstrip(),
            next_command=f"krepair plan {folder.log_dir} --fix leftovers --out PLAN",
        )
    like = read_attributes(path, disk.tree)
    for file, data in made.items():
        staged = folder.at(folder.names.stage(file))
        if disk.tree.is_there(staged):
            disk.unlink(staged)
        disk.create(staged, data, like=like)
    disk.sync_dir(folder.at(folder.names.stage()))
    wrong = _audited(path, folder.at(folder.names.stage(f"{change.base_offset:020d}")), change)
    if wrong:
        raise VerifyFailedError(f"{path}: {wrong}; nothing was changed")


def _audited(log: str, stem: str, change: CompleteSwap) -> str:
    """What a second, independent reading has against a log and its indexes, or empty.

    Args:
        log: path of the log.
        stem: path of its indexes without their suffixes.
        change: of the swap.

    Raises:
        OSError: a file could not be read.
    """
    audit, batches = companion_audit(stem, change.base_offset), 0
    with opened_for_reading(log) as descriptor:
        size = os.fstat(descriptor).st_size
        for walked in walk(read_into_from(descriptor), size):
            if walked.problem:
                return f"position {walked.position}: {walked.problem}"
            batches += len(walked.positions)
            audit.feed(walked)
    if batches != change.batches:
        return f"{change.batches} batches were expected, found {batches}"
    return next((f"{suffix}, position {position}: {text}" for suffix, position, text in audit.finish()), "")


def not_completed(folder: PartitionFolder, plan: PartitionPlan, change: CompleteSwap) -> str:
    """What is wrong with a swap that was completed, or empty; its log and indexes are read whole, independently.

    Raises:
        OSError: a file could not be read.
    """
    name = f"{change.base_offset:020d}.log"
    pending = next(file for file in plan.files if file.name == name + SWAP)
    log = folder.state(name)
    if log is None or (log.size, log.mtime_ns) != (pending.size, pending.mtime_ns):
        return f"{name} is not the file of {pending.size} bytes that was pending"
    for made in change.makes:
        try:
            data = read_whole(folder.at(made.name), made.size + 1)
        except OSError as error:
            return f"{made.name}: could not be read: {why(error)}"
        if (len(data), digest_bytes(data)) != (made.size, made.digest):
            return f"{made.name} is not the file of {made.size} bytes that the plan makes"
    own = {made.name for made in change.makes} | {name}
    left = next((one for one in change.goes if one not in own and is_there(folder.at(one))), "")
    if left:
        return f"{left} is there, although the swap replaces it"
    return _audited(folder.at(name), folder.at(f"{change.base_offset:020d}"), change)
