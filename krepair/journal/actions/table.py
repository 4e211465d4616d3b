"""The tables of the journal: which action carries out which kind of change."""

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
from krepair.journal.record import Intent
from krepair.plan.model import Change

_ACTIONS: Final[tuple[JournalAction[Any], ...]] = (
    RewriteGroups(),
    ReplaceFiles(),
    MendLogs(),
    SetSegmentsAside(),
    CompleteSwaps(),
    ChangeCheckpointLines(),
    RollSegments(),
)
BY_CHANGE: Final = {action.kind: action for action in _ACTIONS}
BY_NAME: Final = {str(action.kind.__struct_config__.tag): action for action in _ACTIONS}
"""By the kind that an intent has."""


def action_for(change: Change) -> JournalAction[Any]:
    """What carries out a change."""
    return BY_CHANGE[type(change)]


def action_of(intent: Intent) -> JournalAction[Any]:
    """What carries out, or takes back, a change that has begun."""
    return BY_NAME[intent.kind]
