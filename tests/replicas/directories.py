"""Log directories of a model's cluster: written to disk, read back, and given planted divergences.

``written(cluster, root)`` makes ``root/b1`` and so on: segments, indexes, transaction indexes, producer snapshots,
leader epochs, topic id, checkpoints and ``meta.properties``, as a broker that stopped or died there has them.
"""

from __future__ import annotations

import os
import random
import struct
from dataclasses import replace
from pathlib import Path

from tests import builders
from tests.builders import Replay
from tests.replicas.entries import ABORT, NO_EPOCH, Entry, fates, parsed
from tests.replicas.model import Cluster, Replica

TOPIC = "t"
CLUSTER_ID = "kRepairModelCluster00w"
INTERVAL_BYTES = 200
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "3000",
    "index.interval.bytes": str(INTERVAL_BYTES),
}


def written(cluster: Cluster, root: Path) -> dict[int, Path]:
    """Broker -> its log directory, with one partition ``t-0``."""
    return {
        broker: _written(replica, root / f"b{broker}", kraft=cluster.kind.stamps)
        for broker, replica in cluster.replicas.items()
    }


def _written(replica: Replica, log_dir: Path, *, kraft: bool) -> Path:
    folder = log_dir / f"{TOPIC}-0"
    folder.mkdir(parents=True)
    for name, content in _files(replica).items():
        (folder / name).write_bytes(content)
    for base, time in replica.rolls:
        os.utime(folder / f"{base:020d}.log", ns=(time * 1_000_000, time * 1_000_000))
    if kraft:
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {replica.topic_id}\n")
        lines = ["version=1", f"cluster.id={CLUSTER_ID}", f"node.id={replica.broker}"]
        lines.append(f"directory.id=kRepairModelDirectory{replica.broker % 10}")
    else:
        lines = ["version=0", f"broker.id={replica.broker}", f"cluster.id={CLUSTER_ID}"]
    (log_dir / "meta.properties").write_text("".join(f"{line}\n" for line in lines))
    # A torn batch was never counted by anybody: no checkpoint is above it, but that of the high watermark.
    for name, offset in {
        "recovery-point-offset-checkpoint": min(replica.flushed, replica.end),
        "replication-offset-checkpoint": replica.recorded,
        "log-start-offset-checkpoint": replica.start,
        "cleaner-offset-checkpoint": replica.cleaned,
    }.items():
        known = offset > replica.rolls[0][0] or not name.startswith(("log-start", "cleaner"))
        rows = [f"{TOPIC} 0 {offset}"] if known else []
        (log_dir / name).write_text("\n".join(["0", str(len(rows)), *rows]) + "\n")
    if replica.clean and not replica.running:
        (log_dir / ".kafka_cleanshutdown").touch()
    return log_dir


def _files(replica: Replica) -> dict[str, bytes]:
    out: dict[str, bytes] = {}
    bases = [base for base, _ in replica.rolls]
    for base, _, entries in replica.segments():
        name = f"{base:020d}"
        batches = [entry.batch for entry in entries]
        out[f"{name}.log"] = b"".join(batch.raw for batch in batches)
        out[f"{name}.index"], out[f"{name}.timeindex"] = builders.indexes(base, batches, INTERVAL_BYTES)
        after = min((other for other in bases if other > base), default=2**62)
        aborted = [one for one in replica.aborted if base <= one[2] < after]
        if aborted:
            out[f"{name}.txnindex"] = b"".join(struct.pack(">hqqqq", 0, *one) for one in aborted)
    if replica.torn:
        out[f"{bases[-1]:020d}.log"] += replica.torn
    ends = bases[1:] + ([replica.end] if replica.clean and not replica.running else [])
    for end in sorted(set(ends)):
        replay = Replay()
        for entry in replica.received:
            if entry.base < end:
                replay.take(entry.batch)
        out[f"{end:020d}.snapshot"] = replay.snapshot()
    rows = "".join(f"{epoch} {start}\n" for epoch, start in replica.epochs)
    out["leader-epoch-checkpoint"] = f"0\n{len(replica.epochs)}\n{rows}".encode()
    return out


def read_back(replica: Replica, log_dir: Path) -> None:
    """Take over what a tool has made of a v2 replica's folder: batches, segments, aborted transactions."""
    folder = log_dir / f"{TOPIC}-0"
    entries: list[Entry] = []
    rolls: list[tuple[int, int]] = []
    aborted: list[tuple[int, int, int, int]] = []
    for path in sorted(folder.glob("*.log")):
        entries += parsed(path.read_bytes())
        rolls.append((int(path.stem), path.stat().st_mtime_ns // 1_000_000))
        index = path.with_suffix(".txnindex")
        content = index.read_bytes() if index.exists() else b""
        aborted += [row[1:] for row in struct.iter_unpack(">hqqqq", content)]
    replica.entries, replica.rolls, replica.aborted = entries, rolls, aborted


# -- planted ------------------------------------------------------------------------------------------


def plant_tombstone_missed(cluster: Cluster, chance: random.Random) -> tuple[int, bytes] | None:
    """Give one replica the value below a committed tombstone back and take all later records of the key from it.

    Returns:
        (broker, key), None if there is nothing to do it with.
    """
    for broker in chance.sample(sorted(cluster.replicas), len(cluster.replicas)):
        replica = cluster.replicas[broker]
        fate, _ = fates(replica.shadow)
        below = replica.rolls[-1][0]
        last: dict[bytes, list[tuple[Entry, bytes | None]]] = {}
        for entry in replica.shadow:
            if entry.control or (entry.txn and fate[entry.base] in {ABORT, None}):
                continue
            for one in entry.records:
                last.setdefault(one.key or b"", []).append((entry, one.value))
        for key, found in last.items():
            (older, value), (newer, gone) = ([*found[-2:], *found[-2:]])[:2]
            if len(found) < 2 or value is None or gone is not None or older.txn or older == newer:
                continue
            if older.base < replica.start or newer.last >= below or older.magic < 2:
                continue
            _drop_key(replica, key)
            _bring_back(replica, older, key)
            replica.cleaned = max(replica.cleaned, below)
            if replica.diverged:
                return broker, key
    return None


def plant_lost(cluster: Cluster, chance: random.Random) -> tuple[int, int] | None:
    """Take a batch with a last committed value from one replica, above its cleaner position; broker and offset."""
    for broker in chance.sample(sorted(cluster.replicas), len(cluster.replicas)):
        replica = cluster.replicas[broker]
        for entry in replica.entries:
            if entry.base < replica.cleaned or entry.control or not entry.records:
                continue
            before = list(replica.entries)
            replica.entries = [one for one in before if one is not entry]
            if entry is not before[-1] and replica.diverged:
                return broker, entry.base
            replica.entries = before
    return None


def plant_differs(cluster: Cluster, chance: random.Random) -> tuple[int, int] | None:
    """Change the value of one record of one replica, with a right checksum; gives broker and offset."""
    for broker in chance.sample(sorted(cluster.replicas), len(cluster.replicas)):
        replica = cluster.replicas[broker]
        for place, entry in enumerate(replica.entries):
            if entry.records and entry.records[-1].value is not None and entry.magic == 2:
                other = replace(entry.records[-1], value=b"another value")
                replica.entries[place] = replace(entry, records=(*entry.records[:-1], other))
                return broker, other.offset
    return None


def plant_cut(cluster: Cluster, chance: random.Random) -> tuple[int, int] | None:
    """Take the last batch from a replica that stopped cleanly, its checkpoints left as they are; broker and end."""
    for broker in chance.sample(sorted(cluster.replicas), len(cluster.replicas)):
        replica = cluster.replicas[broker]
        base = replica.rolls[-1][0]
        left = [one for one in replica.entries if one.base >= base]
        if len(left) < 2 or replica.running or not replica.clean or replica.recorded <= left[-1].base:
            continue
        # The snapshot and the checkpoints of the stop stay where they were.
        replica.entries = [one for one in replica.entries if one is not left[-1]]
        return broker, left[-1].base
    return None


def plant_fork(cluster: Cluster, chance: random.Random) -> tuple[int, int] | None:
    """Give one replica other records of a later epoch from an offset on that all have committed; broker, offset."""
    marks = [one.recorded for one in cluster.replicas.values()]
    for broker in chance.sample(sorted(cluster.replicas), len(cluster.replicas)):
        replica = cluster.replicas[broker]
        places = [
            place
            for place, entry in enumerate(replica.entries)
            if entry.records
            and not entry.txn
            and entry.leader_epoch != NO_EPOCH
            and max(replica.cleaned, replica.rolls[-1][0]) <= entry.base
            and entry.last < min(marks)
        ]
        if not places:
            continue
        place = places[0]
        epoch = max(one.leader_epoch for one in replica.entries) + 7
        tail = [replace(one, leader_epoch=epoch) for one in replica.entries[place:]]
        first = tail[0]
        tail[0] = replace(
            first, records=(*first.records[:-1], replace(first.records[-1], value=b"of another history"))
        )
        replica.entries[place:] = tail
        replica.epochs = [one for one in replica.epochs if one[1] < first.base] + [(epoch, first.base)]
        return broker, first.base
    return None


def _drop_key(replica: Replica, key: bytes) -> None:
    out = []
    for entry in replica.entries:
        left = [one for one in entry.records if one.key != key]
        if len(left) == len(entry.records):
            out.append(entry)
        elif left or (entry.magic == 2 and entry.txn):
            out.append(entry.left(left))
    replica.entries = out


def _bring_back(replica: Replica, older: Entry, key: bytes) -> None:
    value = older.left([one for one in older.records if one.key == key])
    same = [place for place, one in enumerate(replica.entries) if one.base == older.base]
    if same:
        whole = replica.entries[same[0]]
        both = sorted([*whole.records, *value.records], key=lambda one: one.offset)
        replica.entries[same[0]] = older.left(both)
    else:
        replica.entries = sorted([*replica.entries, value], key=lambda one: one.base)


PLANTED = {
    "tombstone-missed": plant_tombstone_missed,
    "lost": plant_lost,
    "record-differs": plant_differs,
    "cut": plant_cut,
    "fork": plant_fork,
}
