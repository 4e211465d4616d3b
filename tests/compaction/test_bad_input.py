"""Input on which Kafka's cleaner throws: krepair compacts it, or skips the partition and names file and position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.engine.engine import InlineEngine, Item, Result
from krepair.formats.arrays import Uint8s
from krepair.formats.codec import Codec
from krepair.kernels.compact_keys import NEED_BYTES
from krepair.rewrite.compaction.batch_records import ContentBuffer, ContentError
from krepair.rules.model import Skipped
from tests import builders, codecs, naive
from tests.builders import Batch, data
from tests.codecs import PACK
from tests.compaction import twin
from tests.compaction.cases import BASE, OLD, batch, left, made, rec
from tests.compaction.compacting import compacted

LOG = "00000000000000000000.log"


# -- negative timestamps
@pytest.mark.parametrize("codec", range(5))
def test_records_with_times_below_minus_one_are_carried_over_as_they_are(codec: int, tmp_path: Path) -> None:
    records = [rec(key, timestamp=time) for key, time in zip("abc", (-5, -7, -2), strict=True)]
    raw = builders.encode(0, records, base_timestamp=-5, max_timestamp=-2)
    raw = codecs.packed(raw, codec)
    found = made(tmp_path, [Batch(raw, 0, 2, codec, -1, -1, -1, -2, 3), batch(3, "a")])
    assert left(found) == [1, 2, 3]
    new = found.logs[0][: naive.parse(found.logs[0])[0].size]
    assert [each.raw for each in twin.records(new)] == [each.raw for each in twin.records(raw)[1:]]


# -- contents that are not what the header says, with a CRC that is right
def refused(root: Path, raw: bytes, codec: int = 0) -> str:
    """Why a partition with this batch at offset 1 is left alone whole; its file and position are named."""
    first, packed = batch(0, "z"), codecs.packed(raw, codec)
    found = made(root, [first, replace(batch(1, "a", "b"), raw=packed)], [batch(3, "a")])
    assert isinstance(found.compaction, Skipped)
    assert (found.compaction.code, found.compaction.damaged) == ("compacted-content", True)
    assert f"{LOG}, position {len(first.raw)}:" in found.compaction.why
    assert found.logs == {}
    return found.compaction.why


def uncompressed() -> bytes:
    return batch(1, "a", "b").raw


@pytest.mark.parametrize("codec", range(1, 5))
@pytest.mark.parametrize("how", ["cut", "bytes behind it", "other bytes", "nothing"])
def test_a_broken_compressed_stream_with_a_right_checksum_leaves_the_partition_alone(
    codec: int, how: str, tmp_path: Path
) -> None:
    stream = PACK[codec](uncompressed()[61:])
    broken = {
        "cut": stream[:-3],
        "bytes behind it": stream + b"????",
        "other bytes": b"?" * 40,
        "nothing": b"",
    }
    raw = codecs.sealed(uncompressed(), broken[how], attributes=codec)
    refused(tmp_path, raw)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("count", [1, 3, 2**31 - 1])
def test_a_wrong_count_leaves_the_partition_alone(codec: int, count: int, tmp_path: Path) -> None:
    raw = codecs.sealed(uncompressed(), uncompressed()[61:], count=count)
    refused(tmp_path, raw, codec)


@pytest.mark.parametrize("codec", range(5))
def test_a_byte_behind_the_records_leaves_the_partition_alone(codec: int, tmp_path: Path) -> None:
    raw = codecs.sealed(uncompressed(), uncompressed()[61:] + b"?")
    refused(tmp_path, raw, codec)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("deltas", [(1, 0), (0, 0), (0, 2), (-1, 0)])
def test_inner_offsets_that_do_not_ascend_or_leave_their_batch_leave_the_partition_alone(
    codec: int, deltas: tuple[int, int], tmp_path: Path
) -> None:
    records = [rec(key, delta=delta) for key, delta in zip("ab", deltas, strict=True)]
    raw = data(1, records, timestamp=OLD, last_offset=2).raw
    assert "do not ascend" in refused(tmp_path, raw, codec)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("place", range(8))
def test_a_field_of_a_record_that_says_too_much_leaves_the_partition_alone(
    codec: int, place: int, tmp_path: Path
) -> None:
    body = bytearray(uncompressed()[61:])
    size = body[0] // 2 + 1
    fields = [
        0,
        4,
        6,
        size - 1,
        size,
        size + 4,
        size + 6,
        2 * size - 1,
    ]  # length, key, value, header count; twice
    body[fields[place]] = 0x7E
    raw = codecs.sealed(uncompressed(), bytes(body))
    refused(tmp_path, raw, codec)


class BackwardEngine(InlineEngine):
    """Engine whose last task ends first, as on a cluster with a slow host."""

    def _results(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        return iter(list(super()._results(function, items))[::-1])


def test_of_two_unreadable_segments_the_first_one_is_named_whichever_worker_was_faster(
    tmp_path: Path,
) -> None:
    partition = builders.LogDir(tmp_path).partition("t")
    for base in (0, 10):
        raw = codecs.sealed(batch(base, "a").raw, batch(base, "a").raw[61:] + b"?")
        partition.segment(replace(batch(base, "a"), raw=raw), base_offset=base, mtime_ms=OLD)
    partition.segment(batch(20, "active"))
    found = compacted(partition.write(snapshots=False), BASE, engine=BackwardEngine("test"))
    assert isinstance(found.compaction, Skipped)
    assert f"{LOG}, position 0:" in found.compaction.why


def test_a_record_is_too_large_for_zstd_also_after_a_gzip_batch_has_enlarged_the_buffer() -> None:
    def consume(buffer: Uint8s, end: int, remaining: int) -> tuple[int, int, int]:
        return (NEED_BYTES, 1, end) if end == sizes[-1] else (NEED_BYTES, 0, 0)

    buffer, sizes = ContentBuffer(), [2 << 20]
    buffer.read((bytes(size) for size in sizes), Codec.GZIP, 1, 0, consume)
    assert len(buffer.bytes) > 25 << 20
    sizes.append(25 << 20)
    with pytest.raises(ContentError, match="larger than 25165824 bytes") as caught:
        buffer.read((bytes(size) for size in sizes[1:]), Codec.ZSTD, 1, 0, consume)
    assert caught.value.beyond_limit
