"""The table of the corpus: every damage, what check says of it, what brokers do with it, what apply makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.corpus.bases import CLEANED, EPOCHS, POINTS, STARTS, WATERMARKS, Made
from tests.corpus.case import (
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
    rewrite,
    unclean,
)
from tests.corpus.index_cases import INDEX_CASES
from tests.corpus.other_cases import OTHER_CASES
from tests.corpus.tail_cases import TAIL_CASES

ALL_VERSIONS_BUT_THE_OLDEST = Before("start", "refuse", "refuse")


# -- leader epochs --------------------------------------------------------------------------------
LATER_VERSION = "version-1"
"""No version that krepair knows writes it, so it is unknown, and no damage: it is named, and left alone."""


class OnBytes(NamedTuple):
    """A damage of the bytes of one small file.

    Attributes:
        name: of the damage.
        change: old bytes in, new bytes out; None removes the file.
        rules: findings of it.
        before: what brokers do.
        bases: where it makes sense.
        whole: whether everything comes back; not what only a lost line of a compacted log told.
    """

    name: str
    change: Change
    rules: str
    before: Before = UNHARMED
    bases: tuple[str, ...] = ("plain", "ten segments")
    whole: bool = True


def _lines(data: bytes) -> list[bytes]:
    return data.splitlines()[2:]


def _with(lines: list[bytes], count: int | None = None) -> bytes:
    counted = len(lines) if count is None else count
    return b"".join(line + b"\n" for line in (b"0", b"%d" % counted, *lines))


def _swap(data: bytes) -> bytes:
    first, second, *rest = _lines(data)
    return _with([second, first, *rest])


EPOCH_DAMAGES = (
    OnBytes("missing", lambda data: None, "KR401"),
    OnBytes("empty", lambda data: b"", "KR401"),
    OnBytes("version-only", lambda data: b"0\n", "KR401"),
    OnBytes("no-entries", lambda data: b"0\n0\n", "KR401"),
    OnBytes("cut-in-version", lambda data: b"0", "KR401"),
    OnBytes("cut-in-last-line", lambda data: data[: data.rindex(b" ") + 1], "KR401", REFUSED),
    OnBytes("cut-after-first-line", lambda data: data[: data.index(b"\n", 4) + 1], "KR401", REFUSED),
    OnBytes("cut-in-offset", lambda data: data[:-2], "KR401"),
    OnBytes("no-last-line-end", lambda data: data[:-1], "KR401"),
    OnBytes("nul", lambda data: b"\0" * len(data), "KR401", REFUSED),
    OnBytes("nul-tail", lambda data: data + b"\0" * 16, "KR401", REFUSED),
    OnBytes("nul-middle", lambda data: data[:6] + b"\0\0" + data[8:], "KR401", REFUSED),
    OnBytes("count-high", lambda data: _with(_lines(data), 99), "KR401", REFUSED),
    OnBytes("count-low", lambda data: _with(_lines(data), 1), "KR401", REFUSED),
    OnBytes("count-minus-1", lambda data: _with(_lines(data), -1), "KR401", REFUSED),
    OnBytes("count-int-max", lambda data: _with(_lines(data), 2**31 - 1), "KR401", REFUSED),
    OnBytes("count-word", lambda data: data.replace(b"0\n", b"0\nx", 1), "KR401", REFUSED),
    OnBytes(LATER_VERSION, lambda data: b"1" + data[1:], "KR401", REFUSED),
    OnBytes("version-word", lambda data: b"v0" + data[1:], "KR401", REFUSED),
    OnBytes("bom", lambda data: b"\xef\xbb\xbf" + data, "KR401", REFUSED),
    OnBytes("garbage", lambda data: b"\x8f\x02garbage", "KR401", REFUSED),
    OnBytes("other-digits", lambda data: "0\n1\n٠ ٤\n".encode(), "KR402"),
    OnBytes("three-words", lambda data: data.replace(b"2 ", b"2 2 ", 1), "KR401", REFUSED),
    OnBytes("one-word", lambda data: _with([*_lines(data)[:-1], b"77"]), "KR401", REFUSED),
    OnBytes("empty-line", lambda data: data.replace(b"\n2 ", b"\n\n2 "), "KR401", REFUSED),
    OnBytes(
        "offset-past-64-bits",
        lambda data: _with([*_lines(data), b"77 99999999999999999999"]),
        "KR401",
        REFUSED,
    ),
    OnBytes("epoch-past-32-bits", lambda data: _with([*_lines(data), b"4294967296 1"]), "KR401", REFUSED),
    OnBytes("disorder", _swap, "KR401"),
    OnBytes("twice", lambda data: _with([*_lines(data), _lines(data)[-1]]), "KR401"),
    OnBytes(
        "negative-epoch",
        lambda data: _with([b"-1 0", *_lines(data)]),
        "KR401 KR402",
        ALL_VERSIONS_BUT_THE_OLDEST,
    ),
    OnBytes(
        "negative-start",
        lambda data: _with([b"0 -5", *_lines(data)[1:]]),
        "KR402",
        ALL_VERSIONS_BUT_THE_OLDEST,
    ),
    OnBytes("past-the-end", lambda data: _with([*_lines(data), b"90 9000"]), "KR402"),
    OnBytes(
        "start-too-late", lambda data: _with([b"0 0", *[_later(each) for each in _lines(data)[1:]]]), "KR402"
    ),
    OnBytes("without-the-last", lambda data: _with(_lines(data)[:-1]), "KR402"),
    OnBytes("without-the-second", lambda data: _with([_lines(data)[0], *_lines(data)[2:]]), "KR402"),
    OnBytes("of-another-partition", lambda data: b"0\n2\n1 3\n7 9\n", "KR402"),
    OnBytes("missing", lambda data: None, "KR401", bases=("compacted",), whole=False),
    OnBytes(
        "cut-before-last-line", lambda data: data[:-4], "KR401", REFUSED, bases=("compacted",), whole=False
    ),
    OnBytes("count-high", lambda data: _with(_lines(data), 9), "KR401", REFUSED, bases=("compacted",)),
)


def _later(line: bytes) -> bytes:
    epoch, start = line.split()
    return b"%s %d" % (epoch, int(start) + 2)


def _on_file(name: str, change: Change) -> Damage:
    """The damage of a file of the partition folder, or of the root."""
    return lambda made: rewrite((made.folder if name == EPOCHS else made.log_dir) / name, change)


def _epoch_cases() -> Iterator[Case]:
    for row in EPOCH_DAMAGES:
        for base in row.bases:
            yield Case(
                name=f"epochs-{row.name}-{base}".replace(" ", "-"),
                base=base,
                damage=_on_file(EPOCHS, row.change),
                findings=_found(row.rules, row.before),
                fixes=("epochs",),
                before=row.before,
                mended=row.name != LATER_VERSION,
                restores=(EPOCHS,) if row.whole else (),
                differs=frozenset() if row.whole else frozenset({"epochs"}),
            )


def _found(rules: str, before: Before) -> frozenset[str]:
    """Rules of a row, and that of the refusal if there is one."""
    return frozenset(rules.split()) | ({"KR803"} if "refuse" in before else set())


def _text(made: Made, *offsets: int) -> bytes:
    return _with([b"%s 0 %d" % (made.topic.encode(), offset) for offset in offsets])


def _epochs_and_log_start(made: Made) -> None:
    """Records below 15 were deleted by request: the broker folds the entries below it."""
    (made.log_dir / STARTS).write_bytes(_text(made, 15))


def _leader_without_data(made: Made) -> None:
    path = made.folder / EPOCHS
    path.write_bytes(_with([*_lines(path.read_bytes()), b"9 30"]))


def _epoch_of(base_offset: int, number: int, epoch: int) -> Damage:
    """No checksum covers the leader epoch of a batch."""
    return in_batch(base_offset, number, 12, epoch.to_bytes(4))


OTHER_EPOCH_CASES = (
    case_of("epoch-of-a-batch", "plain", _epoch_of(10, 2, 16386), "KR411", "epochs", mended=False),
    case_of("epoch-of-the-first-batch", "plain", _epoch_of(0, 0, 64), "KR411", "epochs", mended=False),
    case_of("epoch-of-the-last-batch-lower", "plain", _epoch_of(20, 4, 0), "KR411", "epochs", mended=False),
    case_of(
        "epoch-that-the-file-contradicts",
        "plain",
        all_of(_on_file(EPOCHS, lambda data: _with([*_lines(data), b"7 28"])), _epoch_of(20, 4, 2055)),
        "KR411",
        "epochs",
        mended=False,
    ),
    case_of("epoch-where-one-begins", "plain", _epoch_of(20, 0, 6), "KR411", "epochs", mended=False),
    case_of(
        "epoch-of-a-batch-without-the-file",
        "plain",
        all_of(_epoch_of(10, 2, 16386), _on_file(EPOCHS, lambda data: None)),
        "KR401 KR411",
        "epochs",
        left="KR411",
        restores=EPOCHS,
    ),
    case_of(
        "epochs-below-the-log-start",
        "plain",
        _epochs_and_log_start,
        "",
        "epochs",
        mended=False,
        in_partition=False,
    ),
    case_of("epochs-of-a-leader-without-data", "plain", _leader_without_data, "", "epochs", mended=False),
    case_of(
        "epochs-missing-unclean",
        "plain",
        all_of(unclean, _on_file(EPOCHS, lambda data: None)),
        "KR401 KR801",
        "epochs",
        RECOVERS,
        left="KR801",
        after="recover",
        restores=EPOCHS,
    ),
    case_of(
        "epochs-nul-unclean",
        "ten segments",
        all_of(unclean, _on_file(EPOCHS, lambda data: b"\0" * 40)),
        "KR401 KR803",
        "epochs",
        REFUSED,
        left="KR801",
        after="recover",
        restores=EPOCHS,
    ),
)

# -- offset checkpoints of the root ---------------------------------------------------------------
OFFSETS = {POINTS: ("KR403", 30), WATERMARKS: ("KR404", 30), STARTS: ("KR405", 0), CLEANED: ("KR410", 20)}
RESET = Before("refuse", "start", "start")
"""A number that is none: 3.9 and 4.3 go on as without the file."""

OFFSET_DAMAGES = (
    OnBytes("empty", lambda data: b"", ""),
    OnBytes("missing", lambda data: None, ""),
    OnBytes("crlf", lambda data: data.replace(b"\n", b"\r\n"), ""),
    OnBytes("version-only", lambda data: b"0\n", "*"),
    OnBytes("cut-in-topic", lambda data: data[:6], "*", REFUSED),
    OnBytes("cut-after-topic", lambda data: data[: data.index(b" ") + 1], "*", REFUSED),
    OnBytes("cut-after-partition", lambda data: data[: data.rindex(b" ") + 1], "*", REFUSED),
    OnBytes("no-last-line-end", lambda data: data[:-1], "*"),
    OnBytes("nul", lambda data: b"\0" * len(data), "*", REFUSED),
    OnBytes("nul-tail", lambda data: data + b"\0" * 8, "*", REFUSED),
    OnBytes("garbage", lambda data: b"\xfe\xffgarbage\n", "*", REFUSED),
    OnBytes(LATER_VERSION, lambda data: b"1" + data[1:], "*", REFUSED),
    OnBytes("count-high", lambda data: _with(_lines(data), 7), "*", REFUSED),
    OnBytes("count-0", lambda data: _with(_lines(data), 0), "*", REFUSED),
    OnBytes("count-minus-1", lambda data: _with(_lines(data), -1), "*", RESET),
    OnBytes("count-int-max", lambda data: _with(_lines(data), 2**31 - 1), "*", REFUSED),
    OnBytes("four-words", lambda data: _with([line + b" 9" for line in _lines(data)]), "*", REFUSED),
    OnBytes("offset-past-64-bits", lambda data: _offset(data, b"9" * 20), "*", RESET),
    OnBytes("absent-partition", lambda data: _with([*_lines(data), b"gone 3 5"]), "*"),
    OnBytes("twice", lambda data: _with([*_lines(data), *_lines(data)]), "*"),
    OnBytes("negative", lambda data: _offset(data, b"-5"), "*"),
)


def _offset(data: bytes, offset: bytes) -> bytes:
    return _with([b" ".join((*line.split()[:2], offset)) for line in _lines(data)])


def _on_offsets(name: str, offset: int, change: Change) -> Damage:
    def write(made: Made) -> None:
        (made.log_dir / name).write_bytes(_text(made, offset))

    return all_of(write, _on_file(name, change))


def _offset_cases() -> Iterator[Case]:
    past = OnBytes("past-the-end", lambda data: _offset(data, b"31"), "*")
    deadly = past._replace(before=Before("delete", "delete", "delete"))
    for name, (rule, offset) in OFFSETS.items():
        for row in (*OFFSET_DAMAGES, deadly if name == STARTS else past):
            found = _found(row.rules.replace("*", rule), row.before)
            # Such a partition may have been moved away by hand: it is named once, where brokers keep a line of each.
            absent = row.name == "absent-partition"
            found = found if not absent or name in {POINTS, WATERMARKS} else frozenset()
            # After the clean stop of this directory such a line tells that records are gone.
            gone = row.name == "past-the-end" and name in {POINTS, WATERMARKS}
            found = frozenset({"KR312"}) if gone or (absent and found) else found
            yield Case(
                name=f"{name.removesuffix('-offset-checkpoint')}-{row.name}",
                base="plain",
                damage=_on_offsets(name, offset, row.change),
                findings=found,
                fixes=("checkpoints",),
                before=row.before,
                mended=bool(found) and not absent and row.name != LATER_VERSION,
                in_partition=False,
                consents=("KR312:{}:30",) if gone else (),
            )


CASES: tuple[Case, ...] = (
    *_epoch_cases(),
    *OTHER_EPOCH_CASES,
    *_offset_cases(),
    *INDEX_CASES,
    *OTHER_CASES,
    *TAIL_CASES,
)
