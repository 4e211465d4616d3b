"""Lines of a checkpoint of the root: the file is replaced as any, but it is known by its lines, not by its bytes.

Until all fences are down the file is theirs: they lower lines of it and give them back. So nothing of it is planned but
the lines that change, and the others are taken from the disk.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from krepair.errors import RefusedError, StalePlanError, VerifyFailedError
from krepair.journal.actions.action import Found, Target
from krepair.journal.actions.files import these
from krepair.journal.actions.replace import ReplaceFiles
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import Intent
from krepair.logdir.reading import read_whole
from krepair.plan.model import ChangeLines, FileFingerprint, NewFile
from krepair.rules.checkpoint_lines import has_new_lines, lines_in, lines_left, with_lines

LARGEST_BYTES = 1 << 28
NO_LINES = b"0\n0\n"
"""What a checkpoint that is not there counts as."""


def may_leave_some(change: ChangeLines) -> bool:
    """Whether lines may stay as they are: a recovery point does where its partition could not be made ready."""
    return bool(change.trusts)


def current_data(folder: PartitionFolder, change: ChangeLines) -> bytes:
    """The bytes on the disk; those of an empty file where the plan says that there is none.

    Raises:
        OSError: it cannot be read.
    """
    if change.size_before < 0 and folder.state(change.name) is None:
        return NO_LINES
    return read_whole(folder.at(change.name), LARGEST_BYTES, folder.tree)


class ChangeCheckpointLines(ReplaceFiles):
    """Implements ``JournalAction`` for ``ChangeLines``: once it has begun, it is as a file that is replaced."""

    kind = ChangeLines
    after_fences = True

    def check_before(self, target: Target, changes: object) -> None:
        """No swap is ever pending in the root."""
        return

    def begin(self, target: Target, change: ChangeLines) -> Intent:  # type: ignore[override]
        """The intent, once the lines are on the disk as planned and the staged file differs from it by them alone.

        Raises:
            StalePlanError: a line is not as it was planned, or the file is gone.
            RefusedError: the staged file is missing.
            VerifyFailedError: the staged file has other bytes than the lines give.
        """
        folder, path = target.folder, target.folder.at(change.name)
        original, staged = folder.state(change.name), folder.state(folder.names.stage(change.name))
        if original is None and change.size_before >= 0:
            raise StalePlanError(f"{path}: is gone since the plan was made")
        if original is not None and change.size_before < 0:
            raise StalePlanError(f"{path}: was not there when the plan was made")
        if staged is None:
            raise RefusedError(f"{folder.at(folder.names.stage(change.name))}: is missing")
        made = read_whole(folder.at(folder.names.stage(change.name)), LARGEST_BYTES, folder.tree)
        data, lines = current_data(folder, change), change.lines
        if may_leave_some(change):
            lines = lines_in(made, lines_left(data, lines))
        wanted = with_lines(data, lines)
        if wanted is None:
            raise StalePlanError(f"{path}: its lines are not those that the plan changes")
        if made != wanted:
            raise VerifyFailedError(
                f"{folder.at(folder.names.stage(change.name))}: is not the file on the disk with the plan's lines; "
                "it replaced nothing"
            )
        if original is not None:
            original = folder.digested(change.name, original)
        staged = folder.digested(folder.names.stage(change.name), staged)
        return Intent(
            change_id=change.change_id, kind="change lines", originals=these(original), made=(staged,)
        )

    def is_ours(
        self,
        folder: PartitionFolder,
        planned: Mapping[str, FileFingerprint],
        change: ChangeLines,  # type: ignore[override]
        name: str,
    ) -> bool:
        """Whether it differs from the kept file by the plan's lines, and by nothing else."""
        kept, old = folder.names.keep(name), NO_LINES
        if folder.state(kept) is not None:
            old = read_whole(folder.at(kept), LARGEST_BYTES, folder.tree)
        new = read_whole(folder.at(name), LARGEST_BYTES, folder.tree)
        return with_lines(old, lines_in(new, change.lines)) == new

    def has_more(self, folder: PartitionFolder, change: ChangeLines, intent: Intent) -> bool:  # type: ignore[override]
        """Whether lines stayed as they were; not once somebody else has written the file, whose it then is."""
        if not may_leave_some(change) or not folder.holds(change.name, intent.new(change.name)):
            return False
        return bool(lines_left(current_data(folder, change), change.lines))

    def continued(self, earlier: Intent, intent: Intent) -> Intent:
        """What is kept stays kept: the file as it was before any of the lines."""
        return replace(intent, originals=earlier.originals, over=earlier.made[0])

    def becomes(self, change: ChangeLines) -> tuple[NewFile, ...]:  # type: ignore[override]
        """The one file; the plan knows no digest of it, since the other lines are those on the disk."""
        return (NewFile(name=change.name, size=0, digest=""),)

    def is_planned(self, folder: PartitionFolder, change: ChangeLines, found: Found) -> bool:  # type: ignore[override]
        """Whether the lines are as they were planned, whatever became of the others.

        Of lines of which some may stay it is enough that some are: after a purge the rest is still to be done.
        """
        data, lines = _data(folder, change, found), change.lines
        if data is not None and may_leave_some(change):
            left = lines_left(data, lines)
            return bool(left) and len(left) + len(lines_in(data, lines)) == len(lines)
        return data is not None and with_lines(data, lines) is not None

    def is_made(self, folder: PartitionFolder, change: ChangeLines, found: Found) -> bool:  # type: ignore[override]
        """Whether the lines are as they become."""
        data = _data(folder, change, found)
        if data is not None and may_leave_some(change):
            return bool(lines_in(data, change.lines))
        return data is not None and has_new_lines(data, change.lines)


def _data(folder: PartitionFolder, change: ChangeLines, found: Found) -> bytes | None:
    if found.here[change.name] is None:
        return NO_LINES if change.size_before < 0 else None
    return read_whole(folder.at(change.name), LARGEST_BYTES, folder.tree)
