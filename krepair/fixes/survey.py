"""One partition, and what was seen of it: what the logs say, and one typed value for each look.

A look belongs to a fix, or to the forecast of the next start. It owns its ``Sight`` and is the only one that puts it.
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
from krepair.rules.model import LeftAlone, SegmentFacts

if TYPE_CHECKING:
    from krepair.engine.items import Failed
    from krepair.rewrite.indexes.segment import InspectResult

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Sight(Generic[Value]):
    """Names what one look sees, and its type.

    Attributes:
        name: for messages.
    """

    name: str


class LogFacts(NamedTuple):
    """The result of a scan of the logs of one partition.

    Attributes:
        segments: facts per segment, ascending; those that could not be read are missing.
        txn_entries: bytes of each segment's ``.txnindex``, by base offset.
        problem: the first log that could not be read, or transaction index that is damaged; None if there is none.
    """

    segments: tuple[SegmentFacts, ...] = ()
    txn_entries: Mapping[int, bytes] = {}
    problem: LeftAlone | None = None


@dataclass(eq=False)
class Sights:
    """What looks saw, each under its own name and type."""

    _sights: dict[Sight[object], object] = field(default_factory=dict, kw_only=True)

    def put(self, sight: Sight[Value], value: Value) -> None:
        """Keep what a look saw."""
        self._sights[cast("Sight[object]", sight)] = value

    def seen(self, sight: Sight[Value]) -> Value | None:
        """What a look saw, None if it did not look here."""
        return cast("Value | None", self._sights.get(cast("Sight[object]", sight)))


@dataclass(eq=False)
class Survey(Sights):
    """One partition, looked at.

    Attributes:
        partition: as listed.
        settings: of its topic.
        high_watermark: from the checkpoint, -1 if none.
        log_start: from the checkpoint, 0 if none: records below it were deleted.
        log: what its logs say; None if they were not read.
        log_after: what its logs will say once the changes proposed so far are made; None where they change no offsets.
        changes: proposed so far, in the order of the fixes.
        digests: file name -> 32 hex digits, of files whose bytes were read.
    """

    partition: Partition
    settings: TopicSettings
    high_watermark: int = -1
    log_start: int = 0
    log: LogFacts | None = None
    log_after: LogFacts | None = None
    changes: list[Change] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def is_read_only(self) -> bool:
        """Whether krepair never changes its topic: the metadata log of KRaft, or a tiered one."""
        return self.partition.topic == METADATA_TOPIC or bool(self.settings.tiered)

    @property
    def segments(self) -> tuple[SegmentFacts, ...]:
        """Facts per segment as the logs are now, empty if they were not read."""
        return () if self.log is None else self.log.segments

    @property
    def segments_after(self) -> tuple[SegmentFacts, ...]:
        """Facts per segment once the changes proposed so far are made."""
        return self.segments if self.log_after is None else self.log_after.segments


def log_end_of(segments: Iterable[SegmentFacts]) -> int:
    """The offset after the last valid batch."""
    return max((segment.summary.last_offset + 1 for segment in segments), default=0)


NEXT_START: Sight[NextStart] = Sight("next start")
"""Put by ``krepair.fixes.next_start``."""
_NOT_ASKED: Final = NextStart()


def next_start_of(survey: Survey) -> NextStart:
    """Return what the next start sees of a partition; ``by_version`` is empty where nobody has asked."""
    return survey.seen(NEXT_START) or _NOT_ASKED


INDEXES_SEEN: Sight[dict[int, InspectResult | Failed]] = Sight("indexes")
"""Put by ``krepair.fixes.index``."""


def indexes_of(survey: Survey) -> Mapping[int, InspectResult | Failed]:
    """Return the result of looking at offset and time indexes, by base offset; empty if nobody looked."""
    return survey.seen(INDEXES_SEEN) or {}
