"""Partitions of which only the bytes of their groups matter."""

from __future__ import annotations

from msgspec.structs import replace

from krepair.plan.model import PartitionPlan
from tests.plan.plans import partition

MIB = 1 << 20


def part(number: int, groups: int, old: int, new: int) -> PartitionPlan:
    """A partition whose groups each have so many bytes before and after; its files are those of the groups alone."""
    folder, one = f"__consumer_offsets-{number}", partition()
    (change,) = one.changes
    files, changes = [], []
    for group in range(groups):
        base = group * 1000
        files.append(replace(one.files[1], name=f"{base:020d}.log", size=old, disk=old))
        source = replace(change.sources[0], base_offset=base)
        changes.append(
            replace(
                change,
                change_id=f"{folder}/{base:020d}",
                base_offset=base,
                sources=(source,),
                log_bytes=new,
                index_bytes_at_most=0,
                removes_snapshots=(),
            )
        )
    return replace(one, partition=number, folder=folder, files=tuple(files), changes=tuple(changes))
