"""A log directory, items of it, and how a worker sees it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from krepair.formats.java_numbers import INT64_MAX
from krepair.pipeline.items import Place, ScanItem
from krepair.pipeline.sight import Sight, sights_of


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Two partitions with a file each."""
    root = tmp_path / "log"
    for folder in ("t-0", "t-1"):
        (root / folder).mkdir(parents=True)
        (root / folder / f"{0:020d}.log").write_bytes(os.urandom(9000))
    (root / "meta.properties").write_text("version=0\nbroker.id=1\n")
    return root


def items(root: Path) -> list[ScanItem]:
    return [
        ScanItem(
            place=Place(
                host="driver", log_dir=str(root), log_dir_inode=root.stat().st_ino, folder=f"t-{number}"
            ),
            base_offset=0,
            size=9000,
            now_ms=0,
            high_watermark=INT64_MAX,
        )
        for number in (0, 1)
    ]


def sight(root: Path) -> Sight:
    (found,) = sights_of(items(root), random.Random(1))
    return found
