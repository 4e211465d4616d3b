"""Verdict of ``compare`` on the replicas of a partition: by their batch headers, and by records where headers differ.

Source: docs/compare.md; the behaviour of brokers 3.9.2 and 4.3.1 with planted divergences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from krepair.derive.sums import RANGE_BITS
from krepair.derive.transactions import (
    A_FIRST,
    A_MARKER,
    A_PRODUCER,
    ABORT,
    COMMIT,
    NONE,
    T_EPOCHS,
    T_FIRST,
    T_KIND,
    T_LAST,
    T_MARKER,
    T_PRODUCER,
    last_stable_offset,
    open_transactions,
    touching,
)
from krepair.formats.arrays import Int64s
from krepair.rules.replicas import model as m
from krepair.rules.replicas.keys import CatchUp, KeyFinding
from krepair.rules.replicas.model import (
    ABORTED_TO_COMMITTED,
    COMMITTED_TO_ABORTED,
    MARKER_MISSED,
    STUCK,
    Disagreement,
    disagreement_of,
)
from krepair.rules.replicas.replica import NOWHERE, Fork, Replica, find_fork

_MAJORITY: Final = 2


@dataclass
class ReplicaGroup:
    """Replicas of one partition that have one topic id.

    Attributes:
        forks: (index, index) of two replicas, the lower index first -> first contradiction of their leader epochs.
        differing: numbers of ranges in which any two replicas differ, ascending.
    """

    replicas: list[Replica]
    forks: dict[tuple[int, int], Fork] = field(default_factory=dict)
    differing: list[int] = field(default_factory=list)

    def fork_of(self, first: int, second: int) -> int:
        """Return the offset from which two replicas are not compared."""
        fork = self.forks.get((min(first, second), max(first, second)))
        return NOWHERE if fork is None else fork.offset

    @property
    def never_cleaned_from(self) -> int:
        """Offset at or above which no cleaner is known to have removed a record from any replica."""
        read = (replica for replica in self.replicas if not replica.failure)
        return max((max(each.first_dirty_offset, each.headers.cleaned_to, 0) for each in read), default=0)

    def leaders_of(self, index: int) -> list[int]:
        """Return the indexes of the replicas from which replica ``index`` may catch up.

        A running broker's replica is left out, because it is not read to its end. So is a replica whose leader epochs
        contradict those of this replica, because one of the two is truncated first.
        """
        mine = self.replicas[index]
        return [
            number
            for number, candidate in enumerate(self.replicas)
            if not (mine.failure or candidate.failure)
            and not (mine.limited or candidate.limited)
            and candidate.end > mine.end
            and self.fork_of(index, number) == NOWHERE
        ]

    def catch_ups(self) -> list[CatchUp]:
        """Return each pair of a replica that is behind and a replica that may lead it."""
        return [
            CatchUp(
                follower=index,
                leader=leader,
                commits=certainly_committed(mine, self.replicas[leader]),
            )
            for index, mine in enumerate(self.replicas)
            for leader in self.leaders_of(index)
        ]


class RecordDifference(NamedTuple):
    """Differences of two replicas of a group at the offsets that both logs cover.

    Attributes:
        one: index of the first replica in the group.
        other: index of the second replica in the group.
        differing: number of offsets at which both have different records.
        first_differing: lowest of these offsets, -1 for none.
        missing: number of offsets that the first replica has and the second lacks.
        first_missing: lowest of these offsets, -1 for none.
    """

    one: int
    other: int
    differing: int = 0
    first_differing: int = -1
    missing: int = 0
    first_missing: int = -1


@dataclass(frozen=True)
class ComparedRecords:
    """Result of comparing the records of a group.

    Attributes:
        keys: findings by key.
        records: pairs of replicas whose records differ or are missing.
        assumed: True if krepair only assumes that the topic is compacted: missing records may then be lost.
    """

    keys: tuple[KeyFinding, ...] = ()
    records: tuple[RecordDifference, ...] = ()
    assumed: bool = False


def groups_of(replicas: Sequence[Replica]) -> list[ReplicaGroup]:
    """Group the replicas by topic id; a replica without an id joins the group if there is only one id."""
    known = {replica.state.topic_id for replica in replicas if replica.state.topic_id}
    by_id: dict[str, list[Replica]] = defaultdict(list)
    for replica in replicas:
        by_id[replica.state.topic_id or (next(iter(known)) if len(known) == 1 else "")].append(replica)
    groups = [ReplicaGroup(sorted(members, key=lambda replica: replica.broker)) for members in by_id.values()]
    for group in groups:
        _compare_headers(group)
    return groups


def _compare_headers(group: ReplicaGroup) -> None:
    """Compare the batch headers of each pair of replicas: leader epochs, and sums of ranges of offsets."""
    differing: set[int] = set()
    for (a, first), (b, second) in combinations(enumerate(group.replicas), 2):
        if first.failure or second.failure:
            continue
        fork = find_fork(first.history, second.history)
        if fork is not None:
            group.forks[a, b] = fork
        differing |= _differing_ranges(first, second, group.fork_of(a, b))
    group.differing = sorted(differing)


def _differing_ranges(first: Replica, second: Replica, fork: int) -> set[int]:
    """Return the numbers of ranges in which two replicas may differ, as far as both cover them."""
    low, high = max(first.state.log_start, second.state.log_start), min(first.end, second.end, fork)
    if low >= high:
        return set()
    tables = []
    for replica in (first, second):
        numbers = replica.ranges[:, 0].astype(np.int64)
        inside = (numbers >= low >> RANGE_BITS) & (numbers <= (high - 1) >> RANGE_BITS)
        tables.append({int(row[0]): tuple(row[1:].tolist()) for row in replica.ranges[inside]})
    return {number for number in {*tables[0], *tables[1]} if tables[0].get(number) != tables[1].get(number)}


def disagreements_by_headers(group: ReplicaGroup) -> Iterator[m.Disagreement]:
    """Yield the disagreements in a group that the batch headers alone show."""
    for replica in group.replicas:
        yield from _own_problems(replica)
    for (a, b), fork in group.forks.items():
        yield _fork_disagreement(group.replicas[a], group.replicas[b], fork)
    saying = {place: replica for place, replica in enumerate(group.replicas) if not replica.failure}
    for a, mine in saying.items():
        others = [(other, group.fork_of(a, b)) for b, other in saying.items() if b != a]
        yield from judge_transactions(mine, others)
    yield from _replicas_behind(group)


def _own_problems(replica: Replica) -> Iterator[m.Disagreement]:
    """Yield the disagreements that one replica shows by itself, whatever the others hold."""
    state = replica.state
    if replica.failure:
        kind = m.UNREADABLE if replica.at_rest else m.NOT_AT_REST
        yield _fault(kind, replica, -1, replica.failure)
        return
    for damage in replica.corrupt:
        if damage.tail:
            yield _fault(m.TORN, replica, damage.first, damage.text)
        else:
            offsets = (
                f"offsets {damage.first} to {damage.last}"
                if damage.last > damage.first
                else f"offset {damage.first}"
            )
            yield _fault(m.CORRUPT, replica, damage.first, f"{damage.text}; of {offsets} it says nothing")
    if replica.limited:
        return
    clean_cut = state.clean_stop and state.high_watermark > replica.end
    if clean_cut or state.recovery_point > replica.end:
        name, number = (
            ("high watermark", state.high_watermark)
            if clean_cut
            else ("recovery point", state.recovery_point)
        )
        yield _fault(
            m.CUT,
            replica,
            replica.end,
            f"the log ends at {replica.end}, below its recorded {name} {number}: records that were committed are gone",
        )


def _fault(kind: str, replica: Replica, offset: int, text: str) -> m.Disagreement:
    return m.disagreement_of(kind, (replica.broker,), offset, f"broker {replica.broker}: {text}")


def _fork_disagreement(first: Replica, second: Replica, fork: Fork) -> m.Disagreement:
    behind, ahead = (first, second) if fork.first_is_behind else (second, first)
    text = (
        f"from {fork.offset} on broker {behind.broker} has batches of leader epoch {fork.epoch} where broker "
        f"{ahead.broker} has epoch {fork.later} or later"
    )
    both, watermark = (first.broker, second.broker), behind.state.high_watermark
    if fork.offset < watermark:
        text = (
            f"{text}; broker {behind.broker} had them committed (its high watermark is {watermark}): two histories, "
            "neither is right by itself"
        )
        return m.disagreement_of(m.FORK, both, fork.offset, text)
    if behind.state.clean_stop and watermark >= 0:
        return _fault(
            m.BEHIND,
            behind,
            fork.offset,
            f"{text}; they are above its high watermark {watermark}, and it truncates them when it starts",
        )
    text = (
        f"{text}; they are above the high watermark that broker {behind.broker} has recorded ({watermark}), but it "
        "was not stopped cleanly, and the record may be some seconds old"
    )
    would_tell = "the producer's log: whether records from this offset on were acknowledged"
    return m.disagreement_of(m.FORK_UNSURE, both, fork.offset, text, would_tell=would_tell)


def _replicas_behind(group: ReplicaGroup) -> Iterator[m.Disagreement]:
    """Yield the replicas that end before others, and the replicas that lost committed records that no other has."""
    read = [replica for replica in group.replicas if not replica.failure]
    for replica in read:
        if replica.limited:
            continue
        cut, mark = replica.cut_by_recovery, replica.state.high_watermark
        others = [other for other in read if other is not replica]
        top = max((other.end for other in others), default=-1)
        # A running broker's log reaches further than the part that is compared.
        reach = max((other.read_to for other in others), default=-1)
        gone = (
            not replica.state.clean_stop
            and mark > max(replica.end, reach)
            and len(read) == len(group.replicas)
        )
        if cut >= 0:
            yield _cut_by_next_start(replica, reach, gone=gone)
        elif gone:
            text = (
                f"the log ends at {replica.end}, below its recorded high watermark {mark}, which no other replica here "
                "reaches: records that were committed are gone"
            )
            yield _fault(m.CUT, replica, replica.end, text)
        elif replica.end < top:
            lost = mark > replica.end and not replica.state.clean_stop
            more = f"; its high watermark was {mark}: the unclean stop cost its end" if lost else ""
            yield _fault(
                m.BEHIND, replica, replica.end, f"ends at {replica.end}, another replica at {top}{more}"
            )


def _cut_by_next_start(replica: Replica, reach: int, *, gone: bool) -> m.Disagreement:
    """Describe what the next start does to a damaged end; this is damage only if no other replica has the rest."""
    cut = replica.cut_by_recovery
    text = f"the start after its unclean stop cuts the log at {cut}"
    if gone:
        first = next(damage for damage in replica.headers.damages if damage.first == cut)
        lost = f"below its recorded high watermark {replica.state.high_watermark}, which no other replica here reaches"
        return _fault(m.TORN if first.tail else m.CORRUPT, replica, cut, f"{first.text}; {text}, {lost}")
    goes_on = reach > cut
    rest = "it fetches the rest again" if goes_on else "no other replica that was read continues from there"
    return _fault(m.BEHIND, replica, cut, f"{text}, and {rest}")


def verdict_of(
    topic: str,
    partition: int,
    replicas: Sequence[Replica],
    groups: Sequence[ReplicaGroup],
    contents: Sequence[ComparedRecords | None],
) -> m.PartitionVerdict:
    """Judge a partition; ``contents`` has the compared records of each group, None if headers were enough."""
    facts = list(_topic_id_disagreement(replicas))
    for group, content in zip(groups, contents, strict=True):
        facts += disagreements_by_headers(group)
        if content is not None:
            facts += _record_disagreements(group, content)
    wrong = {broker for fact in facts if fact.kind != m.BEHIND for broker in fact.brokers}
    decided = [
        fact
        for group, content in zip(groups, contents, strict=True)
        for fact in _who_must_lead(group, content, wrong)
    ]
    late = {fact.brokers for fact in decided}
    facts = [fact for fact in facts if fact.kind != m.BEHIND or fact.brokers not in late] + decided
    disagreements = [_with_rest(fact, facts, replicas) for fact in _merge_same_kind(facts)]
    worst = min((m.VERDICTS.index(m.VERDICT_OF[fact.kind]) for fact in disagreements), default=-1)
    harmless = tuple(
        sorted(
            {
                name
                for group, content in zip(groups, contents, strict=True)
                for name in (*_harmless_differences(group), *_possibly_lost_records(group, content))
            }
        )
    )
    if worst >= 0:
        verdict = m.VERDICTS[worst]
    elif len(replicas) == 1:
        verdict = m.ALONE
    elif any(group.differing for group in groups) or harmless:
        verdict = m.HARMLESS
    else:
        verdict = m.BYTE_EQUAL
    blamed = {broker for fact in disagreements for broker in fact.brokers}
    right = tuple(replica.broker for replica in replicas if replica.broker not in blamed)
    if len(replicas) == 1 or verdict == m.CANNOT_TELL:
        right = ()
    columns = tuple(_column(replica, disagreements) for replica in replicas)
    return m.PartitionVerdict(
        topic=topic,
        partition=partition,
        verdict=verdict,
        disagreements=tuple(_with_right_brokers(fact, right, columns) for fact in disagreements),
        harmless=harmless,
        right=right,
        replicas=columns,
        records_read=any(content is not None for content in contents),
    )


def _with_rest(
    damage: m.Disagreement, disagreements: Sequence[m.Disagreement], replicas: Sequence[Replica]
) -> m.Disagreement:
    """Add to a damaged range what is known of the rest of that replica."""
    if damage.kind != m.CORRUPT or sum(1 for replica in replicas if not replica.failure) < _MAJORITY:
        return damage
    accused = any(
        set(damage.brokers) & set(other.brokers) and m.VERDICT_OF[other.kind] in {m.DIVERGED, m.CANNOT_TELL}
        for other in disagreements
    )
    rest = "what else is wrong with it stands by itself" if accused else "the rest of it is as on the others"
    return replace(damage, text=f"{damage.text}; {rest}")


def _with_right_brokers(
    disagreement: m.Disagreement, right: tuple[int, ...], columns: Sequence[m.ReplicaColumn]
) -> m.Disagreement:
    if m.VERDICT_OF[disagreement.kind] not in {m.DIVERGED, m.DAMAGED} or disagreement.kind in {
        m.FORK,
        m.TOPIC_ID,
    }:
        return replace(disagreement, right=())
    if disagreement.kind == m.CUT or m.VERDICT_OF[disagreement.kind] == m.DAMAGED:
        committed = max(column.high_watermark for column in columns if column.broker in disagreement.brokers)
        whole = (column for column in columns if column.has_each(disagreement.offset, committed))
        right = tuple(column.broker for column in whole if column.broker in right)
    return replace(disagreement, right=right)


def _topic_id_disagreement(replicas: Sequence[Replica]) -> Iterator[m.Disagreement]:
    ids = sorted({replica.state.topic_id for replica in replicas if replica.state.topic_id})
    if len(ids) > 1:
        each = ", ".join(
            f"broker {replica.broker} {replica.state.topic_id or 'none'}" for replica in replicas
        )
        text = (
            f"topic ids: {each}: the topic was deleted and created again; only the cluster's metadata says which is "
            "current, and replicas of different ids are not compared"
        )
        yield m.disagreement_of(m.TOPIC_ID, (replica.broker for replica in replicas), -1, text)


_KEY_TEXTS: Final = {
    m.TOMBSTONE_MISSED: "has {count} whose tombstone it never got, while another replica removed them: as leader it "
    "serves deleted keys again",
    m.TOMBSTONE_OR_ABORT_MISSED: "serves {count} that another replica cleaned away without a later record: a tombstone "
    "or an ABORT never came here",
    m.ABORTED_TO_COMMITTED: "counts records of {count} as committed that another replica removed as aborted",
    m.LOST: "lacks the last record of {count}, in offsets that it has never cleaned or whose file is gone",
    m.UNKNOWN_LOSS: "lacks the last record of {count}: it may have lost them, or the others missed their tombstones",
}


def _record_disagreements(group: ReplicaGroup, content: ComparedRecords) -> Iterator[m.Disagreement]:
    for finding in content.keys:
        if finding.kind == m.LEADER_DECIDES:
            continue
        number = f"{finding.count:,} key{'s' if finding.count > 1 else ''}"
        yield m.disagreement_of(
            finding.kind,
            (finding.broker,),
            finding.first,
            f"broker {finding.broker} {_KEY_TEXTS[finding.kind].format(count=number)}",
            count=finding.count,
            would_tell="a third replica, or a backup of this one" if finding.kind == m.UNKNOWN_LOSS else "",
            keys=_key_lines(finding.examples),
        )
    for pair in content.records:
        replica, other = group.replicas[pair.one], group.replicas[pair.other]
        if pair.differing:
            odd = _outlier(content.records, pair, len(group.replicas))
            wrong = (replica.broker, other.broker) if odd < 0 else (group.replicas[odd].broker,)
            text = (
                f"brokers {replica.broker} and {other.broker} have other records at the same {pair.differing:,} "
                f"offset{'s' if pair.differing > 1 else ''} and leader epoch"
            )
            yield m.disagreement_of(m.RECORD_DIFFERS, wrong, pair.first_differing, text, count=pair.differing)
        if pair.missing and not content.assumed:
            text = (
                f"broker {other.broker} lacks {pair.missing:,} record{'s' if pair.missing > 1 else ''} that broker "
                f"{replica.broker} has, where nothing was ever cleaned (if the topic is compacted, say so with "
                "--topic-config or --set cleanup.policy=compact)"
            )
            yield m.disagreement_of(m.LOST, (other.broker,), pair.first_missing, text, count=pair.missing)


def _who_must_lead(
    group: ReplicaGroup, content: ComparedRecords | None, wrong: set[int]
) -> Iterator[m.Disagreement]:
    """Yield the replicas that are behind and would become wrong if a certain broker led them.

    Args:
        wrong: brokers whose replicas are themselves wrong or in doubt.
    """
    for index, replica in enumerate(group.replicas):
        leaders = [group.replicas[leader] for leader in group.leaders_of(index)]
        by_key = [
            finding
            for finding in (content.keys if content is not None else ())
            if finding.kind == m.LEADER_DECIDES and finding.broker == replica.broker
        ]
        harm: dict[int, list[str]] = {finding.leader: [_old_text(finding.count)] for finding in by_key}
        for harm_done in harm_by_leaders(replica, leaders):
            harm.setdefault(harm_done.leader, []).append(_HARM[harm_done.kind].format(first=harm_done.first))
        if not harm.keys() - wrong:
            continue
        fine = tuple(leader.broker for leader in leaders if leader.broker not in {*harm, *wrong})
        texts = [
            f"led by broker {leader}, which no longer has what comes next, it would {' and '.join(effects)}"
            for leader, effects in sorted(harm.items())
        ]
        if fine:
            advice = (
                f"let broker {' or '.join(map(str, fine))} lead until broker {replica.broker} has caught up"
            )
        elif any(other.failure or other.limited for other in group.replicas):
            advice = (
                "of those that could be read to their end, none can lead it without harm: stop the other brokers, and "
                "compare again, or fetch it again"
            )
        else:
            advice = "no other replica here can lead it without harm: it has to be fetched again"
        keys = next((finding.examples for finding in by_key), ())
        yield replace(
            m.disagreement_of(
                m.LEADER_DECIDES,
                (replica.broker,),
                replica.end,
                f"broker {replica.broker} ends at {replica.end}; {'; '.join(texts)}; {advice}",
                count=max((finding.count for finding in by_key), default=1),
                keys=_key_lines(keys),
            ),
            may_lead=fine,
            must_not_lead=tuple(sorted(harm)),
        )


_HARM: Final = {
    m.STUCK: "stall at offset {first}",
    m.ABORTED_TO_COMMITTED: "serve aborted records from offset {first}",
    m.COMMITTED_TO_ABORTED: "hide committed records from offset {first}",
}


def _old_text(count: int) -> str:
    return f"serve old records of {count:,} key{'s' if count > 1 else ''}"


def _key_lines(
    examples: Iterable[tuple[int, int, int, tuple[int, ...], tuple[int, ...]]],
) -> tuple[m.KeyLine, ...]:
    return tuple(
        m.KeyLine(offset=offset, key=f"{first:016x}{second:016x}", have=have, lack=lack)
        for first, second, offset, have, lack in examples
    )


def _outlier(records: Sequence[RecordDifference], pair: RecordDifference, replicas: int) -> int:
    """Return the index of the one replica of a pair that differs from all others at the same first offset; else -1."""
    same = [
        {difference.one, difference.other}
        for difference in records
        if difference.differing and difference.first_differing == pair.first_differing
    ]
    for index in (pair.one, pair.other):
        if len(same) >= _MAJORITY and all(index in pair_of for pair_of in same) and replicas > _MAJORITY:
            return index
    return -1


def _merge_same_kind(disagreements: Iterable[m.Disagreement]) -> list[m.Disagreement]:
    """Merge disagreements of the same kind and brokers: the text of the lowest offset, with the count of all."""
    by_kind: dict[tuple[str, tuple[int, ...]], list[m.Disagreement]] = defaultdict(list)
    for part in disagreements:
        by_kind[part.kind, part.brokers].append(part)
    order = {kind: number for number, kind in enumerate(m.RULE_OF)}
    summed = []
    for _, parts in sorted(by_kind.items(), key=lambda item: (order[item[0][0]], item[0][1])):
        first = min(parts, key=lambda part: (part.offset, -len(part.keys)))
        keys = next((part.keys for part in parts if part.keys), ())
        keys_or_many = bool(keys) or any(part.count > 1 for part in parts)
        summed.append(
            replace(
                first,
                right=tuple(sorted({broker for part in parts for broker in part.right})),
                count=max(part.count for part in parts)
                if keys_or_many
                else len({part.offset for part in parts}),
                keys=keys,
            )
        )
    return summed


def _harmless_differences(group: ReplicaGroup) -> Iterator[m.Harmless]:
    """Yield the differences that healthy replicas may have too."""
    read = [replica for replica in group.replicas if not replica.failure]
    if len(read) < 2:
        return
    if len({replica.state.segments for replica in read}) > 1:
        yield m.Harmless("segments")
    starts = {replica.state.log_start for replica in read}
    for replica in read:
        if replica.limited:
            up_to = (
                f"broker {replica.broker} was compared up to {replica.end}, where its segments at rest end"
            )
            yield m.Harmless("running", up_to)
    if len(starts) > 1:
        late = ", ".join(str(replica.broker) for replica in read if replica.state.log_start == min(starts))
        more = (
            f"broker {late} begins earlier, at {min(starts)}, and still has what others have deleted, or only in "
            "remote storage, or lost: a first segment that is lost looks the same"
        )
        yield m.Harmless("log-start", more)
    if len({replica.headers.epoch_file for replica in read}) > 1:
        yield m.Harmless("epoch-file")
    if _differ_where_all_reach(read, group.differing):
        yield m.Harmless("cleaned-further")


def _possibly_lost_records(group: ReplicaGroup, content: ComparedRecords | None) -> Iterator[m.Harmless]:
    """Yield missing records that no known cleaning explains, if the topic is only assumed to be compacted."""
    missing = [pair for pair in content.records if pair.missing] if content and content.assumed else []
    if missing:
        pair = min(missing, key=lambda difference: (difference.first_missing, difference.other))
        count = f"{pair.missing:,} record{'s' if pair.missing > 1 else ''}"
        yield m.Harmless(
            m.NEVER_CLEANED,
            f"broker {group.replicas[pair.other].broker} lacks {count} from offset {pair.first_missing} on, where no "
            "cleaner is known to have been: if the topic is not compacted, they are lost; then say so with "
            "--topic-config or --set cleanup.policy=delete",
        )


def _differ_where_all_reach(read: Sequence[Replica], differing: Sequence[int]) -> bool:
    """Return whether a range of offsets differs that all logs cover; at the end of a shorter log, ranges often do."""
    low = max(replica.state.log_start for replica in read)
    high = min(replica.end for replica in read)
    same_ends = (
        len({replica.end for replica in read}) == 1
        and len({replica.state.log_start for replica in read}) == 1
    )
    return any(
        same_ends or (low <= number << RANGE_BITS and (number + 1) << RANGE_BITS <= high)
        for number in differing
    )


def _column(replica: Replica, disagreements: Sequence[m.Disagreement]) -> m.ReplicaColumn:
    verdicts = [
        m.VERDICT_OF[disagreement.kind]
        for disagreement in disagreements
        if replica.broker in disagreement.brokers
    ]
    worst = min(verdicts, key=m.VERDICTS.index, default="")
    if not worst and any(replica.broker in disagreement.must_not_lead for disagreement in disagreements):
        worst = m.MUST_NOT_LEAD
    state = replica.state
    return m.ReplicaColumn(
        broker=replica.broker,
        log_start=state.log_start,
        log_end=replica.end,
        last_stable_offset=last_stable_offset(replica.transactions, replica.end),
        high_watermark=state.high_watermark,
        cleaner_position=state.cleaner_position,
        clean_stop=state.clean_stop,
        log_bytes=state.log_bytes,
        segments=len(state.segments),
        state={"": m.AS_IT_SHOULD_BE, m.DIVERGED: "wrong", m.DECIDED_BY_LEADER: m.IS_BEHIND}.get(
            worst, worst
        ),
        from_facts=replica.from_facts,
        highest_hole=replica.headers.highest_hole,
        limited=replica.limited,
    )


# -- comparison of the transactions of two replicas, from their batch headers
#
# Which leader a follower catches up from decides how its open transactions end. The follower fetches from its own end
# on. If the leader has already removed the marker of a transaction, the marker never arrives, and the transaction ends
# with the producer's next marker, COMMIT or ABORT, or never. ``keys`` judges the same case for tombstones.
#
# Source: Cleaner.shouldDiscardBatch, ProducerStateManager (3.9.2); run on clusters of 3.9.2 and 4.3.1.

KIND_NAMES: Final = {0: "ABORT", 1: "COMMIT"}
_WITNESSES_NEEDED: Final = 2
"""Columns of ``Replica.index_aborts``."""


def judge_transactions(mine: Replica, others: Sequence[tuple[Replica, int]]) -> Iterator[Disagreement]:
    """Yield the disagreements on the transactions of one replica (``mine``), compared with other replicas.

    Args:
        others: other replicas, each with the offset of its fork from mine; offsets from the fork on are not judged.
    """
    for other, fork in others:
        yield from _missed_markers(mine, other, min(mine.end, other.end, fork))
    yield from _cleaned_elsewhere(mine, others)
    yield from _earlier_aborts(mine, others)


def _missed_markers(mine: Replica, other: Replica, high: int) -> Iterator[Disagreement]:
    """Find transactions of mine inside which the other replica has a marker: this marker never arrived here."""
    rows = mine.transactions[
        (mine.transactions[:, T_FIRST] != NONE) & ~touching(mine.transactions, mine.damaged_ranges)
    ]
    next_rows = next_markers(other, rows)
    limits = np.where(rows[:, T_MARKER] == NONE, high, np.minimum(rows[:, T_MARKER], high))
    inside = (next_rows[:, T_MARKER] != NONE) & (next_rows[:, T_MARKER] < limits)
    rows, next_rows = rows[inside], next_rows[inside]
    is_open, same = rows[:, T_MARKER] == NONE, rows[:, T_KIND] == next_rows[:, T_KIND]
    aborted = rows[:, T_KIND] == ABORT
    for kind, chosen in (
        (STUCK, is_open),
        (MARKER_MISSED, ~is_open & same),
        (COMMITTED_TO_ABORTED, ~is_open & ~same & aborted),
        (ABORTED_TO_COMMITTED, ~is_open & ~same & ~aborted),
    ):
        if chosen.any():
            index = int(np.where(chosen, rows[:, T_FIRST], np.iinfo(np.int64).max).argmin())
            text = _marker_text(mine, other, rows[index], next_rows[index])
            first = int(rows[index, T_FIRST])
            yield disagreement_of(kind, (mine.broker,), first, text, count=int(chosen.sum()))


def next_markers(other: Replica, rows: Int64s) -> Int64s:
    """Find, for each transaction, the other replica's row with the producer's next marker; ``NONE`` if none."""
    next_rows = np.full(rows.shape, NONE, np.int64)
    markers = other.transactions[other.transactions[:, T_MARKER] > other.transactions[:, T_FIRST]]
    if len(markers):
        indexes = _first_rows_not_below(markers, T_MARKER, rows[:, T_PRODUCER], rows[:, T_FIRST] + 1)
        there = indexes < len(markers)
        there[there] = markers[indexes[there], T_PRODUCER] == rows[there, T_PRODUCER]
        next_rows[there] = markers[indexes[there]]
    return next_rows


def _first_rows_not_below(table: Int64s, column: int, producers: Int64s, offsets: Int64s) -> Int64s:
    """Search a sorted table: return, for each (producer, offset), the index of the first row that is not below it.

    Args:
        table: int64[N, ...], ascending by producer (column 0), then by the other column.
        column: second sort column.
    """
    low = np.zeros(len(producers), np.int64)
    high = np.full(len(producers), len(table), np.int64)
    for _ in range(len(table).bit_length()):
        middle = np.minimum((low + high) // 2, len(table) - 1)
        known = table[middle, T_PRODUCER]
        below = (known < producers) | ((known == producers) & (table[middle, column] < offsets))
        below &= low < high
        low, high = np.where(below, middle + 1, low), np.where(below, high, np.minimum(middle, high))
    return low


def _marker_text(mine: Replica, other: Replica, row: Int64s, marker: Int64s) -> str:
    producer, first, at = int(row[T_PRODUCER]), int(row[T_FIRST]), int(marker[T_MARKER])
    theirs = f"broker {other.broker} has its {KIND_NAMES.get(int(marker[T_KIND]), 'marker')} at {at}"
    if row[T_MARKER] == NONE:
        return f"producer {producer}'s transaction from {first} is open on broker {mine.broker}; {theirs}"
    own = f"the {KIND_NAMES.get(int(row[T_KIND]), 'marker')} at {int(row[T_MARKER])}"
    return f"producer {producer}'s records from {first} end with {own} on broker {mine.broker}; {theirs}"


def _cleaned_elsewhere(mine: Replica, others: Sequence[tuple[Replica, int]]) -> Iterator[Disagreement]:
    """Find my open transactions that another replica's cleaner has passed, and whose marker no replica has any more.

    A cleaner never passes an open transaction, so the transaction had ended there. If a replica still has a marker
    above my end, mine is only behind, and ``_who_must_lead`` judges it.
    """
    if mine.damaged_ranges:
        return
    rows = open_transactions(mine.transactions)
    for other, fork in others:
        ends = next_markers(other, rows)[:, T_MARKER]
        rows = rows[(ends == NONE) | (ends >= fork)]
    witnesses = [
        (other, past)
        for other, fork in others
        if other.end >= mine.end
        and not other.damaged_ranges
        and len(past := _cleaned_away_on(other, rows, min(mine.end, fork)))
    ]
    for other, past in witnesses:
        first = past[past[:, T_FIRST].argmin()]
        offset = int(first[T_FIRST])
        text = (
            f"producer {first[T_PRODUCER]}'s transaction from {offset} is open on broker {mine.broker}; broker "
            f"{other.broker} has cleaned past it (to {other.first_dirty_offset}), so it was over there"
        )
        brokers = [mine.broker]
        if other.last_gap_end > offset and len(witnesses) == 1:  # several others did not all lose a file
            text += f", or broker {other.broker} has lost a file with its marker"
            brokers.append(other.broker)
        yield disagreement_of(STUCK, brokers, offset, text, count=len(past))


def _cleaned_away_on(other: Replica, rows: Int64s, high: int) -> Int64s:
    """Select the transactions whose batches another replica has cleaned away."""
    rows = rows[(rows[:, T_FIRST] < min(other.first_dirty_offset, high)) & (rows[:, T_LAST] >= other.start)]
    held = [_has_batches_of(other, row) for row in rows]
    over: Int64s = rows[~np.array(held, bool)]
    return over


def _has_batches_of(other: Replica, row: Int64s) -> bool:
    """Return whether a replica has batches of the same producer in the offsets of a transaction."""
    table = other.transactions
    begin, end = np.searchsorted(table[:, T_PRODUCER], [row[T_PRODUCER], row[T_PRODUCER] + 1])
    theirs = table[begin:end]
    overlaps = (
        (theirs[:, T_FIRST] != NONE)
        & (theirs[:, T_FIRST] <= row[T_LAST])
        & (row[T_FIRST] <= theirs[:, T_LAST])
    )
    return bool(overlaps.any())


def _earlier_aborts(mine: Replica, others: Sequence[tuple[Replica, int]]) -> Iterator[Disagreement]:
    """Find aborted transactions that begin earlier here than on others: a marker between the starts never arrived here.

    A later start alone proves nothing: an index that is built from a cleaned log begins later too. A witness is a
    replica with a later start whose own cleaner has passed my start. If my transaction has two producer epochs, one
    witness is enough. Otherwise at least two other replicas must have the ABORT in their index, and all of them must be
    witnesses that still have data at their start, which their cleaner has not passed.
    """
    aborts = mine.index_aborts
    if mine.damaged_ranges or not len(aborts) or not others:
        return
    first = aborts[:, A_FIRST]
    own = _transactions_ended_by(mine.transactions, aborts)
    certain = (own[:, T_EPOCHS] != NONE) & (own[:, T_EPOCHS] != 0)
    known, later = [], []
    for other, fork in others:
        begins = _first_offsets(other, aborts)
        low, high = max(mine.start, other.start), min(mine.end, other.end, fork)
        known.append((begins != NONE) & (first >= low) & (first < high))
        # whole: no cleaner has removed the first data of this transaction from the other replica.
        starts = _transactions_ended_by(other.transactions, aborts)[:, T_FIRST]
        whole = (begins >= other.first_dirty_offset) & (starts == begins)
        # A replica whose cleaner has not passed my start may have fetched a cleaned log and built its index from that.
        later.append(known[-1] & (begins > first) & (other.first_dirty_offset > first) & (certain | whole))
    indexed, witnesses = np.sum(known, axis=0), np.sum(later, axis=0)
    wrong = np.flatnonzero(
        (witnesses > 0) & (certain | ((witnesses == indexed) & (indexed >= _WITNESSES_NEEDED)))
    )
    if not len(wrong):
        return
    index = int(wrong[first[wrong].argmin()])
    producer, begin, marker = aborts[index].tolist()
    other = next(other for (other, _), of_it in zip(others, later, strict=True) if of_it[index])
    text = (
        f"the ABORT of producer {producer} at {marker} begins at offset {begin} on broker {mine.broker}, "
        f"and at {int(_first_offsets(other, aborts[index : index + 1])[0])} on broker {other.broker}: an earlier "
        f"marker never came to broker {mine.broker}"
    )
    yield disagreement_of(COMMITTED_TO_ABORTED, (mine.broker,), begin, text, count=len(wrong))


def _first_offsets(other: Replica, aborts: Int64s) -> Int64s:
    """Return the first offset in another replica's index of the same ABORTs, ``NONE`` where it has none."""
    theirs = other.index_aborts
    theirs = theirs[np.lexsort((theirs[:, A_MARKER], theirs[:, A_PRODUCER]))]
    return _matching_rows(theirs, A_MARKER, aborts)[:, A_FIRST]


def _transactions_ended_by(transactions: Int64s, aborts: Int64s) -> Int64s:
    """Return the transactions that end with these ABORTs, ``NONE`` in all columns where there is none."""
    return _matching_rows(transactions[transactions[:, T_MARKER] != NONE], T_MARKER, aborts)


def _matching_rows(table: Int64s, column: int, aborts: Int64s) -> Int64s:
    """Return the rows of a table with the ABORTs' producer and marker, ``NONE`` in all columns where there is none."""
    rows = np.full((len(aborts), table.shape[1]), NONE, np.int64)
    if not len(table):
        return rows
    producers, markers = aborts[:, A_PRODUCER], aborts[:, A_MARKER]
    indexes = np.minimum(_first_rows_not_below(table, column, producers, markers), len(table) - 1)
    same = (table[indexes, T_PRODUCER] == producers) & (table[indexes, column] == markers)
    rows[same] = table[indexes[same]]
    return rows


class Harm(NamedTuple):
    """Effect on open transactions of a replica that is behind, if one broker leads it.

    Attributes:
        kind: ``STUCK``, ``ABORTED_TO_COMMITTED`` or ``COMMITTED_TO_ABORTED``.
        first: first offset of the earliest of these transactions.
    """

    leader: int
    kind: str
    first: int


def harm_by_leaders(mine: Replica, leaders: Sequence[Replica]) -> Iterator[Harm]:
    """Yield the harm of each leader that has removed a marker which the replica that is behind still needs."""
    rows = open_transactions(mine.transactions)
    rows = rows[~touching(rows, mine.damaged_ranges)]
    if not len(rows) or not leaders:
        return
    next_rows = np.stack([next_markers(candidate, rows) for candidate in leaders])
    markers = np.where(next_rows[:, :, T_MARKER] == NONE, NOWHERE, next_rows[:, :, T_MARKER])
    index = markers.argmin(axis=0)
    marker = markers[index, np.arange(len(rows))]
    kind = next_rows[index, np.arange(len(rows)), T_KIND]
    # A marker below my end should have arrived: then this replica is wrong already, whoever leads.
    comes = (marker != NOWHERE) & (marker >= mine.end)
    for number, candidate in enumerate(leaders):
        if candidate.damaged_ranges:
            continue
        lacks = (
            comes
            & (marker < candidate.end)
            & (rows[:, T_LAST] >= candidate.start)
            & (markers[number] > marker)
        )
        ends = next_rows[number, :, T_KIND]
        for harm, chosen in (
            (STUCK, lacks & (markers[number] == NOWHERE)),
            (ABORTED_TO_COMMITTED, lacks & (kind == ABORT) & (ends == COMMIT)),
            (COMMITTED_TO_ABORTED, lacks & (kind == COMMIT) & (ends == ABORT)),
        ):
            if chosen.any():
                yield Harm(candidate.broker, harm, int(rows[chosen, T_FIRST].min()))


def certainly_committed(mine: Replica, leader: Replica) -> tuple[int, int]:
    """Return the offsets (first, end) of my open records that certainly become committed under this leader.

    Offsets do not tell the transaction of a record. So it is certain only where all open transactions get a COMMIT.
    """
    rows = open_transactions(mine.transactions)
    commits = next_markers(leader, rows)[:, T_KIND] == COMMIT
    first = int(rows[commits, T_FIRST].min(initial=NOWHERE))
    return first, max(first, int(rows[~commits, T_FIRST].min(initial=mine.end)))
