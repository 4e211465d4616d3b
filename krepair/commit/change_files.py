"""These files become those files: indexes and checkpoints, a segment that is set aside, a new one at the log end.

All originals are linked into ``keep/``, and that is synced. Then each file gets its new name or loses its own, and the
partition folder is synced. A new file is renamed straight out of the private sub-folder. So at every instant there is
the old file or the new one, both whole, and a broker never sees a name that it would clean away. A link is enough even
for a damaged file, since nothing opens it once its name is gone. Undo renames the kept originals over the new files.

Of the files of one change the first one leads, which is the ``.log`` where there is one: it is the last to come and the
first to go (``steps.swap_files``). So it tells whether the change is committed. A segment that is set aside is out once
its log has no name; a broker deletes an index without a log, while the link in ``keep/`` stays. An empty segment at the
log end is harmless in every state in between: a broker recovers a segment without bytes. It is taken back only while no
file of it has a byte: a broker that was started has made the indexes larger, or written.

Changes of one file each are independent of each other, so one set of barriers serves all of a partition: all are kept,
``keep/`` is synced, all are renamed, the partition folder is synced. A power cut in between leaves some old and some
new, and each of these states is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from krepair.commit.executor import Came, Executor, KeptFile
from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import Intent
from krepair.commit.stepping import run
from krepair.commit.steps import Becomes, SyncDir, files_back, forget_files, keep_files, swap_files
from krepair.errors import KrepairError, StalePlanError
from krepair.formats.filenames import LOG, FileKind, NameState, log_name, parse_file_name
from krepair.plan.model import FileFingerprint


def becomes(intent: Intent) -> tuple[Becomes, ...]:
    """The files of a change, the one that leads first.

    What a broker has put in the place of an index gives way where its log tells whose it is: the kept one is as good
    as any. Of a new segment what a broker made larger meanwhile is left to it.
    """
    lead, *others = intent.names
    is_new = lead.endswith(LOG) and intent.old(lead) is None
    return (
        Becomes(lead, intent.old(lead), intent.new(lead), intent.over, "stays" if is_new else "stops"),
        *(
            Becomes(name, intent.old(name), intent.new(name), None, "stays" if is_new else "goes")
            for name in others
        ),
    )


def kept_files(folder: PartitionFolder, files: Iterable[Becomes]) -> list[KeptFile]:
    """Every original that is not in its place."""
    return [
        KeptFile(folder.names.keep(file.name), file.old)
        for file in files
        if file.old is not None and not folder.holds(file.name, file.old)
    ]


def all_at_hand(folder: PartitionFolder, files: Iterable[Becomes]) -> bool:
    """Whether every file is where it was, or where it goes."""
    return all(
        any(folder.holds(path, file.new or file.old) for path in _places(folder, file)) for file in files
    )


def _places(folder: PartitionFolder, file: Becomes) -> Iterator[str]:
    yield file.name
    if file.new is not None:
        yield folder.names.stage(file.name)
    elif file.foreign == "goes" or folder.state(file.name) is None:
        yield folder.names.keep(file.name)


class ChangeFiles(Executor):
    """Implements ``Executor`` for whole files."""

    def kept(self, folder: PartitionFolder, intent: Intent) -> list[KeptFile]:
        return kept_files(folder, becomes(intent))

    # -- forward

    def is_committed(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Whether the file that leads is in its place, untouched; if it goes: whether it is gone, and kept."""
        first = becomes(intent)[0]
        if first.new is not None:
            return folder.holds(first.name, first.new)
        return folder.state(first.name) is None and folder.holds(folder.names.keep(first.name), first.old)

    def go_on(self, folder: PartitionFolder, intents: Sequence[Intent]) -> Came:
        """Keeps the originals of all, then swaps the files of each; may be repeated.

        Raises:
            OSError: a folder could not be synced: of none of them it is known whether it is done.
        """
        names = folder.names
        kept = _until_an_error(intents, lambda intent: run(folder, keep_files(becomes(intent), names)))
        if kept.error is not None:
            return Came(0, kept.error)
        run(folder, [SyncDir(names.keep())])
        swapped = _until_an_error(intents, lambda intent: run(folder, swap_files(becomes(intent), names)))
        run(folder, [SyncDir("")])
        return swapped

    def can_go_on(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Whether an interrupted change has all that it needs to go on: what it made, or what it began with."""
        return all_at_hand(folder, becomes(intent))

    # -- back

    def is_back(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Whether any original is in its place; if there were none, whether the file is gone and its log is not."""
        if intent.originals:
            return any(folder.holds(old.name, old) for old in intent.originals)
        lead = intent.names[0]
        if folder.state(lead) is not None:
            return False
        base_offset = parse_file_name(lead).base_offset
        return base_offset is None or lead.endswith(LOG) or folder.state(log_name(base_offset)) is not None

    def check_undo(self, folder: PartitionFolder, intent: Intent, state: str) -> None:
        """Checks that nobody wrote the files since, and that a segment can come back whole.

        Where the original is back, an undo was begun of which the journal has lost the record: it may go on.
        """
        files = becomes(intent)
        alone = files[0] if len(files) == 1 and files[0].foreign == "stops" else None
        if alone and not (folder.holds(alone.name, alone.old) or self.is_committed(folder, intent)):
            raise _written(folder, alone)
        for file in files:
            if file.foreign == "stays" and _is_foreign(folder, file):
                raise _written(folder, file)
        _check_segment(folder, files)

    def forget(self, folder: PartitionFolder, intents: Sequence[Intent]) -> None:
        """As ``undo``; what others removed before it was kept needs nothing."""
        here = [intent for intent in intents if not _is_gone_by_others(folder, intent)]
        if here and (came := self.undo(folder, here)).error is not None:
            raise came.error

    def undo(self, folder: PartitionFolder, intents: Sequence[Intent]) -> Came:
        """Puts the originals back; may be repeated, also before any file was changed.

        Raises:
            OSError: a folder could not be synced: of none of them it is known whether it is done.
        """

        def put_back(intent: Intent) -> None:
            files = becomes(intent)
            _check_segment(folder, files)
            run(folder, files_back(files, folder.names))

        came = _until_an_error(intents, put_back)
        run(folder, [SyncDir("")])
        back = [name for intent in intents[: came.done] for name in intent.names]
        run(folder, forget_files(back, folder.names))
        return came


def _is_gone_by_others(folder: PartitionFolder, intent: Intent) -> bool:
    """Whether a file that was to go went before it was kept: a broker that was started in between deleted it."""
    return not intent.made and all(
        folder.state(path) is None
        for old in intent.originals
        for path in (old.name, folder.names.keep(old.name))
    )


def _is_foreign(folder: PartitionFolder, file: Becomes) -> bool:
    """Whether a name has a file that is neither the original nor the new one."""
    known = (one for one in (file.old, file.new) if one is not None)
    return folder.state(file.name) is not None and not any(folder.holds(file.name, one) for one in known)


def _check_segment(folder: PartitionFolder, files: Sequence[Becomes]) -> None:
    """Checks, of a segment that was set aside, that it can come back whole: no other has its name, and all is kept."""
    olds = [file for file in files if file.old is not None] if len(files) > 1 else []
    for file in olds[:1]:
        if _is_foreign(folder, file):
            raise _written(folder, file)
    for file in olds:
        kept = folder.names.keep(file.name)
        if file.old is not None and not any(folder.holds(path, file.old) for path in (file.name, kept)):
            raise StalePlanError(
                f"{folder.at(kept)}: is not the original of {file.old.size} bytes that was kept"
            )


def _written(folder: PartitionFolder, file: Becomes) -> StalePlanError:
    return StalePlanError(f"{folder.at(file.name)}: was written since the plan was applied")


def _until_an_error(intents: Sequence[Intent], do: Callable[[Intent], None]) -> Came:
    for number, intent in enumerate(intents):
        try:
            do(intent)
        except (KrepairError, OSError) as error:
            return Came(number, error)
    return Came(len(intents))


def check_log_ends_before(
    folder: PartitionFolder, intent: Intent, planned: Mapping[str, FileFingerprint]
) -> None:
    """Checks, before a segment comes back, that nobody has written to the log since: it was the end of it.

    A broker that was started while only some segments were out, or back, goes on with the log where it ends. What
    it fetched there has the offsets of the segments that are kept.

    Args:
        folder: the partition folder.
        intent: of any change.
        planned: fingerprints of the plan, by name.

    Raises:
        StalePlanError: a log lies behind what would come back, or the one before it is not as the plan knew it.
    """
    if intent.executor != "files" or intent.made or not intent.names[0].endswith(LOG):
        return
    own = intent.originals[0]
    if folder.state(own.name) is not None:
        return  # it is back already, or another one has its name: see ``check_undo``
    found = map(parse_file_name, folder.file_names())
    logs = sorted(one.name for one in found if one.kind is FileKind.LOG and one.state is NameState.LIVE)
    last = logs[-1] if logs else ""
    here, plan = folder.state(last) if last else None, planned.get(last)
    if here is None:
        return
    if plan is None or (here.size, here.mtime_ns) != (plan.size, plan.mtime_ns):
        raise StalePlanError(
            f"{folder.at(last)}: was written since {own.name} was set aside: a broker has gone on with the log, "
            "and what is kept would come back over its offsets; nothing more was changed"
        )
