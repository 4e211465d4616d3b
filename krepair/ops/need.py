"""The room that apply needs on top while it changes files, with the copy of the plan that it keeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from krepair.logdir.space import Space
from krepair.ops.target import is_root
from krepair.plan.actions.table import action_of
from krepair.plan.figures import PRIVATE_FOLDER_BYTES, OnTop, copy_of_size, on_top_of_all, plan_copy_bytes
from krepair.plan.keep import is_freed_by_apply
from krepair.plan.model import Change, FreeWhenVerified, Others, PartitionPlan, Plan, Setting
from krepair.plan.planfile import dumps

_ANY: Final = PartitionPlan(topic="t", partition=0, folder="t-0", status="nothing")
FILES_OF_A_TARGET: Final = 12
"""Folders, journals, fence files and the copy of the plan in one private sub-folder."""


class Need(NamedTuple):
    """What is needed on top while changes are applied.

    Attributes:
        bytes: at the peak.
        files: new files and folders.
        links: second names that originals have meanwhile. Most file systems have no limit for them.
    """

    bytes: int
    files: int
    links: int = 0

    def files_on(self, *, links_are_files: bool) -> int:
        """How many files it needs where a second name counts as one, or does not."""
        return self.files + self.links if links_are_files else self.files

    def fits(self, space: Space) -> bool:
        """Whether there is room for it."""
        files = self.files_on(links_are_files=space.links_are_files)
        return self.bytes <= space.free_bytes and (space.free_inodes < 0 or files <= space.free_inodes)


def need_of_all(plan: Plan, targets: Iterable[PartitionPlan]) -> Need:
    """What several targets of a plan need, one after the other as apply takes them, with the copy of the plan."""
    return need_with_copy(plan_copy_bytes(plan), targets)


def need_with_copy(copy_bytes: int, targets: Iterable[PartitionPlan]) -> Need:
    """As ``need_of_all``, for a plan whose copy takes so many bytes."""
    changing = [target for target in targets if target.changes]
    root = [need_of_target(target) for target in changing if is_root(target)]
    return need_together(
        copy_bytes, [need_of_target(target) for target in changing if not is_root(target)], root
    )


class TargetNeed(NamedTuple):
    """What one target with changes needs, made once where it is counted with many others.

    Attributes:
        top: bytes on top.
        files: that stay until the end.
        files_of_a_group: of the one group that is staged.
        links: see ``Need``.
        is_freed: whether apply frees all its originals.
    """

    top: OnTop
    files: int
    files_of_a_group: int
    links: int
    is_freed: bool


def need_of_target(target: PartitionPlan) -> TargetNeed:
    """What one target with changes needs, without the copy of the plan."""
    return TargetNeed(
        on_top_of_all([target]),
        _files_of(target),
        _files_of_a_group([target]),
        _links_of(target),
        all(isinstance(change.undo, FreeWhenVerified) for change in target.changes),
    )


def need_together(copy_bytes: int, partitions: Sequence[TargetNeed], root: Sequence[TargetNeed] = ()) -> Need:
    """What partitions need, one after the other in this order. The root is changed in two parts, around them."""
    if not partitions and not root:
        return Need(0, 0)
    each = (*partitions, *root)
    files = sum(one.files for one in each) + max(one.files_of_a_group for one in each)
    peaks = _together(root).peak + _together(partitions).peak
    return Need(copy_bytes + peaks, files, max(one.links for one in each))


def stays_together(copy_bytes: int, targets: Sequence[TargetNeed]) -> int:
    """As ``bytes_that_stay``, of targets with changes, for a plan whose copy takes so many bytes."""
    stays = _together(targets).after
    if all(target.is_freed for target in targets):
        return stays - PRIVATE_FOLDER_BYTES * len(targets)
    return stays + copy_bytes


def _together(targets: Iterable[TargetNeed]) -> OnTop:
    together = OnTop(0, 0)
    for target in targets:
        together = together.then(target.top)
    return together


def need_of_part(plan: Plan, targets: Sequence[PartitionPlan]) -> Need:
    """What a plan of these targets alone would need: apply keeps a copy of that plan, and not of the whole one."""
    return need_of_all(part_of(plan, targets), targets)


def part_of(plan: Plan, targets: Sequence[PartitionPlan]) -> Plan:
    """About what a plan of these targets alone would be; it is as long as that one, or longer."""
    topics = {"", *(target.topic for target in targets)}
    settings = {topic: rows for topic, rows in plan.policy.settings.items() if topic in topics}
    return replace(
        plan,
        partitions=tuple(target for target in targets if not is_root(target)),
        policy=replace(plan.policy, settings=settings),
    )


class PartLengths:
    """How long the plans of parts of one plan are: of each only what differs is written out.

    Args:
        plan: the whole plan.
    """

    def __init__(self, plan: Plan) -> None:
        policy = replace(plan.policy, settings={})
        self._bare_bytes = len(dumps(replace(plan, partitions=(), policy=policy)))
        # What may be long is left out of the frame: it is written out once for each partition.
        self._frame = replace(
            plan,
            partitions=(),
            root=None,
            asked=UNSET,
            preview=UNSET,
            policy=replace(policy, accepted_losses=(), others=Others()),
        )
        self._frame_bytes = len(dumps(self._frame))
        one, two = self._partitions(_ANY), self._partitions(_ANY, _ANY)
        self._brackets = one - (two - one)
        none, some = self._settings({"a": ()}), self._settings({"a": (), "b": ()})
        self._braces = none - (some - none)
        self._of_topic = {
            topic: self._settings({topic: rows}) - self._braces
            for topic, rows in plan.policy.settings.items()
        }

    def length(self, targets: Sequence[PartitionPlan]) -> int:
        """Bytes of the file of ``part_of`` these targets."""
        topics = {"", *(target.topic for target in targets)} & self._of_topic.keys()
        partitions = [target for target in targets if not is_root(target)]
        return (
            self._bare_bytes
            + sum(self._of_topic[topic] for topic in topics)
            + self._braces * bool(topics)
            + sum(self._partitions(partition) - self._brackets for partition in partitions)
            + self._brackets * bool(partitions)
        )

    def _partitions(self, *partitions: PartitionPlan) -> int:
        return len(dumps(replace(self._frame, partitions=partitions))) - self._frame_bytes

    def _settings(self, settings: dict[str, tuple[Setting, ...]]) -> int:
        policy = replace(self._frame.policy, settings=settings)
        return len(dumps(replace(self._frame, policy=policy))) - self._frame_bytes


class PartNeeds:
    """``need_of_part`` of many parts of one plan.

    Args:
        plan: the whole plan.
    """

    def __init__(self, plan: Plan) -> None:
        self._lengths = PartLengths(replace(plan, peak_extra_bytes=0, digest="", plan_id=""))

    def need(self, targets: Sequence[PartitionPlan]) -> Need:
        """What a plan of these targets alone would need."""
        return need_with_copy(copy_of_size(self._lengths.length(targets)), targets)


def bytes_that_stay(plan: Plan, targets: Sequence[PartitionPlan]) -> int:
    """Bytes on top when apply has ended; negative if it has freed more than it took.

    Where apply has freed all originals, it removes its journals and the copy of the plan, too.
    """
    return stays_together(
        plan_copy_bytes(plan), [need_of_target(target) for target in targets if target.changes]
    )


def is_let_go(change: Change) -> bool:
    """Whether apply stages a change by itself, and frees its originals before it stages the next one."""
    return is_freed_by_apply(change) and action_of(change).by_itself(change)


def _files_of(target: PartitionPlan) -> int:
    """Files that stay until the end."""
    staying = [change for change in target.changes if not is_let_go(change)]
    # A cut log keeps its cut bytes in a file of their own.
    return FILES_OF_A_TARGET + sum(len(action_of(change).touches(change).makes) + 1 for change in staying)


def _files_of_a_group(targets: Iterable[PartitionPlan]) -> int:
    """Files of the one group that is staged: the files that it replaces are gone before the next one."""
    groups = [change for target in targets for change in target.changes if is_let_go(change)]
    return max((len(action_of(change).touches(change).makes) + 1 for change in groups), default=0)


def _links_of(target: PartitionPlan) -> int:
    """Names that originals get before their own ones go: of one partition after the other, of one group of it."""
    there = {file.name for file in target.files}
    groups = [len(there & set(action_of(change).touches(change).names)) for change in _let_go(target)]
    staying = [change for change in target.changes if not is_let_go(change)]
    return sum(len(there & set(action_of(change).touches(change).names)) for change in staying) + max(
        groups, default=0
    )


def _let_go(target: PartitionPlan) -> list[Change]:
    return [change for change in target.changes if is_let_go(change)]
