"""Very many producer ids: how many, of one batch each, how large, and until when (KR506)."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from krepair.fixes import snapshots
from krepair.formats import producer_snapshot
from krepair.formats.words import time_text
from krepair.ops.check import check
from krepair.options import EngineName, Options
from krepair.rules.snapshots import without_open
from tests.builders import NOW_MS, Batch, LogDir, commit, data

DAY = 86_400_000
HOUR = DAY // 24


def told(path: Path, version: str = "") -> list[str]:
    options = Options(engine=EngineName.INLINE, now_ms=NOW_MS, broker_version=version)
    (report,) = check([str(path)], options).log_dirs
    return [one.evidence for one in report.findings if one.rule == "KR506"]


def written(root: Path, *batches: Batch) -> Path:
    log_dir = LogDir(root)
    log_dir.partition("t").segment(*batches)
    log_dir.partition("few").segment(data(0, 1, pid=1))
    return log_dir.write()


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_MANY", 3)


def ids(count: int) -> list[Batch]:
    """A batch of each of so many producers, one each second."""
    return [data(n, 1, pid=n, sequence=0, timestamp=NOW_MS - HOUR + 1000 * n) for n in range(count)]


@pytest.mark.parametrize(
    ("version", "key", "expiry"),
    [("3.9.2", "producer", DAY), ("3.3.2", "transactional", 7 * DAY), ("", "transactional", 7 * DAY)],
)
def test_ids_of_one_batch_are_counted_and_forgotten_by_version(
    version: str, key: str, expiry: int, tmp_path: Path
) -> None:
    path = written(tmp_path, *ids(4), data(4, 2, pid=0, sequence=1, timestamp=NOW_MS - HOUR + 9000))
    (text,) = told(path, version)
    assert text.startswith(
        "4 producer ids, 3 of them of one batch only, 194 bytes; 1 snapshot here of 194 bytes."
    )
    first, last = NOW_MS - HOUR + 1000 + expiry, NOW_MS - HOUR + 9000 + expiry
    assert (
        f"{key}.id.expiration.ms={expiry} after its last batch: from {time_text(first)} to {time_text(last)};"
        in text
    )
    assert text.endswith("; 0 have a transaction open, and stay")


def test_open_transactions_stay_and_ended_ones_go(tmp_path: Path) -> None:
    open_ones = [data(n, 1, pid=n, sequence=0, txn=True, timestamp=NOW_MS) for n in range(3)]
    assert told(written(tmp_path / "a", *open_ones))[0].endswith(
        "after its last batch; 3 have a transaction open, and stay"
    )
    assert told(written(tmp_path / "b", *open_ones, commit(3, pid=0)))[0].endswith(
        "; 2 have a transaction open, and stay"
    )


def test_few_producers_are_not_told(tmp_path: Path) -> None:
    assert told(written(tmp_path, *ids(2))) == []


def test_many_forgotten_transactions_are_ended_in_a_pass() -> None:
    rows = np.zeros((40_000, 8), dtype=np.int64)
    rows[:, 0] = np.arange(len(rows))
    rows[:, -1] = 5
    begun = time.process_time()
    left = producer_snapshot.table(without_open(rows, [(number, 5) for number in range(0, len(rows), 2)]))
    assert time.process_time() - begun < 5
    assert (left[:, -1] == np.where(rows[:, 0] % 2, 5, -1)).all()
