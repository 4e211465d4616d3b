"""Batches with a valid checksum and unreadable records: compare and facts name them, and end soon."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from krepair.errors import ExitCode
from krepair.formats.codec import Codec
from krepair.replicas.facts import _by_columns, _of_columns
from tests import builders
from tests.hostile.broken_streams import AT, broken_stream, directory
from tests.hostile.verbs import picture, run
from tests.look.huge_record import batch


def too_much(flip: int) -> bytes:
    """2.4 GB of zeros in a few kilobytes."""
    return batch(Codec.ZSTD, [(b"k", 1_200_000_000 + flip), (b"l", 1_200_000_000)], AT)


def wrong_count(flip: int) -> bytes:
    """Three records are declared, one is there."""
    raw = bytearray(batch(Codec.GZIP, [(b"k", 4000 + flip)], AT))
    raw[57:61] = (3).to_bytes(4, "big")
    raw[17:21] = builders.crc32c.crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return bytes(raw)


@pytest.mark.parametrize("made", [broken_stream, wrong_count, pytest.param(too_much, marks=pytest.mark.slow)])
def test_batch_whose_records_cannot_be_read_is_named_and_never_taken_for_one_without_records(
    tmp_path: Path, made: object
) -> None:
    one, other = (directory(tmp_path, number, made(number)) for number in (0, 1))  # type: ignore[operator]
    before = picture(one), picture(other)
    where = f"t-0/{AT:020d}.log, position 0: "
    compared = run("compare", f"0={one}", f"1={other}", "--engine", "inline")
    assert compared.code == ExitCode.UNREADABLE
    assert where in " ".join(compared.out.split())
    told = run("compare", f"0={one}", f"1={other}", "--engine", "inline", "--json")
    verdicts = {one["topic"]: one["verdict"] for one in json.loads(told.out)["report"]["partitions"]}
    assert verdicts == {"t": "missing", "u": "byte-equal"}
    assert (
        run("compare", f"0={one}", f"1={other}", "--engine", "inline", "--topic", "u").code == ExitCode.DONE
    )
    facts = tmp_path / "facts"
    written = run("facts", str(one), "--out", str(facts), "--engine", "inline")
    assert written.code == ExitCode.UNREADABLE
    assert where in written.out + written.err
    compared = run("compare", f"0={facts}", f"1={other}", "--engine", "inline", "--topic", "u")
    assert compared.code == ExitCode.DONE, "the other partition is in the file"
    assert (picture(one), picture(other)) == before


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("columns", [2, 4])
def test_rows_of_a_facts_file_are_read_as_they_were_written_also_a_single_one(
    rows: int, columns: int
) -> None:
    given = np.arange(7, 7 + rows * columns, dtype=np.uint64).reshape(rows, columns)
    assert (_of_columns(b"".join(_by_columns(given)), columns) == given).all()
