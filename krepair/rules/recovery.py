"""Rules of ``--fix recovery``: the state in which a broker's recovery after an unclean stop leaves a partition.

``--fix recovery`` leaves a partition in that state and advances its recovery point, so that the start need not recover
it. These rules say which segments a start would recover, which leader epochs it would write, and why a recovery point
must not advance.

Source: ``Log.recoverLog``, ``LogSegment.recover`` (2.2.1), ``LogLoader.recoverLog`` (3.9.2, 4.3.1),
``LeaderEpochFileCache.assign`` and ``truncateFromEnd``; KAFKA-9065 (fixed in 2.4) for the topics of coordinators.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from krepair.derive.epochs import EpochStart, LogEpochs, clears_history
from krepair.formats.broker_version import Version
from krepair.formats.checkpoint import EpochEntry
from krepair.formats.damage import UnknownVersion
from krepair.formats.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    OFFSETS_TOPIC,
    RECOVERY_POINT_CHECKPOINT,
    TRANSACTIONS_TOPIC,
    log_name,
)
from krepair.next_command import LOG_DIR, NOTHING, PLAN, Next
from krepair.rules.damage import DamageAssessment
from krepair.rules.epochs import EpochReason, Recorded, merge_epochs, writes_epoch_zero
from krepair.rules.model import SegmentFacts, Skipped

LOADS_PAST_CLEANED_TAIL: Final = (2, 4, 0)
_LOADED_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
_CONTRADICTIONS: Final = frozenset({EpochReason.CONTRADICTED, EpochReason.DISORDER, EpochReason.NEGATIVE})
_FEW: Final = 3


def floor_of(bases: Sequence[int], point: int) -> int | None:
    """Return the base offset of the first segment that an unclean start recovers; None without segments.

    Args:
        bases: base offsets of all segments, ascending.
        point: recovery point. If it is past the log end, the last segment is still recovered.
    """
    if not bases:
        return None
    return max((base for base in bases if base <= point), default=bases[0])


def epochs_after_recovery(
    recorded: Sequence[EpochEntry], epoch_starts: Iterable[EpochStart], log_end: int, *, with_zero: bool
) -> tuple[EpochEntry, ...]:
    """Return the leader epochs after a recovery, which appends every epoch higher than the last one.

    Args:
        recorded: entries of the file, in its order.
        epoch_starts: starts of epochs in the segments that are recovered, ascending.
        log_end: offset after the last batch. Every start drops entries past it.
        with_zero: True if the broker version takes epoch 0 from the log.

    Returns:
        The entries after the recovery; ``recorded`` if the segments have no higher epoch.
    """
    kept = list(recorded)
    for epoch_start in epoch_starts:
        if (epoch_start.epoch == 0 and not with_zero) or (kept and epoch_start.epoch <= kept[-1].epoch):
            continue
        # LeaderEpochFileCache.assign removes the entries that start at or above a new one.
        while kept and kept[-1].start_offset >= epoch_start.first_offset:
            kept.pop()
        kept.append(EpochEntry(epoch_start.epoch, epoch_start.first_offset))
    if kept == list(recorded):
        return tuple(recorded)
    return tuple(entry for entry in kept if entry.start_offset <= log_end)


def why_not_rolled(topic: str, version: Version) -> str:
    """Return why krepair must not add an empty active segment to a log of the topic; empty if it may.

    Up to 2.3 a coordinator loops forever while it loads a log whose active segment is empty, if the cleaner has removed
    the last batches before it (KAFKA-9065). Without a new segment these batches remain in the active segment, which the
    cleaner does not touch.
    """
    if topic not in _LOADED_TOPICS or (version is not None and version >= LOADS_PAST_CLEANED_TAIL):
        return ""
    who = "the version of the broker is not known" if version is None else "the broker is older than 2.4"
    return f"it gets no new segment: {who}, and before 2.4 loading {topic} could loop forever (KAFKA-9065)"


class RecoveryPointFacts(NamedTuple):
    """Facts about a partition and its recovery point entry that are known before a log is read.

    Attributes:
        special: (name, kind) of a segment file that is not a regular file, None if all are.
        untouched: reason for not changing the partition's files, or empty.
        first: name of the fix that removes this reason, or empty.
        marked: names of the folders (``-delete``, ``-future``) whose start uses the same entry.
        is_file: True if the checkpoint is a regular file, or missing.
        damaged: True if the checkpoint is damaged; two entries of a partition are damage too.
    """

    special: tuple[str, str] | None
    untouched: str
    first: str
    marked: Sequence[str]
    is_file: bool
    damaged: bool


def why_recovery_point_stays(line: RecoveryPointFacts) -> Skipped | None:
    """Return the reason for which a recovery point must not advance, whatever the log holds; None if it may."""
    if line.special is not None:
        name, kind = line.special
        text = f"{name}: a regular file was expected, found a {kind}"
        return Skipped("special-file", text, damaged=True)
    if line.untouched:
        return skip_until_fixed("untouched", line.untouched, line.first)
    # A start loads a -delete or -future folder by the same entry: an advanced point would skip that log's recovery.
    if line.marked:
        return Skipped("marked-folder", f"{line.marked[0]} has the same line in {RECOVERY_POINT_CHECKPOINT}")
    if not line.is_file:
        return Skipped("special-file", f"{RECOVERY_POINT_CHECKPOINT} is no regular file")
    if line.damaged:
        return skip_until_fixed("checkpoint", f"{RECOVERY_POINT_CHECKPOINT} is damaged", "checkpoints")
    return None


def skip_until_fixed(code: str, why: str, fix: str = "") -> Skipped:
    """Return the reason for skipping a partition, with the command of the fix that comes first."""
    return Skipped(code, why, Next.of("plan", LOG_DIR, "--fix", fix, out=PLAN) if fix else NOTHING)


def why_damage_stays(damages: Iterable[DamageAssessment], why_not_mapped: str) -> Skipped | None:
    """Return why damage prevents the recovery of these logs; None if they have no damage except a torn tail.

    Args:
        damages: damage of the logs that a start would recover.
        why_not_mapped: reason why a log is not known to its end, or empty.
    """
    other = next((damage for damage in damages if not damage.torn), None)
    if why_not_mapped:
        return skip_until_fixed("damage", why_not_mapped)
    if other is not None:
        text = (
            f"{log_name(other.base_offset)} at position {other.range.start}: {other.rule}: {other.range.text}"
        )
        return skip_until_fixed(
            "damage", f"{text}; --fix tail names the consent that it needs", "tail,recovery"
        )
    return None


def why_ends_differ(segments: Sequence[SegmentFacts], log_start: int) -> Skipped | None:
    """Return the reason for skipping a partition with overlapping segments, or a log start past its log end; else None.

    A recovery point past the log end is no reason: a start then recovers the last segment.

    Args:
        segments: segments that a start would recover, in the state after the plan.
        log_start: offset in the log-start checkpoint, 0 if there is none, or if the plan removes it.
    """
    log_end = segments[-1].end_offset
    if any(facts.end_offset > after.base_offset for facts, after in pairwise(segments)):
        return skip_until_fixed("overlap", "two of its segments have the same offsets")
    if log_start > log_end:
        text = f"its log start {log_start} is past its log end {log_end}: the start deletes every segment"
        return skip_until_fixed("checkpoint", text, "checkpoints,recovery")
    return None


class EpochsAfter(NamedTuple):
    """Leader epochs after a recovery.

    Attributes:
        left: reason for skipping the partition, or None.
        entries: entries after the recovery; None if the file does not change.
    """

    left: Skipped | None = None
    entries: tuple[EpochEntry, ...] | None = None


def choose_epochs(
    recorded: Recorded,
    log: LogEpochs,
    segments: Sequence[SegmentFacts],
    version: Version,
    wrong: str,
    *,
    is_whole: bool,
) -> EpochsAfter:
    """Return the leader epochs after a recovery, or why they are unknown without ``--fix epochs``.

    Args:
        recorded: entries of the file as it is.
        log: epochs of the segments that are recovered.
        segments: segments that are recovered, in the state after the plan.
        version: version of the broker that will start.
        wrong: reason why the file could not be read, or empty.
        is_whole: True if these are all segments of the log.
    """
    merged = merge_epochs(recorded, log, version)
    contradicted = [each.text for each in merged.decisions if each.reason in _CONTRADICTIONS]
    if wrong or clears_history([segment.summary for segment in segments]):
        return EpochsAfter(
            skip_until_fixed("epochs", wrong or "older messages follow newer ones, which clears its epochs")
        )
    if recorded.damage or contradicted:
        if any(isinstance(fault, UnknownVersion) for fault in recorded.damage):
            return EpochsAfter(
                skip_until_fixed("epochs", f"{LEADER_EPOCH_CHECKPOINT}: {recorded.damage[0].text}")
            )
        text = f"{LEADER_EPOCH_CHECKPOINT} is damaged" if recorded.damage else "; ".join(contradicted[:_FEW])
        return EpochsAfter(skip_until_fixed("epochs", text, "epochs,recovery"))
    after = epochs_after_recovery(
        recorded.entries, log.epoch_starts, segments[-1].end_offset, with_zero=writes_epoch_zero(version)
    )
    if after == recorded.entries:
        return EpochsAfter()
    if not recorded.entries and not is_whole:
        # A recovery would write the epochs of its range alone. A later one reads less, and never adds the earlier ones.
        return EpochsAfter(
            skip_until_fixed("epochs", f"{LEADER_EPOCH_CHECKPOINT} has no entries", "epochs,recovery")
        )
    return EpochsAfter(entries=after)
