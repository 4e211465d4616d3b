"""One row of the corpus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.corpus.bases import MARKER, Made
from tests.lab.jars import VERSIONS

Damage = Callable[[Made], None]
Change = Callable[[bytes], bytes | None]
"""What becomes of the bytes of a file; None takes it away. One that is not there has no bytes."""


class Before(NamedTuple):
    """What the next start would do to the damaged partition, by the forecast's word."""

    v2_2_1: str
    v3_9_2: str
    v4_3_1: str

    def of(self, version: str) -> str:
        """Of one version."""
        return self[min(VERSIONS.index(version), 2)]


UNHARMED = Before("start", "start", "start")
REFUSED = Before("refuse", "refuse", "refuse")
RECOVERS = Before("recover", "recover", "recover")
CHECKED = Before("recover", "start", "start")
"""Up to 2.2 a broker looks into every index, and recovers a segment whose index contradicts itself."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One damaged directory and all that must be true of it.

    Attributes:
        name: unique; also the name of the topic when brokers are started on it.
        base: of ``BASES``.
        damage: done to it.
        findings: rules that check names, exactly.
        fixes: of ``--fix``.
        before: what the next start would do.
        mended: whether apply mends it; if not, it is reported and nothing is planned.
        left: rules that check still names afterwards.
        after: forecast of the mended directory, for all versions.
        in_partition: whether the damage and its mending lie in the partition folder alone.
        consents: what ``--accept-data-loss`` is given, with ``{}`` for the partition.
        differs: ``records`` or ``epochs``: what clients get other from the mended partition than from the healthy one.
        restores: files of the partition folder that are again what they were in the healthy directory.
    """

    name: str
    base: str
    damage: Damage
    findings: frozenset[str]
    fixes: tuple[str, ...]
    before: Before = UNHARMED
    mended: bool = True
    left: frozenset[str] = frozenset()
    after: str = "start"
    in_partition: bool = True
    consents: tuple[str, ...] = ()
    differs: frozenset[str] = frozenset()
    restores: tuple[str, ...] = ()


def case_of(
    name: str,
    base: str,
    damage: Damage,
    rules: str,
    fix: str,
    before: Before = UNHARMED,
    *,
    mended: bool = True,
    left: str = "",
    after: str = "start",
    differs: str = "",
    in_partition: bool = True,
    consents: str = "",
    restores: str = "",
) -> Case:
    """One line of a table; rules and what is left are divided by blanks, fixes by commas."""
    return Case(
        name=name,
        base=base,
        damage=damage,
        findings=frozenset(rules.split()),
        fixes=tuple(sorted(fix.split(","))),
        before=before,
        mended=mended,
        left=frozenset(left.split()),
        after=after,
        differs=frozenset(differs.split()),
        in_partition=in_partition,
        consents=tuple(consents.split()),
        restores=tuple(restores.split()),
    )


def rewrite(path: Path, change: Change) -> None:
    """Change one file."""
    new = change(path.read_bytes() if path.exists() else b"")
    if new is None:
        path.unlink()
    else:
        path.write_bytes(new)


def on_segment(base_offset: int, suffix: str, change: Change) -> Damage:
    """The damage of one file of a segment."""
    return lambda made: rewrite(made.file(base_offset, suffix), change)


def in_batch(base_offset: int, number: int, at: int, new: bytes) -> Damage:
    """Other bytes at a place of a batch of a segment; the first batch has number 0."""

    def change(data: bytes) -> bytes:
        position = 0
        for _ in range(number):
            position += 12 + int.from_bytes(data[position + 8 : position + 12])
        return data[: position + at] + new + data[position + at + len(new) :]

    return on_segment(base_offset, ".log", change)


def all_of(*damages: Damage) -> Damage:
    """One after the other."""

    def damage(made: Made) -> None:
        for each in damages:
            each(made)

    return damage


def unclean(made: Made) -> None:
    """The broker was not stopped cleanly."""
    (made.log_dir / MARKER).unlink()
