"""A copy of a preallocated index takes no more disk space than the index."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.durable import real_disk
from krepair.durable.real_disk import RealDisk

SIZE = 10 << 20


@pytest.mark.parametrize("by_chunks", [False, True])
@pytest.mark.parametrize("at", [(), (0,), (4 << 20,), (0, 5 << 20, SIZE - 100)])
def test_holes_stay_holes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: tuple[int, ...], by_chunks: bool
) -> None:
    if by_chunks:
        monkeypatch.setattr(real_disk, "_copy_by_range", lambda reader, writer: False)
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.truncate(SIZE)
        for position in at:
            file.seek(position)
            file.write(b"entry" * 20)
    RealDisk().copy(str(source), str(target))
    assert target.read_bytes() == source.read_bytes()
    os.sync()
    assert target.stat().st_blocks <= source.stat().st_blocks + 16
