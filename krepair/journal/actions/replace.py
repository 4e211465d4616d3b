"""Files replaced or removed together, one file a change: see ``krepair.journal.actions.files``.

Each file is independent of the others, so one set of barriers serves all of a partition: all are kept, ``keep/`` is
synced, all are renamed, the partition folder is synced. A power cut in between leaves some old and some new, and each
of these states is right.
"""

from __future__ import annotations

from collections.abc import Sequence

from krepair.errors import StalePlanError
from krepair.formats.filenames import log_name, parse_file_name
from krepair.journal.actions.action import Target
from krepair.journal.actions.files import ChangeFiles, these
from krepair.journal.folder import PartitionFolder
from krepair.journal.freshness import check_fresh_file, check_no_pending_swap
from krepair.journal.record import Intent
from krepair.plan.model import Change, ReplaceFile


class ReplaceFiles(ChangeFiles[ReplaceFile]):
    """Implements ``JournalAction`` for files that are replaced or removed."""

    kind: type[Change] = ReplaceFile
    together = True

    def check_before(self, target: Target, changes: Sequence[ReplaceFile]) -> None:
        """Where a file is replaced, no swap may be pending in the folder."""
        # A removal never touches a file that a pending swap needs, and may take away what makes the swap void.
        if any(change.method != "remove" for change in changes):
            check_no_pending_swap(target.folder)

    def begin(self, target: Target, change: ReplaceFile) -> Intent:
        """The intent, once the file is found as it was planned, and the new one staged as it was planned.

        Raises:
            StalePlanError: the file changed since the plan was made.
            RefusedError: the staged file is missing.
            VerifyFailedError: the staged file is not the plan's.
        """
        original, staged = check_fresh_file(target.folder, target.planned, change)
        return Intent(
            change_id=change.change_id, kind="replace file", originals=these(original), made=these(staged)
        )

    def can_go_on(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Whether an interrupted change has all that it needs to go on: what it made, or what it began with."""
        if self.is_committed(folder, intent):
            return True
        (file,) = self.files(intent)
        return folder.holds(
            file.name if file.new is None else folder.names.stage(file.name), file.new or file.old
        )

    def forget_all(self, folder: PartitionFolder, intents: Sequence[Intent]) -> None:
        """As ``undo_all``; a file that others removed before it was kept needs nothing."""
        here = [intent for intent in intents if not self.is_gone_by_others(folder, intent)]
        if here:
            super().forget_all(folder, here)

    def is_gone_by_others(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Whether a file that was to go went before it was kept: a broker that was started in between deleted it."""
        (name,) = intent.names
        return (
            not intent.made and folder.state(name) is None and folder.state(folder.names.keep(name)) is None
        )

    def is_back(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Whether the file is the original; of one that was not there, whether it is gone and its log is not."""
        (file,) = self.files(intent)
        if file.old is not None or folder.state(file.name) is not None:
            return folder.holds(file.name, file.old)
        base_offset = parse_file_name(file.name).base_offset
        return base_offset is None or folder.state(log_name(base_offset)) is not None

    def check_undo(self, folder: PartitionFolder, intent: Intent, state: str) -> None:
        """Checks that nobody wrote the file since.

        Where the original is back, an undo was begun of which the journal has lost the record: it may go on.

        Raises:
            StalePlanError: somebody did.
        """
        (file,) = self.files(intent)
        back = folder.holds(file.name, file.old)
        if state != "undoing" and not back and not self.is_committed(folder, intent):
            raise StalePlanError(f"{folder.at(file.name)}: was written since the plan was applied")
