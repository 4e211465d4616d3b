"""Stack of one partition's plans: ``undo`` takes the newest plan first, ``purge`` the oldest plan first.

This order ensures that no later plan depends on files that an earlier plan may still restore, and that no plan loses
backups that an earlier plan needs. A number in the journal, not a clock, shows which plan is newer (``JournalHeader``).
A plan that changes a partition's checkpoint entry in the root belongs to the stack of that partition. A plan without
backups belongs to no stack. Plans of 1.0.0 have no numbers, so two such plans are compared by their own files only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Literal, NamedTuple

from krepair.commit.folder import ROOT, PartitionFolder
from krepair.commit.journal import JOURNAL_NAME, Journal, number_in
from krepair.commit.kept import load_kept, private_of
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import KrepairError, StalePlanError
from krepair.formats.filenames import ROOT_SUFFIX, parse_folder_name
from krepair.logdir.values import LogDir, Partition, PrivateFolder
from krepair.next_command import by_id

_FRONT_BYTES = 4096
"""Number of bytes that always contain the first line of a journal."""


class Kept(NamedTuple):
    """Backups that another plan keeps for the files of a target.

    Attributes:
        plan_id: id of the other plan.
        number: number of the other plan's journal.
    """

    plan_id: str
    number: int


class Stack:
    """Plans with backups in a log directory.

    Args:
        view: the log directory, as listed under the lock.
        plan_id: id of the plan that is undone or purged, whose own folders are ignored.
    """

    def __init__(self, view: LogDir, plan_id: str) -> None:
        self._view = view
        self._plan_id = plan_id
        self._lines: dict[str, frozenset[tuple[str, int]] | None] = {}

    def check(self, folder: PartitionFolder, number: int, verb: Literal["undo", "purge"]) -> None:
        """Check that the plan is the next plan on the partition's stack.

        Args:
            folder: folder of the partition, or of the root.
            number: number of the plan's journal there.
            verb: ``undo``, which takes the newest plan first, or ``purge``, which takes the oldest.

        Raises:
            StalePlanError: another plan comes first; the message names that plan.
        """
        others = [kept for kept in self._beside(folder) if kept.number or number]
        if verb == "undo":
            first = max(others, key=lambda kept: kept.number, default=None)
            comes = first is not None and first.number > number
        else:
            first = min(others, key=lambda kept: kept.number, default=None)
            comes = first is not None and first.number < number
        if first is not None and comes:
            order = "was applied later" if verb == "undo" else "was applied earlier"
            raise StalePlanError(
                f"{folder.path}: plan {first.plan_id} {order} here, and {verb} takes the "
                f"{'newest' if verb == 'undo' else 'oldest'} plan first; nothing was changed here",
                next_command=by_id(verb, folder.log_dir, first.plan_id),
            )

    def _beside(self, folder: PartitionFolder) -> Iterator[Kept]:
        keys = self._keys_of(self._plan_id) if folder.folder == ROOT else frozenset[tuple[str, int]]()
        for partition, private in private_of(self._view):
            if private.plan_id == self._plan_id:
                continue
            in_root = private.name.endswith(ROOT_SUFFIX)
            if folder.folder == ROOT:
                counts = in_root or keys is None or partition.key in keys
            elif in_root:
                lines = self._keys_of(private.plan_id)
                counts = lines is None or _key(folder) in lines
            else:
                counts = partition.folder == folder.folder
            if counts:
                yield from self._kept(partition, private)

    def _keys_of(self, plan_id: str) -> frozenset[tuple[str, int]] | None:
        """Return the partitions whose root entries a plan changes; None (possibly all) if its copy is unreadable."""
        if plan_id not in self._lines:
            self._lines[plan_id] = None
            with suppress(KrepairError, OSError):
                root = load_kept(self._view, plan_id).root
                changes = () if root is None else root.changes
                self._lines[plan_id] = frozenset(
                    (line.topic, line.partition)
                    for change in changes
                    for line in getattr(change, "lines", ())
                )
        return self._lines[plan_id]

    def _kept(self, partition: Partition, private: PrivateFolder) -> Iterator[Kept]:
        with suppress(KrepairError, OSError):  # the verbs of that plan report the error
            in_root = private.name.endswith(ROOT_SUFFIX)
            journal = Journal(
                RealDisk(), private.path, private.plan_id, ROOT if in_root else partition.folder
            )
            if not journal.purging and journal.at_work():
                yield Kept(private.plan_id, journal.number)


def _key(folder: PartitionFolder) -> tuple[str, int]:
    name = parse_folder_name(folder.folder)
    return name.topic, name.partition


def next_number(view: LogDir, plan_id: str) -> int:
    """Return the number for journals that begin now, higher than that of every other plan in the log directory."""
    highest = 0
    with Tree(view.path, view.inode) as tree:
        for _, private in private_of(view):
            if private.plan_id != plan_id:
                with suppress(OSError):
                    front = tree.read(f"{private.path}/{JOURNAL_NAME}", _FRONT_BYTES)
                    highest = max(highest, number_in(front or b""))
    return highest + 1
