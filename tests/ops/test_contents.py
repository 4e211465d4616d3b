"""Compressed content that cannot be read (KR307): found by ``check --deep`` and by nothing else of ``check``."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.formats import batch_v2, message_set, record
from krepair.formats.compression import Codec
from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests import builders, encoders, wrappers

RECORDS = encoders.encode_records([record.Record(key=b"k", value=b"v" * 400)])


def compressed(codec: Codec, *, broken: bool) -> bytes:
    """A batch with a right checksum over content that decompresses, or does not."""
    body = bytearray(encoders.compress(codec, RECORDS))
    if broken:
        body[len(body) // 2 :] = bytes(len(body) - len(body) // 2)
    header = batch_v2.BatchHeader(1, 0, 0, 2, 0, codec, 0, builders.NOW_MS, builders.NOW_MS, -1, -1, -1, 1)
    return batch_v2.encode_batch(header, bytes(body))


def found(tmp_path: Path, second: bytes, *, deep: bool) -> list[tuple[str, int]]:
    made = builders.LogDir(tmp_path / "logs")
    partition = made.partition("t")
    partition.segment(builders.data(0, 1))
    made.write()
    log = partition.folder / "00000000000000000000.log"
    log.write_bytes(log.read_bytes() + second)
    report = check([str(made.root)], Options(engine=EngineName.INLINE, deep=deep))
    findings = [each for each in report.log_dirs[0].findings if each.rule == "KR307"]
    return [(each.evidence, each.position) for each in findings]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_broken_content_under_a_right_checksum_is_found_only_deep(tmp_path: Path, codec: Codec) -> None:
    bad = compressed(codec, broken=True)
    position = len(builders.data(0, 1).raw) + batch_v2.HEADER_SIZE
    [(evidence, at)] = found(tmp_path / "deep", bad, deep=True)
    assert at == position
    assert codec.name.lower() in evidence
    assert found(tmp_path / "plain", bad, deep=False) == []
    assert found(tmp_path / "good", compressed(codec, broken=False), deep=True) == []


def test_a_broken_wrapper_of_an_old_format_is_found(tmp_path: Path) -> None:
    wrapper = wrappers.wrap((message_set.Message(1, 1, 0, 5, b"k", b"v" * 400),), Codec.GZIP)
    assert wrapper.value is not None
    broken = wrapper._replace(value=wrapper.value[:20] + bytes(len(wrapper.value) - 20))
    assert len(found(tmp_path, encoders.encode_messages([broken]), deep=True)) == 1


def test_a_wrong_checksum_is_not_this_rules_business(tmp_path: Path) -> None:
    batch = bytearray(compressed(Codec.LZ4, broken=True))
    batch[17] ^= 1
    assert found(tmp_path, bytes(batch), deep=True) == []
