"""Carries out, verifies and takes back the changes of the checkpoint files in the root of a log directory."""

from __future__ import annotations

import shlex
from contextlib import suppress

from msgspec.structs import replace

from krepair.durable.attributes import read_attributes
from krepair.durable.disk import Disk
from krepair.errors import (
    ExitCode,
    InterruptedAtSafePointError,
    KrepairError,
    LockLostError,
    RefusedError,
    StalePlanError,
)
from krepair.fixes.checkpoints import log_ends, see_checkpoints
from krepair.journal.guards import Guards
from krepair.journal.outcome import Committed, Failed, Undone
from krepair.journal.purge import check_nothing_kept, purge_partition, remove_private_folder
from krepair.journal.root import ROOT, RootFolder, as_partition
from krepair.journal.runner import commit_partition, undo_partition
from krepair.journal.status import ChangeState, status_in
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import read_whole, why
from krepair.logdir.view import read_log_dir
from krepair.ops.kept_copies import BadCopies
from krepair.ops.reports import ChangeOutcome, ChangeResult, Problem
from krepair.pipeline.engine import Engine
from krepair.plan.model import Change, Plan, ReplaceFile, RootPlan

_FINISHED = {ChangeState.COMMITTED, ChangeState.PURGED}


class RootRun:
    """The changes of a plan's root.

    Args:
        plan: reviewed.
        root: its root part.
        disk: what writes.
    """

    def __init__(self, plan: Plan, root: RootPlan, disk: Disk) -> None:
        self.plan = plan
        self.root = root
        self.disk = disk
        self.folder = RootFolder(disk, plan.log_dir, root.keeper, plan.plan_id)
        self.changes: dict[str, ReplaceFile] = {change.change_id: change for change in root.changes}
        self._made: dict[str, bytes] = {}

    def states(self) -> dict[str, ChangeState]:
        """State of each change; a file of the size planned, but with other bytes, is not known.

        Raises:
            KrepairError: the journal cannot be read.
            OSError: a file could not be looked at.
        """
        states = status_in(self.folder, as_partition(self.root))
        for change_id, state in states.items():
            if state is ChangeState.PURGED and self._differs(self.changes[change_id]):
                states[change_id] = ChangeState.UNKNOWN
        return states

    def apply(self, engine: Engine, guards: Guards) -> list[ChangeResult]:
        """Replace what is not replaced yet.

        Raises:
            LockLostError: the lock is no longer ours.
            InterruptedAtSafePointError: somebody asked to stop.
        """
        try:
            if not self.disk.tree.is_folder(self.folder.holder):
                raise StalePlanError(
                    f"{self.plan.log_dir}/{self.root.keeper}: is gone since the plan was made"
                )
            _check_no_fence(guards)
            before = self.states()
            unknown = next((one for one, state in before.items() if state is ChangeState.UNKNOWN), "")
            if unknown:
                path = f"{self.plan.log_dir}/{self.changes[unknown].name}"
                raise StalePlanError(f"{path}: changed since the plan was made")
        except (InterruptedAtSafePointError, LockLostError):
            raise
        except (KrepairError, OSError) as error:
            return [_refused(error)]
        left = tuple(one for one in self.root.changes if before[one.change_id] is not ChangeState.PURGED)
        results = [_result(one.change_id, "already") for one in self.root.changes if one not in left]
        if not left:
            return results
        partition = replace(as_partition(self.root), changes=left)
        outcomes = commit_partition(
            self.folder, partition, self.plan.commit, guards, lambda change: self._stage(change, engine)
        )
        for outcome in outcomes:
            if isinstance(outcome, Committed):
                done = before[outcome.change_id] in _FINISHED
                results.append(_result(outcome.change_id, "already" if done else "committed"))
            elif isinstance(outcome, Failed):
                results.append(_result(outcome.change_id, "failed", int(outcome.code), outcome.why))
            else:
                results.append(_result(outcome.change_id, "skipped", why=getattr(outcome, "why", "")))
        if not any(isinstance(outcome, Committed) for outcome in outcomes):
            self._drop_stage()
        return results

    def _drop_stage(self) -> None:
        """What was staged goes again where nothing was replaced; else the next apply or undo removes it."""
        with suppress(KrepairError, OSError):
            if all(state in {ChangeState.PLANNED, ChangeState.UNDONE} for state in self.states().values()):
                check_nothing_kept(self.folder)
                remove_private_folder(self.folder)

    def _stage(self, change: Change, engine: Engine) -> None:
        assert isinstance(change, ReplaceFile)
        if not self._made:
            view = read_log_dir(self.plan.log_dir)
            seen = see_checkpoints(view, log_ends(view, engine))
            self._made = {one.file.name: one.mended.data for one in seen if not one.left}
        data = self._made.get(change.name, b"")
        path = f"{self.plan.log_dir}/{change.name}"
        if (len(data), digest_bytes(data)) != (change.size_after, change.digest_after):
            raise StalePlanError(
                f"{path}: the lines worked out anew are not the plan's",
                next_command=f"krepair plan {shlex.quote(self.plan.log_dir)} --fix checkpoints --out PLAN",
            )
        staged = f"{self.folder.private}/stage/{change.name}"
        if self.disk.tree.is_there(staged):
            self.disk.unlink(staged)
        self.disk.create(staged, data, read_attributes(path, self.disk.tree))

    def undo(self, guards: Guards, bad: BadCopies) -> list[ChangeResult]:
        """Put the originals back; ``bad``: what is wrong with those that are kept.

        Raises:
            LockLostError: the lock is no longer ours.
            InterruptedAtSafePointError: somebody asked to stop.
        """
        try:
            _check_no_fence(guards)
            if ChangeState.PURGED in self.states().values():
                path = f"{self.plan.log_dir}/{self.root.keeper}"
                text = f"{path}: the originals of the root's files were purged; there is nothing to put back"
                return [_result(ROOT, "failed", int(ExitCode.REFUSED), text)]
            outcomes = undo_partition(
                self.folder, as_partition(self.root), self.plan.commit, guards, bad_copies=bad
            )
        except (InterruptedAtSafePointError, LockLostError):
            raise
        except (KrepairError, OSError) as error:
            return [_refused(error)]
        results = []
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                results.append(_result(outcome.change_id, "failed", int(outcome.code), outcome.why))
            elif isinstance(outcome, Undone):
                results.append(_result(outcome.change_id, "undone"))
            else:
                text = getattr(outcome, "why", "")
                word: ChangeOutcome = "already" if text == "is not applied" else "skipped"
                results.append(_result(outcome.change_id, word, why=text))
        return results

    def purge(self) -> ChangeResult:
        """Free the kept originals."""
        try:
            freed = purge_partition(self.folder)
        except (KrepairError, OSError) as error:
            return _refused(error)
        return replace(_result(ROOT, "purged"), bytes_freed=freed)

    def verify(self) -> list[Problem]:
        """What is not as the plan has it."""
        try:
            states = self.states()
        except (KrepairError, OSError) as error:
            return [_problem("", "", _refused(error).why)]
        problems = []
        for change in self.root.changes:
            if states[change.change_id] not in _FINISHED:
                text = f"is not applied: its state is {states[change.change_id].value}"
                problems.append(_problem(change.name, change.change_id, text))
            elif self._differs(change):
                text = f"is not the file of {change.size_after} bytes that the plan makes"
                problems.append(_problem(change.name, change.change_id, text))
        return problems

    def _differs(self, change: ReplaceFile) -> bool:
        try:
            data = read_whole(f"{self.plan.log_dir}/{change.name}", change.size_after + 1)
        except OSError:
            return True
        return (len(data), digest_bytes(data)) != (change.size_after, change.digest_after)


def _check_no_fence(guards: Guards) -> None:
    """A fence has lowered a line of one of the root's files, and watches the others."""
    places = guards.watch.places() if guards.watch is not None else []
    if places:
        raise RefusedError(
            f"{places[0]}: this fence is still up; the files in the root wait until it is down",
            next_command="krepair apply PLAN",
        )


def _problem(name: str, change_id: str, text: str) -> Problem:
    return Problem(partition="", file=name, position=-1, text=text, change_id=change_id)


def _result(change_id: str, outcome: ChangeOutcome, exit_code: int = 0, why: str = "") -> ChangeResult:
    return ChangeResult(change_id=change_id, partition=ROOT, outcome=outcome, exit_code=exit_code, why=why)


def _refused(error: KrepairError | OSError) -> ChangeResult:
    if isinstance(error, KrepairError):
        return _result(ROOT, "failed", int(error.exit_code), error.message)
    return _result(ROOT, "failed", int(ExitCode.REFUSED), f"{error.filename}: {why(error)}")
