"""Work items and results of tasks: small values that travel between the driver and the workers.

An item names files and what to do with them; the task opens the files itself, and log bytes never travel. A result
carries a failure as a value, so that the failure of one segment concerns one partition and never the whole job.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

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
    """Work item that travels to a task."""

    @property
    def bytes_to_read(self) -> int:
        """Bytes of logs that the task reads, or a little more.

        Items are distributed to Spark's tasks by this number, and progress bars advance by it.
        """


def arguments_of(item: Any) -> tuple[Any, ...]:
    """Return the arguments that a task's function gets for an item, see ``Engine.map``."""
    return item if isinstance(item, tuple) else (item,)


def bytes_to_read(item: Any) -> int:
    """Return the bytes of logs that a task reads for an item."""
    first: WorkItem = arguments_of(item)[0]
    return first.bytes_to_read


class Place(Struct, frozen=True, kw_only=True):
    """Location of an item's files. A worker that sees other files there refuses the item, see ``engine.same_files``.

    Attributes:
        host: host name of the driver, for people.
        log_dir: absolute path of the log directory.
        log_dir_inode: inode of the log directory.
        folder: name of the partition folder.
        kept: name of the folder in the partition folder to which an unfinished change has moved segments; else empty.
        moved: base offsets of the segments that lie in ``kept`` now, ascending.
    """

    host: str
    log_dir: str
    log_dir_inode: int
    folder: str
    kept: str = ""
    moved: tuple[int, ...] = ()

    @property
    def path(self) -> str:
        """Absolute path of the partition folder."""
        return f"{self.log_dir}/{self.folder}"

    def stem(self, base_offset: int) -> str:
        """Return the absolute path of a segment's files without their suffix."""
        folder = f"{self.path}/{self.kept}" if base_offset in self.moved else self.path
        return f"{folder}/{offset_name(base_offset)}"


class PlacedItem(Protocol):
    """Item of one partition."""

    @property
    def place(self) -> Place:
        """Location of the item's files."""


class PartitionItem(Struct, frozen=True, kw_only=True):
    """Item of one partition.

    Attributes:
        bytes_to_read: see ``WorkItem``.
    """

    place: Place
    bytes_to_read: int


class LogItem(Struct, frozen=True, kw_only=True):
    """Item of one ``.log``.

    Attributes:
        base_offset: base offset of the segment.
        size: size in bytes of the ``.log`` as listed.
    """

    place: Place
    base_offset: int
    size: int

    @property
    def bytes_to_read(self) -> int:
        """Size of the whole log in bytes."""
        return self.size


class LogsItem(Struct, frozen=True, kw_only=True):
    """Item of several logs of one partition.

    Attributes:
        segments: base offset and size in bytes of each ``.log``, ascending.
    """

    place: Place
    segments: tuple[tuple[int, int], ...]

    @property
    def bytes_to_read(self) -> int:
        """Size of all these logs in bytes."""
        return sum(size for _, size in self.segments)

    @property
    def logs(self) -> tuple[tuple[str, int], ...]:
        """Absolute path and size in bytes of each ``.log``."""
        return tuple((f"{self.place.stem(base)}.log", size) for base, size in self.segments)


class Failed(NamedTuple):
    """Reason why an item was not done.

    Attributes:
        why: file, position, and what was expected there.
        host: name of the host that reports the failure; empty for this host.
    """

    kind: FailureKind
    why: str
    host: str = ""


class Outcome(Struct, frozen=True, kw_only=True):
    """Result of a task, or the reason why it failed.

    Attributes:
        failure: kind of failure, empty if the task succeeded.
        why: file, position and expectation of a failure.
    """

    failure: FailureKind = ""
    why: str = ""


class ScanItem(LogItem, frozen=True, kw_only=True):
    """Item for a scan of one ``.log``.

    Attributes:
        now_ms: current time in epoch milliseconds, compared with delete horizons.
        high_watermark: first offset that is not replicated yet, see ``ScanInputs``.
        protected: sorted (producer id, epoch) pairs whose markers stay.
        held_markers: int64[H], ascending offsets of transaction markers that stay for other replicas.
        check_crc: True to check every CRC.
        from_offset: offset at whose batch the scan starts; -1 to scan all batches.
        without: byte ranges that the scan skips as if they did not exist, ascending.
        next_base: base offset at which the log continues after this segment; a lone last batch beyond it is damage.
        has_txn_index: False if the listing of the folder has no ``.txnindex`` for the segment.
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
    """Scanned segment.

    Attributes:
        entries: content of the ``.txnindex``.
        txn_damage: damage of the ``.txnindex``, or empty.
        txn_unknown: True if the ``.txnindex`` has a later version than krepair knows, which is no damage.
        written_crc: if the source was copied: CRC-32C over the headers of the batches that it gave to the new log.
    """

    summary: SegmentSummary
    entries: bytes = b""
    txn_damage: str = ""
    txn_unknown: bool = False
    written_crc: int = 0


class StageItem(Struct, frozen=True, kw_only=True):
    """Item that copies the kept batches of one source segment into the new ``.log``.

    Attributes:
        source: index of the segment in ``change.sources``.
        target: absolute path of the new ``.log``; several tasks write into it, each its own bytes.
        out_position: byte of the new log at which this segment's part starts.
        headers: digest of the source's batch headers in the plan.
        now_ms: current time in epoch milliseconds, compared with delete horizons.
        high_watermark: first offset that is not replicated yet, see ``ScanInputs``.
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
        """Size of the source in bytes."""
        return self.change.sources[self.source].log_bytes


class FinishItem(Struct, frozen=True, kw_only=True):
    """Item that builds a staged log's indexes, sets all files' attributes, and syncs and verifies them.

    Attributes:
        stage: absolute path of the folder with the staged files.
        attributes: owner, group, mode, xattrs and mtime that the new files take over.
        index_interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        make: True to build the indexes; False to verify existing ones.
        parts: contribution of each source to the new log, see ``krepair.checks.parts``; empty if unknown.
        made: digest of each new index as 32 hex digits, by name; empty if unknown.
        ends_in_records: True if the last batch of the new log must have records, see ``rules.coordinator_load``.
    """

    place: Place
    change: RewriteSegments
    stage: str
    attributes: Attributes
    index_interval_bytes: int
    make: bool = True
    parts: tuple[tuple[int, int], ...] = ()
    made: dict[str, str] = field(default_factory=dict)
    ends_in_records: bool = False

    @property
    def bytes_to_read(self) -> int:
        """Size of the new log in bytes."""
        return self.change.log_bytes


class FinishResult(Struct, frozen=True, kw_only=True):
    """Finished group of segments.

    Attributes:
        batches: number of batches verified.
        bytes: bytes of ``.log`` verified.
        made: digest of each index as 32 hex digits, by name; empty if the item built none.
    """

    batches: int = 0
    bytes: int = 0
    made: dict[str, str] = field(default_factory=dict)


class VerifyItem(LogItem, frozen=True, kw_only=True):
    """Item that verifies one segment in place: its ``.log``, and its indexes against it.

    Attributes:
        active: True for the last segment of a partition (its indexes are preallocated, its tail may be torn).
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        clean: True after a clean stop of the broker, which closes an active segment too.
        next_base: base offset at which the log continues after this segment.
    """

    active: bool
    interval_bytes: int = 4096
    clean: bool = False
    next_base: int = INT64_MAX


class VerifyResult(Struct, frozen=True, kw_only=True):
    """Problems of one segment.

    Attributes:
        problems: file name, position, and what was expected and found.
        batches: number of batches checked.
        bytes: bytes of ``.log`` read.
        end_offset: offset after the last batch, -1 if damage hides it.
        markers: True if the segment holds transaction markers.
    """

    problems: tuple[tuple[str, int, str], ...] = ()
    batches: int = 0
    bytes: int = 0
    end_offset: int = -1
    markers: bool = False
