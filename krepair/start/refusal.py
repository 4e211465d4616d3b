"""What keeps a broker from starting at all, or makes it serve less, by version; seen on 2.2.1, 3.9.2 and 4.3.1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from krepair.checks.index_judge import LARGEST_INDEX_BYTES
from krepair.fixes.checkpoints import SeenCheckpoint
from krepair.fixes.epochs import EPOCHS_SEEN, read_epochs_file
from krepair.fixes.survey import Survey
from krepair.formats.broker_version import Version
from krepair.formats.checkpoint import ends_unchecked
from krepair.formats.damage import Damage, shown
from krepair.formats.filenames import (
    CLEANER_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    METADATA_TOPIC,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
)
from krepair.logdir.values import LogDir, OffsetCheckpoint, Partition
from krepair.rules.checkpoints import LineDecision
from krepair.rules.compaction import LARGEST_LOG_BYTES
from krepair.rules.epochs import Recorded
from krepair.start.folders import marked_refusals, names_without_an_offset
from krepair.start.identity import KRAFT_SINCE, METADATA_SINCE, Metadata
from krepair.start.loaded import simulated_of

RESETS_UNPARSABLE_SINCE = (3, 9, 0)
CHECKS_EPOCHS_ON_LOADING = (2, 8, 0)
GOES_ON_WITHOUT_A_DIRECTORY = (3, 9, 0)
"""2.2.1 and 2.8.2 end at every error while they load a partition, 3.9.2 and 4.3.1 only where it is none of I/O."""
MAPS_INDEXES_LAZILY = (2, 3, 0)
"""KAFKA-7283."""

_WITHOUT_IT = {
    RECOVERY_POINT_CHECKPOINT: "the recovery points are reset to 0",
    LOG_START_CHECKPOINT: "the log starts are reset to the first segments' base offsets",
    REPLICATION_CHECKPOINT: "the broker runs, but does not serve its partitions (metadata publishing fault)",
    CLEANER_CHECKPOINT: "the broker runs, but its cleaner is dead",
}


class RootFacts(NamedTuple):
    """What was seen in the root of a log directory.

    Attributes:
        checkpoints: its offset checkpoints.
        metadata: the ``partition.metadata`` of its folders.
    """

    checkpoints: tuple[SeenCheckpoint, ...]
    metadata: Metadata

    def log_starts_past_end(self) -> tuple[LineDecision, ...]:
        """The lines that make a broker delete a whole partition."""
        return tuple(
            line
            for one in self.checkpoints
            if one.mended.kind.name == LOG_START_CHECKPOINT
            for line in one.mended.past_end
        )


class Cause(NamedTuple):
    """One thing that keeps a broker from starting.

    Attributes:
        partition: folder name, or empty for the root of the log directory.
        file: the file or folder that does it.
        text: what a broker makes of it.
        ends_all: whether a broker ends with its other log directories, too, and does not go on without this one.
    """

    partition: str
    file: str
    text: str
    ends_all: bool = False


def causes_of_refusal(
    view: LogDir, surveys: Sequence[Survey], metadata: Metadata, version: Version
) -> Iterator[Cause]:
    """Everything that keeps a broker of the version from starting on this directory alone; of an unknown one: any.

    Args:
        view: the log directory. A broker with others goes on without it, unless the cause says that it ends.
        surveys: its partitions.
        metadata: the ``partition.metadata`` of all folders.
        version: of the broker that is to start.
    """
    yield from _causes_in_root(view, metadata, version)
    for partition in (*(one.partition for one in surveys), *view.marked):
        for name in names_without_an_offset(partition, version):
            yield Cause(
                partition.folder,
                name,
                f"{partition.folder}/{shown(name)} is named like a broker's own file, but without an offset",
                ends_all=True,
            )
    for partition in (*(one.partition for one in surveys), *view.marked):
        for segment in partition.segments:
            if segment.log.size > LARGEST_LOG_BYTES:  # FileRecords (2.2.1, 3.9.0) throws
                text = f"{partition.folder}/{segment.log.name} has 2 GiB or more, which no broker opens"
                yield Cause(partition.folder, segment.log.name, text, ends_all=True)
    for survey in surveys:
        seen = survey.seen(EPOCHS_SEEN)
        yield from _epochs_refused(survey.partition, None if seen is None else seen.recorded, version)
        yield from _indexes_refused(view, survey, version)
        if (
            survey.partition.topic != METADATA_TOPIC
        ):  # this log is recovered at every start, and was played as others
            yield from _start_fails(survey, version)
    for partition in view.marked:
        yield from _epochs_refused(partition, None, version)
    if version is None or version >= METADATA_SINCE:
        for name, said in metadata.items():
            if isinstance(said, Damage):
                text = f"{name}/{PARTITION_METADATA} cannot be read by a broker"
                # A file of no bytes ends the broker.
                yield Cause(name, PARTITION_METADATA, text, ends_all=not said.length)


def _causes_in_root(view: LogDir, metadata: Metadata, version: Version) -> Iterator[Cause]:
    for entry in view.foreign:
        if entry.kind == "folder":
            text = f"folder {entry.name} in the root is no partition"
            yield Cause("", entry.name, text, ends_all=True)
    for name, text in marked_refusals(view, version):
        yield Cause("", name, text, ends_all=True)
    meta = _meta_refused(view, metadata, version)
    if meta:
        yield Cause("", META_PROPERTIES, meta)
    for checkpoint in (view.recovery_point, view.log_start, view.cleaner, view.high_watermark):
        if checkpoint.file is None or checkpoint.broker_reads or _is_reset(checkpoint, version):
            continue
        text = f"{checkpoint.file.name} cannot be read by a broker"
        before = checkpoint.file.name == REPLICATION_CHECKPOINT and (version is None or version < KRAFT_SINCE)
        late = f"{text} (2.x starts, and stops when it comes to it)" if before else text
        yield Cause("", checkpoint.file.name, late)


def _meta_refused(view: LogDir, metadata: Metadata, version: Version) -> str:
    if view.meta_damage:
        return f"{META_PROPERTIES} cannot be read by a broker"
    formatted = view.meta_properties is None and bool(metadata)
    if formatted and (version is None or version >= KRAFT_SINCE):
        return f"{META_PROPERTIES} is missing, which KRaft takes for a directory that was never formatted"
    return ""


def _epochs_refused(partition: Partition, recorded: Recorded | None, version: Version) -> Iterator[Cause]:
    """Of each folder that a broker loads; None where no fix looked: marked, tiered, the log of the controllers."""
    recorded = read_epochs_file(partition).recorded if recorded is None else recorded
    folder, name = partition.folder, LEADER_EPOCH_CHECKPOINT
    if not recorded.broker_reads:
        ends_all = recorded.ends_broker or _ends_at_any_error(version)
        yield Cause(folder, name, f"{folder}/{name} cannot be read by a broker", ends_all)
    elif (version is None or version >= CHECKS_EPOCHS_ON_LOADING) and any(
        min(entry) < 0 for entry in recorded.entries
    ):
        text = f"{folder}/{name} has a negative number, which a broker since 2.8 does not load"
        yield Cause(folder, name, text, ends_all=True)


def _ends_at_any_error(version: Version) -> bool:
    """Whether each error of a partition's loading ends the broker, as 2.2.1 does; of an unknown version: it may."""
    return version is None or version < GOES_ON_WITHOUT_A_DIRECTORY


def _indexes_refused(view: LogDir, survey: Survey, version: Version) -> Iterator[Cause]:
    """Index files that cannot be mapped; from 2.3 on only those of segments that are recovered or appended to are."""
    partition = survey.partition
    point = view.recovery_point.offsets.get(partition.key, 0)
    for segment, end in partition.segments_with_ends():
        is_last = segment is partition.segments[-1]
        mapped = is_last or (end > point and not view.clean_shutdown)
        for file in (segment.index, segment.time_index):
            too_long = file is not None and file.size > LARGEST_INDEX_BYTES
            if file and too_long and (mapped or version is None or version < MAPS_INDEXES_LAZILY):
                text = f"{partition.folder}/{file.name} is longer than a broker can map"
                yield Cause(partition.folder, file.name, text, _ends_at_any_error(version))


def _start_fails(survey: Survey, version: Version) -> Iterator[Cause]:
    """What ends the start that was played through; of an unknown version the first of those that end."""
    played = simulated_of(survey)
    outcomes = [played[version]] if version is not None and version in played else []
    if version is None:
        outcomes = [played[one] for one in sorted(played)]
    failed = next((one for one in outcomes if one.failure), None)
    if failed is not None:
        folder = survey.partition.folder
        text = f"{folder}/{failed.file}: {failed.failure}"
        yield Cause(folder, failed.file, text, _ends_at_any_error(version))


def _is_reset(checkpoint: OffsetCheckpoint, version: Version) -> bool:
    """Whether the version goes on without what the file says: a negative count, a number that is none."""
    return version is not None and version >= RESETS_UNPARSABLE_SINCE and ends_unchecked(checkpoint.data)


def reservations(view: LogDir, version: Version) -> str:
    """What a broker that starts does without, in words to add to each line, or empty."""
    texts = [
        f"{checkpoint.file.name} holds something that is no number: {_WITHOUT_IT[checkpoint.file.name]}"
        for checkpoint in (view.recovery_point, view.log_start, view.cleaner, view.high_watermark)
        if checkpoint.file is not None and not checkpoint.broker_reads and _is_reset(checkpoint, version)
    ]
    return "; ".join(texts)


def forgotten_epochs(view: LogDir, survey: Survey) -> str:
    """What becomes of a leader epoch history that is not on disk, or empty."""
    seen = survey.seen(EPOCHS_SEEN)
    if seen is None or seen.left or seen.recorded.entries or not seen.merged.entries:
        return ""
    count = len(seen.merged.entries)
    if view.clean_shutdown:
        return f"its {count} leader epochs are forgotten: a start without recovery writes one new entry at the log end"
    return f"of its {count} leader epochs only those of the segments that are recovered come back"
