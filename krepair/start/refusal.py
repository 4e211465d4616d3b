"""Causes that keep a broker from starting, or make it start degraded; observed on 2.2.1, 3.9.2 and 4.3.1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from krepair.fixes.analysis import PartitionAnalysis
from krepair.fixes.checkpoints import CheckpointFacts
from krepair.fixes.epochs import EPOCHS_RESULT, read_epochs_file
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
from krepair.formats.java_numbers import LARGEST_FILE_BYTES
from krepair.logdir.values import LogDir, OffsetCheckpoint, Partition
from krepair.rules.checkpoints import EntryDecision
from krepair.rules.epochs import Recorded
from krepair.start.folders import marked_refusals, names_without_an_offset
from krepair.start.identity import KRAFT_SINCE, METADATA_SINCE, Metadata
from krepair.start.loaded import simulated_of

RESETS_UNPARSABLE_SINCE = (3, 9, 0)
CHECKS_EPOCHS_ON_LOADING = (2, 8, 0)
SURVIVES_A_LOST_DIRECTORY = (3, 9, 0)
"""First version that survives I/O errors: 2.2.1 and 2.8.2 end at any error while loading, 3.9.2 and 4.3.1 do not."""
MAPS_INDEXES_LAZILY = (2, 3, 0)
"""Fix version of KAFKA-7283: earlier brokers map the indexes of every segment."""

_WITHOUT_IT = {
    RECOVERY_POINT_CHECKPOINT: "the recovery points are reset to 0",
    LOG_START_CHECKPOINT: "the log starts are reset to the first segments' base offsets",
    REPLICATION_CHECKPOINT: "the broker runs, but does not serve its partitions (metadata publishing fault)",
    CLEANER_CHECKPOINT: "the broker runs, but its cleaner is dead",
}
READ_IN_ROOT: Final = frozenset({*_WITHOUT_IT, META_PROPERTIES})
"""Names of the root's files that a start reads."""


class RootFacts(NamedTuple):
    """Facts about the root of a log directory.

    Attributes:
        checkpoints: offset checkpoints in the root.
        metadata: contents of each ``partition.metadata``.
    """

    checkpoints: tuple[CheckpointFacts, ...]
    metadata: Metadata

    def log_starts_past_end(self) -> tuple[EntryDecision, ...]:
        """Return the checkpoint entries past a log end, which make a broker delete the whole partition."""
        return tuple(
            line
            for checkpoint in self.checkpoints
            if checkpoint.mended.kind.name == LOG_START_CHECKPOINT
            for line in checkpoint.mended.past_end
        )


class Cause(NamedTuple):
    """Cause that keeps a broker from starting.

    Attributes:
        partition: folder name, or empty for the root of the log directory.
        file: name of the file or folder that causes the refusal.
        text: reason for the refusal, as it is printed.
        ends_broker: True if a broker with several log directories also ends, instead of starting without this one.
    """

    partition: str
    file: str
    text: str
    ends_broker: bool = False


def causes_of_refusal(
    view: LogDir, analyses: Sequence[PartitionAnalysis], metadata: Metadata, version: Version
) -> Iterator[Cause]:
    """Yield the causes that keep a broker of the version from starting on this directory alone.

    Args:
        view: the log directory; a broker with others starts without it unless the cause ends the broker.
        analyses: partitions of the log directory.
        metadata: contents of each ``partition.metadata``, marked folders included.
        version: version of the broker that starts; None yields the causes of any version.
    """
    yield from _causes_in_root(view, metadata, version)
    for partition in (*(analysis.partition for analysis in analyses), *view.marked):
        for name in names_without_an_offset(partition, version):
            yield Cause(
                partition.folder,
                name,
                f"{partition.folder}/{shown(name)} is named like a broker's own file, but without an offset",
                ends_broker=True,
            )
    for partition in (*(analysis.partition for analysis in analyses), *view.marked):
        for segment in partition.segments:
            if segment.log.size > LARGEST_FILE_BYTES:  # FileRecords (2.2.1, 3.9.0) throws
                text = f"{partition.folder}/{segment.log.name} has 2 GiB or more, which no broker opens"
                yield Cause(partition.folder, segment.log.name, text, ends_broker=True)
    for analysis in analyses:
        epochs = analysis.result(EPOCHS_RESULT)
        yield from _epochs_refused(analysis.partition, None if epochs is None else epochs.recorded, version)
        yield from _indexes_refused(view, analysis, version)
        # Every start recovers the metadata log whole, so its simulation as an ordinary log proves nothing.
        if analysis.partition.topic != METADATA_TOPIC:
            yield from _start_fails(analysis, version)
    for partition in view.marked:
        yield from _epochs_refused(partition, None, version)
    if version is None or version >= METADATA_SINCE:
        for name, content in metadata.items():
            if isinstance(content, Damage):
                text = f"{name}/{PARTITION_METADATA} cannot be read by a broker"
                # An empty file ends the broker; any other damage only takes the directory offline.
                yield Cause(name, PARTITION_METADATA, text, ends_broker=not content.length)


def _causes_in_root(view: LogDir, metadata: Metadata, version: Version) -> Iterator[Cause]:
    for entry in view.foreign:
        if entry.kind == "folder":
            text = f"folder {entry.name} in the root is no partition"
            yield Cause("", entry.name, text, ends_broker=True)
    for name, text in marked_refusals(view, version):
        yield Cause("", name, text, ends_broker=True)
    meta = _meta_refused(view, metadata, version)
    if meta:
        yield Cause("", META_PROPERTIES, meta)
    for checkpoint in (view.recovery_point, view.log_start, view.cleaner, view.high_watermark):
        if checkpoint.file is None or checkpoint.broker_reads or _is_reset(checkpoint, version):
            continue
        text = f"{checkpoint.file.name} cannot be read by a broker"
        starts_first = checkpoint.file.name == REPLICATION_CHECKPOINT and (
            version is None or version < KRAFT_SINCE
        )
        full_text = f"{text} (2.x starts, but stops as soon as it reads the file)" if starts_first else text
        yield Cause("", checkpoint.file.name, full_text)


def _meta_refused(view: LogDir, metadata: Metadata, version: Version) -> str:
    if view.meta_damage:
        return f"{META_PROPERTIES} cannot be read by a broker"
    formatted = view.meta_properties is None and bool(metadata)
    if formatted and (version is None or version >= KRAFT_SINCE):
        return f"{META_PROPERTIES} is missing, which KRaft takes for a directory that was never formatted"
    return ""


def _epochs_refused(partition: Partition, recorded: Recorded | None, version: Version) -> Iterator[Cause]:
    """Yield a leader epoch file that a broker does not load; ``recorded`` is None if no fix has read the file."""
    recorded = read_epochs_file(partition).recorded if recorded is None else recorded
    folder, name = partition.folder, LEADER_EPOCH_CHECKPOINT
    if not recorded.broker_reads:
        ends_broker = recorded.ends_broker or _ends_at_any_error(version)
        yield Cause(folder, name, f"{folder}/{name} cannot be read by a broker", ends_broker)
    elif recorded.has_negative and (version is None or version >= CHECKS_EPOCHS_ON_LOADING):
        text = f"{folder}/{name} has a negative number, which a broker since 2.8 does not load"
        yield Cause(folder, name, text, ends_broker=True)


def _ends_at_any_error(version: Version) -> bool:
    """Return True if any error while loading a partition ends the broker, as in 2.2.1 or maybe an unknown version."""
    return version is None or version < SURVIVES_A_LOST_DIRECTORY


def _indexes_refused(view: LogDir, analysis: PartitionAnalysis, version: Version) -> Iterator[Cause]:
    """Yield index files too long to map; since 2.3 a start maps only indexes of recovered and active segments."""
    partition = analysis.partition
    point = view.recovery_point.offsets.get(partition.key, 0)
    for segment, end in partition.segments_with_ends():
        is_last = segment is partition.segments[-1]
        mapped = is_last or (end > point and not view.clean_shutdown)
        for file in (segment.index, segment.time_index):
            too_long = file is not None and file.size > LARGEST_FILE_BYTES
            if file and too_long and (mapped or version is None or version < MAPS_INDEXES_LAZILY):
                text = f"{partition.folder}/{file.name} is longer than a broker can map"
                yield Cause(partition.folder, file.name, text, _ends_at_any_error(version))


def _start_fails(analysis: PartitionAnalysis, version: Version) -> Iterator[Cause]:
    """Yield the failure of the simulated start; for an unknown version, that of the oldest version that fails."""
    simulated = simulated_of(analysis)
    outcomes = [simulated[version]] if version is not None and version in simulated else []
    if version is None:
        outcomes = [simulated[number] for number in sorted(simulated)]
    failed = next((number for number in outcomes if number.failure), None)
    if failed is not None:
        folder = analysis.partition.folder
        text = f"{folder}/{failed.file}: {failed.failure}"
        yield Cause(folder, failed.file, text, _ends_at_any_error(version))


def _is_reset(checkpoint: OffsetCheckpoint, version: Version) -> bool:
    """Return True if the version ignores an unparsable checkpoint instead of failing."""
    return version is not None and version >= RESETS_UNPARSABLE_SINCE and ends_unchecked(checkpoint.data)


def reservations(view: LogDir, version: Version) -> str:
    """Describe what a broker loses by starting with an unparsable checkpoint, or return an empty text."""
    texts = [
        f"{checkpoint.file.name} contains a value that is not a number: {_WITHOUT_IT[checkpoint.file.name]}"
        for checkpoint in (view.recovery_point, view.log_start, view.cleaner, view.high_watermark)
        if checkpoint.file is not None and not checkpoint.broker_reads and _is_reset(checkpoint, version)
    ]
    return "; ".join(texts)


def forgotten_epochs(view: LogDir, analysis: PartitionAnalysis) -> str:
    """Describe what a start does with leader epochs that no file records; return an empty text if there are none."""
    epochs = analysis.result(EPOCHS_RESULT)
    if epochs is None or epochs.left or epochs.recorded.entries or not epochs.merged.entries:
        return ""
    count = len(epochs.merged.entries)
    if view.clean_shutdown:
        return f"its {count} leader epochs are forgotten: a start without recovery writes one new entry at the log end"
    return f"of its {count} leader epochs only those of the segments that are recovered come back"
