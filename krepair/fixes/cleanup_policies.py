"""Decide whether a partition is compacted: by settings, cleaner checkpoints, traces in the log, and plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import UnsetType

from krepair.commit.kept import find_copy
from krepair.durable.tree import Tree
from krepair.errors import KrepairError
from krepair.fixes.replicas import ReadReplica
from krepair.logdir.config import Settings
from krepair.logdir.values import PrivateFolder
from krepair.rules.replicas.judge import ReplicaGroup

_LOOKED_INTO_BYTES: Final = 64 << 20
"""Maximum size in bytes of a plan's copy that is read here.

A larger copy takes too long for evidence that other sources give too.
"""


class Policies:
    """Cleanup policies of partitions; each copy of a plan is read once.

    Args:
        settings: settings of brokers and topics.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._plans: dict[tuple[str, str], frozenset[str]] = {}

    def is_said(self, topic: str, replicas: Iterable[ReadReplica]) -> bool:
        """Return whether settings state the topic's cleanup policy, or a kept plan shows krepair's key compaction."""
        return self._settings.topic(topic).policy_is_known or any(map(self._planned, replicas))

    def compacts(self, topic: str, group: ReplicaGroup, replicas: Iterable[ReadReplica]) -> bool:
        """Return whether records may be missing because a later record has the same key.

        The topic's settings decide first. If these do not state a policy, a partition is considered compacted if it has
        a cleaner checkpoint entry, a batch with fewer records than offsets, or a kept plan by which krepair compacted
        the partition. Missing whole batches prove nothing, because such batches may also be lost.

        Args:
            group: replicas that are compared.
            replicas: all replicas of the partition, as read.
        """
        settings = self._settings.topic(topic)
        if settings.policy_is_known:
            return settings.compacts
        if any(
            replica.state.cleaner_position >= 0 or replica.headers.cleaned_to >= 0
            for replica in group.replicas
        ):
            return True
        return any(map(self._planned, replicas))

    def _planned(self, replica: ReadReplica) -> bool:
        """Return whether a plan with backups still on disk compacted a replica by key."""
        listing, log_dir = replica.log.listing, replica.log.state.log_dir
        if listing is None:
            return False
        return any(
            listing.folder in self._compacted(log_dir, work_folder, listing.private)
            for work_folder in listing.private
        )

    def _compacted(
        self, log_dir: str, private: PrivateFolder, beside: Sequence[PrivateFolder]
    ) -> frozenset[str]:
        """Return the folders that a plan compacts by key."""
        known = self._plans.get((log_dir, private.plan_id))
        if known is None:
            own = [folder.path for folder in beside if folder.plan_id == private.plan_id]
            known = self._plans[log_dir, private.plan_id] = frozenset(_read(log_dir, private.plan_id, own))
        return known


def _read(log_dir: str, plan_id: str, private: Sequence[str]) -> Iterable[str]:
    """Yield the folders that the kept copy of a plan compacts by key."""
    try:
        with Tree(log_dir) as tree:
            copy = find_copy(tree, plan_id, private, at_most=_LOOKED_INTO_BYTES)
    except (OSError, KrepairError):
        return
    for partition in copy.plan.partitions if copy is not None and copy.plan is not None else ():
        if partition.changes and not isinstance(partition.compaction, UnsetType):
            yield partition.folder
