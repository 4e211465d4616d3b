"""Undo of one partition: the originals of every change are put back, the last change first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from krepair.errors import (
    ExitCode,
    InterruptedAtSafePointError,
    KrepairError,
    LockLostError,
    RefusedError,
    StalePlanError,
    VerifyFailedError,
)
from krepair.formats.filenames import NameState, parse_file_name
from krepair.journal.actions.table import action_of
from krepair.journal.outcome import ChangeFailed, Outcome, Skipped, Undone, failed
from krepair.journal.purge import remove_private_folder
from krepair.journal.record import Intent
from krepair.journal.run import Run, in_batches
from krepair.journal.steps import CLEANED
from krepair.journal.unrecorded import check_nothing_kept
from krepair.plan.model import Change

APPLIED: Final = frozenset({"committing", "committed", "undoing", "freed"})
"""States of a change that undo takes back."""


class Backward(Run):
    """Puts the originals of one partition back, and removes what is no longer needed for it."""

    shows_damage = True
    why_skipped = "undo takes the last change back first, and has stopped at a later one of this partition"

    def undo_all(self, bad_copies: Mapping[str, str]) -> Iterator[Outcome]:
        """Last change first; the first failure stops it."""
        stopped = False
        for batch in in_batches(self.changes[::-1]):
            outcomes = list(self.skipped(batch)) if stopped else self._undo(batch, bad_copies)
            yield from outcomes
            stopped = stopped or any(isinstance(outcome, ChangeFailed) for outcome in outcomes)

    def _undo(self, batch: Sequence[Change], bad_copies: Mapping[str, str]) -> list[Outcome]:
        ready: list[Intent] = []
        outcomes: dict[str, Outcome] = {}
        for change in batch:
            if self.journal.states.get(change.change_id) not in APPLIED:
                outcomes[change.change_id] = Skipped(change.change_id, "is not applied", as_wanted=True)
                continue
            intent = self.journal.intents[change.change_id]
            try:
                self.guards.safe_points.check()
                self.guards.hold()
                if self.journal.states[change.change_id] == "freed":
                    raise RefusedError(
                        f"{change.change_id}: its originals were freed as soon as the new files were verified (plan "
                        "--keep until-verified); it stays, and so does all that the plan changed before it in this "
                        "partition"
                    )
                if self._was_never_committed(intent):
                    self.forget([intent])
                    outcomes[change.change_id] = Undone(change.change_id)
                    continue
                if self.journal.states[change.change_id] == "committed":
                    self.check_not_freed(change, intent)
                if change.change_id in bad_copies:
                    raise VerifyFailedError(bad_copies[change.change_id])
                action_of(intent).check_undo(self.folder, intent, self.journal.states[change.change_id])
                action_of(intent).check_log_ends_before(self.folder, intent, self.target.planned)
                ready.append(intent)
            except (InterruptedAtSafePointError, LockLostError):
                raise
            except (KrepairError, OSError) as error:
                outcomes[change.change_id] = self._not_back(change.change_id, error)
                break
        outcomes |= {outcome.change_id: outcome for outcome in self.put_back(ready)}
        missing = [change for change in batch if change.change_id not in outcomes]
        outcomes |= {outcome.change_id: outcome for outcome in self.skipped(missing)}
        return [outcomes[change.change_id] for change in batch]

    def _not_back(self, change_id: str, error: KrepairError | OSError) -> ChangeFailed:
        """What stopped a change. Where it is half done and somebody has written its files, purge can still end it."""
        untouched = self.journal.states[change_id] in {"committed", "freed"}
        if not untouched and isinstance(error, StalePlanError) and not error.next_command:
            error.next_command = self.journal.command("purge")
            error.message += "; it is half done and cannot be taken back"
        return self.failure(change_id, error, rolled_back=untouched)

    def _undo_failed(self, intent: Intent, error: KrepairError | OSError) -> ChangeFailed:
        return self._not_back(intent.change_id, error)

    def _was_never_committed(self, intent: Intent) -> bool:
        half_done = self.journal.states[intent.change_id] == "committing"
        return half_done and not action_of(intent).is_committed(self.folder, intent)

    def clean_up(self) -> list[Outcome]:
        """Removes the private sub-folder once all originals are back.

        Returns:
            A failure if some of it is left, else nothing.
        """
        if self.journal.unfinished() or {"committed", "freed"} & set(self.journal.states.values()):
            return []
        try:
            self.guards.hold()
            check_nothing_kept(self.folder, self.journal)
            self._check_no_swap_of_ours()
            # No broker renames the folder meanwhile: its lock is held. A purge must not keep folders open: beside a
            # running broker it would go on in one that is marked for deletion.
            with self.folder.tree.keeping_folders():
                remove_private_folder(self.folder)
        except (KrepairError, OSError) as error:
            what = failed(f"{self.folder.folder}/{self.folder.names.private}", error, rolled_back=False)
            why = f"what was kept could not be removed: {what.why}; run undo again"
            return [what._replace(code=ExitCode.PARTLY, why=why)]
        return []

    def _check_no_swap_of_ours(self) -> None:
        """A swap that was not there when the plan was made is one of ours of which the journal has lost the record.

        A ``.cleaned`` under a name that the journal knows was told apart when its change was undone: it is of a broker.
        """
        known = {name for one in self.journal.intents.values() for name in one.names}
        for name in map(parse_file_name, self.folder.file_names()):
            if name.state is NameState.CLEANED and name.name.removesuffix(CLEANED) in known:
                continue
            if name.state in {NameState.SWAP, NameState.CLEANED} and name.name not in self.target.planned:
                raise RefusedError(
                    f"{self.folder.at(name.name)}: is there, but the journal knows of no change that made it; the "
                    "journal may be damaged, and nothing is removed"
                )
