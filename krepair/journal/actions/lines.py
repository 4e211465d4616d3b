"""Lines of a checkpoint of the root: the file is replaced as any, but it is known by its lines, not by its bytes.

Until all fences are down the file is theirs: they lower lines of it and give them back. So nothing of it is planned but
the lines that change, and the others are taken from the disk.
"""

from __future__ import annotations

from msgspec.structs import replace

from krepair.errors import RefusedError, StalePlanError, VerifyFailedError
from krepair.journal.actions.action import Target
from krepair.journal.actions.files import these
from krepair.journal.actions.replace import ReplaceFiles
from krepair.journal.by_disk import LARGEST_BYTES, NO_LINES
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import Intent
from krepair.logdir.reading import read_whole
from krepair.plan.model import ChangeLines
from krepair.rules.checkpoint_lines import lines_in, lines_left, with_lines


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
        if change.trusts:
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

    def has_more(self, folder: PartitionFolder, change: ChangeLines, intent: Intent) -> bool:  # type: ignore[override]
        """Whether lines stayed as they were; not once somebody else has written the file, whose it then is."""
        if not change.trusts or not folder.holds(change.name, intent.new(change.name)):
            return False
        return bool(lines_left(current_data(folder, change), change.lines))

    def continued(self, earlier: Intent, intent: Intent) -> Intent:
        """What is kept stays kept: the file as it was before any of the lines."""
        return replace(intent, originals=earlier.originals, over=earlier.made[0])
