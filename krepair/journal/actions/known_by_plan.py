"""Files whose bytes the plan knows better than the journal: where a copy has lost times, only bytes tell them."""

from __future__ import annotations

from krepair.durable.tree import Tree
from krepair.journal.actions.lines import LARGEST_BYTES, NO_LINES
from krepair.journal.actions.mend import CUT
from krepair.journal.folder import PartitionFolder
from krepair.journal.known_files import Check, InPlace, KnownFile
from krepair.logdir.fingerprint import digest_front, scan_batches
from krepair.logdir.reading import read_whole
from krepair.plan.model import Change, ChangeLines, CompleteSwap, MendLog
from krepair.rules.checkpoint_lines import lines_in, with_lines


def check_by_plan(folder: PartitionFolder, known: KnownFile, change: Change | None) -> Check | None:
    """Of a file that was made, where neither the plan nor the journal has a digest of it.

    Returns:
        None for any other file.
    """
    if not known.made or not known.must:
        return None
    if isinstance(change, ChangeLines):
        return _check_by_lines(folder, change)
    return _check_by_batches(change) if isinstance(change, CompleteSwap) else None


def _check_by_lines(folder: PartitionFolder, change: ChangeLines) -> Check:
    """A checkpoint differs from the kept one by the plan's lines, and by nothing else."""
    kept, lines = folder.at(folder.names.keep(change.name)), change.lines

    def check(path: str, tree: Tree) -> bool:
        if not tree.is_there(kept):
            old = NO_LINES if change.size_before < 0 else None
        else:
            old = read_whole(kept, LARGEST_BYTES, tree)
        new = read_whole(path, LARGEST_BYTES, tree)
        return old is not None and with_lines(old, lines_in(new, lines)) == new

    return check


def _check_by_batches(change: CompleteSwap) -> Check:
    """The log of a swap that a broker began is valid to its end, with the batches that the plan has counted."""
    wanted = (change.log_bytes, change.log_bytes, change.batches, change.last_offset)

    def check(path: str, tree: Tree) -> bool:
        found = scan_batches(path, change.base_offset, tree)
        return (found.file_size, found.valid_bytes, found.batches, found.last_offset) == wanted

    return check


def has_lost_its_time(folder: PartitionFolder, file: InPlace, change: Change | None) -> bool | None:
    """Whether a log that is cut in its place has the bytes of the plan, and another time than in the journal.

    Whoever else writes the log changes its bytes, too. A cut that was stopped before it gave the time back leaves
    another time, too; but then the cut bytes are kept with the recorded one.

    Returns:
        None where nobody knows the bytes, or where the time is the recorded one, or will be given back.

    Raises:
        OSError: it cannot be read.
    """
    here, recorded = file.here, file.recorded
    if here is None or here.mtime_ns == recorded.mtime_ns or not isinstance(change, MendLog):
        return None
    if digest_front(folder.at(recorded.name), change.size_after, folder.tree) != change.digest_after:
        return False
    kept = folder.state(folder.names.keep(recorded.name + CUT))
    return None if kept is not None and kept.mtime_ns == recorded.mtime_ns else True
