"""An empty segment put at the log end: three staged files of 0 bytes get their names, the ``.log`` last.

Every state in between is harmless: a broker deletes an index without a log, and recovers a segment without bytes. Taken
back only while no file has a byte: a broker that was started has made the indexes larger, or written.
"""

from __future__ import annotations

from collections.abc import Mapping

from krepair.errors import RefusedError, StalePlanError
from krepair.journal.actions.action import Action, Found, Ground, KeptFile
from krepair.journal.folder import PartitionFolder
from krepair.journal.known_files import KnownFile
from krepair.journal.record import FileState, Order, RollIntent
from krepair.journal.traces import made_of, nobody
from krepair.plan.model import FileFingerprint, RollSegment


class RollSegments(Action[RollSegment, RollIntent]):
    """Implements ``Action`` for empty segments."""

    def begin(self, ground: Ground, change: RollSegment) -> RollIntent:
        """The intent, once the names are free and the staged files are there, and empty.

        Raises:
            StalePlanError: a file has one of the names.
            RefusedError: a staged file is missing, or has bytes.
        """
        folder, states = ground.folder, []
        for name in change.names:
            if folder.state(name) is not None:
                raise StalePlanError(f"{folder.at(name)}: was not there when the plan was made")
            staged = folder.state(folder.names.stage(name))
            if staged is None or staged.size:
                raise RefusedError(f"{folder.at(folder.names.stage(name))}: an empty file was expected")
            states.append(staged)
        return RollIntent(change_id=change.change_id, files=tuple(states))

    def from_disk(self, ground: Ground, change: RollSegment, known: RollIntent | None) -> RollIntent | None:
        """See ``Action``; a file that has bytes was written since."""
        folder = ground.folder
        if not any(folder.state(path) for name in change.names for path in (name, folder.names.out(name))):
            return None
        files = [
            made_of(folder, name, lambda path, found: found.size == 0) or nobody(name)
            for name in change.names
        ]
        return RollIntent(change_id=change.change_id, files=tuple(files))

    def is_done(self, folder: PartitionFolder, intent: RollIntent) -> bool:
        """Whether every file has its name."""
        return all(folder.state(state.name) is not None for state in intent.files)

    def is_committed(self, folder: PartitionFolder, intent: RollIntent) -> bool:
        """Whether the ``.log`` has its name, and is ours."""
        log = intent.files[-1]
        return folder.state(log.name) == log

    def can_go_on(self, folder: PartitionFolder, intent: RollIntent) -> bool:
        """Whether every file is staged, or in its place."""
        return all(_is_ours(folder, state) for state in intent.files)

    def go_on(self, folder: PartitionFolder, intent: RollIntent) -> None:
        """Gives the files their names; may be repeated.

        Raises:
            StalePlanError: somebody has taken one of the names.
            OSError: a call failed.
        """
        names, disk = folder.names, folder.disk
        for state in intent.files:
            found = folder.state(state.name)
            if found == state:
                continue
            if found is not None:
                raise StalePlanError(f"{folder.at(state.name)}: came while the apply was interrupted")
            if folder.state(names.stage(state.name)) != state:
                raise StalePlanError(f"{folder.at(names.stage(state.name))}: is not the file that was staged")
            disk.rename(folder.at(names.stage(state.name)), folder.at(state.name))
        # The names in stage/ need no sync: where one comes back, it is one more link to a file that is in its place.
        disk.sync_dir(folder.path)

    def forget(self, folder: PartitionFolder, intent: RollIntent) -> None:
        """As ``undo``; what a broker made larger, or deleted, meanwhile is left to it."""
        _take_out(folder, intent)

    def is_back(self, folder: PartitionFolder, intent: RollIntent) -> bool:
        """Whether nothing has the name of its ``.log``."""
        return folder.state(intent.files[-1].name) is None

    def check_undo(self, folder: PartitionFolder, intent: RollIntent, state: str) -> None:
        """Checks that nobody wrote into the segment; where it is gone, there is nothing to take out.

        Raises:
            StalePlanError: somebody did.
        """
        for known in intent.files:
            if folder.state(known.name) not in (known, None):
                raise StalePlanError(f"{folder.at(known.name)}: was written since the plan was applied")

    def undo(self, folder: PartitionFolder, intent: RollIntent, order: Order) -> None:
        """Takes the files out, the ``.log`` first."""
        _take_out(folder, intent)

    def kept(self, folder: PartitionFolder, intent: RollIntent) -> list[KeptFile]:
        """Nothing: there was no file."""
        return []

    def touches(self, intent: RollIntent) -> tuple[str, ...]:
        """Its files."""
        return tuple(state.name for state in intent.files)

    def known_files(
        self,
        intent: RollIntent,
        change: RollSegment | None,
        planned: Mapping[str, FileFingerprint],
        freed: Mapping[str, str],
    ) -> list[KnownFile]:
        """Its files, which are empty."""
        return [KnownFile(state, True, None) for state in intent.files]

    def told_by(self, change: RollSegment) -> tuple[str, ...]:
        """Its files."""
        return change.names

    def is_made(self, folder: PartitionFolder, change: RollSegment, found: Found) -> bool:
        """Whether they are there, and empty."""
        return all(state is not None and state.size == 0 for state in found.here.values())


def _is_ours(folder: PartitionFolder, state: FileState) -> bool:
    return state in (folder.state(state.name), folder.state(folder.names.stage(state.name)))


def _take_out(folder: PartitionFolder, intent: RollIntent) -> None:
    for state in reversed(intent.files):
        if folder.state(state.name) == state:
            folder.disk.rename(folder.at(state.name), folder.at(folder.names.out(state.name)))
            if state is intent.files[-1]:
                folder.disk.sync_dir(folder.path)  # the segment is out before it loses an index
    folder.disk.sync_dir(folder.path)
    for state in intent.files:
        if folder.tree.is_there(folder.at(folder.names.out(state.name))):
            folder.disk.unlink(folder.at(folder.names.out(state.name)))
