"""Results of analyzing one partition: facts of its logs, and one value from each fix that examined the partition.

Each fix, and the forecast of the next start, stores its result under its own ``ResultKey``; other fixes may read the
result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar, cast

from krepair.formats.filenames import METADATA_TOPIC
from krepair.loading.next_start import NextStart
from krepair.logdir.config import TopicSettings
from krepair.logdir.values import Partition
from krepair.plan.model import Change
from krepair.rules.model import SegmentFacts, Skipped

if TYPE_CHECKING:
    from krepair.engine.items import Failed
    from krepair.rewrite.indexes.segment import InspectResult

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class ResultKey(Generic[Value]):
    """Typed key of one analysis result.

    Attributes:
        name: name of the result in messages.
    """

    name: str


class LogFacts(NamedTuple):
    """Result of scanning the logs of one partition.

    Attributes:
        segments: facts per segment, ascending; segments that could not be read are missing.
        txn_entries: base offset -> bytes of the segment's ``.txnindex``.
        problem: first unreadable log or damaged transaction index; None if there is no problem.
    """

    segments: tuple[SegmentFacts, ...] = ()
    txn_entries: Mapping[int, bytes] = {}
    problem: Skipped | None = None


@dataclass(eq=False)
class AnalysisResults:
    """Results of analysis steps, each stored under its own typed key."""

    _results: dict[ResultKey[object], object] = field(default_factory=dict, kw_only=True)

    def put(self, key: ResultKey[Value], value: Value) -> None:
        """Store the result of an analysis step."""
        self._results[cast("ResultKey[object]", key)] = value

    def result(self, key: ResultKey[Value]) -> Value | None:
        """Return the result of an analysis step, or None if the step did not run for this partition."""
        return cast("Value | None", self._results.get(cast("ResultKey[object]", key)))


@dataclass(eq=False)
class PartitionAnalysis(AnalysisResults):
    """Facts about one partition, results of the analysis steps, and the changes proposed so far.

    Attributes:
        partition: listing of the partition's folder.
        high_watermark: high watermark from the checkpoint, -1 without an entry.
        log_start: log start offset from the checkpoint, below which records were deleted; 0 without an entry.
        log: facts of the partition's logs; None if the logs were not read.
        log_after: facts of the logs after the changes proposed so far; None if these changes alter no offsets.
        log_end: log end offset from the plan that is carried out, if no log is read again to find the log end; else -1.
        changes: changes proposed so far, in the order of the fixes.
        digests: digest of each file whose bytes were read, 32 hex digits, by file name.
    """

    partition: Partition
    settings: TopicSettings
    high_watermark: int = -1
    log_start: int = 0
    log: LogFacts | None = None
    log_after: LogFacts | None = None
    log_end: int = -1
    changes: list[Change] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def is_read_only(self) -> bool:
        """True for topics that krepair never changes: KRaft's metadata log, or a tiered topic."""
        return self.partition.topic == METADATA_TOPIC or bool(self.settings.tiered)

    @property
    def segments(self) -> tuple[SegmentFacts, ...]:
        """Facts per segment as the logs are now; empty if the logs were not read."""
        return () if self.log is None else self.log.segments

    @property
    def segments_after(self) -> tuple[SegmentFacts, ...]:
        """Facts per segment after the changes proposed so far."""
        return self.segments if self.log_after is None else self.log_after.segments


def log_end_of(segments: Iterable[SegmentFacts]) -> int:
    """Return the offset after the last valid batch."""
    return max((segment.summary.last_offset + 1 for segment in segments), default=0)


NEXT_START: ResultKey[NextStart] = ResultKey("next start")
"""Key of the simulated next start, which ``krepair.fixes.next_start`` stores."""
_NOT_ASKED: Final = NextStart()


def next_start_of(analysis: PartitionAnalysis) -> NextStart:
    """Return the forecast of a partition's next start; ``by_version`` is empty if no forecast was made."""
    return analysis.result(NEXT_START) or _NOT_ASKED


INDEXES_RESULT: ResultKey[dict[int, InspectResult | Failed]] = ResultKey("indexes")
"""Key of the results of index checks by base offset, which ``krepair.fixes.index`` stores."""


def indexes_of(analysis: PartitionAnalysis) -> Mapping[int, InspectResult | Failed]:
    """Return the results of checking the offset and time indexes, by base offset; empty if none was checked."""
    return analysis.result(INDEXES_RESULT) or {}
