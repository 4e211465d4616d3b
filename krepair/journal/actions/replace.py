"""Files replaced or removed together: the staged ones are renamed over the old ones, which are kept.

A new file is renamed straight out of the private sub-folder. So at every instant there is the old file or the new one,
both whole, and a broker never sees a name that it would clean away. A removed file is linked into ``keep/`` first: at
every instant it has its own name, or is kept. A link is enough even for a damaged file, since nothing opens it once its
name is gone.

Each file is independent of the others, so one set of barriers serves all of a partition: all are kept, ``keep/`` is
synced, all are renamed, the partition folder is synced. A power cut in between leaves some old and some new, and each
of these states is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from krepair.errors import KrepairError, RefusedError, StalePlanError, VerifyFailedError
from krepair.formats.filenames import log_name, parse_file_name
from krepair.journal.actions.action import Action, Came, Found, Ground, KeptFile
from krepair.journal.folder import PartitionFolder
from krepair.journal.freshness import check_fresh_file, check_no_pending_swap
from krepair.journal.known_files import KnownFile, file_check, known_originals
from krepair.journal.record import FileState, Order, ReplaceIntent
from krepair.journal.traces import digests_of, holds, made_of, nobody, original_of
from krepair.logdir.fingerprint import digest_content, digest_file
from krepair.plan.keep import is_freed_by_apply
from krepair.plan.model import FileFingerprint, ReplaceFile


class ReplaceFiles(Action[ReplaceFile, ReplaceIntent]):
    """Implements ``Action`` for files that are replaced or removed."""

    together = True

    def check_before(self, ground: Ground, changes: Sequence[ReplaceFile]) -> None:
        """Where a file is replaced, no swap may be pending in the folder."""
        # A removal never touches a file that a pending swap needs, and may take away what makes the swap void.
        if any(change.method != "remove" for change in changes):
            check_no_pending_swap(ground.folder)

    def begin(self, ground: Ground, change: ReplaceFile) -> ReplaceIntent:
        """The intent, once the file is found as it was planned, and the new one staged as it was planned.

        Raises:
            StalePlanError: the file changed since the plan was made.
            RefusedError: the staged file is missing.
            VerifyFailedError: the staged file is not the plan's.
        """
        original, staged = check_fresh_file(ground.folder, ground.planned, change)
        digest = "" if original is None else digest_content(ground.folder.at(change.name))
        return ReplaceIntent(change_id=change.change_id, original=original, replacement=staged, digest=digest)

    def from_disk(
        self, ground: Ground, change: ReplaceFile, known: ReplaceIntent | None
    ) -> ReplaceIntent | None:
        """See ``Action``; without a kept original what is in its place is the broker's."""
        folder, name, plan = ground.folder, change.name, ground.planned.get(change.name)
        original = None if plan is None else original_of(folder, plan)
        here = folder.state(name)
        if here == original:
            return None
        made = None
        if change.method != "remove":
            others = () if original is None else (original,)
            made = made_of(folder, name, holds(folder, change.size_after, change.digest_after), others)
        if not _is_kept(folder, name):
            # What nobody kept was freed by apply, or is the broker's own doing; a new file tells of itself.
            begun = known is not None or is_freed_by_apply(change) or _others_are_kept(ground)
            gone = here is None and change.method == "remove" and begun
            if not gone and (here is None or here != made):
                return None
        digest = "" if known is None or original is None else known.digest
        if original is not None and not digest:
            digest = digests_of(folder, [original], ground.planned, {}).get(name, "")
        replacement = (made or nobody(name)) if change.method != "remove" else None
        return ReplaceIntent(
            change_id=change.change_id, original=original, replacement=replacement, digest=digest
        )

    def is_done(self, folder: PartitionFolder, intent: ReplaceIntent) -> bool:
        """Whether the new file, or what was written since, is there; of a file that goes: whether it is gone."""
        here = folder.state(intent.name)
        return here != intent.original and (here is not None or intent.replacement is None)

    def can_go_on(self, folder: PartitionFolder, intent: ReplaceIntent) -> bool:
        """Whether an interrupted change has all that it needs to go on: what it made, or what it began with."""
        if self.is_committed(folder, intent):
            return True
        if intent.replacement is None:
            return _is(folder.state(intent.name), intent.original)
        return _is(folder.state(folder.names.stage(intent.name)), intent.replacement)

    def is_committed(self, folder: PartitionFolder, intent: ReplaceIntent) -> bool:
        """Whether the new file is in its place, untouched; of a file that goes: whether it is gone, and kept."""
        found = folder.state(intent.name)
        if intent.replacement is None:
            return found is None and _is(folder.state(folder.names.keep(intent.name)), intent.original)
        return _is(found, intent.replacement)

    def go_on(self, folder: PartitionFolder, intent: ReplaceIntent) -> None:
        """As ``go_on_all``, of one; what stops it is raised."""
        _raise(self.go_on_all(folder, [intent]))

    def go_on_all(self, folder: PartitionFolder, intents: Sequence[ReplaceIntent]) -> Came:
        """Keeps the originals, renames the staged files over them or removes their names; may be repeated.

        Raises:
            OSError: a folder could not be synced: of none of them it is known whether it is done.
        """
        kept = _until_an_error(intents, lambda intent: _keep(folder, intent))
        if kept.error is not None:
            return Came(0, kept.error)
        if any(intent.original is not None for intent in intents):
            folder.disk.sync_dir(folder.at(folder.names.keep()))
        replaced = _until_an_error(intents, lambda intent: _replace(folder, intent))
        # The names in stage/ need no sync: where one comes back, it is one more link to a file that is in its place.
        folder.disk.sync_dir(folder.path)
        return replaced

    def forget(self, folder: PartitionFolder, intent: ReplaceIntent) -> None:
        """As ``forget_all``, of one."""
        self.forget_all(folder, [intent])

    def forget_all(self, folder: PartitionFolder, intents: Sequence[ReplaceIntent]) -> None:
        """As ``undo_all``; a file that others removed before it was kept needs nothing."""
        here = [intent for intent in intents if not self.is_gone_by_others(folder, intent)]
        if here:
            _raise(self.undo_all(folder, here, "P1"))

    def is_gone_by_others(self, folder: PartitionFolder, intent: ReplaceIntent) -> bool:
        """Whether a file that was to go went before it was kept: a broker that was started in between deleted it."""
        return (
            intent.replacement is None
            and folder.state(intent.name) is None
            and folder.state(folder.names.keep(intent.name)) is None
        )

    def is_back(self, folder: PartitionFolder, intent: ReplaceIntent) -> bool:
        """Whether the file is the original; of one that was not there, whether it is gone and its log is not."""
        here = folder.state(intent.name)
        if intent.original is not None or here is not None:
            return here == intent.original
        base_offset = parse_file_name(intent.name).base_offset
        return base_offset is None or folder.state(log_name(base_offset)) is not None

    def check_undo(self, folder: PartitionFolder, intent: ReplaceIntent, state: str) -> None:
        """Checks that nobody wrote the file since.

        Where the original is back, an undo was begun of which the journal has lost the record: it may go on.

        Raises:
            StalePlanError: somebody did.
        """
        back = folder.state(intent.name) == intent.original
        if state != "undoing" and not back and not self.is_committed(folder, intent):
            raise StalePlanError(f"{folder.at(intent.name)}: was written since the plan was applied")

    def undo(self, folder: PartitionFolder, intent: ReplaceIntent, order: Order) -> None:
        """As ``undo_all``, of one; what stops it is raised."""
        _raise(self.undo_all(folder, [intent], order))

    def undo_all(self, folder: PartitionFolder, intents: Sequence[ReplaceIntent], order: Order) -> Came:
        """Renames the kept originals over the new files; may be repeated, also before any was replaced.

        Raises:
            OSError: a folder could not be synced: of none of them it is known whether it is done.
        """
        came = _until_an_error(intents, lambda intent: _put_back(folder, intent))
        folder.disk.sync_dir(folder.path)
        for intent in intents[: came.done]:
            for leftover in (folder.names.keep(intent.name), folder.names.out(intent.name)):
                if folder.tree.is_there(folder.at(leftover)):
                    folder.disk.unlink(folder.at(leftover))
        # A link that comes back after the last record is nobody's once a broker has written the file anew.
        folder.disk.sync_dir(folder.at(folder.names.keep()))
        return came

    def kept(self, folder: PartitionFolder, intent: ReplaceIntent) -> list[KeptFile]:
        """What undo would put back."""
        if intent.original is None or _is(folder.state(intent.name), intent.original):
            return []
        return [KeptFile(folder.names.keep(intent.name), intent.original, intent.digest)]

    def originals(self, intent: ReplaceIntent) -> tuple[FileState, ...]:
        """The one file, if there was one."""
        return () if intent.original is None else (intent.original,)

    def with_originals(self, intent: ReplaceIntent, originals: Sequence[FileState]) -> ReplaceIntent:
        """With this as its original."""
        return replace(intent, original=originals[0]) if originals else intent

    def touches(self, intent: ReplaceIntent) -> tuple[str, ...]:
        """Names of the files that it changes in the partition folder."""
        return (intent.name,)

    def known_files(
        self,
        intent: ReplaceIntent,
        change: ReplaceFile | None,
        planned: Mapping[str, FileFingerprint],
        freed: Mapping[str, str],
    ) -> list[KnownFile]:
        """The new file, the one before it, and the original."""
        new, over = intent.replacement, intent.over
        return [
            *([] if new is None else [KnownFile(new, True, file_check(self.digest_of(change)))]),
            *([] if over is None else [KnownFile(over, True, None, False)]),
            *known_originals(self.originals(intent), {intent.name: intent.digest}, planned),
        ]

    def digest_of(self, change: ReplaceFile | None) -> str:
        """Of the new file; empty if the plan has none."""
        return "" if change is None else change.digest_after

    def told_by(self, change: ReplaceFile) -> tuple[str, ...]:
        """The one file."""
        return (change.name,)

    def is_made(self, folder: PartitionFolder, change: ReplaceFile, found: Found) -> bool:
        """Whether it has the bytes of the plan; of a file that goes: whether it is gone."""
        here = found.here[change.name]
        if here is None:
            return change.size_after < 0
        return here.size == change.size_after and digest_file(folder.at(change.name)) == change.digest_after


def _others_are_kept(ground: Ground) -> bool:
    """Files that go together are all kept before the first of them goes."""
    others = (change for change in ground.partition.changes if isinstance(change, ReplaceFile))
    return any(_is_kept(ground.folder, change.name) for change in others)


def _is_kept(folder: PartitionFolder, name: str) -> bool:
    return folder.state(folder.names.keep(name)) is not None


def _raise(came: Came) -> None:
    if came.error is not None:
        raise came.error


def _until_an_error(intents: Sequence[ReplaceIntent], do: Callable[[ReplaceIntent], None]) -> Came:
    for number, intent in enumerate(intents):
        try:
            do(intent)
        except (KrepairError, OSError) as error:
            return Came(number, error)
    return Came(len(intents))


def _keep(folder: PartitionFolder, intent: ReplaceIntent) -> None:
    original, kept = intent.original, folder.names.keep(intent.name)
    if original is None or folder.state(kept) == original:
        return
    found = folder.state(intent.name)
    if found != original:
        if intent.replacement is not None and found == intent.replacement:
            raise RefusedError(f"{folder.at(kept)}: the original is not kept although it was replaced")
        raise StalePlanError(f"{folder.at(intent.name)}: changed while the apply was interrupted")
    if folder.tree.is_there(folder.at(kept)):
        folder.disk.unlink(folder.at(kept))
    folder.disk.link(folder.at(intent.name), folder.at(kept))


def _replace(folder: PartitionFolder, intent: ReplaceIntent) -> None:
    found = folder.state(intent.name)
    if intent.replacement is not None and found == intent.replacement:
        return
    if intent.replacement is None and found is None:
        return
    if found != (intent.over or intent.original):
        raise StalePlanError(f"{folder.at(intent.name)}: changed while the apply was interrupted")
    if intent.replacement is None:
        folder.disk.unlink(folder.at(intent.name))
    else:
        staged = folder.names.stage(intent.name)
        if folder.state(staged) != intent.replacement:
            raise VerifyFailedError(
                f"{folder.at(staged)}: is not the file that krepair made; nothing was replaced"
            )
        folder.disk.rename(folder.at(staged), folder.at(intent.name))


def _put_back(folder: PartitionFolder, intent: ReplaceIntent) -> None:
    name, disk, names = intent.name, folder.disk, folder.names
    found, kept = folder.state(name), folder.at(names.keep(name))
    ours = _is(found, intent.replacement) or _is(found, intent.over)
    if found is not None and not ours and not _is(found, intent.original):
        raise StalePlanError(f"{folder.at(name)}: was written since the plan was applied")
    if intent.original is None:
        if found is not None:
            disk.rename(folder.at(name), folder.at(names.out(name)))
    elif not _is(found, intent.original):
        if folder.state(names.keep(name)) != intent.original:
            raise StalePlanError(f"{kept}: the kept original is gone or changed, so the new file stays")
        disk.rename(kept, folder.at(name))


def _is(found: FileState | None, known: FileState | None) -> bool:
    return found is not None and known is not None and found == known
