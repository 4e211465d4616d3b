"""Which partitions go into which step of a sequence: each step makes the room that the next one needs.

Where there is no room, the first steps let apply free originals, group by group, smallest need first. They are as few
as make room for the rest. From there on originals are kept, if the disk then has room for them, and for the next start
of the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from krepair.ops.need import (
    Need,
    PartLengths,
    TargetNeed,
    bytes_that_stay,
    need_of_all,
    need_of_target,
    need_together,
    part_of,
    stays_together,
)
from krepair.ops.target import targets_of
from krepair.plan.figures import copy_of_size, in_apply_order, plan_copy_bytes, with_figures
from krepair.plan.keep import INPLACE, with_undo
from krepair.plan.model import PartitionPlan, Plan
from krepair.plan.planfile import dumps
from krepair.plan.sequence import Step, originals_out

Make = Callable[[str, Sequence[str]], Plan]
"""Makes the plan of some partitions, by their folders, with originals kept as the first argument says."""

_SMALLER: Final = (3, 4)
"""By this share a step is made smaller whose plan turned out longer than its parts."""


class Missing(NamedTuple):
    """What has to become free before something fits: bytes, and room for files."""

    bytes: int
    files: int


class Room(NamedTuple):
    """What a sequence may take.

    Attributes:
        bytes: free for whoever applies it.
        files: for which there is room; -1 without a limit.
        for_broker: bytes that are free for the broker, which may not be root; negative if root has used its reserve.
        start_needs: bytes that the next start of the broker may write.
        reserved: how much of ``bytes`` only root has.
        elsewhere: bytes that are free where copies of originals go.
        withheld: bytes that have to become free before there are more, see ``krepair.logdir.space.Space``.
        links_are_files: see there.
    """

    bytes: int
    files: int
    for_broker: int
    start_needs: int
    reserved: int = 0
    elsewhere: int = 0
    withheld: int = 0
    links_are_files: bool = False

    def after(self, stays: int, copied: int = 0) -> Room:
        """The room after a step that takes so many bytes more, or gives them back."""
        return self._replace(
            bytes=self.bytes - stays,
            for_broker=self.for_broker - stays,
            elsewhere=self.elsewhere - copied,
        )

    def missing(self, need: Need) -> Missing:
        """What has to become free before there is room for it."""
        files = need.files_on(links_are_files=self.links_are_files)
        return Missing(
            need.bytes - self.bytes + self.withheld if need.bytes > self.bytes else 0,
            max(files - self.files, 0) if self.files >= 0 else 0,
        )

    def has(self, need: Need) -> bool:
        """Whether there is room for it."""
        files = need.files_on(links_are_files=self.links_are_files)
        return need.bytes <= self.bytes and (self.files < 0 or files <= self.files)


class Chosen(NamedTuple):
    """The steps that were found.

    Attributes:
        steps: in order.
        rest: partitions that do not fit even after them, each with what it lacks; nothing: room for its copies.
        room: what is left after all steps.
    """

    steps: tuple[Step, ...]
    rest: tuple[tuple[PartitionPlan, Missing], ...]
    room: Room


@dataclass(frozen=True, slots=True)
class _Part:
    """One partition, with originals kept, and as apply frees them; how long it makes a plan; what it needs.

    A search looks at many numbers of them: what each of them adds is made once.
    """

    kept: PartitionPlan
    freed: PartitionPlan
    text_bytes: int
    kept_need: TargetNeed
    freed_need: TargetNeed
    originals: int


def choose_steps(whole: Plan, make: Make, room: Room, freeing: str, *, keeps: bool) -> Chosen:
    """Share the partitions of a plan out to steps.

    Args:
        whole: the plan of all, with originals in place.
        make: makes the plan of a step.
        room: to begin with.
        freeing: ``--keep`` of steps for whose originals there is no room: ``until-verified``, or a folder for copies.
        keeps: whether originals are kept in place as soon as there is room.
    """
    chooser = _Chooser(whole, make, freeing)
    parts = chooser.parts()
    steps: list[Step] = []
    if whole.root is not None:
        # Files of the root are changed around all partitions: that is one plan, or none.
        everything = [one.folder for one in whole.partitions]
        return chooser.as_one(everything, parts, room, keeps=keeps)
    while parts:
        if keeps and chooser.keeping_fits(parts, room):
            step, after = chooser.step(INPLACE, parts, room)
            if step is not None:
                return Chosen((*steps, step), (), after)
        count = chooser.most_that_fit(parts, room)
        if keeps:
            count = chooser.fewest_that_do(parts, count, room)
        step, after = chooser.step(freeing, parts[:count], room) if count else (None, room)
        while step is None and count > 1:
            count = count * _SMALLER[0] // _SMALLER[1]
            step, after = chooser.step(freeing, parts[:count], room)
        if step is None:
            break
        steps.append(step)
        room, parts = after, parts[len(targets_of(step.plan)) :]
    return Chosen(tuple(steps), chooser.lacking(parts, room), room)


class _Chooser:
    """Counts what some partitions need without making their plan each time."""

    def __init__(self, whole: Plan, make: Make, freeing: str) -> None:
        self._whole, self._make, self._freeing = whole, make, freeing
        self._bare_bytes = len(dumps(part_of(whole, []))) + sum(
            len(dumps(rows)) for settings in whole.policy.settings.values() for rows in settings
        )

    def parts(self) -> list[_Part]:
        """The partitions that change, in the order in which they fit first."""
        lengths = PartLengths(self._whole)
        bare = lengths.length([])
        kept = {one.folder: one for one in self._whole.partitions if one.changes}
        freed = [with_figures(with_undo(self._freeing, one)) for one in kept.values()]
        return [
            _Part(
                kept[one.folder],
                one,
                lengths.length([one]) - bare + len(one.topic) + len(str(one.partition)),
                need_of_target(kept[one.folder]),
                need_of_target(one),
                originals_out(one) if self._freeing.startswith("/") else 0,
            )
            for one in in_apply_order(self._freeing, freed)
        ]

    def need(self, parts: Sequence[_Part]) -> Need:
        """What a plan that frees these partitions' originals needs, to within the rounding of its copy."""
        return need_together(self._copy(parts), [part.freed_need for part in parts])

    def keeping_fits(self, parts: Sequence[_Part], room: Room) -> bool:
        """Whether originals of all these can be kept in place, and the broker can start then."""
        needs, copy = [part.kept_need for part in parts], self._copy(parts)
        return (
            room.has(need_together(copy, needs))
            and room.for_broker - stays_together(copy, needs) >= room.start_needs
        )

    def most_that_fit(self, parts: Sequence[_Part], room: Room) -> int:
        """How many of the first partitions fit into one step that frees."""
        return _largest(len(parts), lambda count: self._freeing_fits(parts[:count], room))

    def fewest_that_do(self, parts: Sequence[_Part], most: int, room: Room) -> int:
        """How many of these are enough to make room for the originals of the rest; else all of them."""

        def is_too_few(count: int) -> bool:
            after = room.after(*self._left_by(parts[:count]))
            return not self.keeping_fits(parts[count:], after)

        if most < 1 or is_too_few(most):
            return most
        return _largest(most - 1, is_too_few) + 1

    def step(self, keep: str, parts: Sequence[_Part], room: Room) -> tuple[Step | None, Room]:
        """The real plan of a step and the room after it; None if it does not fit after all."""
        return self._step(keep, [part.kept.folder for part in parts], room)

    def as_one(self, folders: Sequence[str], parts: Sequence[_Part], room: Room, *, keeps: bool) -> Chosen:
        """One step for everything, if it fits."""
        for keep in (INPLACE, self._freeing) if keeps else (self._freeing,):
            step, after = self._step(keep, folders, room)
            if step is not None and (keep != INPLACE or after.for_broker >= room.start_needs):
                return Chosen((step,), (), after)
        short = room.missing(need_of_all(self._whole, targets_of(self._whole)))
        return Chosen((), tuple((part.kept, short) for part in parts), room)

    def lacking(self, parts: Sequence[_Part], room: Room) -> tuple[tuple[PartitionPlan, Missing], ...]:
        """Partitions, and what each lacks for a step of its own."""
        return tuple((one.kept, room.missing(self.need([one]))) for one in parts)

    def _step(self, keep: str, folders: Sequence[str], room: Room) -> tuple[Step | None, Room]:
        plan = self._make(keep, folders)
        targets = targets_of(plan)
        need = need_of_all(plan, targets)
        copied = 0 if keep == INPLACE else self._copied(targets)
        if not room.has(need) or copied > room.elsewhere:
            return None, room
        after = room.after(bytes_that_stay(plan, targets), copied)
        step = Step(
            plan=plan,
            needs_bytes=need.bytes,
            needs_files=need.files_on(links_are_files=room.links_are_files),
            free_before=room.bytes,
            free_after=after.bytes,
            reserved_bytes=max(min(need.bytes - (room.bytes - room.reserved), room.reserved), 0),
        )
        return step, after

    def _freeing_fits(self, parts: Sequence[_Part], room: Room) -> bool:
        return room.has(self.need(parts)) and sum(part.originals for part in parts) <= room.elsewhere

    def _left_by(self, parts: Sequence[_Part]) -> tuple[int, int]:
        stays = stays_together(self._copy(parts), [part.freed_need for part in parts])
        return stays, sum(part.originals for part in parts)

    def _copied(self, targets: Sequence[PartitionPlan]) -> int:
        return sum(map(originals_out, targets)) if self._freeing.startswith("/") else 0

    def _copy(self, parts: Sequence[_Part]) -> int:
        """Bytes of the copy of a plan of these partitions."""
        return copy_of_size(self._bare_bytes + sum(part.text_bytes for part in parts))


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest count from 1 to ``most`` for which ``holds`` is true; 0 if there is none.

    If it is true for a count, it has to be true for all smaller ones.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def telling_of_others(whole: Plan, make: Make, chosen: Chosen) -> Chosen:
    """The last step also tells of the partitions that do not change, where there is room for a plan that is longer."""
    quiet = [one.folder for one in whole.partitions if not one.changes]
    if not chosen.steps or not quiet:
        return chosen
    last, room = chosen.steps[-1], chosen.room
    plan = make(last.plan.policy.keep, [*(one.folder for one in last.plan.partitions), *quiet])
    need, more = need_of_all(plan, targets_of(plan)), plan_copy_bytes(plan) - plan_copy_bytes(last.plan)
    if need.bytes > last.free_before - room.reserved or room.for_broker - more < room.start_needs:
        return chosen
    stays = bytes_that_stay(plan, targets_of(plan))
    longer = replace(last, plan=plan, needs_bytes=need.bytes, free_after=last.free_before - stays)
    return chosen._replace(steps=(*chosen.steps[:-1], longer))
