"""What changes of a partition do to what other fixes look at: so that one plan may hold the changes of several fixes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from krepair.plan.model import Change, CompleteSwap, MendLog, ReplaceFile, RewriteSegments, SetAside


class LogEffect(NamedTuple):
    """What a change does to offsets that are in the logs.

    Attributes:
        segments_gone: base offsets of segments that go whole.
        ranges_gone: base offset -> (size of its log before, ranges of bytes that go).
    """

    segments_gone: tuple[int, ...] = ()
    ranges_gone: Mapping[int, tuple[int, tuple[tuple[int, int], ...]]] = {}  # noqa: RUF012


def log_effect(change: Change) -> LogEffect:
    """What a change does to offsets that are in the logs. Compaction keeps every offset that a reader can tell."""
    match change:
        case MendLog():
            ranges = tuple((one.start, one.end) for one in change.removed)
            return LogEffect(ranges_gone={change.base_offset: (change.size_before, ranges)})
        case SetAside():
            return LogEffect(segments_gone=(change.base_offset,))
        case _:
            return LogEffect()


def bases_with_new_indexes(changes: Iterable[Change]) -> set[int]:
    """Base offsets of the segments that go, or that get new indexes together with their log."""
    bases: set[int] = set()
    for change in changes:
        match change:
            case RewriteSegments():
                bases |= {source.base_offset for source in change.sources}
            case MendLog() | SetAside():
                bases.add(change.base_offset)
            case _:
                pass
    return bases


def names_gone(changes: Iterable[Change]) -> set[str]:
    """Names of the files that changes remove, as far as another fix may want to remove them too."""
    names: set[str] = set()
    for change in changes:
        match change:
            case RewriteSegments():
                names |= set(change.removes_snapshots)
            case SetAside():
                names |= set(change.names)
            case ReplaceFile(method="remove"):
                names.add(change.name)
            case _:
                pass
    return names


def names_gone_with_segments(change: Change) -> tuple[str, ...]:
    """Names of the files that go because their segment goes whole."""
    return change.names if isinstance(change, SetAside) else ()


def swapped_base(change: Change) -> int | None:
    """Base offset of the segment that a broker may meet under a ``.swap`` name meanwhile; None of other changes."""
    return change.base_offset if isinstance(change, CompleteSwap | RewriteSegments) else None
