"""The indexes, attributes, sync and verification of one new segment. A failure is a value.

The new log is read once, for both: the indexes are made of each window, and the proof looks at the same window.
"""

from __future__ import annotations

from msgspec.structs import replace

from krepair.checks.companions import AbortedAudit
from krepair.checks.made_indexes import MadeIndexes
from krepair.checks.walk import Walked
from krepair.derive.index_entries import IndexEntries, index_bytes
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.durable.writing_error import WritingError
from krepair.formats import txn_index
from krepair.formats.arrays import Int64s, Uint8s
from krepair.formats.filenames import INDEX, TIME_INDEX, TXN_INDEX, offset_name, segment_name
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import why
from krepair.pipeline.items import Failed, FinishItem, FinishResult
from krepair.pipeline.place import in_its_place
from krepair.pipeline.progress import shown
from krepair.pipeline.rewrite.verify import (
    abort_pairs,
    aborts_missing,
    attribute_problem,
    new_name,
    not_those_made,
    read_new_log,
    verify_group,
    wrong,
)
from krepair.pipeline.segment_files import read_entries


@shown("verify")
@in_its_place
def finish(item: FinishItem, tree: Tree) -> FinishResult | Failed:
    """Index, attributes, sync and verification of one staged group."""
    try:
        return _finished(item, RealDisk(tree)) if item.make else verify_group(item, tree)
    except WritingError as error:
        return Failed("disk", f"{error.filename}: {why(error)}")
    except OSError as error:
        return Failed("disk", f"{item.change.change_id}: {why(error)}")


def _finished(item: FinishItem, disk: RealDisk) -> FinishResult | Failed:
    """As ``finish``, of a group whose indexes are to be made: none is made of a log that is not right."""
    log = f"{item.stage}/{offset_name(item.change.base_offset)}.log"
    disk.set_attributes(log, item.attributes)
    disk.sync_file(log)
    files, problem = _read_and_made(item, disk.tree)
    if problem:
        return wrong(problem)
    made = _make_companions(item, disk, files)
    problem = not_those_made(replace(item, made=made), disk.tree) or attribute_problem(item, disk.tree)
    if problem:
        return wrong(problem)
    return FinishResult(batches=item.change.batches, bytes=item.change.log_bytes, made=made)


def _read_and_made(item: FinishItem, tree: Tree) -> tuple[dict[str, bytes], str]:
    """The indexes of a new log by suffix, each held against it; and what is wrong with any of them, or empty.

    Raises:
        OSError: a file cannot be read.
    """
    base_offset, interval_bytes = item.change.base_offset, item.index_interval_bytes
    carried = carried_entries(item, tree)
    entries, judge, aborted = (
        IndexEntries(interval_bytes),
        MadeIndexes(base_offset),
        AbortedAudit(abort_pairs(carried)),
    )

    def make(window: Uint8s, places: Int64s, end: int) -> None:
        entries.take_window(window, end, places.astype("int32"))
        judge.tell(*entries.so_far())

    def hold_against(walked: Walked) -> None:
        judge.feed(walked)
        aborted.feed(walked)

    problem = read_new_log(item, tree, hold_against, make)
    if problem:
        return {}, problem
    files = dict(zip((INDEX, TIME_INDEX), index_bytes(base_offset, *entries.entries()), strict=True))
    for suffix, text in judge.problems(files, entries.position, interval_bytes).items():
        return {}, f"{new_name(item)}{suffix}: {text}"
    for suffix, position, text in aborted.finish():
        return {}, f"{new_name(item)}{suffix}, position {position}: {text}"
    return files | ({TXN_INDEX: carried} if carried else {}), aborts_missing(item, len(aborted.aborted))


def _make_companions(item: FinishItem, disk: RealDisk, files: dict[str, bytes]) -> dict[str, str]:
    """Makes the indexes; returns a digest of each by its name, for whoever reads them again."""
    stem = f"{item.stage}/{offset_name(item.change.base_offset)}"
    for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
        # A task that is run again meets what it made before.
        if disk.tree.is_there(stem + suffix):
            disk.unlink(stem + suffix)
        if suffix in files:
            disk.create(stem + suffix, files[suffix], like=item.attributes)
    disk.sync_dir(item.stage)
    return {
        segment_name(item.change.base_offset, suffix): digest_bytes(data) for suffix, data in files.items()
    }


def carried_entries(item: FinishItem, tree: Tree) -> bytes:
    """Entries of the sources' transaction indexes that are carried over, byte for byte."""
    kept: list[bytes] = []
    size = txn_index.ENTRY_SIZE
    for source in item.change.sources:
        if source.aborted_kept:
            entries = read_entries(item.place, source.base_offset, tree)
            kept.extend(entries[number * size : (number + 1) * size] for number in source.aborted_kept)
    return b"".join(kept)
