"""An empty segment put at the log end: three staged files of 0 bytes get their names, the ``.log`` last.

Every state in between is harmless: a broker deletes an index without a log, and recovers a segment without bytes. Taken
back only while no file has a byte: a broker that was started has made the indexes larger, or written.
"""

from __future__ import annotations

from typing import Final

from krepair.errors import RefusedError, StalePlanError
from krepair.journal.actions.action import Target
from krepair.journal.actions.files import ChangeFiles
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import Intent
from krepair.journal.steps import Becomes
from krepair.logdir.fingerprint import digest_bytes
from krepair.plan.model import RollSegment

_OF_NOTHING: Final = digest_bytes(b"")


class RollSegments(ChangeFiles[RollSegment]):
    """Implements ``JournalAction`` for empty segments."""

    kind = RollSegment

    def begin(self, target: Target, change: RollSegment) -> Intent:
        """The intent, once the names are free and the staged files are there, and empty.

        Raises:
            StalePlanError: a file has one of the names.
            RefusedError: a staged file is missing, or has bytes.
        """
        folder, states = target.folder, []
        for name in change.names:
            if folder.state(name) is not None:
                raise StalePlanError(f"{folder.at(name)}: was not there when the plan was made")
            staged = folder.state(folder.names.stage(name))
            if staged is None or staged.size:
                raise RefusedError(f"{folder.at(folder.names.stage(name))}: an empty file was expected")
            states.append(folder.digested(folder.names.stage(name), staged))
        return Intent(change_id=change.change_id, kind="roll segment", made=tuple(states))

    def files(self, intent: Intent) -> tuple[Becomes, ...]:
        """Its files, the ``.log`` first; what a broker made larger meanwhile is left to it."""
        return tuple(Becomes(one.name, None, one, None, "stays") for one in reversed(intent.made))

    def is_back(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Whether nothing has the name of its ``.log``."""
        return folder.state(intent.made[-1].name) is None

    def check_undo(self, folder: PartitionFolder, intent: Intent, state: str) -> None:
        """Checks that nobody wrote into the segment; where it is gone, there is nothing to take out.

        Raises:
            StalePlanError: somebody did.
        """
        for known in intent.made:
            if folder.state(known.name) is not None and not folder.holds(known.name, known):
                raise StalePlanError(f"{folder.at(known.name)}: was written since the plan was applied")
