"""The task that compares the two logs of a partition that lies in two log directories, batch by batch (KR603)."""

from __future__ import annotations

from collections.abc import Iterator

from krepair.checks.side_by_side import SideBySide, batches_of, side_by_side
from krepair.durable.tree import Tree
from krepair.engine.items import Failed, LogsItem
from krepair.engine.place import open_log_dir
from krepair.engine.progress import shown_as
from krepair.formats.filenames import log_name
from krepair.kernels.scan import ReadInto
from krepair.logdir.reading import opened_for_reading, read_into_from, why


@shown_as("compare")
def compare_two_logs(here: LogsItem, there: LogsItem) -> SideBySide | Failed:
    """Read two logs of one partition in windows, every CRC checked, up to the first damage of each."""
    trees = []
    for log in (here, there):
        tree, problem = open_log_dir(log.place)
        if problem:
            return Failed("elsewhere", problem)
        trees.append(tree)
    try:
        return side_by_side(
            *(batches_of(_segments(log, tree)) for log, tree in zip((here, there), trees, strict=True))
        )
    except OSError as error:
        return Failed("unreadable", f"{error.filename}: {why(error)}")


def _segments(log: LogsItem, tree: Tree) -> Iterator[tuple[ReadInto, int]]:
    for base_offset, size in log.segments:
        with opened_for_reading(f"{log.place.path}/{log_name(base_offset)}", tree) as descriptor:
            yield read_into_from(descriptor), size
