"""KR804: where a broker since 4.0 may empty healthy segments while it recovers them.

Since 4.0 ``LogLoader.recoverLog`` takes an I/O error for a corrupt segment: it cuts the log of that segment to nothing
and removes all later ones. Seen with the loader classes of 4.3.1: in a folder that its user cannot write, and on a full
disk. A log, an index or a snapshot that it cannot write was seen to end the start and to cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from krepair.checks.catalogue import Finding
from krepair.formats.broker_version import Version
from krepair.formats.filenames import log_name
from krepair.formats.words import count_text
from krepair.logdir.values import LogDir
from krepair.start.line import ForecastLine
from krepair.start.ownership import Node, lacks, said_of, usual_owner
from krepair.start.start_space import StartSpace

EMPTIES_SINCE: Final = (4, 0, 0)


def emptied_findings(
    view: LogDir,
    lines: Sequence[ForecastLine],
    space: StartSpace,
    nodes: Iterable[Node],
    version: Version,
) -> Iterator[Finding]:
    """One for the log directory if its disk is too full, one for each recovered partition with such a folder.

    Args:
        view: the log directory.
        lines: the forecast.
        space: what the next start takes.
        nodes: as ``ownership.nodes_of`` gives them.
        version: of the broker that is to start, None if it may be any.
    """
    recovered = {line.partition: line for line in lines if line.segments and line.bytes_read}
    if view.clean_shutdown or not recovered or (version is not None and version < EMPTIES_SINCE):
        return
    total = sum(line.bytes_read for line in recovered.values())
    if 0 <= space.free_bytes < space.needs_bytes:
        yield Finding(
            rule="KR804",
            evidence=(
                f"the next start recovers {total} bytes of {count_text(len(recovered), 'partition')} and may write "
                f"{space.needs_bytes} bytes, {space.free_bytes} are free; {_MAY}; free the space before any start"
            ),
            bytes=total,
        )
    yield from _folders(view, recovered, nodes)


_MAY: Final = (
    "if the disk becomes full, a broker since 4.0 may empty the healthy segment that it is recovering and delete all "
    "later ones (a broker before 4.0 only stops)"
)


def _folders(view: LogDir, recovered: Mapping[str, ForecastLine], nodes: Iterable[Node]) -> Iterator[Finding]:
    known = list(nodes)
    usual = usual_owner(known)
    for node in known:
        line = recovered.get(node.partition)
        missing = lacks(node, *usual)
        if line is None or not node.is_folder or not missing:
            continue
        yield Finding(
            rule="KR804",
            partition=node.partition,
            evidence=(
                f"the next start recovers {line.bytes_read} bytes here, from {log_name(line.segments[0])} on, in a "
                f"folder that its user cannot write: {said_of(view, node, usual, missing)}; a broker since 4.0 then "
                "may empty the first of these segments and delete all later ones (a broker before 4.0 only stops)"
            ),
            bytes=line.bytes_read,
        )
