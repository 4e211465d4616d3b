"""``.txnindex`` of compacted logs: entries that mislead consumers are found and mended, those of a cleaner stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.formats import txn_index
from krepair.formats.txn_index import AbortedTxn
from krepair.ops.apply import apply
from tests import naive
from tests.brokers.serving import PASSIVE
from tests.builders import NOW_MS, LogDir, Partition, abort, commit, data
from tests.lab import client
from tests.lab.broker import Broker, Topic
from tests.lab.jars import LATEST
from tests.lab.judge import Judge
from tests.ops.inline import Inline

pytestmark = pytest.mark.broker

COMPACT = {"cleanup.policy": "compact"}
VERBS = Inline(now_ms=NOW_MS, settings=tuple(COMPACT.items()), fixes=("index",))
VISIBLE = [0, *range(21, 30), 31, 32]
ENTRIES = {
    "a cleaner's": (AbortedTxn(0, 7, 10, 30, 12), VISIBLE),
    "begins behind a batch of it": (AbortedTxn(0, 7, 21, 30, 31), sorted([*VISIBLE, 20])),
    "begins before the marker before": (AbortedTxn(0, 7, 0, 30, 31), VISIBLE[1:]),
}
"""The entry of an aborted transaction, and what a consumer gets by it."""
CLEANED = len(ENTRIES)


def write(partition: Partition) -> None:
    """Producer 7 commits and aborts; offsets 2 to 19 were compacted away."""
    partition.segment(
        data(0, 1, pid=7, txn=True),
        commit(1, pid=7),
        data(20, 1, pid=7, txn=True),
        data(21, 9),
        abort(30, pid=7),
        data(31),
    ).segment(data(32))


def write_for_a_cleaner(partition: Partition) -> None:
    """Producer 7 commits a transaction over two segments, and aborts the next one."""
    partition.segment(data(0, 1, pid=7, txn=True), data(1, 2)).segment(
        commit(3, pid=7), data(4, 1, pid=7, txn=True), abort(5, pid=7), data(6)
    ).segment(data(7))


def cleaned(folder: Path, judge: Judge) -> None:
    """Clean as 2.2.1 does, which forgets at the second segment what is open (KAFKA-8351): the commit marker goes."""
    judge.clean(folder, horizon=NOW_MS + 1, settings=COMPACT, now_ms=NOW_MS)
    segments, _ = naive.read_partition(folder)
    left = [batch for segment in segments for batch in naive.parse(segment.log)]
    assert [(one.base_offset, one.kind) for one in left if one.base_offset in (0, 3, 5)] == [
        (0, "data"),
        (5, "abort"),
    ]
    [entry] = txn_index.decode((folder / f"{0:020d}.txnindex").read_bytes())
    assert (entry.first_offset, entry.last_offset) == (4, 5)


def consumed(version: str, log_dir: Path) -> list[list[int]]:
    """Offsets that a read_committed consumer gets of each partition."""
    numbers = range(CLEANED + 1)
    with Broker(version, log_dir, PASSIVE, {"t": Topic(len(numbers), COMPACT)}) as broker:
        found = client.read_partitions(broker.bootstrap, "t", numbers, "read_committed")
        broker.stop()
    return [[record.offset for record in found[number]] for number in numbers]


@pytest.mark.parametrize(
    "version",
    [
        "3.9.2",
        pytest.param("2.2.1", marks=pytest.mark.every_broker),
        pytest.param(LATEST, marks=pytest.mark.every_broker),
    ],
)
def test_an_entry_that_shows_aborted_records_or_hides_committed_ones_is_mended_and_a_cleaner_s_stays(
    version: str, judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    directory = LogDir(tmp_path / "logs")
    for number in range(CLEANED):
        write(directory.partition("t", number))
    write_for_a_cleaner(directory.partition("t", CLEANED))
    log_dir = directory.write()
    for number, (entry, _) in enumerate(ENTRIES.values()):
        (log_dir / f"t-{number}" / f"{0:020d}.txnindex").write_bytes(txn_index.encode([entry]))
    cleaned(log_dir / f"t-{CLEANED}", judge("2.2.1"))

    of_cleaner = [0, 1, 2, 6, 7]
    assert consumed(version, log_dir) == [*(seen for _, seen in ENTRIES.values()), of_cleaner]
    found = [one.partition for one in VERBS.checked(log_dir).findings if one.rule == "KR204"]
    assert found == ["t-1", "t-2"]
    plan = VERBS.planned(log_dir)
    changed = [one.folder for one in plan.partitions if one.changes]
    assert changed == found
    assert apply(plan, VERBS.options()).exit_code == ExitCode.DONE
    assert consumed(version, log_dir) == [*[VISIBLE] * CLEANED, of_cleaner]
