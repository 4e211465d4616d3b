"""The verification rejects every wrong compaction: results are tampered with, one thing at a time."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import crc32c
import pytest

from krepair.engine.items import LogsItem
from tests import codecs, naive
from tests.builders import NOW_MS, Batch, LogDir, Record, abort, commit, data
from tests.compaction import twin
from tests.compaction.compacting import Compacted, compacted, proven, written
from tests.compaction.trying import rules_of
from tests.places import place_of
from tests.rules.scanned import Held, policy_of

OLD = NOW_MS - 10_000


def records(*keys: str) -> list[Record]:
    """``k`` a value, ``k-`` a tombstone, an empty word a record without a key."""
    return [
        Record(
            key.rstrip("-").encode() if key else None,
            None if key.endswith("-") else b"value of " + key.encode(),
        )
        for key in keys
    ]


@dataclass(frozen=True)
class Done:
    """A partition, and what krepair made of it."""

    folder: Path
    ours: Compacted
    results: Path
    codec: int

    def problem(self) -> str:
        """What the verification says."""
        found = proven(self.folder, self.ours, self.results)
        assert found.failure in {"", "verify"}
        return found.why

    def batches(self) -> dict[int, bytes]:
        """Base offset -> batch of the first result, uncompressed."""
        log = self.log.read_bytes()
        return {b.base_offset: plain(log[b.position : b.position + b.size]) for b in naive.parse(log)}

    @property
    def log(self) -> Path:
        """The first new ``.log``."""
        return min(self.results.glob("*.log"))

    def put(self, batches: dict[int, bytes]) -> None:
        """Other batches in its place."""
        self.log.write_bytes(b"".join(codecs.packed(raw, self.codec) for _, raw in sorted(batches.items())))


def plain(raw: bytes) -> bytes:
    """A batch uncompressed."""
    attributes = struct.unpack_from(">h", raw, 21)[0]
    if attributes & 7 == 0:
        return raw
    return codecs.sealed(
        raw, b"".join(record.raw for record in twin.records(raw)), attributes=attributes & ~7
    )


@pytest.fixture(params=[0, 3, 4], ids=["not compressed", "lz4", "zstd"])
def done(tmp_path: Path, request: pytest.FixtureRequest) -> Done:
    """Four segments: superseded records, a tombstone past its horizon, one without a key, an aborted transaction."""
    partition = LogDir(tmp_path).partition("t", index_interval_bytes=200)
    codec: int = request.param
    segments_of = (
        [data(0, records("a", "b", "c")), data(3, records("", "d", "e-"))],
        [data(6, records("a", "x"), pid=7, txn=True), abort(8, pid=7), data(9, records("b", "f"))],
        [data(11, records("g", "b"), pid=8, txn=True), commit(13, pid=8)],
    )
    for batches in segments_of:
        partition.segment(
            *(replace(each, raw=codecs.packed(each.raw, codec)) for each in batches), mtime_ms=OLD
        )
    partition.segment(data(14, 1))
    folder = partition.write()
    segments, snapshots = naive.read_partition(folder)
    rules = rules_of(naive.Rules(now_ms=NOW_MS, horizon_ms=NOW_MS, segment_bytes=100_000, expiration_ms=1))
    ours = compacted(folder, policy_of(rules, Held(tuple(segments), snapshots)))
    return Done(folder, ours, written(ours.logs, folder, folder / "krepair~results"), codec)


def kept(raw: bytes, *places: int) -> bytes:
    """A batch with only these of its records."""
    found = twin.records(raw)
    return codecs.sealed(raw, b"".join(found[place].raw for place in places), count=len(places))


def test_the_result_as_it_was_made_is_right(done: Done) -> None:
    assert done.problem() == ""
    left = {base: [record.offset for record in twin.records(raw)] for base, raw in done.batches().items()}
    # the aborted batch is emptied: its producer is active; so its marker stays too
    assert left == {0: [0, 2], 3: [3, 4], 6: [], 8: [8], 9: [10], 11: [11, 12], 13: [13]}


SOURCE = {
    0: data(0, records("a", "b", "c")).raw,
    3: data(3, records("", "d", "e-")).raw,
    6: data(6, records("a", "x"), pid=7, txn=True).raw,
    9: data(9, records("b", "f")).raw,
}


def patched(raw: bytes, place: int, form: str, value: int) -> bytes:
    """A batch with another value in its header, its CRC made anew."""
    whole = bytearray(raw)
    struct.pack_into(form, whole, place, value)
    struct.pack_into(">I", whole, 17, crc32c.crc32c(bytes(whole[21:])))
    return bytes(whole)


def other_value(raw: bytes) -> bytes:
    return patched(raw.replace(b"value of a", b"VALUE of a"), 23, ">i", struct.unpack_from(">i", raw, 23)[0])


TAMPERED: dict[str, tuple[Callable[[dict[int, bytes]], dict[int, bytes]], str]] = {
    "the last record of a key is gone": (
        lambda b: b | {0: kept(SOURCE[0], 0)},
        "the last record of a key, at offset 2, is gone",
    ),
    "a batch with the last records is gone": (
        lambda b: {base: raw for base, raw in b.items() if base != 9},
        "the last record of a key, at offset 10, is gone",
    ),
    "a superseded record is there": (
        lambda b: b | {0: SOURCE[0]},
        "the result has another record of the key whose last record is at offset 12",
    ),
    "a record without a key is gone": (
        lambda b: b | {3: kept(SOURCE[3], 1)},
        "a record without a key is gone",
    ),
    "a record of an aborted transaction is there": (lambda b: b | {6: SOURCE[6]}, "aborted transaction"),
    "a value is another": (lambda b: b | {0: other_value(b[0])}, "not verbatim"),
    "a batch that never was": (lambda b: b | {5: data(5, records("z")).raw}, "that the source has not"),
    "a record twice": (lambda b: b | {3: kept(SOURCE[3], 0, 1, 1)}, "not"),
    "records in another order": (lambda b: b | {0: kept(SOURCE[0], 2, 0)}, "source has not"),
    "the last offset of a batch": (lambda b: b | {0: patched(b[0], 23, ">i", 3)}, "field of the header"),
    "the base timestamp": (lambda b: b | {0: patched(b[0], 27, ">q", NOW_MS + 1)}, "field of the header"),
    "the greatest timestamp": (lambda b: b | {0: patched(b[0], 35, ">q", NOW_MS + 1)}, "field of the header"),
    "the producer": (lambda b: b | {11: patched(b[11], 43, ">q", 9)}, "field of the header"),
    "the leader epoch, which no CRC covers": (
        lambda b: b | {0: b[0][:12] + struct.pack(">i", 5) + b[0][16:]},
        "field of the header",
    ),
    "the attributes": (lambda b: b | {0: patched(b[0], 21, ">h", 0x100)}, "field of the header"),
    "a marker of another kind": (lambda b: b | {13: abort(13, pid=8).raw}, "field of the header"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_result_in_which_this_is_wrong_is_refused(what: str, done: Done) -> None:
    change, why = TAMPERED[what]
    done.put(change(done.batches()))
    assert why in done.problem()


def test_a_tombstone_whose_horizon_has_not_passed_must_be_there(done: Done) -> None:
    bound = done.ours.prepared.compaction_range
    assert bound is not None
    object.__setattr__(bound, "drop_unstamped", (False,) * len(bound.drop_unstamped))
    assert "at offset 5, is gone" in done.problem()


@pytest.mark.parametrize(
    ("older", "wrong"),
    [
        ((data(0, records("e")),), True),
        ((data(0, records("a", "f")),), False),
        ((data(5, records("e-")),), False),
        ((data(0, records("e"), pid=9, txn=True), abort(1, pid=9)), False),
        ((data(0, records("e"), pid=9, txn=True), commit(1, pid=9)), True),
        ((data(0, records("e"), pid=9, txn=True),), True),
    ],
    ids=["a value", "other keys", "the tombstone itself", "aborted there", "committed there", "open there"],
)
def test_a_tombstone_that_another_replica_needs_may_not_be_gone(
    done: Done, older: tuple[Batch, ...], wrong: bool, tmp_path: Path
) -> None:
    """The tombstone of e at offset 5 is gone in the result."""
    other = LogDir(tmp_path / "other").partition("t").segment(*older, base_offset=0).write()
    log = LogsItem(place=place_of(other), segments=((0, (other / f"{0:020d}.log").stat().st_size),))
    found = proven(done.folder, done.ours, done.results, elsewhere=(log,))
    assert ("the tombstone at offset 5 is gone" in found.why) is wrong, found.why
    assert found.failure == ("verify" if wrong else "")
