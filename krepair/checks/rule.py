"""What a rule and a finding are; the table itself is in ``krepair.checks.catalogue``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from msgspec import Struct

FIRST_VERSION: Final = "0.1.0"

NOTHING_CHANGED: Final = "nothing: krepair only reports it"
KEPT: Final = "nothing: the originals are kept until purge, and undo puts them back"


CHECK: Final = "krepair check"


class Severity(StrEnum):
    """What it comes to if nobody does anything."""

    DATA_LOSS = "data loss"
    BROKER_DOWN = "broker down"
    SLOW = "slow"
    CONFUSING = "confusing"
    INFORMATION = "information"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One row.

    Attributes:
        code: ``KRnnn``.
        severity: what it comes to.
        title: a few words.
        evidence: what a finding shows.
        danger: what happens when it is left.
        fix: name for ``--fix``, or ``none``.
        lost_if_wrong: what is lost if krepair is wrong and the fix was applied.
        source: where this was read or seen.
        implemented_in: first version of krepair that looks for it; empty while it is planned.
        command: what looks for it.
    """

    code: str
    severity: Severity
    title: str
    evidence: str
    danger: str
    fix: str
    lost_if_wrong: str
    source: str
    implemented_in: str = ""
    command: str = CHECK

    @property
    def planned(self) -> bool:
        """Whether no version looks for it yet."""
        return not self.implemented_in


class Finding(Struct, frozen=True, kw_only=True):
    """One broken or remarkable thing.

    Attributes:
        rule: ``KRnnn``.
        partition: folder name, or empty for the root of the log directory.
        file: file name in that folder, or empty.
        position: byte in the file, -1 if it is about the whole file.
        evidence: one line: what is there and what was expected.
        bytes: bytes it is about (wasted, damaged, at risk), 0 if that says nothing.
    """

    rule: str
    partition: str = ""
    file: str = ""
    position: int = -1
    evidence: str = ""
    bytes: int = 0
