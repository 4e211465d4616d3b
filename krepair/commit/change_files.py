"""Replace, add and remove whole files: indexes, checkpoints, a withdrawn segment, a new segment at the log end.

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

from krepair.commit.by_disk import is_log_of_plan
from krepair.commit.executor import ExecutionResult, Executor, KeptFile
from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import Intent
from krepair.commit.stepping import run
from krepair.commit.steps import Becomes, SyncDir, files_back, forget_files, keep_files, swap_files
from krepair.errors import KrepairError, StalePlanError
from krepair.formats.filenames import (
    LOG,
    FileKind,
    FileName,
    NameState,
    base_offset_of,
    log_name,
    parse_file_name,
)
from krepair.plan.changes import FileChange
from krepair.plan.model import FileFingerprint


def becomes(intent: Intent) -> tuple[Becomes, ...]:
    """Return the files of a change, the leading one first.

    What a broker has put in the place of an index gives way where its log tells whose it is: the kept one is as good
    as any. A file of a new segment that a broker has made larger is left to the broker.
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
    """Return every original that is not in its place."""
    return [
        KeptFile(folder.names.keep(file.name), file.old)
        for file in files
        if file.old is not None and not folder.holds(file.name, file.old)
    ]


def all_at_hand(folder: PartitionFolder, files: Iterable[Becomes]) -> bool:
    """Return whether every file is in its old place or in its new one."""
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
    """Executor for whole files."""

    def kept(self, folder: PartitionFolder, intent: Intent) -> list[KeptFile]:
        return kept_files(folder, becomes(intent))

    # -- forward

    def is_committed(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether the leading file is in place, or, if it is to go, gone and kept."""
        first = becomes(intent)[0]
        if first.new is not None:
            return folder.holds(first.name, first.new)
        return folder.state(first.name) is None and folder.holds(folder.names.keep(first.name), first.old)

    def go_on(self, folder: PartitionFolder, intents: Sequence[Intent]) -> ExecutionResult:
        """Keep the originals of all changes, then swap the files of each; may be repeated.

        Raises:
            OSError: a folder could not be synced: of none of them it is known whether it is done.
        """
        names = folder.names
        kept = _until_an_error(intents, lambda intent: run(folder, keep_files(becomes(intent), names)))
        if kept.error is not None:
            return ExecutionResult(0, kept.error)
        run(folder, [SyncDir(names.keep())])
        swapped = _until_an_error(intents, lambda intent: run(folder, swap_files(becomes(intent), names)))
        run(folder, [SyncDir("")])
        return swapped

    def can_go_on(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an interrupted change still has all files that it made or began with."""
        return all_at_hand(folder, becomes(intent))

    # -- back

    def is_back(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an original is in its place; without originals, whether the file is gone but its log not."""
        if intent.originals:
            return any(folder.holds(old.name, old) for old in intent.originals)
        lead = intent.names[0]
        if folder.state(lead) is not None:
            return False
        base_offset = parse_file_name(lead).base_offset
        return base_offset is None or lead.endswith(LOG) or folder.state(log_name(base_offset)) is not None

    def check_undo(self, folder: PartitionFolder, intent: Intent, state: str) -> None:
        """Check that no other program wrote the files since, and that a segment can come back whole.

        If the original is back, an undo was begun whose record the journal has lost: it may be resumed.
        """
        files = becomes(intent)
        alone = files[0] if len(files) == 1 and files[0].foreign == "stops" else None
        if alone and not (folder.holds(alone.name, alone.old) or self.is_committed(folder, intent)):
            raise folder.written_since(alone.name)
        for file in files:
            if file.foreign == "stays" and _is_foreign(folder, file):
                raise folder.written_since(file.name)
        _check_segment(folder, files)

    def go_back(
        self, folder: PartitionFolder, intents: Sequence[Intent], *, committed: bool
    ) -> ExecutionResult:
        """Put the originals back; may be repeated, also before any file was changed.

        Raises:
            OSError: a folder could not be synced: of none of them it is known whether it is done.
        """

        def put_back(intent: Intent) -> None:
            if not committed and _is_gone_by_others(folder, intent):
                return
            files = becomes(intent)
            _check_segment(folder, files)
            run(folder, files_back(files, folder.names))

        outcome = _until_an_error(intents, put_back)
        run(folder, [SyncDir("")])
        back = [name for intent in intents[: outcome.done] for name in intent.names]
        run(folder, forget_files(back, folder.names))
        return outcome


def _is_gone_by_others(folder: PartitionFolder, intent: Intent) -> bool:
    """Return whether a broker deleted a file before krepair had kept it."""
    return not intent.made and all(
        folder.state(path) is None
        for old in intent.originals
        for path in (old.name, folder.names.keep(old.name))
    )


def _is_foreign(folder: PartitionFolder, file: Becomes) -> bool:
    """Return whether a name has a file that is neither the original nor the new one."""
    known = (state for state in (file.old, file.new) if state is not None)
    return folder.state(file.name) is not None and not any(folder.holds(file.name, state) for state in known)


def _check_segment(folder: PartitionFolder, files: Sequence[Becomes]) -> None:
    """Check that a withdrawn segment can come back whole: no other has its name, and all of it is kept."""
    olds = [file for file in files if file.old is not None] if len(files) > 1 else []
    for file in olds[:1]:
        if _is_foreign(folder, file):
            raise folder.written_since(file.name)
    for file in olds:
        kept = folder.names.keep(file.name)
        if file.old is not None and not any(folder.holds(path, file.old) for path in (file.name, kept)):
            raise StalePlanError(
                f"{folder.at(kept)}: is not the original of {file.old.size} bytes that was kept"
            )


def _until_an_error(intents: Sequence[Intent], do: Callable[[Intent], None]) -> ExecutionResult:
    for number, intent in enumerate(intents):
        try:
            do(intent)
        except (KrepairError, OSError) as error:
            return ExecutionResult(number, error)
    return ExecutionResult(len(intents))


def check_is_still_its_log(
    folder: PartitionFolder,
    name: str,
    planned: Mapping[str, FileFingerprint],
    made: Mapping[str, FileChange],
) -> None:
    """Check, before a withdrawn file comes back, that the log beside it is the one that it was taken from.

    A broker that was started since has gone on with the log. It would use an index, a swap or a snapshot of the one
    before; what it fetched at the log end has the offsets of a segment that was set aside; and a ``.cleaned`` makes it
    delete a swap that holds the only records of its segments.

    Args:
        made: what the plan makes of the logs that it changes, by name.

    Raises:
        StalePlanError: it is another log now; the message names the file that tells.
    """
    own = parse_file_name(name)
    if folder.state(name) is not None or own.base_offset is None:
        return  # it is back already, or another one has its name: see ``check_undo``
    if own.state is NameState.CLEANED:
        for swap in map(parse_file_name, folder.file_names()):
            above = swap.base_offset is not None and swap.base_offset >= own.base_offset
            if swap.state is NameState.SWAP and above and swap.name not in planned:
                raise folder.swap_of_others(swap.name)
        return
    at_log_end = own.state is NameState.LIVE and own.kind in {FileKind.LOG, FileKind.SNAPSHOT}
    log = _last_log(folder, planned, own) if at_log_end else log_name(own.base_offset)
    if log and not is_log_of_plan(folder, planned, made, log):
        raise StalePlanError(
            f"{folder.at(log)}: was written since {name} was taken out: a broker has gone on with the log, and that "
            "file is not of it; nothing more was changed"
        )


def _last_log(folder: PartitionFolder, planned: Mapping[str, FileFingerprint], own: FileName) -> str:
    """Return the name of the last log; empty if there is none, or the snapshot does not lie behind its base offset."""
    before = max((name for name in planned if name.endswith(LOG)), default="")
    if own.kind is FileKind.SNAPSHOT and (own.base_offset or 0) <= (base_offset_of(before) or 0):
        return ""
    files = map(parse_file_name, folder.file_names())
    logs = (file.name for file in files if file.kind is FileKind.LOG and file.state is NameState.LIVE)
    return max(logs, default="")
