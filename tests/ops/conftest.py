"""Folders for tests that need no disk below them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def memory_dir(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: apply syncs after every step, which proves nothing here."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="krepair-", dir=memory) as folder:
        yield Path(folder)
