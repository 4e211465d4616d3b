"""The proof's look for aborted transactions of more producers than its table has room for at first."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from krepair.pipeline.compaction.check import find_abort_ranges
from krepair.pipeline.compaction.check_items import AbortsItem
from tests.builders import LogDir, abort, data
from tests.compaction.compacting import place_of

MANY = 3000


def test_each_producers_aborted_transaction_is_found(tmp_path: Path) -> None:
    made = LogDir(tmp_path / "logs")
    ends = range(2 * MANY, 3 * MANY)
    made.partition("t").segment(
        *(data(2 * pid, 2, pid=pid, txn=True) for pid in range(MANY)),
        *(abort(offset, pid=pid) for pid, offset in enumerate(ends)),
    )
    log = made.write() / "t-0" / f"{0:020d}.log"
    found = find_abort_ranges(AbortsItem(place=place_of(log.parent), logs=((str(log), log.stat().st_size),)))
    assert isinstance(found, bytes)
    rows = np.frombuffer(found, np.int64).reshape(-1, 3).tolist()
    assert rows == [[pid, -1, offset] for pid, offset in enumerate(ends)]
