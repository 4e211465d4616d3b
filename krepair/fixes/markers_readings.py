"""New segments, read once more for ``verify``: every batch and index entry, and with the originals each batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from krepair.fixes.markers_staging import finish_item, groups_of
from krepair.fixes.second_readings import Applied, SecondReading, whys_of
from krepair.fixes.staging import Kind
from krepair.formats.filenames import log_name

NEW_SEGMENTS: Final = Kind(
    "new segments", "every batch, every entry of its indexes, and the plan's counts", is_log=True
)
ORIGINALS: Final = Kind("new segments", "its batches against the kept originals")


def groups_again(applied: Applied) -> Iterator[SecondReading]:
    """New segments are held against the plan; with ``work.originals`` also against the kept originals.

    After a purge there are no originals.
    """
    from krepair.pipeline.rewrite.compare import OriginalsItem, compare_originals

    yield from finished_again(applied)
    if applied.work.originals and applied.keep:
        for group in groups_of(applied.staging):
            if log_name(group.base_offset) not in applied.staging.freed:
                item = OriginalsItem(place=applied.place, change=group, keep=applied.keep)
                yield SecondReading(group, ORIGINALS, compare_originals, (item,), whys_of)


def finished_again(applied: Applied) -> Iterator[SecondReading]:
    """Every batch, every index entry and the plan's counts of new segments."""
    from krepair.pipeline.rewrite.finish import finish

    staging = applied.staging
    for group in groups_of(staging):
        item = finish_item(applied.work, staging, group, staging.folder.path, make=False)
        yield SecondReading(group, NEW_SEGMENTS, finish, (item,), whys_of)
