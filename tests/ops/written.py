"""Files that tests write and fill up."""

from __future__ import annotations

from pathlib import Path

from tests import builders
from tests.builders import LogDir, data


def padded(root: Path, segments: int) -> Path:
    """A partition with so many segments, each with a padded time index."""
    folder = root / "t-0"
    folder.mkdir(parents=True)
    (root / "meta.properties").write_text("version=0\nbroker.id=0\n")
    (root / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {segments * 10}\n")
    for number in range(segments):
        stem = folder / f"{number * 10:020d}"
        stem.with_suffix(".log").write_bytes(builders.data(number * 10, 10).raw)
        stem.with_suffix(".index").write_bytes(b"")
        stem.with_suffix(".timeindex").write_bytes(bytes(12 * 64))
    return root


def write(root: Path, partitions: int, *, clean: bool) -> Path:
    """A log directory of partitions with three small segments, nine files; unclean: above their recovery points."""
    made = LogDir(root)
    for number in range(partitions):
        partition = made.partition("t", number)
        for base in range(0, 36, 12):
            partition.segment(*(data(offset, 3) for offset in range(base, base + 12, 3)))
    made.write(clean_stop=clean)
    if not clean:
        (root / "recovery-point-offset-checkpoint").write_text("0\n0\n")
        for snapshot in root.glob("*/*.snapshot"):
            snapshot.unlink()
    return root
