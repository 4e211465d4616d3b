"""What the next start sees of each partition: the one place that says it to every fix, and to the forecast.

The start is simulated where something is wrong. Else it is known without: its unflushed segments are read, and stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from krepair.checks.index_judge import ENTRY_SIZES, LARGEST_INDEX_BYTES
from krepair.engine.items import Failed
from krepair.fixes.context import Context, place_of
from krepair.fixes.index import indexes_of
from krepair.fixes.leftovers import LEFTOVERS_SEEN
from krepair.fixes.snapshots import SNAPSHOTS_SEEN
from krepair.fixes.survey import NEXT_START, Survey, log_end_of
from krepair.formats import producer_snapshot
from krepair.formats.filenames import TIME_INDEX
from krepair.loading.behaviour import JUDGED_VERSIONS, Broker, behaviour_of
from krepair.loading.next_start import LoadedLog, NextStart
from krepair.logdir.values import LogDir, Segment
from krepair.rules.recovery import floor_of
from krepair.rules.snapshots import expiry_of

if TYPE_CHECKING:
    from krepair.loading.simulate import StartItem


def see_next_starts(context: Context, surveys: Sequence[Survey]) -> None:
    """Put ``NEXT_START`` of each partition, for the version of the broker, else for each of ``JUDGED_VERSIONS``."""
    view, version = context.view, context.version
    versions = (version,) if version is not None else JUDGED_VERSIONS
    stops_at_gaps = any(behaviour_of(one).looks_in_one_segment for one in versions)
    asked = [survey for survey in surveys if _can_be_simulated(survey)]
    chosen = [
        survey
        for survey in asked
        if _something_is_wrong(view, survey) or (stops_at_gaps and _is_missing_a_beginning(survey))
    ]
    simulated = {id(one) for one in chosen}
    for survey in asked:
        if id(survey) not in simulated:
            survey.put(
                NEXT_START, NextStart(dict.fromkeys(versions, _as_found(view, survey)), is_simulated=False)
            )
    if not chosen:
        return
    from krepair.loading.simulate import simulate_start

    settings = context.settings
    brokers = tuple(
        Broker(
            one,
            behaviour_of(one),
            expiry_of(one, settings.producer_id_expiration_ms, settings.transactional_id_expiration_ms),
        )
        for one in versions
    )
    items = [_item(view, survey, context.options.now_ms, brokers) for survey in chosen]
    for index, result in context.engine.map(simulate_start, items):
        found = NextStart(unread=result) if isinstance(result, Failed) else NextStart(result)
        chosen[index].put(NEXT_START, found)


def _as_found(view: LogDir, survey: Survey) -> LoadedLog:
    """Return a log in which nothing is wrong: it is loaded as it is."""
    bases = [segment.base_offset for segment in survey.partition.segments]
    log_end = max(log_end_of(survey.segments), bases[-1])
    floor = floor_of(bases, view.recovery_point.offsets.get(survey.partition.key, 0))
    recovered = () if view.clean_shutdown or floor is None else tuple(one for one in bases if one >= floor)
    limit = recovered[0] if recovered else log_end
    usable = [one.offset for one in survey.partition.snapshots if survey.log_start < one.offset <= limit]
    return LoadedLog(
        recovered=recovered,
        segments=tuple((one.base_offset, one.log.size) for one in survey.partition.segments),
        log_end=log_end,
        snapshot_offset=max(usable, default=-1),
    )


def _item(view: LogDir, survey: Survey, now_ms: int, brokers: tuple[Broker, ...]) -> StartItem:
    from krepair.loading.simulate import StartItem

    partition = survey.partition
    key = partition.key
    return StartItem(
        place=place_of(view, partition),
        segments=partition.segments,
        snapshots=tuple(snapshot.offset for snapshot in partition.snapshots),
        clean=view.clean_shutdown,
        recovery_point=view.recovery_point.offsets.get(key, 0),
        log_start=view.log_start.offsets.get(key, 0),
        interval_bytes=survey.settings.index_interval_bytes,
        index_bytes=survey.settings.segment_index_bytes,
        now_ms=now_ms,
        brokers=brokers,
    )


def _can_be_simulated(survey: Survey) -> bool:
    """Whether a start of it can be simulated: no swap is pending, and every index can be mapped."""
    partition = survey.partition
    if partition.unreadable or not partition.segments or _is_left(survey):
        return False
    sizes = (file.size for segment in partition.segments for file in segment.files())
    return all(size <= LARGEST_INDEX_BYTES for size in sizes)


def _is_left(survey: Survey) -> bool:
    seen = survey.seen(LEFTOVERS_SEEN)
    return seen is not None and bool(seen.left)


def _something_is_wrong(view: LogDir, survey: Survey) -> bool:
    """Whether anything of a partition is not as a broker leaves it, as far as its start may come to it."""
    partition = survey.partition
    damaged = len(survey.segments) != len(partition.segments) or any(
        one.summary.damage for one in survey.segments
    )
    return (
        damaged
        or (not view.clean_shutdown and any(_may_fill_its_index(survey, one) for one in partition.segments))
        or _snapshots_are_wrong(view, survey)
        or any(_index_is_wrong(view, survey, segment) for segment in partition.segments)
    )


def _is_missing_a_beginning(survey: Survey) -> bool:
    """Whether offsets between two segments are gone, and there are producers: a transaction may begin there."""
    partition = survey.partition
    if not any(one.file.size > producer_snapshot.HEADER_SIZE for one in partition.snapshots):
        return False
    following = survey.segments[1:]
    return any(
        one.summary.last_offset + 1 < later.base_offset
        for one, later in zip(survey.segments, following, strict=False)
    )


def _may_fill_its_index(survey: Survey, segment: Segment) -> bool:
    """Whether a recovery may want more time entries than there is room for: ``segment.index.bytes`` was lowered."""
    room = survey.settings.segment_index_bytes // ENTRY_SIZES[TIME_INDEX] - 1
    return segment.log.size // max(survey.settings.index_interval_bytes, 1) >= room


def _snapshots_are_wrong(view: LogDir, survey: Survey) -> bool:
    """Whether one is, or none is at the log end, so that producers are read from the log."""
    seen, there = survey.seen(SNAPSHOTS_SEEN), survey.partition.snapshots
    if seen is None or seen.left or seen.judged.wrong or not there:
        return True
    return view.clean_shutdown and there[-1].offset != log_end_of(survey.segments)


def _index_is_wrong(view: LogDir, survey: Survey, segment: Segment) -> bool:
    base_offset = segment.base_offset
    found = indexes_of(survey).get(base_offset)
    if found is None or segment.time_index is None:
        return True
    known = None if isinstance(found, Failed) else found
    if known is not None and (known.problems or known.torn or not known.has_index):
        return True
    if segment.txn_index is not None and (survey.log is None or base_offset not in survey.log.txn_entries):
        return True
    if segment is not survey.partition.segments[-1]:
        return known is not None and known.padded
    most = survey.settings.segment_index_bytes
    too_long = any(file.size > most for file in (segment.index, segment.time_index) if file is not None)
    return too_long or (known is not None and known.padded and view.clean_shutdown)
