"""Steps of apply and undo as values, in their order.

``MoveOut`` reverses ``Put``, ``Restore`` reverses ``Take``, and ``Remove`` deletes what ``Keep`` has made. An undo of a
group carries out the reversed steps of its apply in reverse order (``backwards``), so it passes only through states
that apply passes through. ``PutFront`` is for an index whose log loses bytes. These functions are pure;
``krepair.commit.stepping`` carries the steps out. Every kind of change consists of them, except for the cut of a log in
place.

For a group of segments the order depends on the broker's version. Each order was tested at every rename with the
loaders of 2.2.1, 2.3.1, 2.8.2, 3.0.2, 3.9.2 and 4.3.1 (see the commit protocol in the docs): ``P1`` is right up to 2.8,
and everywhere under the fence; ``P2`` is right from 3.0. For other files there is one order: ``keep_files``,
``swap_files``; for an undo ``files_back``, ``forget_files``.

Paths are relative to the partition folder; ``""`` is the partition folder itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from krepair.commit.journal import FileState, Intent, Order
from krepair.formats.filenames import LOG, SEGMENT_SUFFIXES, SWAP, segment_name

CLEANED = ".cleaned"


class Keep(NamedTuple):
    """Step that secures an original in ``keep/``: by a hard link, or by a copy that is made at ``via``."""

    name: str
    kept: str
    via: str = ""


class Put(NamedTuple):
    """Step that gives a new file its next name; the file is at the first of the sources that exists."""

    sources: tuple[str, ...]
    target: str


class Take(NamedTuple):
    """Step that removes an original, which is kept, from the partition folder."""

    name: str


class Restore(NamedTuple):
    """Step that gives a kept original its name again.

    Attributes:
        kept: path of the backup.
        name: name of the original.
        how: ``moved``: the backup is renamed over what has the name; ``linked``: the backup stays; ``copied``: it
            stays, and the copy is made at ``via``; ``over``: it stays, and a link that is made at ``via`` is renamed
            over what has the name, so that the name is never free.
        via: path where the second name is made first.
    """

    kept: str
    name: str
    how: Literal["moved", "linked", "copied", "over"] = "moved"
    via: str = ""


class MoveOut(NamedTuple):
    """Step that takes the name of a new file away: the file gets the name before it, or goes to ``out/``."""

    sources: tuple[str, ...]
    target: str


class PutFront(NamedTuple):
    """Step that puts the first ``size`` bytes of ``source`` in the place of a file, by way of ``via``."""

    name: str
    source: str
    via: str
    size: int


class Remove(NamedTuple):
    """Step that removes one of krepair's own files without checking its content."""

    path: str


class SyncDir(NamedTuple):
    """Step that syncs a folder."""

    path: str


Step = Keep | Put | Take | Restore | MoveOut | PutFront | Remove | SyncDir


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


# -- a group of segments


def staged_extensions(group: Intent) -> tuple[str, ...]:
    """Return the extensions of a group's staged files, in the order in which they are renamed."""
    names = {state.name for state in group.made}
    return tuple(e for e in SEGMENT_SUFFIXES if segment_name(group.base_offset, e) in names)


def extensions_to_undo(order: Order) -> tuple[str, ...]:
    """Return the extensions of the new files as ``backwards`` expects them; a broker may have added any of them.

    In P1 the transaction index goes out last: a start that completes the swap makes the other two again.
    """
    log, *indexes = SEGMENT_SUFFIXES
    return (log, *reversed(indexes)) if order == "P1" else SEGMENT_SUFFIXES


def segment_originals(group: Intent) -> list[str]:
    """Return the files of the replaced segments, highest base offset first."""
    present = {state.name for state in group.originals} - set(group.snapshots)
    names = [segment_name(base, e) for base in reversed(group.sources) for e in SEGMENT_SUFFIXES]
    return [name for name in names if name in present]


def pending_indexes(group: Intent) -> list[str]:
    """Return the names of the index swaps that a broker left with its ``.log.swap``; they are originals."""
    return [state.name for state in group.originals if state.name.endswith(SWAP)]


def keep_steps(group: Intent, names: Names, originals: Sequence[str]) -> list[Step]:
    """Return the steps that secure originals in ``keep/`` before anything is renamed."""
    keeps = [
        Keep(name, names.keep(name), names.out(name) if name in group.copied else "") for name in originals
    ]
    return [*keeps, SyncDir(names.keep()), SyncDir(names.private)]


def commit_steps(group: Intent, names: Names, order: Order, extensions: Sequence[str]) -> list[Step]:
    """Return the steps that commit a group whose new files are staged and whose originals are kept.

    P1: the staged log becomes ``A.log.swap``: that commits. P2: all staged files become ``.cleaned``, then ``.swap``;
    the last of these renames commits.
    """
    finals = [segment_name(group.base_offset, extension) for extension in extensions]
    if order == "P1":
        return [Put((names.stage(finals[0]),), finals[0] + SWAP)]
    return [
        *(Put((names.stage(name),), name + CLEANED) for name in finals),
        *(Put((name + CLEANED,), name + SWAP) for name in finals),
    ]


def waiting_steps(group: Intent, names: Names, order: Order, extensions: Sequence[str]) -> list[Step]:
    """Return the steps that put the new indexes beside a ``.log.swap`` that waits alone, as P2 expects them."""
    indexes = [segment_name(group.base_offset, e) for e in extensions if e != LOG and order == "P2"]
    return [Put((names.stage(name),), name + SWAP) for name in indexes]


def replace_steps(group: Intent, names: Names, order: Order, extensions: Sequence[str]) -> list[Step]:
    """Return the steps that turn a pending ``.log.swap`` into the only segment.

    The originals are removed, highest base first. P1: the new indexes take their names, and the log takes its own. P2:
    the ``.swap`` files take their names, the log first. Snapshots of merged segments go last. An earlier run may have
    begun with P2, so P1 expects each index in both places.
    """
    log, *indexes = (segment_name(group.base_offset, extension) for extension in extensions)
    waits = [(names.stage(name), name + SWAP) if order == "P1" else (name + SWAP,) for name in indexes]
    puts: list[Step] = [Put(sources, name) for sources, name in zip(waits, indexes, strict=True)]
    own: list[Step] = [Put((log + SWAP,), log)]
    takes = [Take(name) for name in (*pending_indexes(group), *segment_originals(group))]
    return [*takes, *(puts + own if order == "P1" else own + puts), *map(Take, group.snapshots)]


def backwards(steps: Sequence[Step], group: Intent, names: Names, *, committed: bool = True) -> list[Step]:
    """Return the steps of an undo: those of the apply, the last one first, each reversed.

    Args:
        committed: False if the swap has not passed its commit: then the staged files go back to ``stage/``.
    """
    return [_reversed(step, group, names, committed=committed) for step in reversed(steps)]


def _reversed(step: Step, group: Intent, names: Names, *, committed: bool) -> Step:
    match step:
        case Take(name) if name.endswith(SWAP):
            return Restore(names.keep(name), name, "over", names.out(f"{name}.back"))
        case Take(name):
            how: Literal["copied", "linked"] = "copied" if name in group.copied else "linked"
            return Restore(names.keep(name), name, how, names.out(f"{name}.back"))
        case Put((source, *others), target):
            aside = committed and source.startswith(names.stage())
            back = names.out(source.rpartition("/")[2]) if aside else source
            return MoveOut((target, *others), back)
        case _:
            raise AssertionError(f"{step} is not reversed")


def synced(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with a sync of both folders after each rename, and of the partition folder after neighbours."""
    done: list[Step] = []
    for place, step in enumerate(steps):
        done.append(step)
        following = steps[place + 1] if place + 1 < len(steps) else None
        if isinstance(step, Put | MoveOut):
            folders = dict.fromkeys(path.rpartition("/")[0] for path in (*step.sources, step.target))
            done += map(SyncDir, folders)
        elif isinstance(step, Take | Restore) and not _is_like(step, following):
            done.append(SyncDir(""))
    return done


def _is_like(step: Take | Restore, following: Step | None) -> bool:
    """Return whether two steps share a sync; a broker's index swaps are not removed together with segments."""
    return (
        isinstance(following, Take | Restore)
        and type(following) is type(step)
        and following.name.endswith(SWAP) == step.name.endswith(SWAP)
    )


def forget_steps(group: Intent, names: Names) -> list[Step]:
    """Return the steps that empty ``keep/`` and ``out/`` of a group whose originals are all in place."""
    kept = [Remove(names.keep(state.name)) for state in group.originals]
    vias = [Remove(names.out(state.name)) for state in group.originals]
    merged = [Remove(names.out(segment_name(group.base_offset, extension))) for extension in SEGMENT_SUFFIXES]
    return [*kept, *dict.fromkeys([*vias, *merged]), SyncDir(names.keep()), SyncDir(names.out())]


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
    return [Keep(file.name, names.keep(file.name)) for file in files if file.old is not None]


def swap_files(files: Sequence[Becomes], names: Names) -> list[Step]:
    """Return the steps that replace, add and remove files whose originals are kept.

    The first file leads: a broker does not use the others without it. So it is removed first, and that is synced before
    the others are removed; and it is added last.
    """
    out: list[Step] = [Take(file.name) for file in files if file.new is None]
    new = [file for file in reversed(files) if file.new is not None]
    puts: list[Step] = [Put((names.stage(file.name),), file.name) for file in new]
    return _behind_the_first(out) + puts


def files_back(files: Sequence[Becomes], names: Names) -> list[Step]:
    """Return the steps from any state to the originals. The first file is removed first, and restored last."""
    out: list[Step] = [MoveOut((file.name,), names.out(file.name)) for file in files if file.old is None]
    back: list[Step] = [Restore(names.keep(file.name), file.name) for file in files if file.old is not None]
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
