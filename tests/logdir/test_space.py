"""Free space of real file systems, as root and as everybody else may take it."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.logdir.space import read_space, reserved_for_root
from tests.ops.full_disks import file_system, fill_up
from tests.ops.test_full_disks import MIB


@pytest.mark.parametrize("percent", [0, 5])
def test_what_ext4_keeps_for_itself_is_not_told_to_be_roots(tmp_path: Path, percent: int) -> None:
    """A disk without a reserve for root shows free blocks that no write gets."""
    with file_system("ext4", tmp_path, 64 * MIB, percent) as mount:
        before = reserved_for_root(str(mount))
        assert before == pytest.approx(64 * MIB * percent / 100, abs=MIB)
        fill_up(mount)
        assert read_space(str(mount)).free_bytes == 0
        assert reserved_for_root(str(mount)) <= 64 << 10
        assert read_space(str(mount), use_reserved=True).free_bytes <= 64 << 10
