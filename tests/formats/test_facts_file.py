"""A facts file gives back what was written, and says so when it is cut, changed or of another version."""

from __future__ import annotations

import hashlib
import json
import struct

import msgspec
import pytest
import zstandard

from krepair.formats import facts_file
from krepair.formats.facts_file import (
    _BLOCK,
    _PROLOG,
    BLOCK_BYTES,
    END,
    MAGIC,
    VERSION,
    FactsDamagedError,
    FactsHeader,
    FactsReader,
    FactsVersionError,
    FactsWriter,
)

HEADER = FactsHeader(
    tool_version="1.0", made_ms=5, purpose="replicas", broker=msgspec.Raw(b'{"broker_id":"1"}')
)


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


def test_another_version_is_told_apart_from_damage() -> None:
    whole = bytearray(_written(one=[b"abc"]))
    whole[len(MAGIC)] = 9
    with pytest.raises(FactsVersionError, match="version 9"):
        _read(bytes(whole))


def _with_table(table: bytes, sections: bytes = b"") -> bytes:
    """A file whose digest is right, with another table and other sections than a writer makes."""
    head = msgspec.json.encode(HEADER)
    start = _PROLOG.pack(MAGIC, VERSION, len(head)) + head + sections
    whole = start + table + struct.pack("<Q", len(start))
    return whole + hashlib.sha256(whole).digest() + END


def _place(**fields: int) -> bytes:
    values = {"name": "one", "position": 0, "blocks": 1, "packed_bytes": 0, "bytes": 0} | fields
    return json.dumps([values]).encode()


@pytest.mark.parametrize(
    "table",
    [
        *(_place(position=position) for position in (-1, 10**6, 2**62, 10**30)),
        _place(blocks=-1),
        _place(blocks=10**9),
        b'[{"name":"\xff"}]',
        b"[" * 100_000,
        b"{}",
    ],
    ids=lambda table: table[:60].decode("latin-1"),
)
def test_a_table_that_cannot_be_right_is_damage_whatever_its_digest_says(table: bytes) -> None:
    with pytest.raises(FactsDamagedError):
        _read(_with_table(table))


def test_a_frame_that_names_another_size_than_its_block_is_never_unpacked() -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(BLOCK_BYTES))
    block = _BLOCK.pack(len(frame), 5) + frame
    at = _PROLOG.size + len(msgspec.json.encode(HEADER))
    reader = _read(_with_table(_place(position=at), block))
    with pytest.raises(FactsDamagedError, match="a block of 5 bytes was expected, found 1048576") as damaged:
        list(reader.blocks("one"))
    assert damaged.value.reader is reader


def test_a_list_that_is_too_long_to_be_one_is_not_read_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = _read(_written(one=[bytes(BLOCK_BYTES)] * 3))
    assert len(reader.whole("one")) == 3 * BLOCK_BYTES
    monkeypatch.setattr(facts_file, "WHOLE_AT_MOST", 2 * BLOCK_BYTES)
    with pytest.raises(FactsDamagedError, match="at most 2097152 bytes were expected"):
        reader.whole("one")
    assert reader.whole("not there") == b""
