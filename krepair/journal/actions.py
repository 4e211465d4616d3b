"""Which action carries out which kind of change: the one table of the journal."""

from __future__ import annotations

from typing import Any, Final

from krepair.journal.action import Action
from krepair.journal.aside import SetSegmentsAside
from krepair.journal.record import ApplyIntent, AsideIntent, Intent, LogIntent, ReplaceIntent, SwapIntent
from krepair.journal.replace import ReplaceFiles
from krepair.journal.rewrite import RewriteGroups
from krepair.journal.surgery import MendLogs
from krepair.journal.swap import CompleteSwaps
from krepair.plan.model import Change, CompleteSwap, MendLog, ReplaceFile, RewriteSegments, SetAside

REPLACE: Final = ReplaceFiles()
"""Files that are independent of each other are carried out together."""

BY_CHANGE: Final[dict[type[Change], Action[Any, Any]]] = {
    RewriteSegments: RewriteGroups(),
    ReplaceFile: REPLACE,
    MendLog: MendLogs(),
    SetAside: SetSegmentsAside(),
    CompleteSwap: CompleteSwaps(),
}
BY_INTENT: Final[dict[type[Intent], Action[Any, Any]]] = {
    ApplyIntent: BY_CHANGE[RewriteSegments],
    ReplaceIntent: REPLACE,
    LogIntent: BY_CHANGE[MendLog],
    AsideIntent: BY_CHANGE[SetAside],
    SwapIntent: BY_CHANGE[CompleteSwap],
}


def action_of(intent: Intent) -> Action[Any, Any]:
    """What carries out, or takes back, a change that has begun."""
    return BY_INTENT[type(intent)]
