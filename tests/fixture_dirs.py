"""Unpacks the real log directories of ``fixtures/``."""

from __future__ import annotations

import tarfile
from pathlib import Path

import zstandard

FIXTURES = Path(__file__).parent.parent / "fixtures"
# The archives were packed with a long window: the segments of one log directory repeat each other.
WINDOW_BYTES = 1 << 27


def unpack(name: str, tmp_path: Path) -> Path:
    """Unpack ``fixtures/<name>.tar.zst`` into a folder of its name, mtimes kept; returns the log directory."""
    return unpack_into(name, tmp_path / name)


def unpack_into(name: str, target: Path) -> Path:
    """The same into this folder."""
    target.mkdir(parents=True, exist_ok=True)
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES)
    with (
        open(FIXTURES / f"{name}.tar.zst", "rb") as packed,
        decompressor.stream_reader(packed) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        if hasattr(tarfile, "data_filter"):  # Debian 12's Python 3.11.2 has none yet
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(target)
    return target / "logs"


def readable_by_4(log_dir: Path) -> Path:
    """Give the directory of a broker of 2.2 the ``cluster.id`` that brokers since 2.4 write, without which 4.0 ends."""
    with (log_dir / "meta.properties").open("a") as file:
        file.write("cluster.id=krepair-test-cluster00\n")
    return log_dir
