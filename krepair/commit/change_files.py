"""Replace, add and remove whole files: indexes, checkpoints, a withdrawn segment, a new segment at the log end.

First all originals are linked into ``keep/``, and ``keep/`` is synced. Then each new file is renamed directly from the
work folder to its final name, or the original is removed, and the partition folder is synced. So at every instant
either the complete old file or the complete new file exists, and never under a name that makes a broker delete the
file. A link is enough even for a damaged file, because nothing opens the file after its original name is removed. Undo
renames the backups over the new files.

The first file of a change is the leading one; if the change has a ``.log``, the ``.log`` leads. The leading file is
added last and removed first (``steps.swap_files``), so the leading file shows whether the change is committed. A
segment is withdrawn as soon as its log is removed from the partition folder: a broker then deletes the indexes, but the
links in ``keep/`` remain. A new empty segment at the log end is harmless in every intermediate state, because a broker
can recover a segment without bytes. Undo removes the new segment only while all its files are empty: if a broker has
run, the broker has extended the indexes or written to the log.

Changes of single files are independent of each other, so all such changes in a partition share two syncs: all originals
are linked, ``keep/`` is synced, all new files are renamed, the partition folder is synced. A power cut in between
leaves a mixture of old and new files, and every such mixture is correct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from krepair.commit.by_disk import is_log_of_plan
from krepair.commit.executor import ExecutionResult, Executor, KeptFile
from krepair.commit.folder import PartitionFolder
from krepair.commit.group import not_staged
from krepair.commit.journal import Intent
from krepair.commit.stepping import run
from krepair.commit.steps import (
    Becomes,
    Names,
    Step,
    SyncDir,
    files_back,
    forget_files,
    keep_files,
    swap_files,
)
from krepair.errors import KrepairError, RefusedError, StalePlanError
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

    If krepair wrote the log, an index of that log that a broker has rebuilt may be replaced, because the backup of the
    index is equally good. A file of a new segment that a broker has extended is left to the broker.
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
    """Return the backups of all originals that are missing from the partition folder."""
    return [
        KeptFile(folder.names.keep(file.name), file.old)
        for file in files
        if file.old is not None and not folder.holds(file.name, file.old)
    ]


def all_at_hand(folder: PartitionFolder, files: Iterable[Becomes]) -> bool:
    """Return whether every file exists, either in its final place or where a step will take the file from."""
    return all(
        any(folder.holds(path, file.new or file.old) for path in _places(folder, file)) for file in files
    )


def _places(folder: PartitionFolder, file: Becomes) -> Iterator[str]:
    yield file.name
    if file.new is not None:
        yield folder.names.stage(file.name)
    elif file.foreign == "goes" or folder.state(file.name) is None:
        yield folder.names.keep(file.name)


class WholeFiles:
    """Files of one change, identified by size, time and digest; the ``OwnFiles`` of its steps."""

    def __init__(self, folder: PartitionFolder, files: Iterable[Becomes]) -> None:
        self._folder = folder
        self._files = {file.name: file for file in files}

    def may_keep(self, name: str, kept: str) -> bool:
        folder, file = self._folder, self._files[name]
        if folder.holds(kept, file.old):
            return False
        if not folder.holds(name, file.old):
            if file.new is not None and folder.holds(name, file.new):
                raise RefusedError(f"{folder.at(kept)}: the original is not kept although it was replaced")
            raise self._changed(name)
        return True

    def may_put(self, source: str, target: str) -> bool:
        folder, file = self._folder, self._files[target]
        if folder.holds(target, file.new):
            return False
        # An index that a broker rebuilt may be replaced, as long as the original is kept.
        place = (
            target if file.foreign != "goes" else folder.names.keep(target) if file.old is not None else ""
        )
        if place and not folder.holds(place, file.over or file.old):
            raise self._changed(target)
        if not folder.holds(source, file.new):
            raise not_staged(folder, source)
        return True

    def may_take(self, name: str) -> bool:
        if self._folder.state(name) is None:
            return False
        if not self._folder.holds(name, self._files[name].old):
            raise self._changed(name)
        return True

    def may_restore(self, kept: str, name: str) -> bool:
        folder, file = self._folder, self._files[name]
        if folder.holds(name, file.old):
            return False
        self._check_not_foreign(file)
        if not folder.holds(kept, file.old):
            raise StalePlanError(
                f"{folder.at(kept)}: the kept original is gone or changed, so the new file stays"
            )
        return True

    def may_move_out(self, source: str, target: str) -> bool:
        folder, file = self._folder, self._files[source]
        if folder.state(source) is None or (file.foreign == "stays" and not folder.holds(source, file.new)):
            return False
        self._check_not_foreign(file)
        return True

    def _check_not_foreign(self, file: Becomes) -> None:
        folder = self._folder
        if file.foreign != "stops" or folder.state(file.name) is None:
            return
        if not any(known is not None and folder.holds(file.name, known) for known in (file.new, file.over)):
            raise StalePlanError(f"{folder.at(file.name)}: was written since the plan was applied")

    def _changed(self, name: str) -> StalePlanError:
        return StalePlanError(f"{self._folder.at(name)}: changed while the apply was interrupted")


class ChangeFiles(Executor):
    """Executor for whole files."""

    def kept(self, folder: PartitionFolder, intent: Intent) -> list[KeptFile]:
        return kept_files(folder, becomes(intent))

    # -- forward

    def is_committed(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether the new leading file is in place; for a removal, whether only its backup exists."""
        first = becomes(intent)[0]
        if first.new is not None:
            return folder.holds(first.name, first.new)
        return folder.state(first.name) is None and folder.holds(folder.names.keep(first.name), first.old)

    def go_on(self, folder: PartitionFolder, intents: Sequence[Intent]) -> ExecutionResult:
        """Keep the originals of all changes, then swap the files of each change; may be repeated.

        Raises:
            OSError: a folder could not be synced: none of the changes counts as done.
        """
        kept = _until_an_error(intents, lambda intent: run_files(folder, keep_files, becomes(intent)))
        if kept.error is not None:
            return ExecutionResult(0, kept.error)
        run(folder, [SyncDir(folder.names.keep())])
        swapped = _until_an_error(intents, lambda intent: run_files(folder, swap_files, becomes(intent)))
        run(folder, [SyncDir("")])
        return swapped

    def can_go_on(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an interrupted change still has all its new files and originals."""
        return all_at_hand(folder, becomes(intent))

    # -- back

    def is_back(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an original is in its place; for a new file, whether the file is gone but its log exists."""
        if intent.originals:
            return any(folder.holds(old.name, old) for old in intent.originals)
        lead = intent.names[0]
        if folder.state(lead) is not None:
            return False
        base_offset = parse_file_name(lead).base_offset
        return base_offset is None or lead.endswith(LOG) or folder.state(log_name(base_offset)) is not None

    def check_undo(self, folder: PartitionFolder, intent: Intent, state: str) -> None:
        """Check that no other program wrote the files since apply, and that a withdrawn segment is restorable.

        An original in its place shows that an undo was begun whose record the journal has lost; such an undo may be
        resumed.
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
        """Restore the originals; may be repeated, even before any file was changed.

        Raises:
            OSError: a folder could not be synced: none of the changes counts as done.
        """

        def put_back(intent: Intent) -> None:
            if not committed and _is_gone_by_others(folder, intent):
                return
            files = becomes(intent)
            _check_segment(folder, files)
            run_files(folder, files_back, files)

        outcome = _until_an_error(intents, put_back)
        run(folder, [SyncDir("")])
        back = [name for intent in intents[: outcome.done] for name in intent.names]
        run(folder, forget_files(back, folder.names))
        return outcome


def run_files(
    folder: PartitionFolder,
    steps_of: Callable[[Sequence[Becomes], Names], list[Step]],
    files: Sequence[Becomes],
) -> None:
    """Carry out the steps that a function of ``steps`` returns for files of a change."""
    run(folder, steps_of(files, folder.names), WholeFiles(folder, files))


def _is_gone_by_others(folder: PartitionFolder, intent: Intent) -> bool:
    """Return whether a broker deleted all originals of a removal before krepair linked them into ``keep/``."""
    return not intent.made and all(
        folder.state(path) is None
        for old in intent.originals
        for path in (old.name, folder.names.keep(old.name))
    )


def _is_foreign(folder: PartitionFolder, file: Becomes) -> bool:
    """Return whether a file of this name exists that is neither the original nor the new file."""
    known = (state for state in (file.old, file.new) if state is not None)
    return folder.state(file.name) is not None and not any(folder.holds(file.name, state) for state in known)


def _check_segment(folder: PartitionFolder, files: Sequence[Becomes]) -> None:
    """Check that a withdrawn segment can be restored completely: its names are free and all its files are kept."""
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
    """Check, before a withdrawn file is restored, that the log to which the file belongs is unchanged.

    A broker may have written to the log since the file was withdrawn. Then a restored index, swap or snapshot would not
    match the log, but the broker would use the file. Records that the broker fetched at the log end may have the
    offsets of a withdrawn segment. And a restored ``.cleaned`` would make the broker delete a later swap, which may
    hold the only copy of some records.

    Args:
        made: planned result for each log that the plan changes, by name.

    Raises:
        StalePlanError: the log was written since; the message names it.
    """
    own = parse_file_name(name)
    if folder.state(name) is not None or own.base_offset is None:
        return  # already restored, or another file has this name: see ``check_undo``
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
            f"{folder.at(log)}: was written since {name} was taken out: a broker has written to the log since, and "
            "that file does not belong to it; nothing more was changed"
        )


def _last_log(folder: PartitionFolder, planned: Mapping[str, FileFingerprint], own: FileName) -> str:
    """Return the name of the last log; empty if no log exists, or for a snapshot up to the last planned log's base."""
    before = max((name for name in planned if name.endswith(LOG)), default="")
    if own.kind is FileKind.SNAPSHOT and (own.base_offset or 0) <= (base_offset_of(before) or 0):
        return ""
    files = map(parse_file_name, folder.file_names())
    logs = (file.name for file in files if file.kind is FileKind.LOG and file.state is NameState.LIVE)
    return max(logs, default="")
