"""A whole segment taken out of its partition and kept: what a broker's recovery would have deleted.

Every file is linked into ``keep/`` first. Then the ``.log`` loses its name, which takes the segment out in one step,
and the others after it: a broker deletes an index without a log, and the link in ``keep/`` stays. Segments go highest
first, so that no state has a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from krepair.errors import StalePlanError
from krepair.journal.actions.action import Action, Found, Ground, KeptFile
from krepair.journal.folder import PartitionFolder
from krepair.journal.freshness import unchanged
from krepair.journal.known_files import KnownFile, known_originals
from krepair.journal.record import AsideIntent, Journal, Order
from krepair.journal.traces import digests_of, original_of
from krepair.logdir.fingerprint import digest_content
from krepair.plan.model import FileFingerprint, SetAside

_BACK: Final = frozenset({"undone", "rolled back"})


def has_segments_out(journal: Journal) -> bool:
    """Whether a journal tells of a segment that was taken out and is not back."""
    return any(
        isinstance(intent, AsideIntent) and journal.states.get(change_id) not in _BACK
        for change_id, intent in journal.intents.items()
    )


class SetSegmentsAside(Action[SetAside, AsideIntent]):
    """Implements ``Action`` for segments that are taken out."""

    def begin(self, ground: Ground, change: SetAside) -> AsideIntent:
        """The intent, once every file is found as it was planned.

        Raises:
            StalePlanError: one changed, or is gone.
        """
        folder, states = ground.folder, []
        for name in change.names:
            state = unchanged(folder, ground.planned, name)
            if state is None:
                raise StalePlanError(f"{folder.at(name)}: is not there")
            states.append(state)
        digests = {name: digest_content(folder.at(name)) for name in change.names}
        return AsideIntent(change_id=change.change_id, files=tuple(states), digests=digests)

    def from_disk(self, ground: Ground, change: SetAside, known: AsideIntent | None) -> AsideIntent | None:
        """See ``Action``."""
        folder, planned = ground.folder, ground.planned
        files = tuple(original_of(folder, planned[name]) for name in change.names)
        if all(folder.state(state.name) == state for state in files):
            return None
        digests = digests_of(folder, files, planned, {} if known is None else known.digests)
        return AsideIntent(change_id=change.change_id, files=files, digests=digests)

    def is_done(self, folder: PartitionFolder, intent: AsideIntent) -> bool:
        """Whether no file of the segment has its name."""
        return not any(folder.state(state.name) == state for state in intent.files)

    def is_committed(self, folder: PartitionFolder, intent: AsideIntent) -> bool:
        """Whether the segment is out of the partition, and kept."""
        log = intent.files[0]
        return folder.state(log.name) is None and folder.state(folder.names.keep(log.name)) == log

    def can_go_on(self, folder: PartitionFolder, intent: AsideIntent) -> bool:
        """Whether every file is still where it was, or kept."""
        return all(
            state in (folder.state(state.name), folder.state(folder.names.keep(state.name)))
            for state in intent.files
        )

    def go_on(self, folder: PartitionFolder, intent: AsideIntent) -> None:
        """See ``set_aside``."""
        set_aside(folder, intent)

    def forget(self, folder: PartitionFolder, intent: AsideIntent) -> None:
        """As ``undo``."""
        put_segment_back(folder, intent)

    def is_back(self, folder: PartitionFolder, intent: AsideIntent) -> bool:
        """Whether any of the files is in its place."""
        return any(folder.state(state.name) == state for state in intent.files)

    def check_undo(self, folder: PartitionFolder, intent: AsideIntent, state: str) -> None:
        """Nothing to check: ``undo`` looks at every file before it changes one."""

    def undo(self, folder: PartitionFolder, intent: AsideIntent, order: Order) -> None:
        """See ``put_segment_back``."""
        put_segment_back(folder, intent)

    def kept(self, folder: PartitionFolder, intent: AsideIntent) -> list[KeptFile]:
        """Every file of the segment that is not in its place."""
        return [
            KeptFile(folder.names.keep(state.name), state, intent.digests.get(state.name, ""))
            for state in intent.files
            if folder.state(state.name) != state
        ]

    def touches(self, intent: AsideIntent) -> tuple[str, ...]:
        """The files of the segment."""
        return tuple(state.name for state in intent.files)

    def known_files(
        self,
        intent: AsideIntent,
        change: SetAside | None,
        planned: Mapping[str, FileFingerprint],
        freed: Mapping[str, str],
    ) -> list[KnownFile]:
        """The files of the segment."""
        return known_originals(intent.files, intent.digests, planned)

    def told_by(self, change: SetAside) -> tuple[str, ...]:
        """The files of the segment."""
        return change.names

    def is_made(self, folder: PartitionFolder, change: SetAside, found: Found) -> bool:
        """Whether all of them are gone."""
        return not any(found.here.values())


def set_aside(folder: PartitionFolder, intent: AsideIntent) -> None:
    """Keeps the files and takes them out; may be repeated.

    Raises:
        StalePlanError: one changed while the apply was interrupted.
        OSError: a call failed.
    """
    disk, names = folder.disk, folder.names
    for state in intent.files:
        kept = folder.state(names.keep(state.name))
        if kept == state:
            continue
        if folder.state(state.name) != state:
            raise StalePlanError(f"{folder.at(state.name)}: changed while the apply was interrupted")
        if kept is not None:
            disk.unlink(folder.at(names.keep(state.name)))
        disk.link(folder.at(state.name), folder.at(names.keep(state.name)))
    disk.sync_dir(folder.at(names.keep()))
    for state in intent.files:
        found = folder.state(state.name)
        if found is not None and found != state:
            raise StalePlanError(f"{folder.at(state.name)}: changed while the apply was interrupted")
        if found is not None:
            disk.unlink(folder.at(state.name))
        if state is intent.files[0]:
            disk.sync_dir(folder.path)  # the segment is out before it loses an index
    disk.sync_dir(folder.path)


def put_segment_back(folder: PartitionFolder, intent: AsideIntent) -> None:
    """Gives the files their names again, the ``.log`` last; may be repeated, also before the segment was out.

    Raises:
        StalePlanError: another segment has the name, or a kept file is gone; then nothing is changed.
        OSError: a call failed.
    """
    disk, names = folder.disk, folder.names
    log = intent.files[0]
    found = folder.state(log.name)
    if found is not None and found.inode != log.inode:
        raise StalePlanError(f"{folder.at(log.name)}: was written since the plan was applied")
    for state in intent.files:
        if state not in (folder.state(state.name), folder.state(names.keep(state.name))):
            kept = folder.at(names.keep(state.name))
            raise StalePlanError(f"{kept}: is not the original of {state.size} bytes that was kept")
    for state in reversed(intent.files):
        found = folder.state(state.name)
        if found == state:
            continue
        if found is not None:  # a broker's index or snapshot of the same name
            disk.unlink(folder.at(state.name))
        if state is log:
            disk.sync_dir(folder.path)  # the segment has its indexes before it is back
        disk.link(folder.at(names.keep(state.name)), folder.at(state.name))
    disk.sync_dir(folder.path)
    for state in intent.files:
        if folder.state(names.keep(state.name)) is not None:
            disk.unlink(folder.at(names.keep(state.name)))
    # A link that comes back after the last record is nobody's once a broker has written the file anew.
    disk.sync_dir(folder.at(names.keep()))
