"""Names that end as a broker's own files do but have no offset: no version loads a folder that holds one."""

from __future__ import annotations

from collections.abc import Iterator

from krepair.formats.filenames import SUFFIXES, NameState, parse_file_name
from krepair.logdir.values import Partition


def names_without_an_offset(partition: Partition) -> Iterator[str]:
    """File names on which ``offsetFromFile`` throws while a folder is loaded (seen on 2.2.1, 3.9.2, 4.3.1)."""
    for leftover in partition.leftovers:
        name = parse_file_name(leftover.file.name)
        live = name.kind in SUFFIXES and name.state is NameState.LIVE
        if name.base_offset is None and (live or name.state is NameState.CLEANED):
            yield leftover.file.name
