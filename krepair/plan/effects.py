"""The effects of changes on the files that later fixes read, because one plan may hold changes of several fixes."""

from __future__ import annotations

from collections.abc import Iterable

from krepair.plan.actions.action import LogEffect
from krepair.plan.actions.table import action_of
from krepair.plan.model import Change


def log_effect(change: Change) -> LogEffect:
    """The bytes that a change removes from the logs and that a reader could see."""
    return action_of(change).log_effect(change)


def changes_logs(changes: Iterable[Change]) -> bool:
    """Whether changes remove bytes from the logs that a reader could see."""
    effects = map(log_effect, changes)
    return any(effect.segments or effect.ranges for effect in effects)


def bases_touched(changes: Iterable[Change]) -> set[int]:
    """Base offsets of the segments whose logs change. Such a segment is removed, or gets new indexes with its log."""
    return {base for change in changes for base in action_of(change).touches(change).segments}


def names_removed(changes: Iterable[Change]) -> set[str]:
    """Names of the files that do not exist after the changes."""
    return {name for change in changes for name in action_of(change).touches(change).removes}


def trusted_after(changes: Iterable[Change]) -> frozenset[tuple[str, int]]:
    """Partitions (topic, number) of which a start reads less after the changes, see ``PlannedAction.trusts``."""
    return frozenset(one for change in changes for one in action_of(change).trusts(change))
