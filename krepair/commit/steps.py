"""Steps of commit and undo as values: renames, links, removals and syncs, in their order.

These functions are pure; ``krepair.commit.stepping`` carries the steps out. Every kind of change consists of them,
except for the cut of a log in place.

For a group of segments the order depends on the broker's version. Each order was tested at every rename with the
loaders of 2.2.1, 2.3.1, 2.8.2, 3.0.2, 3.9.2 and 4.3.1 (see the commit protocol in the docs): ``P1``/``U1`` is right up
to 2.8, and everywhere under the fence; ``P2``/``U2`` is right from 3.0. Undo does the steps of apply backwards, so each
of its states is one of apply's.

For other files there is one order: ``keep_files``, ``swap_files``; for an undo ``files_back``, ``forget_files``.

Paths are relative to the partition folder; ``""`` is the partition folder itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from krepair.commit.journal import FileState, Intent, Order
from krepair.formats.filenames import INDEX_SUFFIXES, LOG, SEGMENT_SUFFIXES, SWAP, segment_name

CLEANED = ".cleaned"


class Rename(NamedTuple):
    """Step that renames one of krepair's own files, never an original, to the target."""

    source: str
    target: str


class Keep(NamedTuple):
    """Step that secures an original in ``keep/``: a hard link, or a real copy by way of ``via``."""

    source: str
    target: str
    via: str


class PutBack(NamedTuple):
    """Step that gives an original its name again: a hard link of the kept one, or a real copy by way of ``via``."""

    source: str
    target: str
    via: str


class PutOver(NamedTuple):
    """Step that renames an original over krepair's file of the same name, so that the name is never free."""

    source: str
    target: str
    via: str


class Unlink(NamedTuple):
    """Step that removes an original, which is kept, from the partition folder."""

    path: str


class Remove(NamedTuple):
    """Step that removes one of krepair's own files without checking its content."""

    path: str


class SyncDir(NamedTuple):
    """Step that syncs a folder."""

    path: str


class Becomes(NamedTuple):
    """Old and new state of one file of a change.

    Attributes:
        name: name of the file in the partition folder.
        old: state of the original; None if there was none.
        new: state of the staged file, with its final name; None if the change removes the file.
        over: state of the file of an earlier run of the same change, which the staged file replaces; else None.
        foreign: treatment of another program's file under this name: it ``stops`` the change, ``goes`` (an index that a
            broker rebuilt may be replaced, because the original is kept), or ``stays`` when undo removes krepair's
            file.
    """

    name: str
    old: FileState | None
    new: FileState | None
    over: FileState | None = None
    foreign: Literal["stops", "goes", "stays"] = "stops"


class KeepOld(NamedTuple):
    """Step that links the original of a file into ``keep/``."""

    file: Becomes
    kept: str


class PutNew(NamedTuple):
    """Step that renames the staged file over the original, which is kept."""

    file: Becomes
    staged: str
    kept: str


class PutFront(NamedTuple):
    """Step that puts the first ``size`` bytes of ``source`` in the place of a file, by way of ``via``."""

    name: str
    source: str
    via: str
    size: int


class TakeOld(NamedTuple):
    """Step that removes an original, which is kept, from the partition folder."""

    file: Becomes


class GiveBack(NamedTuple):
    """Step that renames the kept original over the new file."""

    file: Becomes
    kept: str


class TakeNew(NamedTuple):
    """Step that moves a new file without an original to ``out/``."""

    file: Becomes
    out: str


Step = (
    Rename
    | Keep
    | PutBack
    | PutOver
    | Unlink
    | Remove
    | SyncDir
    | KeepOld
    | PutNew
    | PutFront
    | TakeOld
    | GiveBack
    | TakeNew
)


class Names(NamedTuple):
    """Names in the work folder.

    Attributes:
        private: name of the work folder, ``krepair~<plan id>``.
    """

    private: str

    def stage(self, name: str = "") -> str:
        """Return the path of a staged file, or of ``stage/``."""
        return f"{self.private}/stage/{name}".rstrip("/")

    def keep(self, name: str = "") -> str:
        """Return the path of a kept original, or of ``keep/``."""
        return f"{self.private}/keep/{name}".rstrip("/")

    def out(self, name: str = "") -> str:
        """Return the path of a file that undo moves away, or of ``out/``."""
        return f"{self.private}/out/{name}".rstrip("/")


def staged_extensions(group: Intent) -> tuple[str, ...]:
    """Return the extensions of a group's staged files, in the order in which they are renamed."""
    names = {state.name for state in group.made}
    return tuple(e for e in SEGMENT_SUFFIXES if segment_name(group.base_offset, e) in names)


def moved(source: str, target: str) -> list[Step]:
    """Return a rename and the syncs that it needs."""
    folders = dict.fromkeys(path.rpartition("/")[0] for path in (source, target))
    return [Rename(source, target), *(SyncDir(folder) for folder in folders)]


def segment_originals(group: Intent) -> list[str]:
    """Return the files of the replaced segments, highest base offset first."""
    present = {state.name for state in group.originals} - set(group.snapshots)
    names = [segment_name(base, e) for base in reversed(group.sources) for e in SEGMENT_SUFFIXES]
    return [name for name in names if name in present]


def keep_steps(group: Intent, names: Names) -> list[Step]:
    """Return the steps that secure every original in ``keep/`` before anything is renamed."""
    keeps: list[Step] = [
        Keep(state.name, names.keep(state.name), names.out(state.name)) for state in group.originals
    ]
    return [*keeps, SyncDir(names.keep()), SyncDir(names.private)]


def take_out_originals(group: Intent) -> list[Step]:
    """Return the steps that remove the files of the replaced segments from the partition folder."""
    return [*(Unlink(name) for name in segment_originals(group)), SyncDir("")]


def take_out_snapshots(group: Intent) -> list[Step]:
    """Return the steps that remove snapshots of merged segments, which a broker may have left."""
    return [*(Unlink(name) for name in group.snapshots), SyncDir("")] if group.snapshots else []


def commit_steps(group: Intent, names: Names) -> list[Step]:
    """Return the steps from staged and kept to committed, in the order in which the group began.

    P1: the staged log becomes ``A.log.swap``: that commits. P2: all staged files become ``.cleaned``, then ``.swap``;
    the last of these renames commits.
    """
    finals = [segment_name(group.base_offset, extension) for extension in staged_extensions(group)]
    if group.order == "P1":
        return moved(names.stage(group.log.name), group.log.name + SWAP)
    steps: list[Step] = []
    for name in finals:
        steps += moved(names.stage(name), name + CLEANED)
    for name in finals:
        steps += moved(name + CLEANED, name + SWAP)
    return steps


def finish_steps(group: Intent, names: Names, order: Order) -> list[Step]:
    """Return the steps from a pending ``.log.swap`` to the segment alone, in the installed broker's order.

    P1: the originals are removed, highest base first; the new indexes take their names, and the log takes its own. P2:
    the new indexes become ``.swap``; the originals are removed; the ``.swap`` files take their names, the log first.
    An earlier run may have begun with the other order, so each source is expected in both places.
    """
    log, stale = group.log.name, [Unlink(name) for name in pending_indexes(group)]
    indexes = [segment_name(group.base_offset, e) for e in staged_extensions(group) if e != LOG]
    away: list[Step] = [*stale, *([SyncDir("")] if stale else [])]
    steps: list[Step] = []
    if order == "P1":
        steps += [*away, *take_out_originals(group)]
        for name in indexes:
            steps += [*moved(names.stage(name), name), *moved(name + SWAP, name)]
        steps += moved(log + SWAP, log)
    else:
        for name in indexes:
            steps += moved(names.stage(name), name + SWAP)
        steps += [*away, *take_out_originals(group)]
        for name in (log, *indexes):
            steps += moved(name + SWAP, name)
    return steps + take_out_snapshots(group)


def pending_indexes(group: Intent) -> list[str]:
    """Return the names of the index swaps that a broker left with its ``.log.swap``; they are originals."""
    return [state.name for state in group.originals if state.name.endswith(SWAP)]


def roll_back_steps(group: Intent, names: Names) -> list[Step]:
    """Return the steps that move new files back to ``stage/`` before the commit, and empty ``keep/``."""
    finals = [segment_name(group.base_offset, extension) for extension in staged_extensions(group)]
    steps: list[Step] = []
    if group.order == "P2":
        for name in reversed(finals):
            steps += moved(name + SWAP, name + CLEANED)
        for name in reversed(finals):
            steps += moved(name + CLEANED, names.stage(name))
    return [*steps, *forget_steps(group, names)]


def forget_steps(group: Intent, names: Names) -> list[Step]:
    """Return the steps that empty ``keep/`` and ``out/`` of a group whose originals are all in place."""
    kept = [Remove(names.keep(state.name)) for state in group.originals]
    vias = [Remove(names.out(state.name)) for state in group.originals]
    merged = [Remove(names.out(segment_name(group.base_offset, extension))) for extension in SEGMENT_SUFFIXES]
    return [*kept, *dict.fromkeys([*vias, *merged]), SyncDir(names.keep()), SyncDir(names.out())]


def undo_steps(group: Intent, names: Names, order: Order) -> list[Step]:
    """Return the steps from committed back to the originals, in the installed broker's order.

    After ``back_steps`` U1 moves ``A.log.swap`` to ``out/``: that commits the undo. In U2 the first rename from
    ``.swap`` to ``.cleaned`` commits; then the ``.cleaned`` files are moved to ``out/``.
    """
    back = [PutBack(names.keep(name), name, names.out(f"{name}.back")) for name in group.snapshots]
    steps: list[Step] = [*back, SyncDir("")] if back else []
    steps += back_steps(group, names, order)
    finals = [segment_name(group.base_offset, extension) for extension in reversed(SEGMENT_SUFFIXES)]
    if order == "P1":
        for name in finals[:-1]:
            steps += moved(name + SWAP, names.out(name))
        return steps + moved(finals[-1] + SWAP, names.out(finals[-1]))
    for name in finals:
        steps += moved(name + SWAP, name + CLEANED)
    for name in finals:
        steps += moved(name + CLEANED, names.out(name))
    return steps


def back_steps(group: Intent, names: Names, order: Order) -> list[Step]:
    """Return the steps from committed to the originals beside a log that waits as ``.swap``.

    P1: ``A.log`` becomes ``A.log.swap``; the new indexes are moved to ``out/``; the originals get their names again.
    P2: the new files become ``.swap``, the log last; the originals get their names again. The broker may have added or
    removed index files of the new segment since. So the steps name all of them, and a missing one is skipped.
    """
    log, indexes = group.log.name, [segment_name(group.base_offset, suffix) for suffix in INDEX_SUFFIXES]
    steps: list[Step] = []
    if order == "P1":
        steps += moved(log, log + SWAP)
        for name in indexes:
            steps += moved(name, names.out(name))
    else:
        for name in (*reversed(indexes), log):
            steps += moved(name, name + SWAP)
    return steps + put_back(group, names)


def put_back(group: Intent, names: Names) -> list[Step]:
    """Return the steps that give the replaced segments' files their names again, lowest base offset first."""
    ascending = reversed(segment_originals(group))
    return [*(PutBack(names.keep(n), n, names.out(f"{n}.back")) for n in ascending), SyncDir("")]


def litter_names(group: Intent) -> list[str]:
    """Return every ``.swap`` and ``.cleaned`` name that an interrupted swap of a group can leave."""
    return [
        segment_name(group.base_offset, extension) + suffix
        for suffix in (CLEANED, SWAP)
        for extension in reversed(SEGMENT_SUFFIXES)
    ]


# -- whole files that are replaced, added or removed


def keep_files(files: Sequence[Becomes], names: Names) -> list[Step]:
    """Return the steps that put every original into ``keep/``. The caller syncs before anything else."""
    return [KeepOld(file, names.keep(file.name)) for file in files if file.old is not None]


def swap_files(files: Sequence[Becomes], names: Names) -> list[Step]:
    """Return the steps that replace, add and remove files whose originals are kept.

    The first file leads: a broker does not use the others without it. So it is removed first, and that is synced before
    the others are removed; and it is added last.
    """
    out: list[Step] = [TakeOld(file) for file in files if file.new is None]
    new = [file for file in reversed(files) if file.new is not None]
    puts: list[Step] = [PutNew(file, names.stage(file.name), names.keep(file.name)) for file in new]
    return _behind_the_first(out) + puts


def files_back(files: Sequence[Becomes], names: Names) -> list[Step]:
    """Return the steps from any state to the originals. The first file is removed first, and restored last."""
    out: list[Step] = [TakeNew(file, names.out(file.name)) for file in files if file.old is None]
    back: list[Step] = [GiveBack(file, names.keep(file.name)) for file in files if file.old is not None]
    return _behind_the_first(out) + _behind_the_first(back)[::-1]


def _behind_the_first(steps: list[Step]) -> list[Step]:
    return [steps[0], SyncDir(""), *steps[1:]] if len(steps) > 1 else steps


def forget_files(file_names: Sequence[str], names: Names) -> list[Step]:
    """Return the steps that remove from ``keep/`` and ``out/`` the files whose originals are restored.

    The removals from ``keep/`` are synced. Otherwise a kept link could reappear after a power loss, without a record of
    it; and once a broker has rewritten the file, nothing would show what that link is.
    """
    kept: list[Step] = [Remove(names.keep(name)) for name in file_names]
    return [*kept, SyncDir(names.keep()), *(Remove(names.out(name)) for name in file_names)]
