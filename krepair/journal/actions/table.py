"""The tables of the journal: which action carries out which kind of change, and which intent belongs to it."""

from __future__ import annotations

from typing import Any, Final

from krepair.journal.actions.action import JournalAction
from krepair.journal.actions.aside import SetSegmentsAside
from krepair.journal.actions.lines import ChangeCheckpointLines
from krepair.journal.actions.mend import MendLogs
from krepair.journal.actions.replace import ReplaceFiles
from krepair.journal.actions.rewrite import RewriteGroups
from krepair.journal.actions.roll import RollSegments
from krepair.journal.actions.swap import CompleteSwaps
from krepair.journal.record import (
    ApplyIntent,
    AsideIntent,
    Intent,
    LogIntent,
    ReplaceIntent,
    RollIntent,
    SwapIntent,
)
from krepair.plan.model import (
    Change,
    ChangeLines,
    CompleteSwap,
    MendLog,
    ReplaceFile,
    RewriteSegments,
    RollSegment,
    SetAside,
)

BY_CHANGE: Final[dict[type[Change], JournalAction[Any, Any]]] = {
    RewriteSegments: RewriteGroups(),
    ReplaceFile: ReplaceFiles(),
    MendLog: MendLogs(),
    SetAside: SetSegmentsAside(),
    CompleteSwap: CompleteSwaps(),
    ChangeLines: ChangeCheckpointLines(),
    RollSegment: RollSegments(),
}
BY_INTENT: Final[dict[type[Intent], JournalAction[Any, Any]]] = {
    ApplyIntent: BY_CHANGE[RewriteSegments],
    ReplaceIntent: BY_CHANGE[ReplaceFile],
    LogIntent: BY_CHANGE[MendLog],
    AsideIntent: BY_CHANGE[SetAside],
    SwapIntent: BY_CHANGE[CompleteSwap],
    RollIntent: BY_CHANGE[RollSegment],
}


def action_for(change: Change) -> JournalAction[Any, Any]:
    """What carries out a change."""
    return BY_CHANGE[type(change)]


def action_of(intent: Intent) -> JournalAction[Any, Any]:
    """What carries out, or takes back, a change that has begun."""
    return BY_INTENT[type(intent)]
