"""One random history through krepair's verbs and engine, its slow twin, its verification, and Kafka's cleaner.

``python -m tests.compaction.trying VERSION FIRST AFTER`` runs any number of them, ``VERSION`` being ``twin`` or a Kafka
version that the lab has; it prints what was compared and every difference that krepair names, counted.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from krepair.engine.engine import Engine
from krepair.rules.model import MarkerPolicy
from tests import naive
from tests.builders import NOW_MS, LogDir
from tests.compaction import histories, judged, twin
from tests.compaction.compacting import Compacted, compacted, proven, written
from tests.compaction.directories import LONGEST_EXPIRY_MS, through_verbs
from tests.compaction.histories import DAY_MS
from tests.lab.jars import LATEST
from tests.lab.judge import Judge, Reading
from tests.rules.many import SETTINGS
from tests.rules.scanned import Held, policy_of
from tests.strategies import History, Shape

UNLIMITED = 2**60


@dataclass(frozen=True)
class Way:
    """How the cleaner of one version comes to rest.

    Attributes:
        version: of Kafka.
        horizon: its horizon argument; from 3.1 its clock.
        expiration_ms: of producers.
        stamps: whether it knows KIP-534's stamps.
        across: whether it follows a transaction from segment to segment (KAFKA-8351).
    """

    version: str
    horizon: int
    expiration_ms: int
    stamps: bool
    across: bool = True

    def shape(self, seed: int) -> Shape:
        """Histories in which this version does as it should."""
        shape = histories.shape_of(seed)
        return replace(
            shape,
            stamps=shape.stamps and self.stamps,
            within_segments=shape.within_segments or not self.across,
        )

    def rules(self, now_ms: int) -> naive.Rules:
        """As the twin takes them. A cleaner that looks at a later clock gives producers as much longer."""
        ahead = self.horizon - now_ms if self.stamps else 0
        return rules_of(
            naive.Rules(
                now_ms=now_ms + ahead,
                horizon_ms=UNLIMITED,
                segment_bytes=100_000,
                expiration_ms=self.expiration_ms + ahead,
            )
        )


WAYS = {
    way.version: way
    for way in (
        Way("2.2.1", UNLIMITED, 7 * DAY_MS, stamps=False, across=False),
        Way("2.8.2", UNLIMITED, 7 * DAY_MS, stamps=False),
        Way("3.9.2", NOW_MS + 10**10, DAY_MS, stamps=True),
        Way(LATEST, NOW_MS + 10**10, DAY_MS, stamps=True),
    )
}


def rules_of(rules: naive.Rules) -> naive.Rules:
    """With the index settings of these tests."""
    return replace(rules, segment_index_bytes=4096, index_interval_bytes=200)


def twin_rules(seed: int) -> naive.Rules:
    """Rules by seed for the comparison with the twin alone."""
    return rules_of(
        naive.Rules(
            now_ms=NOW_MS,
            horizon_ms=(UNLIMITED, NOW_MS - 1_800_000, 0)[seed % 3],
            segment_bytes=100_000 if seed % 5 else 3_000,
            min_compaction_lag_ms=600_000 if seed % 11 == 3 else 0,
        )
    )


@dataclass(frozen=True)
class Tried:
    """One history on disk, and what krepair and the twin make of it."""

    folder: Path
    rules: naive.Rules
    policy: MarkerPolicy
    ours: Compacted
    theirs: twin.Outcome


def with_twin(root: Path, made: History, rules: naive.Rules, **how: Engine | str | None) -> Tried:
    """Compact a history by the engine and by the verbs, hold it against the twin, verify it and compact it again.

    Raises:
        AssertionError: they differ, the verification objects, or a second compaction is not empty.
    """
    folder = made.fill(LogDir(root).partition("t", index_interval_bytes=200)).write()
    segments, snapshots = naive.read_partition(folder)
    policy = policy_of(rules, Held(tuple(segments), snapshots))
    theirs = twin.compact(segments, rules, snapshots)
    ours = compacted(folder, policy, **how)  # type: ignore[arg-type]
    total = ours.done.total
    assert (total.superseded, total.tombstones_dropped, total.aborted, total.keyless) == (
        theirs.superseded,
        theirs.tombstones,
        theirs.aborted,
        theirs.keyless,
    )
    assert ours.done.keys == theirs.keys
    assert ours.logs == theirs.markers.logs
    assert bool(ours.done.changed) == theirs.changes
    if policy.producer_expiry_ms <= LONGEST_EXPIRY_MS:
        assert through_verbs(folder, policy) == ours.logs
    results = written(ours.logs, folder, folder / "krepair~results")
    found = proven(folder, ours, results, **how)  # type: ignore[arg-type]
    assert (found.failure, found.why, found.keys) == ("", "", theirs.keys)
    again = root / "again" / "t-0"
    again.parent.mkdir()
    shutil.move(results, again)
    _carry_aborted(folder, again)
    second = compacted(again, policy, stage=False, **how)  # type: ignore[arg-type]
    assert second.done.changed == ()
    shutil.rmtree(again.parent)
    return Tried(folder, rules, policy, ours, theirs)


def _carry_aborted(folder: Path, target: Path) -> None:
    """Give the results all entries of the transaction indexes, each to the segment that holds its marker."""
    bases = sorted(int(path.stem) for path in target.glob("*.log"))
    for path in sorted(folder.glob("*.txnindex")):
        base = max(number for number in bases if number <= int(path.stem))
        with (target / f"{base:020d}.txnindex").open("ab") as file:
            file.write(path.read_bytes())


def with_kafka(judge: Judge, way: Way, root: Path, seed: int, *, codecs: bool) -> Counter[str]:
    """Hold a history's compaction against that of Kafka's cleaner, brought to rest.

    Raises:
        AssertionError: there is a difference that krepair does not name.
    """
    made = histories.of_seed(seed, codecs=codecs, shape=way.shape(seed))
    tried = with_twin(root / "ours", made, way.rules(made.shape.now_ms))
    end = tried.theirs.markers.span_end
    common = {"settings": SETTINGS, "now_ms": made.shape.now_ms, "expire_producers": True}
    ours = b"".join(log for base, log in tried.ours.logs.items() if base < end)
    mine = written(tried.ours.logs, tried.folder, root / "mine" / "t-0")
    _serves_the_same_table(judge, tried.folder, mine, made.shape.now_ms)
    reached = judge.fixpoint(tried.folder, horizon=way.horizon, end=end, **common)  # type: ignore[arg-type]
    assert reached.reached, reached
    reasons = {
        decision.batch.base_offset: decision.reason
        for decision in tried.theirs.markers.decisions
        if decision.verdict != naive.DROP
    }
    found = judged.compared(ours, judged.below(tried.folder, end), reasons)
    assert found.wrong == [], found.wrong[:3]
    _kafka_changes_nothing(judge, way, mine, end, ours, reasons, common)
    found.allowed["histories"] += 1
    found.allowed["histories with changes"] += bool(tried.ours.done.changed)
    return found.allowed


def _serves_the_same_table(judge: Judge, before: Path, after: Path, now_ms: int) -> None:
    """Who reads all committed records and keeps the last value of each key has the same table as before."""
    how = {"settings": SETTINGS, "now_ms": now_ms, "list_records": True}
    old = judge.load(before, **how)  # type: ignore[arg-type]
    new = judge.load(after, clean=False, recovery_point=0, **how)  # type: ignore[arg-type]
    seen = (new.log_end, new.stable_offset, new.committed.stuck)
    assert seen == (old.log_end, old.stable_offset, old.committed.stuck)
    assert _table(new.committed) == _table(old.committed)
    offsets = {record.offset for record in old.committed.records}
    assert {record.offset for record in new.committed.records} <= offsets


def _table(reading: Reading) -> dict[str | None, str]:
    table: dict[str | None, str | None] = {}
    for record in reading.records:
        table[record.key] = record.value
    return {key: value for key, value in table.items() if value is not None}


def _kafka_changes_nothing(
    judge: Judge,
    way: Way,
    mine: Path,
    end: int,
    ours: bytes,
    reasons: dict[int, str],
    common: dict[str, object],
) -> None:
    """Kafka's cleaner on krepair's result takes no record away."""
    judge.fixpoint(mine, horizon=way.horizon, end=end, **common)  # type: ignore[arg-type]
    found = judged.compared(ours, judged.below(mine, end), reasons)
    assert found.wrong == [], found.wrong[:3]


def main(version: str, first: int, after: int) -> None:
    """Try histories until one differs."""
    seen: Counter[str] = Counter()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(dir=memory) as folder,
        Judge(version if version in WAYS else "2.2.1") as judge,
    ):
        for seed in range(first, after):
            root = Path(folder) / str(seed)
            try:
                if version in WAYS:
                    seen += with_kafka(judge, WAYS[version], root, seed, codecs=seed % 2 == 1)
                else:
                    with_twin(root, histories.of_seed(seed, codecs=seed % 2 == 1), twin_rules(seed))
                    seen["histories"] += 1
            except AssertionError:
                print(f"python -m tests.compaction.trying {version} {seed} {seed + 1}")
                raise
            shutil.rmtree(root)
    print(f"{version}: " + ", ".join(f"{name}: {count}" for name, count in sorted(seen.items())))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
