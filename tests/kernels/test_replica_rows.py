"""The hashes of the kernel are those of plain steps, and do not depend on how a batch was packed or cleaned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from krepair.kernels import replica_rows as h
from krepair.pipeline.dump.record import shown_of
from krepair.pipeline.replicas.records import RecordWalk, hashes_of
from krepair.rules.replicas.transactions import TRANSACTION_COLUMNS, Fates, no_rows
from tests.fixture_dirs import unpack

SECRET = np.array([7, 9], np.uint64)


class _Twin(RecordWalk):
    """Hashes each record a second time, in plain steps."""

    seen = 0

    def _record_lines(self, buf, rows, counts, records):
        yield from super()._record_lines(buf, rows, counts, records)
        out, _ = self.hashed(buf, rows, counts, records)
        batches = np.repeat(np.arange(len(rows)), counts[: len(rows)])
        for made, batch, record in zip(out.tolist(), batches, records, strict=False):
            shown = shown_of(rows[batch], record, buf)
            assert tuple(made) == hashes_of(rows[batch], shown, self.secret)
            type(self).seen += 1


@pytest.mark.parametrize("topic", ["c-none-0", "c-lz4-0", "c-lat-0", "c-nullkey-0"])
def test_the_kernel_and_plain_steps_agree_on_real_records(topic: str, tmp_path: Path) -> None:
    folder = unpack("compact-2.2.1-before", tmp_path) / topic
    _Twin.seen = 0
    for log in sorted(folder.glob("*.log"))[:3]:
        data = log.read_bytes()

        def read_into(buffer: memoryview, position: int, data: bytes = data) -> int:
            piece = data[position : position + len(buffer)]
            buffer[: len(piece)] = piece
            return len(piece)

        walk = _Twin(
            read_into,
            len(data),
            int(log.stem),
            Fates(no_rows(TRANSACTION_COLUMNS)),
            SECRET,
            lambda rows, of: None,
        )
        for _ in walk.lines():
            pass
    assert _Twin.seen > 50


def test_any_field_changes_the_digest() -> None:
    numbers = (5, 2, 1001, 0, 7)
    first = h.digest_of(np.uint64(1), np.uint64(2), *map(np.int64, numbers))
    for place in range(len(numbers)):
        other = list(numbers)
        other[place] += 1
        assert h.digest_of(np.uint64(1), np.uint64(2), *map(np.int64, other)) != first
    assert h.digest_of(np.uint64(2), np.uint64(2), *map(np.int64, numbers)) != first
    assert h.digest_of(np.uint64(1), np.uint64(3), *map(np.int64, numbers)) != first
