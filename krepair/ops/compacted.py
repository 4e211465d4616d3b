"""Tells whether a partition is compacted: by the settings, by cleaners, by what cleaning leaves in a log, by plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import UnsetType

from krepair.durable.tree import Tree
from krepair.errors import KrepairError
from krepair.fixes.replicas import ReadReplica
from krepair.logdir.config import Settings
from krepair.logdir.values import PrivateFolder
from krepair.ops.kept import find_copy
from krepair.rules.replicas.judge import ReplicaGroup

_LOOKED_INTO_BYTES: Final = 64 << 20
"""A larger copy of a plan is passed over: it is evidence beside others, and costs too much."""


class Policies:
    """Which partitions are compacted; each copy of a plan is read once.

    Args:
        settings: of brokers and topics.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._plans: dict[tuple[str, str], frozenset[str]] = {}

    def is_said(self, topic: str, replicas: Iterable[ReadReplica]) -> bool:
        """Whether the settings say of a topic that it is compacted or not, or a plan of krepair that it was."""
        return self._settings.topic(topic).policy_is_known or any(map(self._planned, replicas))

    def compacts(self, topic: str, group: ReplicaGroup, replicas: Iterable[ReadReplica]) -> bool:
        """Whether records may be missing because a later one of their key is there.

        The settings of the topic come first. Where they do not say it, a partition is compacted that has a recorded
        cleaner position, or a batch with fewer records than offsets, or that krepair compacted by a plan of which a
        copy is still there. Whole batches that are gone prove nothing: they may also be lost.

        Args:
            topic: its name.
            group: the replicas that are compared.
            replicas: all of the partition, as they were read.
        """
        settings = self._settings.topic(topic)
        if settings.policy_is_known:
            return settings.compacts
        if any(one.state.cleaner_position >= 0 or one.headers.cleaned_to >= 0 for one in group.replicas):
            return True
        return any(map(self._planned, replicas))

    def _planned(self, one: ReadReplica) -> bool:
        """Whether a plan of krepair, whose originals are still kept, compacted a replica by key."""
        listing, log_dir = one.log.listing, one.log.state.log_dir
        if listing is None:
            return False
        return any(
            listing.folder in self._compacted(log_dir, private, listing.private)
            for private in listing.private
        )

    def _compacted(
        self, log_dir: str, private: PrivateFolder, beside: Sequence[PrivateFolder]
    ) -> frozenset[str]:
        """The folders that a plan compacts by key."""
        known = self._plans.get((log_dir, private.plan_id))
        if known is None:
            own = [one.path for one in beside if one.plan_id == private.plan_id]
            known = self._plans[log_dir, private.plan_id] = frozenset(_read(log_dir, private.plan_id, own))
        return known


def _read(log_dir: str, plan_id: str, private: Sequence[str]) -> Iterable[str]:
    try:
        with Tree(log_dir) as tree:
            copy = find_copy(tree, plan_id, private, at_most=_LOOKED_INTO_BYTES)
    except (OSError, KrepairError):
        return
    for part in copy.plan.partitions if copy is not None and copy.plan is not None else ():
        if part.changes and not isinstance(part.compaction, UnsetType):
            yield part.folder
