"""The types of a rule and of a finding. The table of rules is in ``krepair.checks.catalogue``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

NOTHING_CHANGED: Final = "nothing: krepair only reports it"
KEPT: Final = "nothing: the originals are kept until purge, and undo puts them back"


CHECK: Final = "krepair check"


class Severity(StrEnum):
    """What happens if nobody does anything."""

    DATA_LOSS = "data loss"
    BROKER_DOWN = "broker down"
    SLOW = "slow"
    CONFUSING = "confusing"
    INFORMATION = "information"


class StartEffect(StrEnum):
    """What the next start makes of a finding. A later one is worse."""

    NONE = "none"
    ASIDE = "aside"
    """The broker renames the partition's folder to ``-stray`` and begins an empty one."""
    DIRECTORY = "directory"
    """This log directory goes offline; a broker with others goes on with those, one without others ends."""
    ENDS = "ends"
    """The broker does not start, whatever its other log directories are."""


def strongest(effects: Iterable[StartEffect]) -> StartEffect:
    """The worst of some effects; ``NONE`` of none."""
    order = list(StartEffect)
    return max(effects, key=order.index, default=StartEffect.NONE)


class Rule(Struct, frozen=True, kw_only=True, tag_field="kind", tag="rule"):
    """One row of the table.

    Attributes:
        code: ``KRnnn``.
        severity: what happens if nobody does anything, in a word.
        title: name of the rule, a few words.
        evidence: what a finding of this rule shows.
        danger: what happens if nothing is done.
        fix: name for ``--fix``, or ``none``.
        lost_if_wrong: what is lost if krepair is wrong and the fix is applied.
        source: Kafka's code, KIP or issue, and the broker versions on which this was seen.
        start: what the next start makes of it, where a finding does not say it of its own case.
        command: the command that looks for it.
    """

    code: str
    severity: Severity
    title: str
    evidence: str
    danger: str
    source: str
    fix: str = "none"
    lost_if_wrong: str = NOTHING_CHANGED
    start: StartEffect = StartEffect.NONE
    command: str = CHECK


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is wrong or remarkable.

    Attributes:
        rule: ``KRnnn``.
        partition: folder name, or empty for the root of the log directory.
        file: file name in that folder, or empty.
        position: byte in the file, -1 if the finding is about the whole file.
        evidence: one line: what is there, and what was expected.
        bytes: bytes that are wasted, damaged or at risk; 0 if a number of bytes means nothing here.
        severity: of this case, where it is not that of the rule; what ``check`` prints always has it.
        start: what the next start makes of this case, where it is not that of the rule.
        fix: name for ``--fix`` that mends this case, or ``none``; empty until ``check`` says it.
        command: what to type for it, one line, or empty.
        first_offset: the first offset that is damaged or lost, -1 if it is not known or means nothing here.
        last_offset: the last one, -1 likewise.
        records_lost: records that the way out costs, -1 if it is not known or there is none.
        bytes_lost: bytes of logs that it costs, -1 likewise.
    """

    rule: str
    partition: str = ""
    file: str = ""
    position: int = -1
    evidence: str = ""
    bytes: int = 0
    severity: Severity | None = None
    start: StartEffect | None = None
    fix: str = ""
    command: str = ""
    first_offset: int = -1
    last_offset: int = -1
    records_lost: int = -1
    bytes_lost: int = -1


# -- codes of rules and objections of earlier builds; none of them is used again

_OF_THE_REVIEW: Final = "krepair apply works it out anew and refuses what differs"
GONE: Final[Mapping[str, str]] = {
    "KR670": "krepair compare names a wrong replica; docs/compare.md, The way back, says how to make it right",
    **{
        f"RV{number:02d}": _OF_THE_REVIEW
        for number in (1, 2, 3, 6, 7, 8, 10, 11, 12, 15, 19, 20, 22, 26, 27, 32, 34)
    },
}
"""Code -> what stands in its place."""
