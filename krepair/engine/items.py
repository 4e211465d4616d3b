"""Work items and results: small values that name a host, a log directory and what to do there.

A task opens the files itself; nothing assumes that the driver sees them. A result carries a failure as a value, so
that one segment's failure is one partition's, never the job's.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from msgspec import Struct, field

from krepair.durable.disk import Attributes
from krepair.formats.filenames import offset_name
from krepair.formats.java_numbers import INT64_MAX
from krepair.kernels.scan import SegmentSummary
from krepair.plan.model import RewriteSegments

FailureKind = Literal[
    "",
    "unreadable",
    "elsewhere",
    "changed",
    "verify",
    "disk",
    "sees other files",
    "sees no lock",
    "txnindex-disagrees",
]


class WorkItem(Protocol):
    """What travels to a task."""

    @property
    def bytes_to_read(self) -> int:
        """Bytes of logs that the task reads, or a little more: of items that are alike this is what they cost.

        Items are shared out to Spark's tasks by it, and bars move by it.
        """


class Place(Struct, frozen=True, kw_only=True):
    """Where an item's files are. A worker that sees other files does no item, see ``engines.same_files``.

    Attributes:
        host: the driver's host name, for people.
        log_dir: absolute path.
        log_dir_inode: inode of the log directory.
        folder: partition folder.
        kept: folder in it that holds the segments of ``moved`` meanwhile.
        moved: base offsets of segments that are kept there and are no longer in their places, ascending.
    """

    host: str
    log_dir: str
    log_dir_inode: int
    folder: str
    kept: str = ""
    moved: tuple[int, ...] = ()

    @property
    def path(self) -> str:
        """The partition folder's absolute path."""
        return f"{self.log_dir}/{self.folder}"

    def stem(self, base_offset: int) -> str:
        """Absolute path of a segment's files without their suffix."""
        folder = f"{self.path}/{self.kept}" if base_offset in self.moved else self.path
        return f"{folder}/{offset_name(base_offset)}"


class PlacedItem(Protocol):
    """An item of one partition."""

    @property
    def place(self) -> Place:
        """Where its files are."""


class LogItem(Struct, frozen=True, kw_only=True):
    """An item of one ``.log``.

    Attributes:
        place: where.
        base_offset: of the segment.
        size: bytes of its ``.log`` as it was listed.
    """

    place: Place
    base_offset: int
    size: int

    @property
    def bytes_to_read(self) -> int:
        """The whole log, if nothing is left out."""
        return self.size


class LogsItem(Struct, frozen=True, kw_only=True):
    """An item of several logs of one partition.

    Attributes:
        place: where.
        segments: (base offset, bytes of the ``.log``), ascending.
    """

    place: Place
    segments: tuple[tuple[int, int], ...]

    @property
    def bytes_to_read(self) -> int:
        """All these logs."""
        return sum(size for _, size in self.segments)

    @property
    def logs(self) -> tuple[tuple[str, int], ...]:
        """(absolute path, bytes) of the segments."""
        return tuple((f"{self.place.stem(base)}.log", size) for base, size in self.segments)


class Failed(NamedTuple):
    """Why an item was not done.

    Attributes:
        kind: of failure.
        why: file, position, what was expected.
        host: name of the host that says so; empty: this one.
    """

    kind: FailureKind
    why: str
    host: str = ""


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of a task, or why it did not.

    Attributes:
        failure: kind of failure, empty if there is none.
        why: of a failure: file, position, what was expected.
    """

    failure: FailureKind = ""
    why: str = ""


class ScanItem(LogItem, frozen=True, kw_only=True):
    """Scan one ``.log``.

    Attributes:
        now_ms: the clock for stamped markers.
        high_watermark: see ``ScanInputs``.
        protected: sorted (producer id, epoch) whose markers stay.
        held_markers: int64[H], ascending offsets of markers that stay for other replicas.
        check_crc: whether every CRC is checked.
        from_offset: only the batch that holds this offset and those after it are scanned; -1: all.
        without: ranges of bytes that are passed over as if they were not there, ascending.
        next_base: where the log goes on behind it: a last batch that alone passes it is damage.
        has_txn_index: whether it may have a ``.txnindex``; false where the listing of its folder has none.
    """

    now_ms: int
    high_watermark: int
    protected: tuple[tuple[int, int], ...] = ()
    held_markers: bytes = b""
    check_crc: bool = True
    from_offset: int = -1
    without: tuple[tuple[int, int], ...] = ()
    next_base: int = INT64_MAX
    has_txn_index: bool = True


class ScanResult(Struct, frozen=True, kw_only=True):
    """A scanned segment.

    Attributes:
        summary: of its batches.
        entries: bytes of the ``.txnindex`` as they were read.
        txn_damage: what is wrong with the ``.txnindex``, or empty.
        written_crc: of a source that was staged: CRC-32C of the fronts of what it gave to the new log.
    """

    summary: SegmentSummary
    entries: bytes = b""
    txn_damage: str = ""
    written_crc: int = 0


class StageItem(Struct, frozen=True, kw_only=True):
    """Copy what stays of one source segment to its place in the new ``.log``.

    Attributes:
        place: where.
        change: the group it belongs to.
        source: index of the segment in ``change.sources``.
        target: absolute path of the new ``.log``; several tasks write into it, each its own bytes.
        out_position: first byte of this segment's part.
        headers: digest that the plan has of the source.
        now_ms: the clock for stamped markers.
        high_watermark: see ``ScanInputs``.
    """

    place: Place
    change: RewriteSegments
    source: int
    target: str
    out_position: int
    headers: str
    now_ms: int
    high_watermark: int

    @property
    def bytes_to_read(self) -> int:
        """The source."""
        return self.change.sources[self.source].log_bytes


class FinishItem(Struct, frozen=True, kw_only=True):
    """Build the indexes of a staged ``.log``, give all files their attributes, sync and verify them.

    Attributes:
        place: where.
        change: the group.
        stage: absolute path of the folder with the staged files.
        attributes: owner, group, mode, xattrs and mtime that the new files take over.
        index_interval_bytes: topic setting.
        make: whether to build, or only to verify what is there.
        parts: what each source gave to the new log, see ``krepair.checks.parts``; empty if that is not known.
        made: name -> 32 hex digits over the bytes of each new index; empty if that is not known.
    """

    place: Place
    change: RewriteSegments
    stage: str
    attributes: Attributes
    index_interval_bytes: int
    make: bool = True
    parts: tuple[tuple[int, int], ...] = ()
    made: dict[str, str] = field(default_factory=dict)

    @property
    def bytes_to_read(self) -> int:
        """The new log."""
        return self.change.log_bytes


class FinishResult(Struct, frozen=True, kw_only=True):
    """A finished group.

    Attributes:
        batches: batches verified.
        bytes: bytes of ``.log`` verified.
        made: name -> 32 hex digits over the bytes of each index, if they were made.
    """

    batches: int = 0
    bytes: int = 0
    made: dict[str, str] = field(default_factory=dict)


class VerifyItem(LogItem, frozen=True, kw_only=True):
    """Verify one segment of a log directory as it is: ``.log``, its indexes against it.

    Attributes:
        active: whether it is the last of its partition (its indexes are preallocated, its tail may be torn).
        interval_bytes: ``index.interval.bytes``.
        clean: whether the broker was cleanly stopped, so that an active segment was closed too.
        next_base: where the log goes on behind it.
    """

    active: bool
    interval_bytes: int = 4096
    clean: bool = False
    next_base: int = INT64_MAX


class VerifyResult(Struct, frozen=True, kw_only=True):
    """What is wrong with a segment.

    Attributes:
        problems: (file name, position, what was expected and found).
        batches: batches checked.
        bytes: bytes of ``.log`` read.
        end_offset: the offset after the last batch, -1 behind damage.
        markers: whether there are markers of transactions.
    """

    problems: tuple[tuple[str, int, str], ...] = ()
    batches: int = 0
    bytes: int = 0
    end_offset: int = -1
    markers: bool = False
