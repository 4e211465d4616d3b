"""Says whether ``apply`` may begin with a partition: its files are those of the plan, and no other plan is there."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

from krepair.errors import RefusedError, StalePlanError
from krepair.journal.beside import Beside, applied_here, plans_beside, why_half_done, why_not_ended
from krepair.journal.folder import PartitionFolder
from krepair.journal.status import ChangeState, status_in
from krepair.logdir.values import LogDir, Partition
from krepair.ops.plan_command import plan_command
from krepair.ops.target import is_root, why_left_alone
from krepair.plan.model import PartitionPlan, Plan

NOT_DONE: Final = frozenset({ChangeState.PLANNED, ChangeState.UNDONE})
"""The states of a change that still has to be staged."""


class MayBegin:
    """Looks at partitions before anything of them is staged.

    Args:
        plan: that shall be carried out.
        view: the log directory as it is under the lock, after what was half done has been finished.
    """

    def __init__(self, plan: Plan, view: LogDir) -> None:
        self._plan = plan
        self._view = view

    def states_of(
        self, target: PartitionPlan, partition: Partition | None, folder: PartitionFolder
    ) -> dict[str, ChangeState]:
        """The state of each change of a target with which ``apply`` may begin, by its id.

        Args:
            target: a partition of the plan, or the root.
            partition: as it is listed now; None for the root, and where it is gone.
            folder: of the target.

        Raises:
            StalePlanError: the partition is gone or cannot be read, or its files are neither those of the plan nor what
                it makes.
            RefusedError: another plan is at work here.
            OSError: a journal could not be read.
        """
        gone = why_left_alone(folder)
        if gone:
            raise StalePlanError(gone)
        if not is_root(target) and (partition is None or partition.unreadable):
            why = partition.unreadable if partition is not None else "is gone"
            raise StalePlanError(f"{folder.path}: {why}")
        states = status_in(folder, target)
        unknown = next((change for change, state in states.items() if state is ChangeState.UNKNOWN), "")
        if unknown:
            raise StalePlanError(
                _why_unknown(folder, target, unknown),
                next_command=plan_command(self._plan),
            )
        found = set(states.values())
        if found & NOT_DONE or ChangeState.PURGED in found:
            others = plans_beside(self._view, partition, self._plan.plan_id)
            self._check_no_other_plan(others, target, folder)
            if found & NOT_DONE:
                self._check_not_made_by_another(others, folder, states)
        return states

    def _check_no_other_plan(
        self, others: Sequence[Beside], target: PartitionPlan, folder: PartitionFolder
    ) -> None:
        """Of two plans that have begun with the same files, each would take those of the other for its own.

        Raises:
            RefusedError: another plan has begun here, and has not ended; or it is half done in the root, which is
                taken back only with all of its partitions.
        """
        names = {name for change in target.changes for name in change.touches}
        other = why_not_ended(others, names) or ("" if is_root(target) else self._half_done_in_root)
        if other:
            raise RefusedError(f"{folder.path}: {other}", next_command=self._list_plans())

    @cached_property
    def _half_done_in_root(self) -> str:
        """Why another plan is half done in the root, or empty. Nobody else goes on with it while the lock is ours."""
        return why_half_done(plans_beside(self._view, None, self._plan.plan_id))

    def _list_plans(self) -> str:
        """Lists the plans that are at work in the log directory."""
        return f"krepair undo {shlex.quote(self._plan.log_dir)}"

    def _check_not_made_by_another(
        self, others: Sequence[Beside], folder: PartitionFolder, states: Mapping[str, ChangeState]
    ) -> None:
        """Refuse to begin beside equal files of another plan: its undo takes them, and no record of ours is of them.

        Raises:
            RefusedError: another plan is applied here, and a change of this plan is in place without a record.
        """
        equal = next((change for change, state in states.items() if state is ChangeState.PURGED), "")
        other = applied_here(others) if equal else ""
        if other:
            raise RefusedError(
                f"{folder.path}: {equal} is in place already, and plan {other} is applied here, which may have made "
                "it: krepair undo or purge that plan first",
                next_command=self._list_plans(),
            )


def _why_unknown(folder: PartitionFolder, plan: PartitionPlan, change_id: str) -> str:
    """Name the first file that is not as the plan has it."""
    for file in plan.files:
        path = folder.at(file.name)
        found = folder.tree.status(path)
        if found is None:
            return f"{path}: is gone since the plan was made"
        if (found.st_size, found.st_mtime_ns) != (file.size, file.mtime_ns):
            return (
                f"{path}: changed since the plan was made: {file.size} bytes of mtime {file.mtime_ns} were "
                f"expected, found {found.st_size} of {found.st_mtime_ns}"
            )
    return f"{change_id}: its files are neither what the plan was made of nor what it makes"
