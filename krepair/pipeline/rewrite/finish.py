"""Task: the indexes, attributes, sync and verification of one new segment. A failure is a value."""

from __future__ import annotations

from msgspec.structs import replace

from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.durable.writing_error import WritingError
from krepair.formats import txn_index
from krepair.formats.filenames import offset_name, segment_name
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import why
from krepair.pipeline.indexes.regenerate import regenerate_offset_and_time
from krepair.pipeline.items import FinishItem, FinishResult
from krepair.pipeline.place import reached
from krepair.pipeline.rewrite.verify import verify_group
from krepair.pipeline.segment_files import read_entries


def finish(item: FinishItem) -> FinishResult:
    """Index, attributes, sync and verification of one staged group."""
    tree, wrong = reached(item.place)
    if wrong:
        return FinishResult(failure="elsewhere", why=wrong)
    try:
        if not item.make:
            return verify_group(item, tree)
        made = _make_companions(item, RealDisk(tree))
        return replace(verify_group(replace(item, made=made), tree), made=made)
    except WritingError as error:
        return FinishResult(failure="disk", why=f"{error.filename}: {why(error)}")
    except OSError as error:
        return FinishResult(failure="disk", why=f"{item.change.change_id}: {why(error)}")


def _make_companions(item: FinishItem, disk: RealDisk) -> dict[str, str]:
    """Makes the indexes; returns a digest of each by its name, for whoever reads them again."""
    stem = f"{item.stage}/{offset_name(item.change.base_offset)}"
    change = item.change
    made = regenerate_offset_and_time(
        f"{stem}.log",
        change.log_bytes,
        change.base_offset,
        item.index_interval_bytes,
        check_crc=False,
        tree=disk.tree,
    )
    files = {".index": made.index, ".timeindex": made.time_index}
    carried = carried_entries(item, disk.tree)
    if carried:
        files[".txnindex"] = carried
    for suffix in (".index", ".timeindex", ".txnindex"):
        # A task that is run again meets what it made before.
        if disk.tree.is_there(stem + suffix):
            disk.unlink(stem + suffix)
        if suffix in files:
            disk.create(stem + suffix, files[suffix], like=item.attributes)
    disk.set_attributes(f"{stem}.log", item.attributes)
    disk.sync_file(f"{stem}.log")
    disk.sync_dir(item.stage)
    return {segment_name(change.base_offset, suffix): digest_bytes(data) for suffix, data in files.items()}


def carried_entries(item: FinishItem, tree: Tree) -> bytes:
    """Entries of the sources' transaction indexes that are carried over, byte for byte."""
    kept: list[bytes] = []
    size = txn_index.ENTRY_SIZE
    for source in item.change.sources:
        if source.aborted_kept:
            entries = read_entries(item.place, source.base_offset, tree)
            kept.extend(entries[number * size : (number + 1) * size] for number in source.aborted_kept)
    return b"".join(kept)
