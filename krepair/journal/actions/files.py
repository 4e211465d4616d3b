"""These files become those files: what every change of whole files has in common, as steps.

All originals are linked into ``keep/``, and that is synced. Then each file gets its new name or loses its own, and the
partition folder is synced. A new file is renamed straight out of the private sub-folder. So at every instant there is
the old file or the new one, both whole, and a broker never sees a name that it would clean away. A link is enough even
for a damaged file, since nothing opens it once its name is gone. Undo renames the kept originals over the new files.

Of the files of one change the first one leads: it is the last to come and the first to go (``steps.swap_files``). So it
tells whether the change is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from krepair.errors import KrepairError
from krepair.journal.actions.action import Came, ChangeT_contra, JournalAction, KeptFile
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import FileState, Intent, Order
from krepair.journal.stepping import run
from krepair.journal.steps import Becomes, SyncDir, files_back, forget_files, keep_files, swap_files


def these(*states: FileState | None) -> tuple[FileState, ...]:
    """Those that are there."""
    return tuple(state for state in states if state is not None)


class OfFiles(JournalAction[ChangeT_contra]):
    """What is the same of every change that makes other files of some: what it has, and what it makes."""

    def files(self, intent: Intent) -> tuple[Becomes, ...]:
        """The files, the one that leads first."""
        return tuple(Becomes(name, intent.old(name), intent.new(name), intent.over) for name in intent.names)

    def can_go_on(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Whether every file is where it was, or where it goes."""
        return all(
            any(folder.holds(path, file.new or file.old) for path in (file.name, _source(folder, file)))
            for file in self.files(intent)
        )

    def kept(self, folder: PartitionFolder, intent: Intent) -> list[KeptFile]:
        """Every original that is not in its place."""
        return [
            KeptFile(folder.names.keep(file.name), file.old)
            for file in self.files(intent)
            if file.old is not None and not folder.holds(file.name, file.old)
        ]


class ChangeFiles(OfFiles[ChangeT_contra]):
    """Implements ``JournalAction`` for changes of whole files. A kind says which ones, and how it begins."""

    def check_back(self, folder: PartitionFolder, intent: Intent) -> None:
        """Checks, before the first step back, what the steps do not look at.

        Raises:
            StalePlanError: nothing can come back; nothing is changed.
        """
        return

    # -- forward

    def is_committed(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Whether the file that leads is in its place, untouched; if it goes: whether it is gone, and kept."""
        first = self.files(intent)[0]
        if first.new is not None:
            return folder.holds(first.name, first.new)
        return folder.state(first.name) is None and folder.holds(folder.names.keep(first.name), first.old)

    def go_on(self, folder: PartitionFolder, intent: Intent) -> None:
        """As ``go_on_all``, of one; what stops it is raised."""
        _raise(self.go_on_all(folder, [intent]))

    def go_on_all(self, folder: PartitionFolder, intents: Sequence[Intent]) -> Came:
        """Keeps the originals of all, then swaps the files of each; may be repeated.

        Raises:
            OSError: a folder could not be synced: of none of them it is known whether it is done.
        """
        names = folder.names
        kept = _until_an_error(intents, lambda intent: run(folder, keep_files(self.files(intent), names)))
        if kept.error is not None:
            return Came(0, kept.error)
        run(folder, [SyncDir(names.keep())])
        swapped = _until_an_error(intents, lambda intent: run(folder, swap_files(self.files(intent), names)))
        run(folder, [SyncDir("")])
        return swapped

    # -- back

    def is_back(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Whether any of the originals is in its place."""
        return any(file.old is not None and folder.holds(file.name, file.old) for file in self.files(intent))

    def check_undo(self, folder: PartitionFolder, intent: Intent, state: str) -> None:
        """Nothing to check: ``undo`` looks at every file before it changes one."""

    def forget(self, folder: PartitionFolder, intent: Intent) -> None:
        self.forget_all(folder, [intent])

    def forget_all(self, folder: PartitionFolder, intents: Sequence[Intent]) -> None:
        _raise(self.undo_all(folder, intents, "P1"))

    def undo(self, folder: PartitionFolder, intent: Intent, order: Order) -> None:
        """As ``undo_all``, of one; what stops it is raised."""
        _raise(self.undo_all(folder, [intent], order))

    def undo_all(self, folder: PartitionFolder, intents: Sequence[Intent], order: Order) -> Came:
        """Puts the originals back; may be repeated, also before any file was changed.

        Raises:
            OSError: a folder could not be synced: of none of them it is known whether it is done.
        """

        def put_back(intent: Intent) -> None:
            self.check_back(folder, intent)
            run(folder, files_back(self.files(intent), folder.names))

        came = _until_an_error(intents, put_back)
        run(folder, [SyncDir("")])
        back = [name for intent in intents[: came.done] for name in intent.names]
        run(folder, forget_files(back, folder.names))
        return came


def _source(folder: PartitionFolder, file: Becomes) -> str:
    return folder.names.keep(file.name) if file.new is None else folder.names.stage(file.name)


def _raise(came: Came) -> None:
    if came.error is not None:
        raise came.error


def _until_an_error(intents: Sequence[Intent], do: Callable[[Intent], None]) -> Came:
    for number, intent in enumerate(intents):
        try:
            do(intent)
        except (KrepairError, OSError) as error:
            return Came(number, error)
    return Came(len(intents))
