"""Rows of the corpus about torn tails: what lies behind the last valid batch of the last segment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.builders import data
from tests.corpus.bases import Made
from tests.corpus.case import REFUSED, UNHARMED, Before, Case, Damage


class Tail(NamedTuple):
    """Bytes behind a log.

    Attributes:
        name: of the damage.
        make: the next offset in, bytes out.
        rules: its findings.
        before: what brokers do.
    """

    name: str
    make: Callable[[int], bytes]
    rules: str
    before: Before = UNHARMED


TAILS = (
    Tail("batch", lambda offset: data(offset, 5).raw[:-9], "KR301"),
    Tail("header", lambda offset: data(offset, 5).raw[:40], "KR301"),
    Tail("byte", lambda offset: b"\x07", "KR301"),
    Tail("zeros", lambda offset: bytes(5_000), "KR305 KR803", REFUSED),
    Tail("batch-then-zeros", lambda offset: data(offset, 40).raw[:300] + bytes(100), "KR301"),
)
ENDS = {
    "plain": 30,
    "transactions": 12,
    "compacted": 22,
    "large": 41,
    "ten segments": 280,
    "real indexes": 1000,
}


def _torn(tail: Tail, end: int) -> Damage:
    def damage(made: Made) -> None:
        path = made.file(made.bases[-1], ".log")
        found = path.stat()
        with open(path, "ab") as log:
            log.write(tail.make(end))
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))

    return damage


def _cases() -> Iterator[Case]:
    for base, end in ENDS.items():
        for tail in TAILS:
            yield Case(
                name=f"tail-{tail.name}-{base.replace(' ', '-')}",
                base=base,
                damage=_torn(tail, end),
                findings=frozenset(tail.rules.split()),
                fixes=("tail",),
                before=tail.before,
            )


TAIL_CASES = tuple(_cases())
