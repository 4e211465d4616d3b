"""Lines of a checkpoint of the root: the file is replaced as any, but it is known by its lines, not by its bytes.

Until all fences are down the file is theirs: they lower lines of it and give them back. So nothing of it is planned but
the lines that change, and the others are taken from the disk.
"""

from __future__ import annotations

from krepair.errors import RefusedError, StalePlanError, VerifyFailedError
from krepair.journal.actions.action import Found, Ground
from krepair.journal.actions.replace import ReplaceFiles
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import ReplaceIntent
from krepair.logdir.fingerprint import digest_content
from krepair.logdir.reading import read_whole
from krepair.plan.model import ChangeLines
from krepair.rules.checkpoint_lines import Line, has_new_lines, with_lines

LARGEST_BYTES = 1 << 28


def lines_of(change: ChangeLines) -> tuple[Line, ...]:
    """Its lines as the rules take them."""
    return tuple(Line(line.topic, line.partition, line.old, line.new) for line in change.lines)


class ChangeCheckpointLines(ReplaceFiles):
    """Implements ``Action`` for ``ChangeLines``; its intent is that of a replaced file."""

    after_fences = True

    def check_before(self, ground: Ground, changes: object) -> None:
        """No swap is ever pending in the root."""
        return

    def begin(self, ground: Ground, change: ChangeLines) -> ReplaceIntent:  # type: ignore[override]
        """The intent, once the lines are on the disk as planned and the staged file differs from it by them alone.

        Raises:
            StalePlanError: a line is not as it was planned, or the file is gone.
            RefusedError: the staged file is missing.
            VerifyFailedError: the staged file has other bytes than the lines give.
        """
        folder, path = ground.folder, ground.folder.at(change.name)
        original, staged = folder.state(change.name), folder.state(folder.names.stage(change.name))
        if original is None:
            raise StalePlanError(f"{path}: is gone since the plan was made")
        if staged is None:
            raise RefusedError(f"{folder.at(folder.names.stage(change.name))}: is missing")
        wanted = with_lines(read_whole(path, LARGEST_BYTES, folder.tree), lines_of(change))
        if wanted is None:
            raise StalePlanError(f"{path}: its lines are not those that the plan changes")
        made = read_whole(folder.at(folder.names.stage(change.name)), LARGEST_BYTES, folder.tree)
        if made != wanted:
            raise VerifyFailedError(
                f"{folder.at(folder.names.stage(change.name))}: is not the file on the disk with the plan's lines; "
                "it replaced nothing"
            )
        return ReplaceIntent(
            change_id=change.change_id, original=original, replacement=staged, digest=digest_content(path)
        )

    def told_by(self, change: ChangeLines) -> tuple[str, ...]:  # type: ignore[override]
        """The one file."""
        return (change.name,)

    def is_planned(self, folder: PartitionFolder, change: ChangeLines, found: Found) -> bool:  # type: ignore[override]
        """Whether the lines are as they were planned, whatever became of the others."""
        data = _data(folder, change, found)
        return data is not None and with_lines(data, lines_of(change)) is not None

    def is_made(self, folder: PartitionFolder, change: ChangeLines, found: Found) -> bool:  # type: ignore[override]
        """Whether the lines are as they become."""
        data = _data(folder, change, found)
        return data is not None and has_new_lines(data, lines_of(change))


def _data(folder: PartitionFolder, change: ChangeLines, found: Found) -> bytes | None:
    if found.here[change.name] is None:
        return None
    return read_whole(folder.at(change.name), LARGEST_BYTES, folder.tree)
