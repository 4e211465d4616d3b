"""Judges the replicas of one partition, in two steps: by their headers, then by records where the headers differ. Pure.

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
    said,
)
from krepair.rules.replicas.replica import NOWHERE, Fork, Replica, find_fork

_AGREEING: Final = 2


@dataclass
class ReplicaGroup:
    """The replicas of one partition that have one topic id.

    Attributes:
        replicas: by broker.
        forks: (place, place) in ``replicas``, the lower first -> where their histories part.
        differing: numbers of ranges in which any two differ, ascending.
    """

    replicas: list[Replica]
    forks: dict[tuple[int, int], Fork] = field(default_factory=dict)
    differing: list[int] = field(default_factory=list)

    def fork_of(self, one: int, other: int) -> int:
        """Offset from which two are not compared."""
        fork = self.forks.get((min(one, other), max(one, other)))
        return NOWHERE if fork is None else fork.offset

    @property
    def never_cleaned_from(self) -> int:
        """Offset from which no cleaner of any of them is known to have been."""
        read = (one for one in self.replicas if not one.failure)
        return max((max(one.cleaner, one.headers.cleaned_to, 0) for one in read), default=0)

    def leaders_of(self, place: int) -> list[int]:
        """Places of the replicas that may lead one of them while it catches up: they are ahead of it.

        A running broker's replica is not read to its end, and of two histories one is cut first: neither counts.
        """
        mine = self.replicas[place]
        return [
            number
            for number, one in enumerate(self.replicas)
            if not (mine.failure or one.failure)
            and not (mine.limited or one.limited)
            and one.end > mine.end
            and self.fork_of(place, number) == NOWHERE
        ]

    def catch_ups(self) -> list[CatchUp]:
        """Who may lead whom."""
        return [
            CatchUp(
                follower=place,
                leader=leader,
                commits=certainly_committed(one, self.replicas[leader]),
            )
            for place, one in enumerate(self.replicas)
            for leader in self.leaders_of(place)
        ]


class RecordDifference(NamedTuple):
    """Two replicas of a group in offsets that they both cover.

    Attributes:
        one: place in the group.
        other: place in the group.
        differing: offsets at which both have a record, and another one.
        first_differing: the lowest, -1 none.
        missing: offsets that the first has and the other lacks.
        first_missing: the lowest, -1 none.
    """

    one: int
    other: int
    differing: int = 0
    first_differing: int = -1
    missing: int = 0
    first_missing: int = -1


@dataclass(frozen=True)
class ComparedRecords:
    """The result of the records of a group.

    Attributes:
        keys: what is wrong by key.
        records: pairs in which records differ or are missing.
        assumed: whether nobody has said that the topic is compacted: then what is missing may be lost.
    """

    keys: tuple[KeyFinding, ...] = ()
    records: tuple[RecordDifference, ...] = ()
    assumed: bool = False


def groups_of(replicas: Sequence[Replica]) -> list[ReplicaGroup]:
    """Replicas that may be compared: those of one topic id. One without an id belongs to the only id there is."""
    known = {one.state.topic_id for one in replicas if one.state.topic_id}
    by_id: dict[str, list[Replica]] = defaultdict(list)
    for one in replicas:
        by_id[one.state.topic_id or (next(iter(known)) if len(known) == 1 else "")].append(one)
    groups = [ReplicaGroup(sorted(found, key=lambda one: one.broker)) for found in by_id.values()]
    for group in groups:
        _look_at(group)
    return groups


def _look_at(group: ReplicaGroup) -> None:
    """Find forks and ranges that differ."""
    differing: set[int] = set()
    for (a, one), (b, other) in combinations(enumerate(group.replicas), 2):
        if one.failure or other.failure:
            continue
        fork = find_fork(one.history, other.history)
        if fork is not None:
            group.forks[a, b] = fork
        differing |= _differing_ranges(one, other, group.fork_of(a, b))
    group.differing = sorted(differing)


def _differing_ranges(one: Replica, other: Replica, fork: int) -> set[int]:
    """Numbers of ranges in which two replicas may differ, as far as both cover them."""
    low, high = max(one.state.log_start, other.state.log_start), min(one.end, other.end, fork)
    if low >= high:
        return set()
    tables = []
    for replica in (one, other):
        numbers = replica.ranges[:, 0].astype(np.int64)
        inside = (numbers >= low >> RANGE_BITS) & (numbers <= (high - 1) >> RANGE_BITS)
        tables.append({int(row[0]): tuple(row[1:].tolist()) for row in replica.ranges[inside]})
    return {number for number in {*tables[0], *tables[1]} if tables[0].get(number) != tables[1].get(number)}


def facts_of_header(group: ReplicaGroup) -> Iterator[m.Disagreement]:
    """What is wrong in a group by headers alone."""
    for one in group.replicas:
        yield from _alone(one)
    for (a, b), fork in group.forks.items():
        yield _of_fork(group.replicas[a], group.replicas[b], fork)
    saying = {place: one for place, one in enumerate(group.replicas) if not one.failure}
    for a, mine in saying.items():
        others = [(other, group.fork_of(a, b)) for b, other in saying.items() if b != a]
        yield from judge_transactions(mine, others)
    yield from _behind(group)


def _alone(one: Replica) -> Iterator[m.Disagreement]:
    """What is wrong with one replica, whatever the others have."""
    state = one.state
    if one.failure:
        kind = m.UNREADABLE if one.at_rest else m.NOT_AT_REST
        yield _of(kind, one, -1, one.failure)
        return
    for damage in one.corrupt:
        if damage.tail:
            yield _of(m.TORN, one, damage.first, damage.text)
        else:
            offsets = (
                f"offsets {damage.first} to {damage.last}"
                if damage.last > damage.first
                else f"offset {damage.first}"
            )
            yield _of(m.CORRUPT, one, damage.first, f"{damage.text}; of {offsets} it says nothing")
    if one.limited:
        return
    clean_cut = state.clean_stop and state.high_watermark > one.end
    if clean_cut or state.recovery_point > one.end:
        name, number = (
            ("high watermark", state.high_watermark)
            if clean_cut
            else ("recovery point", state.recovery_point)
        )
        yield _of(
            m.CUT,
            one,
            one.end,
            f"the log ends at {one.end}, below its recorded {name} {number}: records that were committed are gone",
        )


def _of(kind: str, one: Replica, offset: int, text: str) -> m.Disagreement:
    return m.said(kind, (one.broker,), offset, f"broker {one.broker}: {text}")


def _of_fork(one: Replica, other: Replica, fork: Fork) -> m.Disagreement:
    behind, ahead = (one, other) if fork.first_is_behind else (other, one)
    text = (
        f"from {fork.offset} on broker {behind.broker} has batches of leader epoch {fork.epoch} where broker "
        f"{ahead.broker} has epoch {fork.later} or later"
    )
    both, watermark = (one.broker, other.broker), behind.state.high_watermark
    if fork.offset < watermark:
        text = (
            f"{text}; broker {behind.broker} had them committed (its high watermark is {watermark}): two histories, "
            "neither is right by itself"
        )
        return m.said(m.FORK, both, fork.offset, text)
    if behind.state.clean_stop and watermark >= 0:
        return _of(
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
    return m.said(m.FORK_UNSURE, both, fork.offset, text, would_tell=would_tell)


def _behind(group: ReplicaGroup) -> Iterator[m.Disagreement]:
    """Replicas that end before others: they fetch what they lack, as far as anybody has it."""
    read = [one for one in group.replicas if not one.failure]
    for one in read:
        if one.limited:
            continue
        cut, mark = one.cut_by_recovery, one.state.high_watermark
        others = [other for other in read if other is not one]
        top = max((other.end for other in others), default=-1)
        # a running broker has more than what is compared of it
        reach = max((other.read_to for other in others), default=-1)
        gone = not one.state.clean_stop and mark > max(one.end, reach) and len(read) == len(group.replicas)
        if cut >= 0:
            yield _cut_by_recovery(one, reach, gone=gone)
        elif gone:
            text = (
                f"the log ends at {one.end}, below its recorded high watermark {mark}, which no other replica here "
                "reaches: records that were committed are gone"
            )
            yield _of(m.CUT, one, one.end, text)
        elif one.end < top:
            lost = mark > one.end and not one.state.clean_stop
            more = f"; its high watermark was {mark}: the unclean stop cost its end" if lost else ""
            yield _of(m.BEHIND, one, one.end, f"ends at {one.end}, another replica at {top}{more}")


def _cut_by_recovery(one: Replica, reach: int, *, gone: bool) -> m.Disagreement:
    """What the next start does to a damaged end; it is damage like any other where nobody has what was committed."""
    cut = one.cut_by_recovery
    text = f"the start after its unclean stop cuts the log at {cut}"
    if gone:
        first = next(found for found in one.headers.damages if found.first == cut)
        lost = f"below its recorded high watermark {one.state.high_watermark}, which no other replica here reaches"
        return _of(m.TORN if first.tail else m.CORRUPT, one, cut, f"{first.text}; {text}, {lost}")
    goes_on = reach > cut
    rest = "it fetches the rest again" if goes_on else "no other replica that was read goes on from there"
    return _of(m.BEHIND, one, cut, f"{text}, and {rest}")


def verdict_of(
    topic: str,
    partition: int,
    replicas: Sequence[Replica],
    groups: Sequence[ReplicaGroup],
    contents: Sequence[ComparedRecords | None],
) -> m.PartitionVerdict:
    """The verdict on a partition.

    Args:
        topic: its name.
        partition: its number.
        replicas: all of them.
        groups: from ``groups_of``.
        contents: of each group the result of its records, None if they did not have to be read.
    """
    found = list(_topic_ids(replicas))
    for group, content in zip(groups, contents, strict=True):
        found += facts_of_header(group)
        if content is not None:
            found += _of_content(group, content)
    wrong = {broker for one in found if one.kind != m.BEHIND for broker in one.brokers}
    decided = [
        one
        for group, content in zip(groups, contents, strict=True)
        for one in _who_leads(group, content, wrong)
    ]
    late = {one.brokers for one in decided}
    found = [one for one in found if one.kind != m.BEHIND or one.brokers not in late] + decided
    disagreements = [_with_rest(one, found, replicas) for one in _summed(found)]
    worst = min((m.VERDICTS.index(m.VERDICT_OF[one.kind]) for one in disagreements), default=-1)
    harmless = tuple(
        sorted(
            {
                name
                for group, content in zip(groups, contents, strict=True)
                for name in (*_harmless(group), *_unexplained(group, content))
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
    blamed = {broker for one in disagreements for broker in one.brokers}
    right = tuple(one.broker for one in replicas if one.broker not in blamed)
    if len(replicas) == 1 or verdict == m.CANNOT_TELL:
        right = ()
    columns = tuple(_column(one, disagreements) for one in replicas)
    return m.PartitionVerdict(
        topic=topic,
        partition=partition,
        verdict=verdict,
        disagreements=tuple(_with_right(one, right, columns) for one in disagreements),
        harmless=harmless,
        right=right,
        replicas=columns,
        records_read=any(content is not None for content in contents),
    )


def _with_rest(
    one: m.Disagreement, found: Sequence[m.Disagreement], replicas: Sequence[Replica]
) -> m.Disagreement:
    """What is damaged, with what is known of the rest of that replica."""
    if one.kind != m.CORRUPT or sum(1 for replica in replicas if not replica.failure) < _AGREEING:
        return one
    accused = any(
        set(one.brokers) & set(other.brokers) and m.VERDICT_OF[other.kind] in {m.DIVERGED, m.CANNOT_TELL}
        for other in found
    )
    rest = "what else is wrong with it stands by itself" if accused else "the rest of it is as on the others"
    return replace(one, text=f"{one.text}; {rest}")


def _with_right(
    one: m.Disagreement, right: tuple[int, ...], columns: Sequence[m.ReplicaColumn]
) -> m.Disagreement:
    if m.VERDICT_OF[one.kind] not in {m.DIVERGED, m.DAMAGED} or one.kind in {m.FORK, m.TOPIC_ID}:
        return replace(one, right=())
    if one.kind == m.CUT or m.VERDICT_OF[one.kind] == m.DAMAGED:
        committed = max(column.high_watermark for column in columns if column.broker in one.brokers)
        whole = (column for column in columns if column.has_each(one.offset, committed))
        right = tuple(column.broker for column in whole if column.broker in right)
    return replace(one, right=right)


def _topic_ids(replicas: Sequence[Replica]) -> Iterator[m.Disagreement]:
    ids = sorted({one.state.topic_id for one in replicas if one.state.topic_id})
    if len(ids) > 1:
        each = ", ".join(f"broker {one.broker} {one.state.topic_id or 'none'}" for one in replicas)
        text = (
            f"topic ids: {each}: the topic was deleted and created again; only the cluster's metadata says which is "
            "current, and replicas of different ids are not compared"
        )
        yield m.said(m.TOPIC_ID, (one.broker for one in replicas), -1, text)


_KEY_TEXTS: Final = {
    m.TOMBSTONE_MISSED: "has {count} whose tombstone it never got, while another replica removed them: as leader it "
    "serves deleted keys again",
    m.TOMBSTONE_OR_ABORT_MISSED: "serves {count} that another replica cleaned away without a later record: a tombstone "
    "or an ABORT never came here",
    m.ABORTED_TO_COMMITTED: "counts records of {count} as committed that another replica removed as aborted",
    m.LOST: "lacks the last record of {count}, in offsets that it has never cleaned or whose file is gone",
    m.UNKNOWN_LOSS: "lacks the last record of {count}: it may have lost them, or the others missed their tombstones",
}


def _of_content(group: ReplicaGroup, content: ComparedRecords) -> Iterator[m.Disagreement]:
    for finding in content.keys:
        if finding.kind == m.LEADER_DECIDES:
            continue
        number = f"{finding.count:,} key{'s' if finding.count > 1 else ''}"
        yield m.said(
            finding.kind,
            (finding.broker,),
            finding.first,
            f"broker {finding.broker} {_KEY_TEXTS[finding.kind].format(count=number)}",
            count=finding.count,
            would_tell="a third replica, or a backup of this one" if finding.kind == m.UNKNOWN_LOSS else "",
            keys=_key_lines(finding.examples),
        )
    for pair in content.records:
        one, other = group.replicas[pair.one], group.replicas[pair.other]
        if pair.differing:
            odd = _odd_one(content.records, pair, len(group.replicas))
            wrong = (one.broker, other.broker) if odd < 0 else (group.replicas[odd].broker,)
            text = (
                f"brokers {one.broker} and {other.broker} have other records at the same {pair.differing:,} "
                f"offset{'s' if pair.differing > 1 else ''} and leader epoch"
            )
            yield m.said(m.RECORD_DIFFERS, wrong, pair.first_differing, text, count=pair.differing)
        if pair.missing and not content.assumed:
            text = (
                f"broker {other.broker} lacks {pair.missing:,} record{'s' if pair.missing > 1 else ''} that broker "
                f"{one.broker} has, where nothing was ever cleaned (if the topic is compacted, say so with "
                "--topic-config or --set cleanup.policy=compact)"
            )
            yield m.said(m.LOST, (other.broker,), pair.first_missing, text, count=pair.missing)


def _who_leads(
    group: ReplicaGroup, content: ComparedRecords | None, wrong: set[int]
) -> Iterator[m.Disagreement]:
    """Replicas that are behind, and that a leader of their records can do harm to.

    Args:
        group: the replicas.
        content: the result of their records.
        wrong: brokers whose replicas are wrong, or in doubt, by themselves.
    """
    for place, one in enumerate(group.replicas):
        leaders = [group.replicas[leader] for leader in group.leaders_of(place)]
        by_key = [
            finding
            for finding in (content.keys if content is not None else ())
            if finding.kind == m.LEADER_DECIDES and finding.broker == one.broker
        ]
        harm: dict[int, list[str]] = {finding.leader: [_old(finding.count)] for finding in by_key}
        for found in harm_by_leaders(one, leaders):
            harm.setdefault(found.leader, []).append(_HARM[found.kind].format(first=found.first))
        if not harm.keys() - wrong:
            continue
        fine = tuple(leader.broker for leader in leaders if leader.broker not in {*harm, *wrong})
        texts = [
            f"led by broker {leader}, which no longer has what comes next, it would {' and '.join(what)}"
            for leader, what in sorted(harm.items())
        ]
        if fine:
            advice = f"let broker {' or '.join(map(str, fine))} lead until broker {one.broker} has caught up"
        elif any(other.failure or other.limited for other in group.replicas):
            advice = (
                "of those that could be read to their end, none can lead it without harm: stop the other brokers, and "
                "compare again, or fetch it anew"
            )
        else:
            advice = "no other replica here can lead it without harm: it has to be fetched anew"
        keys = next((finding.examples for finding in by_key), ())
        yield replace(
            m.said(
                m.LEADER_DECIDES,
                (one.broker,),
                one.end,
                f"broker {one.broker} ends at {one.end}; {'; '.join(texts)}; {advice}",
                count=max((finding.count for finding in by_key), default=1),
                keys=_key_lines(keys),
            ),
            may_lead=fine,
            must_not_lead=tuple(sorted(harm)),
        )


_HARM: Final = {
    m.STUCK: "stand still at offset {first}",
    m.ABORTED_TO_COMMITTED: "serve aborted records from offset {first}",
    m.COMMITTED_TO_ABORTED: "hide committed records from offset {first}",
}


def _old(count: int) -> str:
    return f"serve old records of {count:,} key{'s' if count > 1 else ''}"


def _key_lines(
    examples: Iterable[tuple[int, int, int, tuple[int, ...], tuple[int, ...]]],
) -> tuple[m.KeyLine, ...]:
    return tuple(
        m.KeyLine(offset=offset, key=f"{first:016x}{second:016x}", have=have, lack=lack)
        for first, second, offset, have, lack in examples
    )


def _odd_one(records: Sequence[RecordDifference], pair: RecordDifference, replicas: int) -> int:
    """The place of the replica that alone has other records than all others, at the same first offset; -1 none."""
    same = [
        {one.one, one.other}
        for one in records
        if one.differing and one.first_differing == pair.first_differing
    ]
    for place in (pair.one, pair.other):
        if len(same) >= _AGREEING and all(place in pair_of for pair_of in same) and replicas > _AGREEING:
            return place
    return -1


def _summed(found: Iterable[m.Disagreement]) -> list[m.Disagreement]:
    """One of each kind and brokers: the one with the lowest offset, and the sum."""
    by_kind: dict[tuple[str, tuple[int, ...]], list[m.Disagreement]] = defaultdict(list)
    for one in found:
        by_kind[one.kind, one.brokers].append(one)
    order = {kind: number for number, kind in enumerate(m.RULE_OF)}
    summed = []
    for _, parts in sorted(by_kind.items(), key=lambda item: (order[item[0][0]], item[0][1])):
        first = min(parts, key=lambda one: (one.offset, -len(one.keys)))
        keys = next((one.keys for one in parts if one.keys), ())
        keys_or_many = bool(keys) or any(one.count > 1 for one in parts)
        summed.append(
            replace(
                first,
                right=tuple(sorted({broker for one in parts for broker in one.right})),
                count=max(one.count for one in parts) if keys_or_many else len({one.offset for one in parts}),
                keys=keys,
            )
        )
    return summed


def _harmless(group: ReplicaGroup) -> Iterator[m.Harmless]:
    """What differs between healthy replicas, too."""
    read = [one for one in group.replicas if not one.failure]
    if len(read) < 2:
        return
    if len({one.state.segments for one in read}) > 1:
        yield m.Harmless("segments")
    starts = {one.state.log_start for one in read}
    for one in read:
        if one.limited:
            up_to = f"broker {one.broker} was compared up to {one.end}, where its segments at rest end"
            yield m.Harmless("running", up_to)
    if len(starts) > 1:
        late = ", ".join(str(one.broker) for one in read if one.state.log_start == min(starts))
        more = (
            f"broker {late} begins earlier, at {min(starts)}, and still has what others have deleted, or only in "
            "remote storage, or lost: a first segment that is lost looks the same"
        )
        yield m.Harmless("log-start", more)
    if len({one.headers.epoch_file for one in read}) > 1:
        yield m.Harmless("epoch-file")
    if _differ_inside(read, group.differing):
        yield m.Harmless("cleaned-further")


def _unexplained(group: ReplicaGroup, content: ComparedRecords | None) -> Iterator[m.Harmless]:
    """Records that are missing above all known cleaning, where the topic is only taken for a compacted one."""
    missing = [pair for pair in content.records if pair.missing] if content and content.assumed else []
    if missing:
        pair = min(missing, key=lambda one: (one.first_missing, one.other))
        count = f"{pair.missing:,} record{'s' if pair.missing > 1 else ''}"
        yield m.Harmless(
            m.NEVER_CLEANED,
            f"broker {group.replicas[pair.other].broker} lacks {count} from offset {pair.first_missing} on, where no "
            "cleaner is known to have been: if the topic is not compacted, they are lost; then say so with "
            "--topic-config or --set cleanup.policy=delete",
        )


def _differ_inside(read: Sequence[Replica], differing: Sequence[int]) -> bool:
    """Whether a range that all cover whole differs; one at the end of a shorter log always does."""
    low = max(one.state.log_start for one in read)
    high = min(one.end for one in read)
    same_ends = len({one.end for one in read}) == 1 and len({one.state.log_start for one in read}) == 1
    return any(
        same_ends or (low <= number << RANGE_BITS and (number + 1) << RANGE_BITS <= high)
        for number in differing
    )


def _column(one: Replica, disagreements: Sequence[m.Disagreement]) -> m.ReplicaColumn:
    verdicts = [m.VERDICT_OF[found.kind] for found in disagreements if one.broker in found.brokers]
    worst = min(verdicts, key=m.VERDICTS.index, default="")
    if not worst and any(one.broker in found.must_not_lead for found in disagreements):
        worst = m.MUST_NOT_LEAD
    state = one.state
    return m.ReplicaColumn(
        broker=one.broker,
        log_start=state.log_start,
        log_end=one.end,
        last_stable_offset=last_stable_offset(one.transactions, one.end),
        high_watermark=state.high_watermark,
        cleaner_position=state.cleaner_position,
        clean_stop=state.clean_stop,
        log_bytes=state.log_bytes,
        segments=len(state.segments),
        state={"": m.AS_IT_SHOULD_BE, m.DIVERGED: "wrong", m.DECIDED_BY_LEADER: m.IS_BEHIND}.get(
            worst, worst
        ),
        from_facts=one.from_facts,
        highest_hole=one.headers.highest_hole,
        limited=one.limited,
    )


# -- the transactions of two replicas, from the rows of their headers
#
# Who leads while a replica catches up decides what becomes of it. A follower fetches from its own end on, and keeps
# what it has below. A marker above that end which its leader has removed never comes. So its open transaction ends with
# the next marker of its producer, whatever that says, or never. The same with tombstones is judged by key (``keys``).
#
# Source: Cleaner.shouldDiscardBatch, ProducerStateManager (3.9.2); run on clusters of 3.9.2 and 4.3.1.

KIND_NAMES: Final = {0: "ABORT", 1: "COMMIT"}
_WITNESSES: Final = 2
A_PRODUCER, A_FIRST, A_MARKER = range(3)
"""Columns of ``Replica.index_aborts``."""


def judge_transactions(mine: Replica, others: Sequence[tuple[Replica, int]]) -> Iterator[Disagreement]:
    """What is wrong with the transactions of one replica, by those of others.

    Args:
        mine: of the replica that is judged.
        others: of the other replicas, each with the first offset of two histories with mine; nothing from there on is
            judged.
    """
    for other, fork in others:
        yield from _missed_markers(mine, other, min(mine.end, other.end, fork))
    yield from _cleaned_past(mine, others)
    yield from _longer_aborts(mine, others)


def _missed_markers(mine: Replica, other: Replica, high: int) -> Iterator[Disagreement]:
    """Find markers of the other replica that lie inside one of my transactions: these markers never came here."""
    rows = mine.transactions[
        (mine.transactions[:, T_FIRST] != NONE) & ~touching(mine.transactions, mine.hidden)
    ]
    found = next_markers(other, rows)
    limits = np.where(rows[:, T_MARKER] == NONE, high, np.minimum(rows[:, T_MARKER], high))
    inside = (found[:, T_MARKER] != NONE) & (found[:, T_MARKER] < limits)
    rows, found = rows[inside], found[inside]
    is_open, same = rows[:, T_MARKER] == NONE, rows[:, T_KIND] == found[:, T_KIND]
    aborted = rows[:, T_KIND] == ABORT
    for kind, chosen in (
        (STUCK, is_open),
        (MARKER_MISSED, ~is_open & same),
        (COMMITTED_TO_ABORTED, ~is_open & ~same & aborted),
        (ABORTED_TO_COMMITTED, ~is_open & ~same & ~aborted),
    ):
        if chosen.any():
            place = int(np.where(chosen, rows[:, T_FIRST], np.iinfo(np.int64).max).argmin())
            text = _of_marker(mine, other, rows[place], found[place])
            first = int(rows[place, T_FIRST])
            yield said(kind, (mine.broker,), first, text, count=int(chosen.sum()))


def next_markers(other: Replica, rows: Int64s) -> Int64s:
    """Of each transaction the row of another replica with the next marker of its producer, ``NONE`` without one.

    Args:
        other: the other replica.
        rows: int64[N, TRANSACTION_COLUMNS], with data.
    """
    found = np.full(rows.shape, NONE, np.int64)
    markers = other.transactions[other.transactions[:, T_MARKER] > other.transactions[:, T_FIRST]]
    if len(markers):
        places = _places(markers, T_MARKER, rows[:, T_PRODUCER], rows[:, T_FIRST] + 1)
        there = places < len(markers)
        there[there] = markers[places[there], T_PRODUCER] == rows[there, T_PRODUCER]
        found[there] = markers[places[there]]
    return found


def _places(table: Int64s, column: int, producers: Int64s, offsets: Int64s) -> Int64s:
    """Of each (producer, offset) the place of the first row of a table that is not below it.

    Args:
        table: int64[N, ...], ascending by producer (column 0), then by the other column.
        column: the other column.
        producers: int64[M].
        offsets: int64[M].
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


def _of_marker(mine: Replica, other: Replica, row: Int64s, marker: Int64s) -> str:
    producer, first, at = int(row[T_PRODUCER]), int(row[T_FIRST]), int(marker[T_MARKER])
    theirs = f"broker {other.broker} has its {KIND_NAMES.get(int(marker[T_KIND]), 'marker')} at {at}"
    if row[T_MARKER] == NONE:
        return f"producer {producer}'s transaction from {first} is open on broker {mine.broker}; {theirs}"
    own = f"the {KIND_NAMES.get(int(row[T_KIND]), 'marker')} at {int(row[T_MARKER])}"
    return f"producer {producer}'s records from {first} end with {own} on broker {mine.broker}; {theirs}"


def _cleaned_past(mine: Replica, others: Sequence[tuple[Replica, int]]) -> Iterator[Disagreement]:
    """Find my open transactions past which others have cleaned, and of which nobody has a marker any more.

    A cleaner never cleans past an open transaction, so it was over there. If anybody still has a marker above my end,
    I am only behind: then it decides who leads me.
    """
    if mine.hidden:
        return
    rows = open_transactions(mine.transactions)
    for other, fork in others:
        ends = next_markers(other, rows)[:, T_MARKER]
        rows = rows[(ends == NONE) | (ends >= fork)]
    witnesses = [
        (other, past)
        for other, fork in others
        if other.end >= mine.end
        and not other.hidden
        and len(past := _over_on(other, rows, min(mine.end, fork)))
    ]
    for other, past in witnesses:
        first = past[past[:, T_FIRST].argmin()]
        offset = int(first[T_FIRST])
        text = (
            f"producer {first[T_PRODUCER]}'s transaction from {offset} is open on broker {mine.broker}; broker "
            f"{other.broker} has cleaned past it (to {other.cleaner}), so it was over there"
        )
        brokers = [mine.broker]
        if other.last_gap_end > offset and len(witnesses) == 1:  # several others did not all lose a file
            text += f", or broker {other.broker} has lost a file with its marker"
            brokers.append(other.broker)
        yield said(STUCK, brokers, offset, text, count=len(past))


def _over_on(other: Replica, rows: Int64s, high: int) -> Int64s:
    """The transactions whose batches another replica has cleaned away."""
    rows = rows[(rows[:, T_FIRST] < min(other.cleaner, high)) & (rows[:, T_LAST] >= other.start)]
    held = [_holds(other, row) for row in rows]
    over: Int64s = rows[~np.array(held, bool)]
    return over


def _holds(other: Replica, row: Int64s) -> bool:
    """Whether a replica has batches of the same producer in the offsets of a transaction."""
    table = other.transactions
    begin, end = np.searchsorted(table[:, T_PRODUCER], [row[T_PRODUCER], row[T_PRODUCER] + 1])
    theirs = table[begin:end]
    found = (
        (theirs[:, T_FIRST] != NONE)
        & (theirs[:, T_FIRST] <= row[T_LAST])
        & (row[T_FIRST] <= theirs[:, T_LAST])
    )
    return bool(found.any())


def _longer_aborts(mine: Replica, others: Sequence[tuple[Replica, int]]) -> Iterator[Disagreement]:
    """Find ABORTs that begin earlier here than on others: a marker between the two starts never came here.

    An index that was made anew from a cleaned log also begins later, and that is harmless: a replica that fetched such
    a log makes its index from the batches that it got. So a later start alone proves nothing. A witness is a replica
    with a later start that has itself cleaned past my start. If my transaction has two producer epochs, one witness is
    enough. Otherwise at least two other replicas must have the ABORT in their index, and all of them must be witnesses
    that still have data at their start, which their cleaner has not passed.

    Args:
        mine: of the replica that is judged.
        others: of the other replicas, each with the first offset of two histories with mine.
    """
    aborts = mine.index_aborts
    if mine.hidden or not len(aborts) or not others:
        return
    first = aborts[:, A_FIRST]
    own = _markers_of(mine.transactions, aborts)
    certain = (own[:, T_EPOCHS] != NONE) & (own[:, T_EPOCHS] != 0)
    known, later = [], []
    for other, fork in others:
        begins = _begins(other, aborts)
        low, high = max(mine.start, other.start), min(mine.end, other.end, fork)
        known.append((begins != NONE) & (first >= low) & (first < high))
        # whole: it still has data at the start that its index names, and its cleaner has not passed that start.
        whole = (begins >= other.cleaner) & (_markers_of(other.transactions, aborts)[:, T_FIRST] == begins)
        # A replica that has not cleaned past my start may have fetched a clean log, and made its index from that.
        later.append(known[-1] & (begins > first) & (other.cleaner > first) & (certain | whole))
    told, witnesses = np.sum(known, axis=0), np.sum(later, axis=0)
    wrong = np.flatnonzero((witnesses > 0) & (certain | ((witnesses == told) & (told >= _WITNESSES))))
    if not len(wrong):
        return
    place = int(wrong[first[wrong].argmin()])
    producer, begin, marker = aborts[place].tolist()
    other = next(other for (other, _), of_it in zip(others, later, strict=True) if of_it[place])
    text = (
        f"the ABORT of producer {producer} at {marker} begins at offset {begin} on broker {mine.broker}, "
        f"and at {int(_begins(other, aborts[place : place + 1])[0])} on broker {other.broker}: an earlier marker "
        f"never came to broker {mine.broker}"
    )
    yield said(COMMITTED_TO_ABORTED, (mine.broker,), begin, text, count=len(wrong))


def _begins(other: Replica, aborts: Int64s) -> Int64s:
    """The first offset that the index of another replica tells of the same ABORTs, ``NONE`` where it has none."""
    theirs = other.index_aborts
    theirs = theirs[np.lexsort((theirs[:, A_MARKER], theirs[:, A_PRODUCER]))]
    return _same(theirs, A_MARKER, aborts)[:, A_FIRST]


def _markers_of(transactions: Int64s, aborts: Int64s) -> Int64s:
    """The transactions that end with ABORTs, ``NONE`` in all columns where there is none."""
    return _same(transactions[transactions[:, T_MARKER] != NONE], T_MARKER, aborts)


def _same(table: Int64s, column: int, aborts: Int64s) -> Int64s:
    """The rows of a table with the producer and the marker of ABORTs, ``NONE`` in all columns where there is none."""
    found = np.full((len(aborts), table.shape[1]), NONE, np.int64)
    if not len(table):
        return found
    producers, markers = aborts[:, A_PRODUCER], aborts[:, A_MARKER]
    places = np.minimum(_places(table, column, producers, markers), len(table) - 1)
    same = (table[places, T_PRODUCER] == producers) & (table[places, column] == markers)
    found[same] = table[places[same]]
    return found


# -- who leads while a replica catches up decides what becomes of it


class Harm(NamedTuple):
    """What becomes of open transactions of a replica that is behind, if one broker leads it.

    Attributes:
        leader: that broker.
        kind: ``STUCK``, ``ABORTED_TO_COMMITTED`` or ``COMMITTED_TO_ABORTED``.
        first: first offset of the first of these transactions.
    """

    leader: int
    kind: str
    first: int


def harm_by_leaders(mine: Replica, leaders: Sequence[Replica]) -> Iterator[Harm]:
    """Yield what leaders do to a replica that is behind: one of them still has a marker that another one has not.

    Args:
        mine: of the replica that is behind.
        leaders: of those that may lead it.
    """
    rows = open_transactions(mine.transactions)
    rows = rows[~touching(rows, mine.hidden)]
    if not len(rows) or not leaders:
        return
    found = np.stack([next_markers(one, rows) for one in leaders])
    markers = np.where(found[:, :, T_MARKER] == NONE, NOWHERE, found[:, :, T_MARKER])
    place = markers.argmin(axis=0)
    marker = markers[place, np.arange(len(rows))]
    kind = found[place, np.arange(len(rows)), T_KIND]
    # a marker below my end never came here: I am wrong already
    comes = (marker != NOWHERE) & (marker >= mine.end)
    for number, one in enumerate(leaders):
        if one.hidden:
            continue
        lacks = comes & (marker < one.end) & (rows[:, T_LAST] >= one.start) & (markers[number] > marker)
        ends = found[number, :, T_KIND]
        for what, chosen in (
            (STUCK, lacks & (markers[number] == NOWHERE)),
            (ABORTED_TO_COMMITTED, lacks & (kind == ABORT) & (ends == COMMIT)),
            (COMMITTED_TO_ABORTED, lacks & (kind == COMMIT) & (ends == ABORT)),
        ):
            if chosen.any():
                yield Harm(one.broker, what, int(rows[chosen, T_FIRST].min()))


def certainly_committed(mine: Replica, leader: Replica) -> tuple[int, int]:
    """(first offset, offset after the last) of my open records that this leader commits; equal if there are none.

    A record is known by its offset alone. So it is certain only where no other transaction is open.
    """
    rows = open_transactions(mine.transactions)
    commits = next_markers(leader, rows)[:, T_KIND] == COMMIT
    first = int(rows[commits, T_FIRST].min(initial=NOWHERE))
    return first, max(first, int(rows[~commits, T_FIRST].min(initial=mine.end)))
