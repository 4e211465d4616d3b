"""Producer snapshots, made and checked."""

from __future__ import annotations

from pathlib import Path

from krepair.formats import producer_snapshot
from krepair.formats.producer_snapshot import ProducerEntry, ProducerSnapshot
from tests.builders import NOW_MS, LogDir, abort, commit, data
from tests.ops.inline import Inline

VERBS = Inline(now_ms=NOW_MS + 60_000, fixes=("snapshots",))
options, checked = VERBS.options, VERBS.checked


def entries(path: Path) -> set[ProducerEntry]:
    """What a snapshot holds."""
    decoded = producer_snapshot.decode(path.read_bytes())
    assert isinstance(decoded, ProducerSnapshot)
    return set(decoded.entries)


def made(tmp_path: Path, *, clean: bool = True) -> Path:
    """Three segments; an epoch that rises, an aborted transaction, an open one, one known by its marker alone."""
    directory = LogDir(tmp_path / "logs")
    directory.partition("t").segment(
        data(0, 3, pid=7, epoch=1, sequence=5, txn=True),
        commit(3, pid=7, epoch=1, coordinator_epoch=4),
        data(4, 2, pid=8),
    ).segment(
        data(6, 2, pid=9, epoch=2, txn=True),
        abort(8, pid=9, epoch=3, coordinator_epoch=6, timestamp=NOW_MS + 9),
        data(9, 1, pid=7, epoch=1, sequence=8, txn=True),
    ).segment(
        abort(10, pid=7, epoch=2, coordinator_epoch=5),
        data(11),
        data(12, 1, pid=7, epoch=2, txn=True),
        data(13, 2, pid=10, sequence=3),
    )
    return directory.write(clean_stop=clean)
