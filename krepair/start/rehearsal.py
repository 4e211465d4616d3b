"""Plays the next start through for the partitions of which something is wrong, and says what came of it.

Of a partition in which nothing is wrong the forecast is known without: its unflushed segments are read, and stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from krepair.checks.index_judge import ENTRY_SIZES, LARGEST_INDEX_BYTES
from krepair.checks.rehearsal.behaviour import JUDGED_VERSIONS, Broker, behaviour_of
from krepair.engine.items import Failed
from krepair.fixes.context import Context, place_of
from krepair.fixes.index import indexes_of
from krepair.fixes.leftovers import LEFTOVERS_SEEN
from krepair.fixes.snapshots import SNAPSHOTS_SEEN
from krepair.fixes.survey import Sight, Survey, log_end_of
from krepair.fixes.tail import damaged_logs
from krepair.formats import producer_snapshot
from krepair.formats.broker_version import Version, VersionNumber
from krepair.formats.filenames import TIME_INDEX, log_name, offset_name
from krepair.formats.words import count_text
from krepair.logdir.values import LogDir, Segment
from krepair.rules.damage import broker_loss, unmapped
from krepair.rules.snapshots import expiry_of

if TYPE_CHECKING:
    from krepair.checks.rehearsal.loader import StartOutcome
    from krepair.scan.rehearse import RehearseItem

REHEARSED: Sight[dict[VersionNumber, StartOutcome] | Failed] = Sight("next start")


def rehearsed_of(survey: Survey) -> Mapping[VersionNumber, StartOutcome]:
    """What the next start comes to, by version; empty where nothing is wrong, or not all could be read (KR308)."""
    played = survey.seen(REHEARSED)
    return {} if played is None or isinstance(played, Failed) else played


def look_at_starts(context: Context, surveys: Sequence[Survey]) -> None:
    """Play the start through where something is wrong; see ``rehearsed_of``.

    Of an unknown version each of ``JUDGED_VERSIONS`` is played.
    """
    view, version = context.view, context.version
    versions = (version,) if version is not None else JUDGED_VERSIONS
    stops_at_gaps = any(behaviour_of(one).looks_in_one_segment for one in versions)
    chosen = [
        survey
        for survey in surveys
        if _can_be_played(survey)
        and (_something_is_wrong(view, survey) or (stops_at_gaps and _is_missing_a_beginning(survey)))
    ]
    if not chosen:
        return
    from krepair.scan.rehearse import rehearse

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
    for index, result in context.engine.map(rehearse, items):
        chosen[index].put(REHEARSED, result)


def _item(view: LogDir, survey: Survey, now_ms: int, brokers: tuple[Broker, ...]) -> RehearseItem:
    from krepair.scan.rehearse import RehearseItem

    partition = survey.partition
    key = partition.key
    return RehearseItem(
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


def _can_be_played(survey: Survey) -> bool:
    """Whether a start of it can be played through: no swap is pending, and every index can be mapped."""
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


# -- what came of it


def outcome_for(survey: Survey, version: Version) -> StartOutcome | None:
    """What the start of a version comes to; of an unknown one the newest that was played; None if none was."""
    if version is not None:
        return rehearsed_of(survey).get(version)
    played = rehearsed_of(survey)
    return played[max(played)] if played else None


def cut_segments(survey: Survey, outcome: StartOutcome) -> tuple[dict[int, int], tuple[int, ...]]:
    """What a start takes away: base offset -> bytes that stay of each cut log, and the segments that go whole."""
    left = dict(outcome.sizes)
    before = {segment.base_offset: segment.log.size for segment in survey.partition.segments}
    total_new = sum(size for base, size in left.items() if base not in before)
    cut = {base: left[base] for base, size in before.items() if base in left and left[base] < size}
    gone = tuple(base for base in before if base not in left)
    if total_new:  # a split moves bytes into new segments, and loses none
        return {}, ()
    return cut, gone


def outcome_text(survey: Survey, outcome: StartOutcome) -> str:
    """What a start takes away or moves, in words, or empty."""
    cut, gone = cut_segments(survey, outcome)
    before = {segment.base_offset for segment in survey.partition.segments}
    new = [base for base, _ in outcome.sizes if base not in before]
    texts = list(_cut_texts(survey, cut, gone))
    if gone and not cut:
        texts.append(f"log start {outcome.log_end} is past the log end: every segment is deleted")
    elif new:
        names = ", ".join(offset_name(base) for base in new)
        texts.append(f"recovery splits a segment and makes {names}")
    whole = log_end_of(survey.segments)
    if not cut and not gone and not new and survey.segments and outcome.log_end != whole:
        if not survey.segments[-1].summary.damage:
            known = f"by its index the broker takes {outcome.log_end} for the log end"
        else:
            known = f"by the sizes of batches alone the broker takes {outcome.log_end} for the log end"
        last = f"the last valid batch ends with {whole - 1}" if whole else "no batch before it is valid"
        texts.append(f"{known}: {last}")
    return "; ".join(texts)


def _cut_texts(survey: Survey, cut: dict[int, int], gone: tuple[int, ...]) -> Iterator[str]:
    logs = damaged_logs(survey)
    numbers = {facts.base_offset: number for number, facts in enumerate(survey.segments)}
    for base_offset, size in sorted(cut.items()):
        where = f"recovery cuts {log_name(base_offset)} at position {size}"
        if unmapped(logs) or base_offset not in logs.maps:
            drops = f" and drops {count_text(len(gone), 'later segment')}" if gone else ""
            yield where + drops
            continue
        loss = broker_loss(logs, numbers[base_offset], size, alone=not gone)
        later = base_offset != survey.partition.segments[-1].base_offset
        stay = "; later segments stay, behind a gap" if later and not gone else ""
        yield f"{where}: {loss.text()} are lost{stay}"
