"""The logs of a partition as the twins read them: batch by batch, wherever they are, by the plain walk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from krepair.checks.walk import Walked, gathered, walk
from krepair.durable.tree import Tree
from krepair.fixes.staging import Staging
from krepair.formats import batch_v2
from krepair.formats.arrays import Int64s
from krepair.formats.control import decode_key
from krepair.formats.damage import Damage
from krepair.formats.filenames import FileKind, log_name, parse_file_name
from krepair.formats.record import batch_records
from krepair.kernels.scan import ReadInto
from krepair.logdir.reading import opened_with_status, read_into_from

_MARKER = np.dtype(
    {
        "names": ["type"],
        "formats": [">i2"],
        "offsets": [batch_v2.HEADER_SIZE + 7],
        "itemsize": batch_v2.HEADER_SIZE + 17,
    }
)
"""A control batch with one record: 16 bytes of length, attributes 0, times and offsets 0, a key of 4 bytes (version 0,
type), a value of 6 (version 0, coordinator epoch), no headers."""
_FIXED_PLACES = batch_v2.HEADER_SIZE + np.array([0, 1, 2, 3, 4, 5, 6, 9, 10, 11, 16])
_FIXED_BYTES = np.array([32, 0, 0, 0, 8, 0, 0, 12, 0, 0, 0], np.uint8)


def _marker_type(raw: bytes) -> int:
    """Type of the marker in a control batch of any layout, -1 if there is none."""
    record = next(iter(batch_records(raw, 0)), None)
    if record is None or isinstance(record, Damage):
        return -1
    key = decode_key(record.key)
    return key.type_id if not isinstance(key, Damage) and key.is_end_txn else -1


class LogPath(NamedTuple):
    """Where the ``.log`` of a segment is: in its folder, or among the kept originals.

    Attributes:
        base_offset: of the segment.
        path: absolute path.
        bytes: that it has, as far as that is known without a look at it.
    """

    base_offset: int
    path: str
    bytes: int


class LogBatches(NamedTuple):
    """Some batches of a segment, side by side.

    Attributes:
        base_offset: of the segment.
        read_into: fills a buffer from a position of its ``.log``.
        walked: the batches.
    """

    base_offset: int
    read_into: ReadInto
    walked: Walked

    def marker_types(self, control: Int64s) -> Int64s:
        """Type of the markers in control batches; -1 where there is no marker.

        Markers of the 78 bytes that every broker writes are read all at once, others record by record.

        Args:
            control: int64[N], which of the batches, ascending.
        """
        types = np.full(len(control), -1, np.int64)
        if len(control) == 0:
            return types
        start = int(self.walked.positions[control[0]])
        buffer = bytearray(int(self.walked.positions[control[-1]] + self.walked.sizes[control[-1]]) - start)
        filled = self.read_into(memoryview(buffer), start)
        raw = np.frombuffer(buffer, np.uint8)
        places, sizes = self.walked.positions[control] - start, self.walked.sizes[control]
        usual = np.flatnonzero((sizes == _MARKER.itemsize) & (places + _MARKER.itemsize <= filled))
        rows = gathered(raw, places[usual], _MARKER.itemsize)
        right = (rows[:, _FIXED_PLACES] == _FIXED_BYTES).all(axis=1)
        usual = usual[right]
        types[usual] = rows[right].view(_MARKER)[:, 0]["type"]
        for at in np.setdiff1d(np.arange(len(control)), usual).tolist():
            place = int(places[at])
            types[at] = _marker_type(bytes(buffer[place : place + int(sizes[at])]))
        return types

    @property
    def firsts(self) -> Int64s:
        """Base offset of each batch."""
        return self.walked.firsts

    @property
    def lasts(self) -> Int64s:
        """Last offset of each batch."""
        return self.walked.lasts

    @property
    def is_v2(self) -> Any:
        """bool[N]: whether each is a batch of v2, not a message of v0 or v1."""
        return self.walked.headers["magic"] == batch_v2.MAGIC


def parts_of(logs: Iterable[LogPath], tree: Tree, *, check_crc: bool) -> Iterator[LogBatches]:
    """The batches of segments, in the order given. A damaged segment ends with a part that tells its problem.

    Raises:
        OSError: a log cannot be read.
    """
    for log in logs:
        with opened_with_status(log.path, tree) as (descriptor, status):
            read_into = read_into_from(descriptor)
            for walked in walk(read_into, status.st_size, check_crc=check_crc):
                yield LogBatches(log.base_offset, read_into, walked)


def logs_now(staging: Staging) -> tuple[LogPath, ...]:
    """The logs of a partition as they are."""
    return tuple(
        LogPath(base_offset=base, path=staging.folder.at(log_name(base)), bytes=size)
        for base, size in staging.listed.log_sizes
    )


def logs_before_compaction(staging: Staging) -> tuple[LogPath, ...] | None:
    """The logs as they would be without the plan's compaction; None where one of them is not to be had any more.

    What follows from logs is worked out after damage is gone, and before segments are written anew.

    Raises:
        OSError: a file cannot be looked at.
    """
    effects = [change.log_effect for change in staging.plan.changes]
    gone = {base for effect in effects for base in effect.segments}
    mended = {base: change for effect in effects for base, change in effect.ranges.items()}
    logs, tree = [], staging.folder.tree
    for file in staging.plan.files:
        name = parse_file_name(file.name)
        base = name.base_offset
        if name.kind is not FileKind.LOG or name.state or base is None or base in gone:
            continue
        kept, expected = f"{staging.keep}/{file.name}", file.size
        is_kept = base not in mended and bool(staging.keep) and tree.is_there(kept)
        path = kept if is_kept else staging.folder.at(file.name)
        if base in mended:
            expected -= sum(end - start for start, end in mended[base][1])
        found = tree.status(path)
        if found is None or found.st_size != expected:
            return None
        logs.append(LogPath(base_offset=base, path=path, bytes=expected))
    return tuple(sorted(logs, key=lambda log: log.base_offset))
