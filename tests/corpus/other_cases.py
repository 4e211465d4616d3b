"""Rows of the corpus about producer snapshots, leftovers, ends of logs, and several of these in a bloated log."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import crc32c

from tests import builders
from tests.builders import NOW_MS
from tests.corpus.bases import EPOCHS, POINTS, Made
from tests.corpus.case import (
    CHECKED,
    RECOVERS,
    REFUSED,
    UNHARMED,
    Before,
    Case,
    Change,
    Damage,
    all_of,
    case_of,
    in_batch,
    on_segment,
    rewrite,
    unclean,
)

TRUNCATES = Before("truncate", "truncate", "truncate")
# -- producer snapshots: those of "transactions" are at 6, 10 and at the end, 12 ---------------------
SNAPSHOT = ".snapshot"


def _every_snapshot(change: Change) -> Damage:
    def damage(made: Made) -> None:
        for path in made.folder.glob("*.snapshot"):
            rewrite(path, change)

    return damage


def _with_right_crc(data: bytes) -> bytes:
    return data[:2] + struct.pack(">I", crc32c.crc32c(data[6:])) + data[6:]


SNAPSHOT_DAMAGES: dict[str, tuple[Change, str]] = {
    "empty": (lambda data: b"", "KR501"),
    "cut": (lambda data: data[:-7], "KR501"),
    "torn": (lambda data: data + b"\0\1", "KR501"),
    "nul": (lambda data: bytes(len(data)), "KR501"),
    "bit-flipped": (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "KR501"),
    "version-2": (lambda data: b"\0\2" + data[2:], "KR501"),
    "count-minus-1": (lambda data: data[:6] + struct.pack(">i", -1) + data[10:], "KR501"),
    "count-int-max": (lambda data: data[:6] + struct.pack(">i", 2**31 - 1) + data[10:], "KR501"),
    "garbage": (lambda data: b"\xa5" * 50, "KR501"),
    # with the right CRC
    "an-entry-short": (lambda data: data[:-46], "KR501"),
    "version-0": (lambda data: _with_right_crc(b"\0\0" + data[2:]), "KR501"),
    "count-minus-1-summed": (lambda data: _with_right_crc(data[:6] + b"\xff" * 4 + data[10:]), "KR501"),
}


def _snapshot_cases() -> Iterator[Case]:
    for name, (change, rules) in SNAPSHOT_DAMAGES.items():
        yield case_of(
            f"snapshot-{name}",
            "transactions",
            on_segment(12, SNAPSHOT, change),
            rules,
            "snapshots",
            mended=name != "version-2",  # unknown, and no damage
        )
    yield case_of(
        "snapshots-missing", "transactions", _every_snapshot(lambda data: None), "KR503", "snapshots"
    )
    yield case_of(
        "snapshots-nul", "transactions", _every_snapshot(lambda data: bytes(60)), "KR501", "snapshots"
    )
    yield case_of(
        "snapshot-past-the-end",
        "transactions",
        on_segment(90, SNAPSHOT, lambda data: b"\xa5" * 30),
        "KR501",
        "snapshots",
    )


# -- leftovers ----------------------------------------------------------------------------------------
def _swap_of_a_segment(made: Made) -> None:
    """The cleaner wrote a new segment 10, and was killed before it took the old one's name."""
    log = made.file(10, ".log")
    (made.folder / f"{log.name}.swap").write_bytes(log.read_bytes())


def _becomes_swap(base_offset: int, suffix: str) -> Damage:
    """The cleaner was killed between the renames of the log and of its index."""

    def damage(made: Made) -> None:
        path = made.file(base_offset, suffix)
        path.rename(f"{path}.swap")

    return damage


def _left(name: str, content: bytes = b"x" * 40) -> Damage:
    return lambda made: (made.folder / name).write_bytes(content) and None


LEFTOVERS = (
    case_of("left-cleaned", "plain", _left(f"{10:020d}.log.cleaned"), "KR601 KR701", "leftovers"),
    case_of("left-deleted", "plain", _left(f"{0:020d}.log.deleted"), "KR601 KR701", "leftovers"),
    case_of("left-index-deleted", "plain", _left(f"{0:020d}.index.deleted"), "KR601 KR701", "leftovers"),
    *(
        case_of(name, "plain", _left(f"{base:020d}{suffix}", content), rules, "leftovers", mended=False)
        for name, base, suffix, content, rules in (
            ("left-orphan-index", 77, ".index", bytes(8), "KR312 KR701"),
            ("left-index-of-no-segment", 7, ".index", bytes(8), "KR205 KR701"),
            ("left-orphan-timeindex", 77, ".timeindex", bytes(12), "KR312 KR701"),
        )
    ),
    case_of("left-swap-of-a-segment", "plain", _swap_of_a_segment, "KR601", "leftovers"),
    case_of(
        "left-swap-empty",
        "plain",
        _left(f"{10:020d}.log.swap", b""),
        "KR601",
        "leftovers",
        mended=False,
    ),
    case_of(
        "left-swap-damaged",
        "plain",
        _left(f"{10:020d}.log.swap", b"\xa5" * 200),
        "KR601 KR803",
        "leftovers",
        Before("truncate", "refuse", "refuse"),
        mended=False,
    ),
    case_of(
        "left-swap-beside-its-deleted",
        "plain",
        all_of(
            _swap_of_a_segment,
            _left(f"{10:020d}.log.deleted"),
            lambda made: _left(f"{10:020d}.index.deleted", made.file(10, ".index").read_bytes())(made),
        ),
        "KR601 KR701",
        "leftovers",
    ),
    case_of(
        "left-index-swap-of-a-missing-index",
        "plain",
        _becomes_swap(10, ".index"),
        "KR203 KR601",
        "leftovers",
        restores=f"{10:020d}.index",
    ),
    case_of(
        "left-timeindex-swap-of-a-missing-one",
        "plain",
        _becomes_swap(10, ".timeindex"),
        "KR201 KR601",
        "leftovers",
        restores=f"{10:020d}.timeindex",
    ),
    case_of(
        "left-index-swap-of-a-damaged-log",
        "plain",
        all_of(_becomes_swap(10, ".index"), in_batch(10, 1, 40, b"!")),
        "KR202 KR203 KR302 KR601",
        "leftovers",
        UNHARMED,
        mended=False,
    ),
    case_of(
        "left-untrue-index-swap-of-a-missing-index",
        "plain",
        all_of(_becomes_swap(10, ".index"), on_segment(10, ".index.swap", lambda data: data[8:] + data[:8])),
        "KR203 KR601",
        "leftovers",
        UNHARMED,
        mended=False,
    ),
    case_of("left-index-swap-alone", "plain", _left(f"{10:020d}.index.swap", bytes(8)), "KR601", "leftovers"),
)


# -- ends of logs --------------------------------------------------------------------------------------
def _tail(content: bytes) -> Damage:
    return on_segment(20, ".log", lambda data: data + content)


def _torn(made: Made) -> None:
    batch = builders.data(30, 2, leader_epoch=4, timestamp=NOW_MS + 30).raw
    _tail(batch[:-9])(made)


TAILS = (
    case_of("tail-torn", "plain", _torn, "KR301", "tail"),
    case_of("tail-few-bytes", "plain", _tail(b"\0\0\0\0\0\0\0\x1e"), "KR301", "tail"),
    case_of("tail-zeros", "plain", _tail(bytes(4096)), "KR305 KR803", "tail", REFUSED),
    case_of(
        "tail-torn-unclean",
        "plain",
        all_of(_torn, unclean),
        "KR301 KR801",
        "tail",
        TRUNCATES,
        left="KR801",
        after="recover",
    ),
    case_of("tail-garbage", "plain", _tail(b"\xa5" * 300), "KR302 KR803", "tail", REFUSED, mended=False),
    case_of(
        "middle-bit-flipped",
        "plain",
        on_segment(0, ".log", lambda data: data[:70] + b"\xff" + data[71:]),
        "KR302",
        "tail",
        mended=False,
    ),
    case_of(
        "middle-zeros",
        "plain",
        on_segment(10, ".log", lambda data: data[:99] + bytes(99) + data[198:]),
        "KR302",
        "tail",
        mended=False,
    ),
)


def _flipped(made: Made) -> None:
    """A bit in the second of the five batches of segment 0."""
    on_segment(0, ".log", lambda data: data[:180] + bytes([data[180] ^ 1]) + data[181:])(made)


CONSENTED = (
    case_of(
        "middle-excised", "plain", _flipped, "KR302", "tail=excise", consents="KR302:{}:2", differs="records"
    ),
    case_of(
        "middle-as-a-broker",
        "plain",
        _flipped,
        "KR302",
        "tail=broker",
        consents="KR302:{}:2",
        left="KR402 KR403 KR404 KR502",
        differs="records epochs",
    ),
    case_of(
        "tail-garbage-cut",
        "plain",
        _tail(b"\xa5" * 300),
        "KR302 KR803",
        "tail=excise",
        REFUSED,
        consents="KR302:{}:30",
    ),
)


# -- in a bloated log ------------------------------------------------------------------------------------
def _epochs_cut(made: Made) -> None:
    (made.folder / EPOCHS).write_bytes(b"0\n2\n0 0\n")


def _points_cut(made: Made) -> None:
    (made.log_dir / POINTS).write_bytes(b"0\n1\n")


def _index_padded(made: Made) -> None:
    for suffix, size in ((".index", 8), (".timeindex", 12)):
        path = made.file(10, suffix)
        path.write_bytes(path.read_bytes() + bytes(size * 200))


ALL = "markers,epochs,checkpoints,index,snapshots"
BLOATED = (
    case_of("bloated", "bloated", lambda made: None, "KR101", "markers"),
    case_of(
        "bloated-epochs",
        "bloated",
        _epochs_cut,
        "KR101 KR401 KR803",
        ALL,
        REFUSED,
    ),
    case_of(
        "bloated-points",
        "bloated",
        _points_cut,
        "KR101 KR403 KR803",
        ALL,
        REFUSED,
        in_partition=False,
    ),
    case_of("bloated-indexes", "bloated", _index_padded, "KR101 KR201 KR203", ALL, CHECKED),
    case_of(
        "bloated-snapshot", "bloated", on_segment(32, SNAPSHOT, lambda data: b"\xa5"), "KR101 KR501", ALL
    ),
    case_of(
        "bloated-torn",
        "bloated",
        on_segment(30, ".log", lambda data: data + b"\0" * 7),
        "KR101 KR305",
        "markers,tail",
    ),
    case_of(
        "bloated-unclean",
        "bloated",
        unclean,
        "KR101 KR801",
        "markers",
        RECOVERS,
        left="KR801",
        after="recover",
    ),
    case_of(
        "bloated-and-everything",
        "bloated",
        all_of(_epochs_cut, _points_cut, _index_padded, on_segment(32, SNAPSHOT, lambda data: b"\xa5")),
        "KR101 KR201 KR203 KR401 KR403 KR501 KR803",
        ALL,
        REFUSED,
        in_partition=False,
    ),
)

OTHER_CASES: tuple[Case, ...] = (*_snapshot_cases(), *LEFTOVERS, *TAILS, *CONSENTED, *BLOATED)
