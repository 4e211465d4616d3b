"""Logs with a snapshot that keeps a transaction open: those in which the log has forgotten it, and those in which not.

Producer ``FORGOTTEN`` began a transaction at the end of the first segment, ``OPEN`` has one that is really open, and
``CLOSED`` one that has ended. The snapshot at the base offset of the second segment knows all three.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from krepair.formats import producer_snapshot
from krepair.formats.producer_snapshot import ProducerEntry, ProducerSnapshot
from tests import encoders
from tests.builders import CONTROL, NOW_MS, TRANSACTIONAL, Batch, LogDir, Record, abort, commit, data, encode

FORGOTTEN, OPEN, CLOSED, OTHER = 7, 9, 8, 6
SNAPSHOT, END = 10, 20
_ENTRIES = (
    ProducerEntry(CLOSED, 0, 1, 1, 1, NOW_MS, 0, -1),
    ProducerEntry(FORGOTTEN, 0, 1, 8, 1, NOW_MS, -1, 7),
)


@dataclass(frozen=True)
class Case:
    """One log.

    Attributes:
        name: what is special about it.
        told: whether the log has forgotten the transaction and the next start takes it for open.
        first: batches at the end of the first segment, from offset 7 on.
        later: batches in the second segment, offsets 11 to 13.
        active: batches in the active one, offsets 17 to 19.
        entries: of the snapshot.
        snapshot: its offset.
        good: offsets of other snapshots, with the true state.
        clean: whether the broker was stopped cleanly.
        point: recovery point.
        log_start: of the partition, None for no line.
        ended: producers whose transactions are ended.
        waits: the last stable offset after a start.
        after: the same once the transaction is ended in the snapshot.
        refuses: whether 2.2.1 does not start.
        cleaned: line in ``cleaner-offset-checkpoint``: below it a cleaner leaves offsets without a batch.
    """

    name: str
    told: bool
    first: tuple[Batch, ...] = ()
    later: tuple[Batch, ...] = ()
    active: tuple[Batch, ...] = ()
    entries: tuple[ProducerEntry, ...] = _ENTRIES
    snapshot: int = SNAPSHOT
    good: tuple[int, ...] = (16,)
    clean: bool = False
    point: int = SNAPSHOT
    log_start: int | None = None
    ended: frozenset[int] = frozenset({FORGOTTEN})
    waits: int = END
    after: int = END
    refuses: bool = False
    cleaned: int = 16

    def __str__(self) -> str:
        return self.name

    @property
    def offsets(self) -> list[int]:
        """The first offsets of the batches from offset 6 on."""
        there = (*self.first, *self.later, *(one for one in self.active if one is not _TORN))
        return sorted({6, 10, 14, 16, 19, *(one.base_offset for one in there)})


def _emptied(offset: int, *, control: bool) -> Batch:
    attributes = TRANSACTIONAL | (CONTROL if control else 0)
    raw = encode(offset, [], last_offset=offset, attributes=attributes, producer_id=FORGOTTEN, epoch=0)
    return Batch(raw, offset, offset, attributes, FORGOTTEN, 0, -1, NOW_MS, 0)


_MIXED = (
    ProducerEntry(CLOSED, 0, 1, 1, 1, NOW_MS, 0, -1),
    ProducerEntry(FORGOTTEN, 0, 1, 8, 1, NOW_MS, -1, 7),
    ProducerEntry(OPEN, 0, 0, 6, 0, NOW_MS, -1, 6),
)
_TWO = (*_ENTRIES, ProducerEntry(OTHER, 3, 5, 8, 0, NOW_MS, 2, 8))
_TORN = Batch(b"\0" * 30, 20, 20, 0, -1, -1, -1, NOW_MS, 0)

CASES = (
    Case("alone", True, refuses=True, waits=7),
    Case("beside one that is open", True, entries=_MIXED, waits=6, after=6),
    Case("two", True, entries=_TWO, ended=frozenset({7, 6}), refuses=True, waits=7),
    Case("others behind it in its segment", True, first=(data(8),), waits=7),
    Case("point in the active segment", True, snapshot=16, good=(10,), point=16, waits=7, refuses=True),
    Case("point past the log end", True, snapshot=16, good=(10,), point=99, waits=7, refuses=True),
    Case("no recovery point, so all is read", False, point=0),
    Case("a later snapshot is read", False, point=16),
    Case("clean, a good snapshot at the end", False, clean=True, good=(16, END)),
    Case("clean, carried to the end", True, clean=True, snapshot=END, waits=7, refuses=True),
    Case("clean, the newest is older", True, clean=True, good=(), waits=7, refuses=True),
    Case("its data is there", False, first=(data(7, 2, pid=FORGOTTEN, txn=True),), waits=7),
    Case("an emptied batch is there", False, first=(_emptied(8, control=False),), waits=7),
    Case("its end is there", False, later=(commit(12, pid=FORGOTTEN),)),
    Case("an end of a later epoch is there", False, active=(abort(18, pid=FORGOTTEN, epoch=4),)),
    Case("an emptied end is there", True, later=(_emptied(12, control=True),), waits=7, refuses=True),
    Case("it goes on later", False, active=(data(18, pid=FORGOTTEN, txn=True),), waits=7, refuses=True),
    Case("the log begins behind it", False, log_start=8, waits=8, refuses=True),
    Case("the log begins with it", True, log_start=7, waits=7, refuses=True),
    Case("batches before it are there", True, first=(commit(5, pid=FORGOTTEN),), waits=7, refuses=True),
    Case("no cleaner came so far: a segment is missing", False, cleaned=0, waits=7, refuses=True),
    Case("a torn tail", True, active=(_TORN,), waits=7, refuses=True),
)


def made(root: Path, case: Case) -> Path:
    """The log directory of a case."""
    early = [one for one in case.first if one.base_offset < 6]
    late = [one for one in case.first if one.base_offset > 6]
    is_open = any(one.producer_id == OPEN for one in case.entries)
    opened = data(6, 1, pid=OPEN, txn=True) if is_open else data(6)
    directory = LogDir(root)
    partition = directory.partition("t").segment(
        data(0, 2, pid=CLOSED, txn=True), commit(2, pid=CLOSED), data(3), *early, opened, *late
    )
    partition.segment(data(10), *case.later, data(14)).segment(
        data(16), *(one for one in case.active if one is not _TORN), data(19)
    )
    directory.write(
        clean_stop=case.clean, log_starts=None if case.log_start is None else {"t-0": case.log_start}
    )
    folder = root / "t-0"
    for path in folder.glob("*.snapshot"):
        if int(path.name[:20]) not in case.good:
            path.unlink()
    (folder / f"{case.snapshot:020d}.snapshot").write_bytes(encoders.encode_snapshot(case.entries))
    if _TORN in case.active:
        with (folder / f"{16:020d}.log").open("ab") as log:
            log.write(_TORN.raw)
    (root / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {case.point}\n")
    (root / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {case.cleaned}\n")
    return root


def history(chance: random.Random, root: Path) -> tuple[LogDir, set[int]]:
    """A log whose producers begin and end transactions over several segments; and those that are open at its end.

    What is written last has every key, so that a cleaner may remove all before it.
    """
    directory, opened, written = LogDir(root), dict[int, bool](), dict[int, int]()
    partition, offset, following = directory.partition("t"), chance.choice([0, 50]), 1000
    segments = chance.randint(3, 6)
    for number in range(segments):
        batches: list[Batch] = []
        for _ in range(chance.randint(2, 8)):
            what = chance.random()
            if what < 0.3 and len(opened) < 5:
                new = following if chance.random() < 0.8 or not written else chance.choice(list(written))
                following += new == following
                opened.setdefault(new, False)
            pid = chance.choice(list(opened)) if opened else -1
            if what < 0.65 and opened:
                records = [_record(chance.randint(0, 3)) for _ in range(chance.randint(1, 2))]
                sequence = written.get(pid, 0)
                batches.append(data(offset, records, pid=pid, epoch=0, sequence=sequence, txn=True))
                written[pid], opened[pid] = sequence + len(records), True
            elif what < 0.9 and opened:
                if not opened.pop(pid):
                    continue
                batches.append(chance.choice([commit, abort])(offset, pid=pid, epoch=0))
            else:
                batches.append(data(offset, [_record(chance.randint(0, 3))]))
            offset = batches[-1].last_offset + chance.choice([1] * 9 + [3])
        if number == segments - 1:
            for pid in [pid for pid, begun in opened.items() if begun and chance.random() < 0.85]:
                batches.append(chance.choice([commit, abort])(offset, pid=pid, epoch=0))
                del opened[pid]
                offset += 1
            batches.append(data(offset, [_record(key) for key in range(4)]))
            offset += 4
        partition.segment(*batches) if batches else None
    partition.segment(data(offset, [_record(key) for key in range(4)]))
    return directory, {pid for pid, begun in opened.items() if begun}


def _record(key: int) -> Record:
    return Record(b"k%d" % key, b"value", timestamp=NOW_MS - 1000)


def snapshot_of(path: Path) -> tuple[ProducerEntry, ...]:
    """The entries of a snapshot."""
    decoded = producer_snapshot.decode(path.read_bytes())
    assert isinstance(decoded, ProducerSnapshot)
    return decoded.entries
