"""The table of the plan layer: the action for each kind of change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from krepair.plan.actions.action import PlannedAction
from krepair.plan.actions.aside import Aside
from krepair.plan.actions.lines import Lines
from krepair.plan.actions.mend import Mend
from krepair.plan.actions.replace import Replace
from krepair.plan.actions.rewrite import Rewrite
from krepair.plan.actions.roll import Roll
from krepair.plan.actions.swap import Swap
from krepair.plan.model import Change

ACTIONS: Final[dict[type[Change], PlannedAction[Any]]] = {
    action.kind: action for action in (Rewrite(), Swap(), Mend(), Aside(), Replace(), Roll(), Lines())
}
"""In the order in which they are shown to a reader."""


def action_of(change: Change) -> PlannedAction[Any]:
    """The action for a change."""
    return ACTIONS[type(change)]


def by_kind(changes: Iterable[Change]) -> Iterator[tuple[PlannedAction[Any], list[Change]]]:
    """Each action with the changes of its kind, in the order of the table; kinds without a change are left out."""
    of_kind: dict[type[Change], list[Change]] = {kind: [] for kind in ACTIONS}
    for change in changes:
        of_kind[type(change)].append(change)
    return ((ACTIONS[kind], found) for kind, found in of_kind.items() if found)
