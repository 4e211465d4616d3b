"""The order of commit, and whether under the fence: chosen for a plan, and looked at once more before it is applied.

What it depends on are the active segments of all partitions, which a broker may have gone on writing since. The plan
holds a digest of what they were. Where they are the same by size and time, nothing has to be read again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from krepair.checks.tail import LOOK_AT_MOST_BYTES, holds_whole_batch
from krepair.fixes.context import Context, told_version
from krepair.fixes.logs import read_last_logs
from krepair.fixes.survey import Sight, Survey
from krepair.formats.filenames import log_name
from krepair.journal.actions.table import action_for
from krepair.journal.commit_order import DamagedSegment, choose_commit, damage_in_reach
from krepair.kernels.classes import D_NONE, D_PAST_END, D_TORN, D_ZEROS
from krepair.logdir.fingerprint import DIGEST_BYTES
from krepair.logdir.reading import opened_for_reading
from krepair.logdir.values import LogDir, Partition
from krepair.plan.model import Commit, PartitionPlan
from krepair.rules.model import SegmentFacts

_LAST: Final[Sight[SegmentFacts]] = Sight("facts of an active segment whose log is not read otherwise")


def commit_of(context: Context, partitions: Sequence[PartitionPlan], *, with_root: bool) -> Commit:
    """How the changes of a plan are swapped in.

    Raises:
        PersonDecidesError: that depends on a broker version that is not known.
    """
    lowest = lowest_changes(partitions)
    if lowest:
        version = context.options.broker_version or told_version(context.view)
        commit = choose_commit(lowest, _all_damage(context), version)
        return replace(commit, looked_at=active_segments(context.view))
    some = with_root or any(partition.changes for partition in partitions)
    why = "each file is replaced by one rename" if some else "nothing to commit"
    return Commit(order="P1", fence=True, why=why)


def lowest_changes(partitions: Iterable[PartitionPlan]) -> dict[str, int]:
    """Partition folder -> the lowest base offset from which a recovery has to begin while its changes are made."""
    lowest: dict[str, int] = {}
    for partition in partitions:
        froms = [action_for(change).recovers_from(change) for change in partition.changes]
        bases = [base for base in froms if base is not None]
        if bases:
            lowest[partition.folder] = min(bases)
    return lowest


def active_segments(view: LogDir) -> str:
    """32 hex digits over what tells of each active segment whether it is the same, and the clean-shutdown marker."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    digest.update(b"clean" if view.clean_shutdown else b"unclean")
    for partition in view.partitions:
        last = [(one.log.name, one.log.size, one.log.mtime_ns) for one in partition.segments[-1:]]
        digest.update(os.fsencode(f"{partition.folder}\0{last}\0{partition.unreadable}\0"))
    return digest.hexdigest()


def damage_met(context: Context, partitions: Sequence[PartitionPlan]) -> list[DamagedSegment]:
    """What a recovery under the fence would cut now, of all active segments; closed ones are known by fingerprints.

    Without a clean-shutdown marker active segments are recovered in any case, with the fence and without it.
    """
    if not context.view.clean_shutdown:
        return []
    readable = [one for one in context.view.partitions if one.segments and not one.unreadable]
    last = read_last_logs(context, context.survey_all(readable))
    damaged = [
        DamagedSegment(survey.partition.folder, facts.base_offset, active=True)
        for survey, facts in last
        if _would_lose(context.view, survey.partition, facts, active=True)
    ]
    return damage_in_reach(lowest_changes(partitions), damaged)


def _all_damage(context: Context) -> list[DamagedSegment]:
    """Damage of logs that were read, and of the active segments of all other partitions.

    The fence would have a broker recover those. Without a clean-shutdown marker it recovers them in any case.
    """
    read = [survey for survey in context.surveys.values() if survey.segments]
    found = [(survey, facts, facts is survey.segments[-1]) for survey in read for facts in survey.segments]
    if context.view.clean_shutdown:
        folders = {survey.partition.folder for survey in read}
        others = [
            partition
            for partition in context.view.partitions
            if partition.folder not in folders and partition.segments and not partition.unreadable
        ]
        found += [(survey, facts, True) for survey, facts in _last_logs(context, context.survey_all(others))]
    return [
        DamagedSegment(survey.partition.folder, facts.base_offset, active=active)
        for survey, facts, active in found
        if _would_lose(context.view, survey.partition, facts, active=active)
    ]


def _last_logs(context: Context, surveys: Sequence[Survey]) -> Iterator[tuple[Survey, SegmentFacts]]:
    """As ``read_last_logs``, of one listing: a sequence makes many plans of it. ``apply`` reads for itself."""
    new = [survey for survey in surveys if survey.seen(_LAST) is None]
    for survey, facts in read_last_logs(context, new):
        survey.put(_LAST, facts)
    for survey in surveys:
        seen = survey.seen(_LAST)
        if seen is not None:
            yield survey, seen


def _would_lose(view: LogDir, partition: Partition, facts: SegmentFacts, *, active: bool) -> bool:
    """Whether a recovery under the fence could cut something that the next start would leave.

    Of a torn tail nothing is lost; and without a clean-shutdown marker the active segment is recovered in any case.
    """
    if facts.summary.damage == D_NONE:
        return False
    return not (active and (not view.clean_shutdown or _is_torn_tail(partition, facts)))


def _is_torn_tail(partition: Partition, facts: SegmentFacts) -> bool:
    """Whether all that follows the last valid batch is the torn rest of one, or zeros that were never written over."""
    if facts.summary.damage not in (D_TORN, D_PAST_END, D_ZEROS):
        return False
    rest = facts.summary.file_size - facts.summary.valid_bytes
    if rest > LOOK_AT_MOST_BYTES:
        return False
    try:
        with opened_for_reading(f"{partition.path}/{log_name(facts.base_offset)}") as descriptor:
            data = os.pread(descriptor, rest, facts.summary.valid_bytes)
            return not any(data) if facts.summary.damage == D_ZEROS else not holds_whole_batch(data)
    except OSError:
        return False  # what cannot be read is not taken for harmless
