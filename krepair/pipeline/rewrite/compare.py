"""A new segment against its kept originals, batch by batch, with the plain reader: the proof behind ``verify PLAN``."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from krepair.checks.walk import Walked
from krepair.durable.tree import Tree
from krepair.formats import batch_v2
from krepair.formats.batch_v2 import HEADER_SIZE
from krepair.formats.filenames import log_name
from krepair.logdir.reading import opened_for_reading, why
from krepair.pipeline.items import Failed, Place
from krepair.pipeline.place import reached
from krepair.pipeline.progress import shown
from krepair.pipeline.rewrite.verify import batches_to_compare
from krepair.plan.model import RewriteSegments

_PIECE_BYTES = 1 << 20


class OriginalsItem(Struct, frozen=True, kw_only=True):
    """Hold one new segment against its kept originals.

    Attributes:
        place: where.
        change: the group.
        keep: absolute path of the folder with the originals.
    """

    place: Place
    change: RewriteSegments
    keep: str

    @property
    def bytes_to_read(self) -> int:
        """The kept logs and the new one."""
        return sum(source.log_bytes for source in self.change.sources) + self.change.log_bytes


@shown("verify")
def compare_originals(item: OriginalsItem) -> Failed | None:
    """As ``compare_with_sources``."""
    tree, wrong = reached(item.place)
    wrong = wrong or compare_with_sources(item.change, item.place.path, item.keep, tree)
    return Failed("verify", wrong) if wrong else None


def compare_with_sources(change: RewriteSegments, folder: str, keep: str, tree: Tree | None = None) -> str:
    """Check that the new log is its sources less batches without records.

    Args:
        change: the group.
        folder: where the new segment is.
        keep: where the originals are.
        tree: below which both are; None: anywhere.

    Returns:
        What is wrong, or empty.
    """
    new_path = f"{folder}/{log_name(change.base_offset)}"
    try:
        with opened_for_reading(new_path, tree) as new:
            cursor = _Cursor(new, batches_to_compare(new_path, tree))
            for source in change.sources:
                path = f"{keep}/{log_name(source.base_offset)}"
                with opened_for_reading(path, tree) as old:
                    for walked in batches_to_compare(path, tree):
                        problem = walked.problem or cursor.take(old, walked)
                        if problem:
                            return f"{log_name(source.base_offset)}: {problem}"
    except OSError as error:
        return f"{error.filename}: {why(error)}"
    return cursor.rest()


class _Cursor:
    """Walks the new log beside its sources."""

    def __init__(self, descriptor: int, windows: Iterator[Walked]) -> None:
        self.descriptor = descriptor
        self.windows = windows
        self.bases = np.empty(0, np.int64)
        self.positions = np.empty(0, np.int64)
        self.sizes = np.empty(0, np.int64)

    def _fill(self, last_base: int) -> None:
        while len(self.bases) == 0 or self.bases[-1] <= last_base:
            walked = next(self.windows, None)
            if walked is None:
                return
            self.bases = np.append(self.bases, walked.firsts)
            self.positions = np.append(self.positions, walked.positions)
            self.sizes = np.append(self.sizes, walked.sizes)

    def take(self, old: int, walked: Walked) -> str:
        """Hold one window of a source against the new log; what it covers is left behind."""
        if len(walked.positions) == 0:
            return ""
        bases = walked.firsts
        self._fill(int(bases[-1]))
        count = int(np.searchsorted(self.bases, bases[-1], side="right"))
        at = np.searchsorted(bases, self.bases[:count])
        if (bases[np.minimum(at, len(bases) - 1)] != self.bases[:count]).any():
            return "the new log has a batch that the original has not"
        stays = np.zeros(len(bases), bool)
        stays[at] = True
        with_records = ((walked.headers["attributes"] & batch_v2.CONTROL) == 0) & (
            walked.headers["record_count"] > 0
        )
        if (with_records & ~stays).any():
            return "a batch with records is not in the new log"
        problem = self._same_bytes(old, walked, at)
        self.bases, self.positions, self.sizes = (
            self.bases[count:],
            self.positions[count:],
            self.sizes[count:],
        )
        return problem

    def _same_bytes(self, old: int, walked: Walked, at: np.ndarray[tuple[int], np.dtype[np.int64]]) -> str:
        count = len(at)
        if count == 0:
            return ""
        positions, sizes = self.positions[:count], self.sizes[:count]
        sources, source_sizes = walked.positions[at], walked.sizes[at]
        follows = (
            (sources[1:] == sources[:-1] + source_sizes[:-1])
            & (source_sizes == sizes)[1:]
            & (source_sizes == sizes)[:-1]
        )
        firsts = np.flatnonzero(np.append(True, ~follows))
        lasts = np.append(firsts[1:], count) - 1
        spans = sources[lasts] + source_sizes[lasts] - sources[firsts]
        like = source_sizes[firsts] == sizes[firsts]
        read_old = _Ahead(old, int(sources[0]), int(sources[-1] + source_sizes[-1]))
        read_new = _Ahead(self.descriptor, int(positions[0]), int(positions[-1] + sizes[-1]))
        stretches = zip(
            sources[firsts].tolist(), positions[firsts].tolist(), spans.tolist(), like.tolist(), strict=True
        )
        for number, (position, new_position, size, same_size) in enumerate(stretches):
            if same_size and _same_piecewise(read_old, position, read_new, new_position, size):
                continue
            first, after = int(firsts[number]), int(lasts[number]) + 1
            problem = self._differs(old, walked, at[first:after], first)
            if problem:
                return problem
        return ""

    def _differs(
        self, old: int, walked: Walked, at: np.ndarray[tuple[int], np.dtype[np.int64]], first: int
    ) -> str:
        """Which batch of a stretch is neither the same nor the emptied one."""
        for number, source in enumerate(at.tolist(), first):
            size, position = int(walked.sizes[source]), int(walked.positions[source])
            new_size, new_position = int(self.sizes[number]), int(self.positions[number])
            if size == new_size and _same_piecewise(
                _Ahead(old, position, position), position, _Ahead(self.descriptor, 0, 0), new_position, size
            ):
                continue
            header = os.pread(old, HEADER_SIZE, position)
            if (
                walked.headers["magic"][source] != batch_v2.MAGIC
                or new_size != HEADER_SIZE
                or os.pread(self.descriptor, new_size, new_position)
                != batch_v2.empty_batch(batch_v2.decode_header(header))
            ):
                return f"the batch at position {position} is not byte for byte in the new log (position {new_position})"
        return ""

    def rest(self) -> str:
        """Whether the new log has batches that no original has."""
        self._fill(2**63 - 1)
        return "the new log has batches after its sources' last one" if len(self.bases) else ""


class _Ahead:
    """Bytes of a file, a window of them read at once."""

    def __init__(self, descriptor: int, start: int, end: int) -> None:
        self.descriptor = descriptor
        self.start = start
        self.data = os.pread(descriptor, end - start, start) if 0 < end - start <= 2 * _PIECE_BYTES else b""

    def at(self, position: int, count: int) -> bytes:
        """These bytes of the file."""
        place = position - self.start
        if place >= 0 and place + count <= len(self.data):
            return self.data[place : place + count]
        return os.pread(self.descriptor, count, position)


def _same_piecewise(old: _Ahead, position: int, new: _Ahead, new_position: int, size: int) -> bool:
    """Compare in pieces: a batch may be larger than memory should be."""
    if size <= _PIECE_BYTES:
        return old.at(position, size) == new.at(new_position, size)
    for done in range(0, size, _PIECE_BYTES):
        count = min(_PIECE_BYTES, size - done)
        if old.at(position + done, count) != new.at(new_position + done, count):
            return False
    return True
