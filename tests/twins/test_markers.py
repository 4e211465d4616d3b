"""Markers that are read all at once: whatever byte of one differs, it is read as one that is read by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from krepair.durable.tree import without_links
from krepair.formats import batch_v2
from tests import builders
from tests.twins.logs import LogPath, _marker_type, parts_of

RECORD_BYTES = 17


@pytest.mark.parametrize("place", range(RECORD_BYTES))
def test_marker_with_another_byte_is_read_as_by_itself(tmp_path: Path, place: int) -> None:
    whole = builders.marker(0, 1, pid=7, coordinator_epoch=5).raw
    assert len(whole) == batch_v2.HEADER_SIZE + RECORD_BYTES
    raws = []
    for offset, flip in enumerate((0, 1, 2, 0x80, 0)):
        raw = bytearray(builders.marker(offset, offset % 2, pid=7, coordinator_epoch=5).raw)
        raw[batch_v2.HEADER_SIZE + place] ^= flip
        raws.append(bytes(raw))
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(raws))
    log = LogPath(0, str(path), path.stat().st_size)
    found: list[int] = []
    for part in parts_of([log], without_links(), check_crc=False):
        found += part.marker_types(np.arange(len(part.firsts))).tolist()
    # its readers take the end of a transaction from it, and nothing from any other type
    assert [kind if kind in (0, 1) else -1 for kind in found] == [_marker_type(raw) for raw in raws]
    assert (found[0], found[-1]) == (0, 0)
