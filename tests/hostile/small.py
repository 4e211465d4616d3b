"""A log directory of three small partitions that a plan changes in every way, and the words that make the plan."""

from __future__ import annotations

from pathlib import Path

from tests import builders
from tests.builders import NOW_MS, data
from tests.hostile.verbs import ALL_FIXES

PARTITIONS = ("m-0", "i-0", "c-0")
"""Markers go from the first, indexes of the second are made anew, the end of the third is cut off."""
WORDS = (
    *(
        "--fix",
        ALL_FIXES,
        "--engine",
        "inline",
        "--delete-horizon",
        "4000000000000",
        "--set",
        "cleanup.policy=compact",
        "--only-replica",
        "*",
    ),
    *("--set", "index.interval.bytes=100"),
)
_DAY_MS = 86_400_000


def write(root: Path) -> Path:
    """Write it; returns the log directory."""
    directory = builders.LogDir(root)
    _emptied_by_markers(directory.partition("m", index_interval_bytes=100))
    for topic in ("i", "c"):
        partition = directory.partition(topic, index_interval_bytes=100)
        partition.segment(*(data(offset, 2, timestamp=NOW_MS) for offset in range(0, 10, 2)))
        partition.segment(*(data(offset, 2, timestamp=NOW_MS) for offset in range(10, 20, 2)))
    path = directory.write(clean_stop=True)
    with (path / "i-0" / f"{0:020d}.index").open("ab") as index:
        index.write(bytes(80))
    (path / "i-0" / f"{0:020d}.timeindex").write_bytes(b"\x7f" * 12)
    with (path / "c-0" / f"{10:020d}.log").open("ab") as log:
        log.write(b"torn")
    (path / "cleaner-offset-checkpoint").write_bytes(b"0\n2\nm 0 1\n")
    return path


def _emptied_by_markers(partition: builders.Partition) -> None:
    for base in (0, 10, 20):
        markers = [
            builders.commit(offset, pid=100 + offset, timestamp=NOW_MS - 90 * _DAY_MS)
            for offset in range(base, base + 9)
        ]
        kept = data(base + 9, 1, timestamp=NOW_MS - 90 * _DAY_MS)
        partition.segment(*markers, kept, mtime_ms=NOW_MS - 90 * _DAY_MS)
    partition.segment(data(30, 2, timestamp=NOW_MS))
