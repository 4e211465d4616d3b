"""Input on which Kafka's cleaner throws: krepair compacts it, or skips the partition and names file and position."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from krepair.rules.model import Skipped
from tests import builders, codecs, naive
from tests.builders import Batch, data
from tests.codecs import PACK
from tests.compaction import twin
from tests.compaction.cases import OLD, batch, left, made, rec

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
    assert "offsets that ascend" in refused(tmp_path, raw, codec)


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
