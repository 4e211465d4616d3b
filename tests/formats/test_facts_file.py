"""A facts file returns what was written, and names truncation, changes and other versions as errors."""

from __future__ import annotations

import msgspec
import pytest

from krepair.formats.facts_file import (
    BLOCK_BYTES,
    MAGIC,
    FactsDamagedError,
    FactsHeader,
    FactsReader,
    FactsVersionError,
    FactsWriter,
)

HEADER = FactsHeader(tool_version="1.0", made_ms=5, broker=msgspec.Raw(b'{"broker_id":"1"}'), secret="00")


def _written(**sections: list[bytes]) -> bytes:
    out = bytearray()
    writer = FactsWriter(out.extend, HEADER)
    for name, pieces in sections.items():
        writer.section(name, pieces)
    writer.finish()
    return bytes(out)


def _read(data: bytes) -> FactsReader:
    return FactsReader(lambda position, size: data[position : position + size], len(data))


def test_sections_of_any_size_are_read_back_in_blocks() -> None:
    large = bytes(range(256)) * (BLOCK_BYTES // 128)
    reader = _read(_written(small=[b"abc", b"", b"de"], none=[], large=[large]))
    assert reader.header == HEADER
    assert list(reader.blocks("small")) == [b"abc", b"de"]
    assert list(reader.blocks("none")) == []
    assert list(reader.blocks("not there")) == []
    assert b"".join(reader.blocks("large")) == large
    assert max(map(len, reader.blocks("large"))) == BLOCK_BYTES


def test_the_same_facts_have_the_same_digest_and_others_another() -> None:
    assert _read(_written(one=[b"a"])).digest == _read(_written(one=[b"a"])).digest
    assert _read(_written(one=[b"a"])).digest != _read(_written(one=[b"b"])).digest


def test_a_file_cut_anywhere_is_damaged() -> None:
    whole = _written(one=[b"abc" * 50])
    for size in range(len(whole)):
        with pytest.raises(FactsDamagedError):
            _read(whole[:size])


def test_a_file_with_a_bit_turned_anywhere_is_damaged_or_of_another_version() -> None:
    whole = _written(one=[b"abc" * 50])
    for place in range(len(whole)):
        turned = bytearray(whole)
        turned[place] ^= 1
        with pytest.raises((FactsDamagedError, FactsVersionError)):
            _read(bytes(turned))


@pytest.mark.parametrize("version", [2, 9])
def test_another_version_is_told_apart_from_damage(version: int) -> None:
    whole = bytearray(_written(one=[b"abc"]))
    whole[len(MAGIC)] = version
    with pytest.raises(FactsVersionError, match=f"version {version}, this krepair reads version 3"):
        _read(bytes(whole))
