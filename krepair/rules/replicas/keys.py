"""Comparison of the replicas of a compacted partition key by key, for ``compare``.

Each replica is judged by its last committed record of a key. An earlier record proves nothing: a replica that lacks it
may have cleaned it because of the later one.

Source: "Who is right" in docs/compare.md; Cleaner.shouldRetainRecord (2.2.1, 3.9.2, 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from krepair.formats.arrays import Bools, Int64s, Uint64s
from krepair.kernels.replica_rows import (
    ABORTED,
    COMMITTED,
    K_AFTER,
    K_BITS,
    KEY_WORDS,
    OPEN,
    TOMBSTONE,
    TWO_EPOCHS,
    count_keys,
    mark_keys,
)
from krepair.rules.replicas.model import (
    ABORTED_TO_COMMITTED,
    LEADER_DECIDES,
    LOST,
    TOMBSTONE_MISSED,
    TOMBSTONE_OR_ABORT_MISSED,
    UNKNOWN_LOSS,
)
from krepair.rules.replicas.replica import Replica

MOST_EXAMPLES: Final = 20


class CatchUp(Struct, frozen=True, kw_only=True):
    """Replica that is behind, and another replica that may lead while the first one catches up.

    Attributes:
        follower: column of the replica that is behind.
        leader: column of the possible leader.
        commits: (first offset, offset after the last) of records that are open on the follower and that this leader
            certainly commits.
    """

    follower: int
    leader: int
    commits: tuple[int, int] = (0, 0)


class KeyFinding(Struct, frozen=True, kw_only=True):
    """One kind of disagreement on one replica.

    Attributes:
        kind: kind of disagreement, see ``model``.
        broker: broker whose replica is wrong or in doubt; for ``leader-decides``, the broker that is behind.
        leader: broker that does harm as leader, for ``leader-decides``; else -1.
        count: number of different keys.
        first: lowest offset of the keys' records.
        examples: (first half of the hash, second half, offset, brokers that have the record, brokers that lack it),
            with the lowest offsets.
    """

    kind: str
    broker: int
    leader: int = -1
    count: int
    first: int
    examples: tuple[tuple[int, int, int, tuple[int, ...], tuple[int, ...]], ...]


@dataclass(frozen=True)
class KeyTable:
    """Keys of all replicas side by side.

    Attributes:
        hashes: uint64[N, 2], hashes of the keys.
        offsets: int64[N, R], offset of the last committed record, -1 for none.
        bits: uint64[N, R], bits of that record.
        opens: int64[N, R], offset of the last open record, -1 for none.
        open_bits: uint64[N, R], bits of that record.
        aborts: int64[N, R], offset of the last aborted record, -1 for none.
    """

    hashes: Uint64s
    offsets: Int64s
    bits: Uint64s
    opens: Int64s
    open_bits: Uint64s
    aborts: Int64s


def differing(runs: Sequence[Uint64s], replicas: int) -> list[Uint64s]:
    """Select the keys whose last record differs between replicas; only these keys need a judgement.

    Args:
        runs: uint64[N, KEY_WORDS], the keys of each replica.
        replicas: number of replicas that give rows.
    """
    total = sum(len(rows) for rows in runs)
    table = np.zeros((1 << max(4, (2 * total).bit_length()), KEY_WORDS), np.uint64)
    for rows in runs:
        count_keys(rows, table)
    kept = []
    for rows in runs:
        marks = np.empty(len(rows), np.uint8)
        mark_keys(rows, table, replicas, marks)
        kept.append(rows[marks != 0])
    return kept


def joined(runs: Sequence[Uint64s]) -> KeyTable:
    """Put the keys of all replicas side by side, one row for each key.

    Args:
        runs: uint64[N, KEY_WORDS], the keys of each replica. If one has several records of a key in the same state
            (committed, open or aborted), the greatest offset counts.
    """
    hashes = np.concatenate([rows[:, :2] for rows in runs])
    unique, places = _unique_pairs(hashes)
    shape = (len(unique), len(runs))
    offsets, opens, aborts = (np.full(shape, -1, np.int64) for _ in range(3))
    bits, open_bits = np.zeros(shape, np.uint64), np.zeros(shape, np.uint64)
    begin = 0
    for column, rows in enumerate(runs):
        where = places[begin : begin + len(rows)]
        begin += len(rows)
        # the last assignment to a key wins, so the greatest offset must come last
        order = np.argsort(rows[:, K_AFTER], kind="stable")
        rows, where = rows[order], where[order]
        is_open, is_aborted = (rows[:, K_BITS] & np.uint64(bit) != 0 for bit in (OPEN, ABORTED))
        committed = ~(is_open | is_aborted)
        offsets[where[committed], column] = rows[committed, K_AFTER].astype(np.int64) - 1
        bits[where[committed], column] = rows[committed, K_BITS]
        opens[where[is_open], column] = rows[is_open, K_AFTER].astype(np.int64) - 1
        open_bits[where[is_open], column] = rows[is_open, K_BITS]
        aborts[where[is_aborted], column] = rows[is_aborted, K_AFTER].astype(np.int64) - 1
    return KeyTable(unique, offsets, bits, opens, open_bits, aborts)


def _unique_pairs(hashes: Uint64s) -> tuple[Uint64s, Int64s]:
    """Return (the distinct rows, the index of each row in them)."""
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    ordered = hashes[order]
    new = np.ones(len(ordered), bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    places = np.empty(len(hashes), np.int64)
    places[order] = np.cumsum(new) - 1
    return ordered[new], places


def judge_keys(
    table: KeyTable,
    replicas: Sequence[Replica],
    forks: dict[tuple[int, int], int],
    catch_ups: Iterable[CatchUp],
) -> list[KeyFinding]:
    """Judge all keys of a table.

    Args:
        table: keys, with one column for each replica.
        replicas: replicas in the order of the columns.
        forks: (column, column), the lower first -> offset of the fork of two replicas; nothing from there on is judged.
        catch_ups: pairs of follower and possible leader.
    """
    if not len(table.offsets):
        return []
    judge = _Judge(table, replicas, forks)
    rows_by_kind: dict[tuple[str, int], Bools] = {}
    for column in range(len(replicas)):
        for other in range(len(replicas)):
            if column != other and not (replicas[column].failure or replicas[other].failure):
                for kind, wrong, rows in judge.pair(column, other):
                    if rows.any():
                        known = rows_by_kind.get((kind, wrong))
                        rows_by_kind[kind, wrong] = rows if known is None else known | rows
    findings = [judge.finding(kind, wrong, rows) for (kind, wrong), rows in sorted(rows_by_kind.items())]
    for catch_up in catch_ups:
        if (rows := judge.old_after(catch_up)).any():
            made = judge.finding(LEADER_DECIDES, catch_up.follower, rows)
            findings.append(replace(made, leader=replicas[catch_up.leader].broker))
    return findings


class _Judge:
    """Judge of pairs of replicas, by the keys whose last record one has and the other lacks."""

    def __init__(
        self, table: KeyTable, replicas: Sequence[Replica], forks: dict[tuple[int, int], int]
    ) -> None:
        self._table, self._replicas, self._forks = table, replicas, forks

    def _lacks_key(self, offsets: Int64s, column: int) -> Bools:
        """Mark offsets that a replica covers although it has neither the record nor a later record of its key."""
        table = self._table
        return self._lacks_committed(offsets, column) & ~(table.opens[:, column] >= offsets)

    def _lacks_committed(self, offsets: Int64s, column: int) -> Bools:
        """Mark offsets that a replica covers although it has neither the record nor a later committed one."""
        replica, table = self._replicas[column], self._table
        known = replica.covers(offsets) & (table.aborts[:, column] != offsets)
        passed: Bools = known & (table.offsets[:, column] < offsets)
        return passed

    def pair(self, r: int, s: int) -> Iterator[tuple[str, int, Bools]]:
        """Yield what replica ``r`` has and ``s`` lacks: (kind, column of the wrong replica, keys concerned)."""
        table, has, lacks = self._table, self._replicas[r], self._replicas[s]
        o, x = table.offsets[:, r], table.offsets[:, s]
        low, high = max(has.start, lacks.start), min(has.end, lacks.end)
        high = min(high, self._forks.get((min(r, s), max(r, s)), high))
        if has.limited and lacks.cleanable_end > has.read_to:
            return  # the running broker may have later records, because of which the cleaner of s removed these
        within = (o >= low) & (o < high) & (o > has.damaged_to)
        # If any replica has a later record of the key, the one that lacks this record may have fetched a clean log.
        missing = within & self._lacks_key(o, s) & (o >= table.offsets.max(axis=1))
        if not missing.any():
            return
        bits = table.bits[:, r]
        tombstone, committed = (bits & np.uint64(TOMBSTONE) != 0), (bits & np.uint64(COMMITTED) != 0)
        older = x >= 0
        lackers = np.stack([self._lacks_key(o, column) for column in range(len(self._replicas))])
        alone = lackers.sum(axis=0) == 1
        cleaned_elsewhere = np.zeros(len(o), bool)
        for column, replica in enumerate(self._replicas):
            if column != s:
                cleaned_elsewhere |= lackers[column] & (o < replica.first_dirty_offset)
        between = _lie_in_gaps(o, lacks.gaps)
        # The cleaner of s may have removed the record because of a later record in a file that was lost afterwards.
        before_gap = o < _unknown_gaps_end(lacks.gaps, has)
        # r has every offset from the record up to the end of s, so no tombstone or marker is missing in r.
        complete = (has.headers.highest_hole < o) & (has.end >= lacks.end)
        value = missing & ~tombstone
        others = np.stack([replica.covers(o) for replica in self._replicas]).sum(axis=0) - 1
        unclean = (o >= max(lacks.first_dirty_offset, 0)) & ~cleaned_elsewhere
        # A cleaner removed records of s above its recorded position. This record may be cleaned or lost: blame nobody.
        touched = o < lacks.headers.cleaned_to
        lost = value & (complete | (unclean & ~touched & alone & (between | (others > 1))))
        unsure = value & ~lost & alone & (between | unclean | before_gap)
        lost_tombstone = missing & tombstone & older & unclean & alone & (lacks.first_dirty_offset >= 0)
        yield LOST, s, lost | lost_tombstone
        yield TOMBSTONE_MISSED, s, missing & tombstone & older & ~lost_tombstone
        value &= ~lost
        aborted = committed & (older | (bits & np.uint64(TWO_EPOCHS) != 0))
        yield (
            ABORTED_TO_COMMITTED,
            r,
            value & aborted & ~(unsure & ~older & (bits & np.uint64(TWO_EPOCHS) == 0)),
        )
        value &= ~aborted
        yield UNKNOWN_LOSS, s, value & (unsure | older)
        value &= ~(unsure | older)
        yield TOMBSTONE_OR_ABORT_MISSED, r, value & committed
        yield TOMBSTONE_MISSED, r, value & ~committed

    def old_after(self, catch_up: CatchUp) -> Bools:
        """Mark the keys for which a follower, after it caught up, would serve an old record that its leader lacks.

        A record that is already committed counts only if another replica still has a later record of the key. If no
        replica has one, the follower is wrong now, whoever leads.
        """
        table, has, leads = self._table, self._replicas[catch_up.follower], self._replicas[catch_up.leader]
        own, opens = table.offsets[:, catch_up.follower], table.opens[:, catch_up.follower]
        first, end = catch_up.commits
        becomes = (opens > own) & (opens >= first) & (opens < end)
        last = np.where(becomes, opens, own)
        bits = np.where(becomes, table.open_bits[:, catch_up.follower], table.bits[:, catch_up.follower])
        serves = (bits & np.uint64(TOMBSTONE) == 0) | (table.offsets[:, catch_up.leader] >= 0)
        known = (last >= max(has.start, leads.start)) & (last > has.damaged_to)
        comes = becomes | (table.offsets.max(axis=1) >= has.end)
        # The later record may lie above the leader's end, or be open there: then the leader fetches it too.
        opened = table.opens[:, catch_up.leader]
        open_there = (opened >= last) & (table.offsets.max(axis=1) >= opened)
        above = np.maximum(table.offsets, table.opens).max(axis=1) >= leads.end
        serves_old: Bools = (
            known & serves & self._lacks_committed(last, catch_up.leader) & comes & ~open_there & ~above
        )
        return serves_old

    def finding(self, kind: str, column: int, rows: Bools) -> KeyFinding:
        """Build the finding of one kind about a replica from the keys concerned."""
        table = self._table
        # The greatest offset of the key on any replica is the record that the others lack.
        offsets = np.where(rows, table.offsets.max(axis=1), np.iinfo(np.int64).max)
        first = np.argsort(offsets, kind="stable")[: min(int(rows.sum()), MOST_EXAMPLES)]
        examples = []
        for row in first.tolist():
            offset = int(offsets[row])
            wanted = np.full(len(table.offsets), offset)
            have = tuple(
                replica.broker
                for index, replica in enumerate(self._replicas)
                if table.offsets[row, index] == offset
            )
            lack = tuple(
                replica.broker
                for index, replica in enumerate(self._replicas)
                if replica.broker not in have and bool(self._lacks_key(wanted, index)[row])
            )
            examples.append((int(table.hashes[row, 0]), int(table.hashes[row, 1]), offset, have, lack))
        return KeyFinding(
            kind=kind,
            broker=self._replicas[column].broker,
            count=int(rows.sum()),
            first=int(offsets.min()),
            examples=tuple(examples),
        )


def _lie_in_gaps(offsets: Int64s, gaps: Sequence[tuple[int, int]]) -> Bools:
    """Mark the offsets that lie in one of the gaps, which ascend."""
    if not gaps:
        return np.zeros(len(offsets), bool)
    edges = np.array(gaps, np.int64)
    index = np.searchsorted(edges[:, 0], offsets, "right") - 1
    inside: Bools = (index >= 0) & (offsets < edges[np.maximum(index, 0), 1])
    return inside


def _unknown_gaps_end(gaps: Sequence[tuple[int, int]], other: Replica) -> int:
    """Return the end of the last gap in which the other replica lacks a record; 0 if there is none."""
    unknown = (after for first, after in gaps if other.headers.highest_hole >= first or other.end < after)
    return max(unknown, default=0)


def merged(findings: Sequence[KeyFinding]) -> list[KeyFinding]:
    """Merge findings from several parts of the keys that have the same kind, broker and leader."""
    by_kind: dict[tuple[str, int, int], list[KeyFinding]] = {}
    for finding in findings:
        by_kind.setdefault((finding.kind, finding.broker, finding.leader), []).append(finding)
    totals = []
    for (kind, broker, leader), parts in sorted(by_kind.items()):
        examples = sorted(
            (example for part in parts for example in part.examples),
            key=lambda example: (example[2], example),
        )
        totals.append(
            KeyFinding(
                kind=kind,
                broker=broker,
                leader=leader,
                count=sum(part.count for part in parts),
                first=min(part.first for part in parts),
                examples=tuple(examples[:MOST_EXAMPLES]),
            )
        )
    return totals
