"""Second reading of logs that were mended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from krepair.checks.companions import CompanionAudit
from krepair.durable.tree import Tree
from krepair.formats.filenames import offset_name
from krepair.logdir.fingerprint import digest_file
from krepair.logdir.reading import opened_for_reading, status_of
from krepair.pipeline.items import Place
from krepair.pipeline.progress import shown
from krepair.pipeline.readings.partition import LogPath, ReadingResult, parts_of, second_reading
from krepair.pipeline.rewrite.verify import companion_audit
from krepair.plan.model import MendLog

CUT = ".cut"
"""Ends the name under which the cut bytes of a log are kept."""

_PIECE_BYTES = 1 << 20


class MendedLogItem(Struct, frozen=True, kw_only=True):
    """Read a log that was cut, or freed of damage in its middle, and its three indexes.

    Attributes:
        place: of the partition.
        change: of the plan.
        interval_bytes: ``index.interval.bytes``.
        keep: absolute path of the folder with the kept originals, empty if there is none.
        next_base: base offset of the next segment, -1 if it is the last.
    """

    place: Place
    change: MendLog
    interval_bytes: int
    keep: str = ""
    next_base: int = -1

    @property
    def bytes_to_read(self) -> int:
        """The new log, and what is kept of the old one."""
        return self.change.size_before


@shown("verify")
@second_reading
def verify_mended_log(item: MendedLogItem, tree: Tree) -> ReadingResult:
    """Read every batch of the log, hold its indexes against it, and its bytes against what is kept."""
    change = item.change
    path = f"{item.place.path}/{change.name}"
    status = status_of(path, tree)
    if status.st_size != change.size_after:
        text = f"{change.size_after} bytes were expected, found {status.st_size}"
        return ReadingResult(problems=(f"{change.name}: {text}",))
    audit = companion_audit(path.removesuffix(".log"), change.base_offset, status.st_size, tree)
    problems = [*_log_problems(item, audit, tree)]
    if status.st_mtime_ns != change.mtime_ns:
        problems.append(f"{change.name}: does not have the modification time that the plan says")
    if not problems:
        problems += _index_problems(item, audit)
        problems += _files_against_plan(item, tree)
        problems += _against_originals(item, tree)
    return ReadingResult(problems=tuple(problems), bytes=status.st_size)


def _log_problems(item: MendedLogItem, audit: CompanionAudit, tree: Tree) -> Iterator[str]:
    change = item.change
    log = LogPath(
        base_offset=change.base_offset, path=f"{item.place.path}/{change.name}", bytes=change.size_after
    )
    first, last = -1, change.base_offset - 1
    for part in parts_of([log], tree, check_crc=True):
        if len(part.firsts):
            first = int(part.firsts[0]) if first < 0 else first
            last = int(part.lasts[-1])
        if part.walked.problem:
            yield f"{change.name}, position {part.walked.position}: {part.walked.problem}"
            return
        audit.feed(part.walked)
    if 0 <= first < change.base_offset:
        yield f"{change.name}: its first batch has offset {first}"
    if last != change.last_offset:
        yield f"{change.name}: a last offset of {change.last_offset} was expected, found {last}"
    if 0 <= item.next_base <= last:
        yield f"{change.name}: its last offset {last} is not below the next segment's {item.next_base}"


def _index_problems(item: MendedLogItem, audit: CompanionAudit) -> Iterator[str]:
    stem = offset_name(item.change.base_offset)
    for suffix, position, text in audit.finish(item.change.size_after, item.interval_bytes):
        yield f"{stem}{suffix}, position {position}: {text}"


def _files_against_plan(item: MendedLogItem, tree: Tree) -> Iterator[str]:
    change = item.change
    planned = [(change.name, change.size_after, change.digest_after)]
    planned += [(new.name, new.size_after, new.digest_after) for new in change.companions]
    for name, size, digest in planned:
        path = f"{item.place.path}/{name}"
        if status_of(path, tree).st_size != size or digest_file(path, tree) != digest:
            yield f"{name}: is not the file of {size} bytes that the plan makes"


def _against_originals(item: MendedLogItem, tree: Tree) -> Iterator[str]:
    """The log is its original without the ranges."""
    if not item.keep:
        return
    change = item.change
    kept = f"{item.keep}/{change.name}"
    if change.method == "excise" and tree.is_there(kept):
        yield from _same_ranges(item, kept, tree)
    elif change.method == "cut" and tree.is_there(kept + CUT):
        gone = change.size_before - change.size_after
        if (
            status_of(kept + CUT, tree).st_size != gone
            or digest_file(kept + CUT, tree) != change.digest_removed
        ):
            yield f"{change.name}: the kept bytes are not the {gone} that were cut"


def _same_ranges(item: MendedLogItem, kept: str, tree: Tree) -> Iterator[str]:
    """Whether the new log is the original without the ranges that go, byte for byte."""
    change, position = item.change, 0
    edges = [0, *(edge for one in change.removed for edge in (one.start, one.end)), change.size_before]
    with (
        opened_for_reading(kept, tree) as old,
        opened_for_reading(f"{item.place.path}/{change.name}", tree) as new,
    ):
        if os.fstat(old).st_size != change.size_before:
            yield f"{change.name}: the kept original does not have {change.size_before} bytes"
            return
        for start, end in [*pairwise(edges)][::2]:
            while start < end:
                count = min(_PIECE_BYTES, end - start)
                if os.pread(old, count, start) != os.pread(new, count, position):
                    yield f"{change.name}, position {position}: is not the original's bytes at position {start}"
                    return
                start, position = start + count, position + count
