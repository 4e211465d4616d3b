"""Effect of emptied batches on followers: an emptied marker ends nothing, emptied data opens a transaction."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from krepair.formats import txn_index
from krepair.formats.txn_index import AbortedTxn
from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.builders import Batch, Partition, Record, abort, commit, data, emptied
from tests.lab.broker import Topic
from tests.lab.jars import LATEST
from tests.lab.three import Three

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.every_broker,  # it is what the model of a cluster rests on
]

OLD, NEW = b"old", b"new"
FOLLOWED = "an-abort-and-then-a-transaction-of-another-producer"


def values(offset: int, value: bytes, **more: object) -> Batch:
    return data(offset, [Record(b"k", value), Record(b"other", value)], **more)  # type: ignore[arg-type]


IN_TRANSACTION = {"pid": 7, "txn": True}


@dataclass(frozen=True)
class Case:
    """A log of a leader, and what it and every follower that fetched it then serve.

    Attributes:
        name: of its topic.
        batches: the log.
        stable: last stable offset; None: the end.
        value: last committed value of ``k``; None: none.
    """

    name: str
    batches: tuple[Batch, ...]
    stable: int | None
    value: bytes | None


CASES = (
    Case(
        "an-emptied-marker-leaves-the-transaction-open",
        (values(0, OLD, **IN_TRANSACTION), emptied(2, pid=7, control=True), values(3, NEW)),
        0,
        None,
    ),
    Case(
        "emptied-data-before-its-marker-is-harmless",
        (emptied(0, 1, pid=7), commit(2, pid=7), values(3, NEW)),
        None,
        NEW,
    ),
    Case(
        "emptied-data-without-its-marker-opens-a-transaction",
        (emptied(0, 1, pid=7), values(3, NEW)),
        0,
        None,
    ),
    Case(
        "emptied-data-before-an-emptied-marker-opens-a-transaction",
        (emptied(0, 1, pid=7), emptied(2, pid=7, control=True), values(3, NEW)),
        0,
        None,
    ),
    Case("an-emptied-marker-alone-is-harmless", (emptied(0, pid=7, control=True), values(3, NEW)), None, NEW),
    Case("a-marker-alone-is-harmless", (abort(0, pid=7), values(3, NEW)), None, NEW),
    Case(
        "the-next-marker-of-the-producer-ends-emptied-data",
        (emptied(0, 1, pid=7), values(3, NEW, sequence=2, **IN_TRANSACTION), commit(5, pid=7)),
        None,
        NEW,
    ),
    Case(
        "data-whose-commit-was-emptied-are-aborted-by-the-next-marker",
        (
            values(0, OLD, **IN_TRANSACTION),
            emptied(2, pid=7, control=True),
            data(3, [Record(b"else", NEW)], pid=7, txn=True, sequence=2),
            abort(4, pid=7),
        ),
        None,
        None,
    ),
    Case(
        "data-whose-abort-was-emptied-are-committed-by-the-next-marker",
        (
            values(0, OLD, **IN_TRANSACTION),
            emptied(2, pid=7, control=True),
            data(3, [Record(b"else", NEW)], pid=7, txn=True, sequence=2),
            commit(4, pid=7),
        ),
        None,
        OLD,
    ),
    Case(
        FOLLOWED,
        (
            values(0, OLD, **IN_TRANSACTION),
            abort(2, pid=7),
            values(3, OLD),
            values(5, NEW, pid=8, txn=True),
            commit(7, pid=8),
        ),
        None,
        NEW,
    ),
)


def make_leaders_log(log_dir: Path, case: Case) -> None:
    """Put the case in the place of a replica's empty log; its topic id stays."""
    folder = log_dir / f"{case.name}-0"
    metadata = folder / "partition.metadata"
    kept = metadata.read_bytes() if metadata.exists() else None
    shutil.rmtree(folder)
    Partition(folder, case.name, 0).segment(*case.batches).write()
    if kept is not None:
        metadata.write_bytes(kept)


@pytest.mark.parametrize("version", ["2.2.1", "2.8.2", "3.9.2", LATEST])
def test_followers_make_of_emptied_batches_what_their_leader_makes_of_them(
    version: str, tmp_path: Path
) -> None:
    with Three(version, tmp_path, {"log.cleaner.enable": "false"}) as cluster:
        names = [case.name for case in CASES]
        cluster.create({name: Topic(1, {"retention.ms": "-1"}) for name in names})
        cluster.stop_all()
        for case in CASES:
            make_leaders_log(cluster.log_dir(1), case)
        cluster.start_metadata()
        cluster.start(1)
        cluster.start(2, 3)
        cluster.wait_in_sync(*names, of=(1, 2, 3))
        for leader in (1, 3):
            if leader != 1:
                cluster.lead(leader, names)
            for case in CASES:
                served = cluster.serves(case.name)
                end = case.batches[-1].last_offset + 1
                stable = end if case.stable is None else case.stable
                seen = (served.end, served.stable, served.table.get(b"k"))
                assert seen == (end, stable, case.value), (leader, case.name)
        cluster.stop_all()
        # A follower enters a whole fetch before it looks for what is open: that is right, too.
        for number, stable in ((1, 3), (2, 5), (3, 5)):
            log_dir = cluster.log_dir(number)
            index = log_dir / f"{FOLLOWED}-0" / f"{0:020d}.txnindex"
            assert txn_index.decode(index.read_bytes()) == (AbortedTxn(0, 7, 0, 2, stable),)
            found = check([str(log_dir)], Options(engine=EngineName.INLINE, topics=(FOLLOWED,))).log_dirs[0]
            assert not [one for one in found.findings if one.rule == "KR204"]
