"""Check, before anything is resumed or rolled back, whether another program has changed the folder.

The files are compared with the listing that was recorded when a change began (``listing.py``), and with the old and new
files of the change. An unfinished change has one of three results:

- **unchanged**: each file is as listed, or in a state that a step of krepair leaves. The run resumes or rolls back.
- **settled**: another program has run, and each change is complete: all files of the change are new (a broker finished
  the swap), or all are the originals. krepair records this state and does nothing else.
- **anything else**: krepair restores nothing, and removes nothing that may be the last copy. ``purge`` ends the plan.

A change is unfinished until its recovery guard is lifted. For a finished change fewer files are checked, because a
healthy broker may have written to the log, see ``check_evidence``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from krepair.checks.parts import has_parts
from krepair.commit.begin import executor_of
from krepair.commit.folder import ROOT, PartitionFolder
from krepair.commit.group import GroupFiles, Whereabouts
from krepair.commit.journal import FileState, FolderListing, Intent, Journal
from krepair.commit.listing import Entry, digest_at, entry_of, epochs_of, listed
from krepair.commit.mend import check_not_trusted, holds_part, is_cut, lost_of
from krepair.commit.steps import CLEANED, litter_names
from krepair.errors import StalePlanError
from krepair.formats.checkpoint import decode_offsets
from krepair.formats.filenames import (
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    LOG_START_CHECKPOINT,
    PRIVATE_PREFIX,
    SWAP,
    TXN_INDEX,
    FileKind,
    NameState,
    parse_file_name,
)
from krepair.logdir.fingerprint import digest_content, digest_front
from krepair.plan.model import Change, PartitionPlan

_ALLOCATED_AHEAD = frozenset({FileKind.OFFSET_INDEX, FileKind.TIME_INDEX})
_GROWING = frozenset(
    {FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX, FileKind.SNAPSHOT}
)

Judge = Callable[[PartitionFolder, Sequence[str]], str]
"""Function that compares index files of a folder with their logs; returns the first error, or an empty text."""


class Answer(NamedTuple):
    """Result of the check whether another program changed a folder in which changes were interrupted.

    Attributes:
        why: first difference; empty if all files are in the state in which krepair left them.
        new: ids of interrupted changes whose files are all new.
        old: ids of interrupted changes whose files are all the originals.
    """

    why: str = ""
    new: tuple[str, ...] = ()
    old: tuple[str, ...] = ()


def detect_visit(folder: PartitionFolder, journal: Journal, marker: str, judge: Judge) -> Answer:
    """Check whether another program changed a folder that has unfinished changes, or whose recovery guard is set.

    Args:
        journal: the journal as it was read.
        marker: digest of the present clean-shutdown marker, see ``listing.marker_of``.
        judge: function that checks indexes not made by krepair.

    Raises:
        StalePlanError: another program changed the folder, and a change has neither all its new files nor all its
            originals; the message names a file.
        OSError: a file could not be read.
    """
    if folder.folder == ROOT:
        return Answer()  # brokers rewrite the root's files regularly: each change checks its own file
    why = _differs(folder, journal, marker)
    if not why:
        return Answer()
    new, old = [], []
    for change_id in journal.since or journal.unfinished():
        intent, state = journal.intents[change_id], journal.states[change_id]
        half_done = state in {"committing", "undoing"}
        if half_done and not _why_not_old(folder, intent, journal, judge):
            old.append(change_id)
        elif state in {"undone", "rolled back"}:
            continue
        elif not _why_not_new(folder, intent, judge):
            new += [change_id] if half_done else []
        else:
            raise StalePlanError(
                f"{why} since {change_id} was interrupted, and {_why_not_new(folder, intent, judge)}: another "
                "program changed this partition, so nothing is put back and nothing is removed",
                next_command=journal.command("purge"),
            )
    return Answer(why, tuple(new), tuple(old))


# -- unchanged


def names_written_since(folder: PartitionFolder, journal: Journal) -> dict[str, tuple[str, ...]]:
    """Return the files of finished changes that another program has written or removed, by change id.

    Raises:
        StalePlanError: something else than a regular file has the name of one of the files.
        OSError: a file could not be read.
    """
    found = {
        change_id: tuple(name for name, _ in _unlike(folder, intent, "committed", {}, set()))
        for change_id, intent in journal.intents.items()
        if journal.states[change_id] in {"committed", "freed"}
    }
    return {change_id: names for change_id, names in found.items() if names}


def has_grown(journal: Journal, marker: str | None, sizes: Mapping[str, int]) -> bool:
    """Return whether a broker has started or stopped, or has written to the partition, since the latest run began.

    The answer comes from the journal's listing, never from modification times, so a copy of the directory gives the
    same answer. Signs are a different clean-shutdown marker, a new or longer log that no change touches, and a longer
    index that a change made: a broker preallocates the indexes of its active segments. Other differences are ignored,
    because damage causes them too.

    Args:
        marker: digest of the present clean-shutdown marker, see ``listing.marker_of``; None if it is unknown.
        sizes: size in bytes of each file in the partition folder, by name; empty for the root.
    """
    if journal.listing is None:
        return False
    if marker is not None and marker != journal.listing.marker:
        return True
    known = listed(journal.listing)
    touched = {name for intent in journal.intents.values() for name in intent.names}
    made = {
        state.name: state.size
        for change_id, intent in journal.intents.items()
        if journal.states[change_id] in {"committed", "freed"}
        for state in intent.made
        if parse_file_name(state.name).kind in _ALLOCATED_AHEAD
    }
    return any(size > made[name] for name, size in sizes.items() if name in made) or any(
        name not in known or size > known[name].size
        for name, size in sizes.items()
        if name not in touched and _is_of_a_log(name)
    )


def _is_of_a_log(name: str) -> bool:
    file = parse_file_name(name)
    return file.state is NameState.LIVE and file.kind in _GROWING


def _differs(folder: PartitionFolder, journal: Journal, marker: str) -> str:
    """Return the first difference from the state in which krepair left the folder; empty if nothing differs."""
    listing = journal.listing
    if listing is not None and marker != listing.marker:
        what = "appeared" if not listing.marker else "is gone" if not marker else "is another one"
        return f"{folder.log_dir}: the clean-shutdown marker {what}"
    known = listed(listing) if listing is not None else {}
    names = {name for name, _ in folder.tree.entries(folder.path) if not name.startswith(PRIVATE_PREFIX)}
    touched: set[str] = set()
    began = journal.since or journal.unfinished()
    for change_id, intent in journal.intents.items():
        state = journal.states[change_id]
        unlike = list(_unlike(folder, intent, state, known, touched)) if change_id in began else []
        if unlike or change_id not in began:
            given_back = _given_back(folder, intent, state, known)
            touched |= given_back
            for name, why in () if given_back else unlike:
                return f"{folder.at(name)}: {why}"
    if listing is None:
        return ""
    for name in sorted(names | known.keys()):
        if name not in touched and entry_of(folder, name) != known.get(name):
            return f"{folder.at(name)}: {_how(name in known, name in names)}"
    return ""


def _given_back(folder: PartitionFolder, intent: Intent, state: str, known: Mapping[str, Entry]) -> set[str]:
    """Return the file names of a change whose undo began without a record in the journal; empty if no undo began.

    Either the undo's record is lost, or a person typed the commands that krepair prints for a damaged journal.
    """
    names: set[str] = set()
    is_back = state == "committed" and executor_of(intent).is_back(folder, intent)
    return names if is_back and not any(_unlike(folder, intent, "undoing", known, names)) else set()


def _how(was: bool, is_there: bool) -> str:
    return "was written" if was and is_there else "is gone" if was else "appeared"


def _unlike(
    folder: PartitionFolder, intent: Intent, state: str, known: Mapping[str, Entry], touched: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield (name, reason) for each file of a change that is in a state which no step of krepair leaves."""
    swaps = intent.executor in {"segments", "swap"}
    out = intent.executor != "segments" or GroupFiles(folder, intent).is_committed()
    done, gone_back = state in {"committed", "freed"}, state in {"undone", "rolled back"}
    for name, (old, new) in _pairs(intent).items():
        touched.add(name)
        entry = entry_of(folder, name)
        if entry is None:
            taken = out and (new is None or swaps) and folder.state(folder.names.keep(name)) is not None
            absent = new is None if done else old is None if gone_back else old is None or taken
            absent = absent or (swaps and name == intent.log.name + SWAP and not gone_back)
            if not absent and (done or gone_back or not known or name in known):
                yield name, "is gone"
        elif gone_back:
            if old is None or not (entry == known.get(name) or folder.holds(name, old)):
                yield name, "was written"
        elif done:
            if new is None or not _is_made(folder, intent, name, new):
                yield name, "was written"
        elif not (entry == known.get(name) or _is_of(folder, intent, name, old, new)):
            yield name, "was written"
    for name in litter_names(intent) if swaps else ():
        if name in touched:
            continue
        touched.add(name)
        made = intent.new(name.removesuffix(SWAP).removesuffix(CLEANED))
        if folder.state(name) is not None and (made is None or not _is_moved(folder, intent, name, made)):
            yield name, "appeared"


def _is_moved(folder: PartitionFolder, intent: Intent, path: str, made: FileState) -> bool:
    if made.name.endswith(LOG):
        return not GroupFiles(folder, intent).is_of_another_program(path)
    return folder.holds(path, made)


def _is_of(
    folder: PartitionFolder, intent: Intent, name: str, old: FileState | None, new: FileState | None
) -> bool:
    moved = intent.new(name.removesuffix(SWAP)) if name.endswith(SWAP) else None
    if any(state is not None and folder.holds(name, state) for state in (old, new, intent.over, moved)):
        return True
    return intent.lost is not None and holds_part(folder, intent, name)


def _is_made(folder: PartitionFolder, intent: Intent, name: str, new: FileState) -> bool:
    return folder.holds(name, new) or (intent.lost is not None and holds_part(folder, intent, name))


def _pairs(intent: Intent) -> dict[str, tuple[FileState | None, FileState | None]]:
    """Return the original and the new state of each file of a change, by name; None for a missing state.

    For a log that is cut in place, the original also stands for the new state, because ``mend`` recognises the cut log.
    """
    old, new = ({state.name: state for state in states} for states in (intent.originals, intent.made))
    pairs = {name: (old.get(name), new.get(name)) for name in intent.names}
    if intent.executor == "swap":
        log = intent.log
        pairs[log.name + SWAP] = (log, None)
    if intent.lost is not None and is_cut(intent):
        log = intent.originals[0]
        pairs[log.name] = (log, log)
    return pairs


# -- complete changes


def _why_not_new(folder: PartitionFolder, intent: Intent, judge: Judge) -> str:
    """Describe the first file that shows an incomplete change; empty if krepair or a broker completed the change."""
    if intent.executor in {"segments", "swap"}:
        group = GroupFiles(folder, intent)
        own = group.litter() if group.whereabouts() is Whereabouts.FINAL else ()
        for name in folder.file_names():
            if parse_file_name(name).state in {NameState.SWAP, NameState.CLEANED} and name not in own:
                return f"{folder.at(name)} waits"
    foreign = []
    for name, (_, new) in _pairs(intent).items():
        current = folder.state(name)
        if new is None:
            # Snapshots of merged segments are removed last, and a broker that finished the swap may have left these
            # snapshots.
            if current is not None and name not in intent.snapshots:
                return f"{folder.at(name)} is there"
        elif current is None:
            if new.size or not name.endswith(TXN_INDEX):
                return f"{folder.at(name)} is gone"
        elif not _is_content(folder, intent, name, new):
            if not name.endswith(INDEX_SUFFIXES):
                return f"{folder.at(name)} is not the file that this plan makes"
            foreign.append(name)
    return judge(folder, foreign) if foreign else ""


def _is_content(folder: PartitionFolder, intent: Intent, name: str, new: FileState) -> bool:
    """Return whether a file has its new content, whatever its modification time."""
    current = folder.state(name)
    if intent.lost is not None and name == intent.originals[0].name:
        size = lost_of(intent).size_after
        return (
            current is not None
            and current.size == size
            and digest_front(folder.at(name), size, folder.tree) == lost_of(intent).digest_after
        )
    if current is None or current.size != new.size:
        return False
    if new.digest:
        return digest_content(folder.at(name), folder.tree) == new.digest
    if intent.parts and name.endswith(LOG):
        return has_parts(folder.at(name), intent.parts, folder.tree)
    return current.mtime_ns == new.mtime_ns


def _why_not_old(folder: PartitionFolder, intent: Intent, journal: Journal, judge: Judge) -> str:
    """Describe the first file of a change that is not the original under its own name; empty if there is none."""
    undoing = journal.states[intent.change_id] == "undoing"
    known = listed(journal.listing) if journal.listing is not None and not undoing else {}
    # A start under the recovery guard rebuilds indexes and snapshots. Without one krepair's own new file would pass as
    # the original, which only the work folder has.
    rebuilt, foreign = executor_of(intent).fenced, []
    if intent.executor == "segments":
        for name in litter_names(intent):
            if folder.state(name) is not None:
                return f"{folder.at(name)} waits"
    for name, (old, _) in _pairs(intent).items():
        if rebuilt and name in intent.snapshots:
            continue  # a broker may write or remove snapshots itself
        entry = entry_of(folder, name)
        if old is None:
            if entry is not None:
                return f"{folder.at(name)} is there"
        elif entry is None:
            return f"{folder.at(name)} is gone"
        elif not (entry == known.get(name) if name in known else folder.holds(name, old)):
            if not (rebuilt and name.endswith(INDEX_SUFFIXES)):
                return f"{folder.at(name)} is not the original"
            foreign.append(name)
    return judge(folder, foreign) if foreign else ""


# -- a finished change


def check_evidence(
    folder: PartitionFolder,
    partition: PartitionPlan,
    change: Change,
    journal: Journal,
    marker: str,
) -> None:
    """Check, before a finished change is undone, the files that its originals need and that a healthy broker preserves.

    Undo must not append bytes to the log end if the clean-shutdown marker is newer than the change. If undo restores
    batches, the transaction indexes and leader epochs must still be those that were derived from all batches: a
    recovery in between would have derived both from the remaining batches.

    Raises:
        StalePlanError: a file differs; the message names the file.
        OSError: a file could not be read.
    """
    intent, listing = journal.intents[change.change_id], journal.began_with.get(change.change_id)
    if folder.folder == ROOT:
        return
    if listing is None:
        if intent.lost is not None and intent.lost.last and not executor_of(intent).is_back(folder, intent):
            check_not_trusted(folder, intent.originals[0].name)
        return
    # An interrupted undo may have removed the new segment at the log end before a broker wrote the marker.
    rolled = any(map(_rolls, journal.intents.values()))
    if marker and marker != listing.marker and (rolled or _ends_the_log(intent)):
        raise StalePlanError(
            f"{folder.at(intent.names[0])}: a broker was stopped cleanly since the plan was applied; the next one "
            "starts without recovery, and would write behind the damaged bytes"
        )
    if not change.decides_on and not change.consents:  # the change removed no whole batch
        return
    touched = {name for change_id in journal.at_work() for name in journal.intents[change_id].names}
    before = listed(listing)
    last = max((name for name in before if name.endswith(LOG)), default="")
    for log in sorted(name for name in before if name.endswith(LOG)):
        name = log.removesuffix(LOG) + TXN_INDEX
        if name not in touched and folder.state(log) is not None:
            _check_aborted(folder, name, before.get(name, Entry(0, "")), grows=log == last)
    if LEADER_EPOCH_CHECKPOINT not in touched:
        _check_epochs(folder, partition, listing)


def _rolls(intent: Intent) -> bool:
    """Return whether a change made a new segment at the log end; a start then does not recover earlier segments."""
    return intent.executor == "files" and not intent.originals and intent.names[0].endswith(LOG)


def _ends_the_log(intent: Intent) -> bool:
    """Return whether the originals belong to the log end: cut bytes of the last log, or withdrawn segments."""
    if intent.lost is not None:
        return intent.lost.last
    return intent.executor == "files" and len(intent.originals) > 1 and not intent.made


def _check_aborted(folder: PartitionFolder, name: str, was: Entry, *, grows: bool) -> None:
    """Check that a transaction index is unchanged; the index of the last segment may have grown."""
    current = folder.state(name)
    size = 0 if current is None else current.size
    same = size == was.size or (grows and size > was.size)
    if not same or (was.size and digest_at(folder, name, was.size) != was.digest):
        raise _rebuilt_since(folder, name)


def _rebuilt_since(folder: PartitionFolder, name: str) -> StalePlanError:
    return StalePlanError(
        f"{folder.at(name)}: a broker has derived this file again since the plan was applied, from a log without the "
        "batches that would return; nothing was changed"
    )


def _check_epochs(folder: PartitionFolder, partition: PartitionPlan, listing: FolderListing) -> None:
    """Check that each old offset still has its leader epoch; the log start may have moved."""
    now = epochs_of(folder)
    lowest = _log_start(folder, partition)
    starts = {start for _, start in (*listing.epochs, *now) if start < partition.log_end_offset}
    for offset in sorted({max(start, lowest) for start in starts} | {lowest}):
        if _epoch_at(now, offset) != _epoch_at(listing.epochs, offset):
            raise _rebuilt_since(folder, LEADER_EPOCH_CHECKPOINT)


def _epoch_at(epochs: Sequence[tuple[int, int]], offset: int) -> int:
    return max((epoch for epoch, start in epochs if start <= offset), default=-1)


def _log_start(folder: PartitionFolder, partition: PartitionPlan) -> int:
    """Return the log start offset: the checkpoint's entry or the first base offset, whichever is higher."""
    files = map(parse_file_name, folder.file_names())
    bases = [
        file.base_offset or 0 for file in files if file.kind is FileKind.LOG and file.state is NameState.LIVE
    ]
    data = folder.tree.read(f"{folder.log_dir}/{LOG_START_CHECKPOINT}", 64 << 20)
    lines = () if data is None else decode_offsets(data).entries
    key = (partition.topic, partition.partition)
    return max([min(bases, default=0), *(line.offset for line in lines if line[:2] == key)])
