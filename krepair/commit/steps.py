"""Steps of apply and undo as values, and the order in which these steps are carried out.

Three kinds of step have a reverse: ``Put`` (reversed by ``MoveOut``), ``Take`` (``Restore``) and ``Keep``, whose backup
``Remove`` deletes. ``SyncDir`` and ``PutFront``, which is for an index whose log loses bytes, have none. An undo of a
group carries out the reversed steps of its apply in reverse order (``backwards``), so the undo passes only through
states that apply also passes through. These functions are pure; ``krepair.commit.stepping`` carries out the steps.
Every kind of change consists of such steps, except for the cut of a log in place.

For a group of segments the order depends on the broker's version. Each order was tested at every rename with the
loaders of 2.2.1, 2.3.1, 2.8.2, 3.0.2, 3.9.2 and 4.3.1 (docs/crash-safety.md): ``P1`` is safe up to 2.8, and under the
guard for every version; ``P2`` is safe from 3.0 on. No order suits both, because brokers up to 2.8 delete an index
beside any ``.swap``, and brokers from 3.0 on create an empty index if a ``.log.swap`` comes alone. Other files have
only one order: ``keep_files``, then ``swap_files``; for an undo ``files_back``, then ``forget_files``.

Paths are relative to the partition folder; ``""`` is the partition folder itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from krepair.commit.journal import FileState, Intent, Order
from krepair.formats.filenames import LOG, SEGMENT_SUFFIXES, SWAP, segment_name

CLEANED = ".cleaned"


class Keep(NamedTuple):
    """Step that secures an original in ``keep/``, by a hard link or by a copy that is first written to ``via``."""

    name: str
    kept: str
    via: str = ""


class Put(NamedTuple):
    """Step that renames a new file to its next name; the file is taken from the first source that exists."""

    sources: tuple[str, ...]
    target: str


class Take(NamedTuple):
    """Step that unlinks an original from the partition folder, after ``keep/`` holds the original."""

    name: str


class Restore(NamedTuple):
    """Step that restores a kept original under its name.

    Attributes:
        kept: path of the backup.
        name: name of the original.
        how: ``moved``: the backup is renamed over the present file; ``linked``: the name becomes a link to the backup;
            ``copied``: the name becomes a copy, first written to ``via``; ``over``: a link made at ``via`` is renamed
            over the present file, so that the name always exists. Only ``moved`` removes the backup.
        via: path where the link or copy is made first.
    """

    kept: str
    name: str
    how: Literal["moved", "linked", "copied", "over"] = "moved"
    via: str = ""


class MoveOut(NamedTuple):
    """Step that reverses ``Put``: renames a new file back to its previous name, or into ``out/``."""

    sources: tuple[str, ...]
    target: str


class PutFront(NamedTuple):
    """Step that replaces a file by the first ``size`` bytes of ``source``, first written to ``via``."""

    name: str
    source: str
    via: str
    size: int


class Remove(NamedTuple):
    """Step that removes one of krepair's own files without checking the file's content."""

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
        foreign: effect of another program's file under this name: the file ``stops`` the change, ``goes`` (an index
            that a broker rebuilt may be replaced, because the original is kept), or ``stays`` when undo removes
            krepair's file.
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
    """Return the extensions of the new files in the order for ``backwards``; a broker may have added any index.

    In P1 the transaction index is moved out last, because a broker that completes the swap rebuilds only the two other
    indexes.
    """
    log, *indexes = SEGMENT_SUFFIXES
    return (log, *reversed(indexes)) if order == "P1" else SEGMENT_SUFFIXES


def segment_originals(group: Intent) -> list[str]:
    """Return the files of the replaced segments, highest base offset first."""
    present = {state.name for state in group.originals} - set(group.snapshots)
    names = [segment_name(base, e) for base in reversed(group.sources) for e in SEGMENT_SUFFIXES]
    return [name for name in names if name in present]


def pending_indexes(group: Intent) -> list[str]:
    """Return the names of the index swaps that a broker left with its ``.log.swap``, which are originals."""
    return [state.name for state in group.originals if state.name.endswith(SWAP)]


def keep_steps(group: Intent, names: Names, originals: Sequence[str]) -> list[Step]:
    """Return the steps that secure originals in ``keep/``; they come before any rename."""
    keeps = [
        Keep(name, names.keep(name), names.out(name) if name in group.copied else "") for name in originals
    ]
    return [*keeps, SyncDir(names.keep()), SyncDir(names.private)]


def commit_steps(group: Intent, names: Names, order: Order, extensions: Sequence[str]) -> list[Step]:
    """Return the steps that commit a group whose new files are staged and whose originals are kept.

    P1: renaming the staged log to ``A.log.swap`` commits. P2: all staged files become ``.cleaned``, then ``.swap``; the
    last of these renames commits.
    """
    finals = [segment_name(group.base_offset, extension) for extension in extensions]
    if order == "P1":
        return [Put((names.stage(finals[0]),), finals[0] + SWAP)]
    return [
        *(Put((names.stage(name),), name + CLEANED) for name in finals),
        *(Put((name + CLEANED,), name + SWAP) for name in finals),
    ]


def waiting_steps(group: Intent, names: Names, order: Order, extensions: Sequence[str]) -> list[Step]:
    """Return the steps that put the new indexes beside a lone ``.log.swap``, where P2 expects these indexes."""
    indexes = [segment_name(group.base_offset, e) for e in extensions if e != LOG and order == "P2"]
    return [Put((names.stage(name),), name + SWAP) for name in indexes]


def replace_steps(group: Intent, names: Names, order: Order, extensions: Sequence[str]) -> list[Step]:
    """Return the steps that complete a committed swap, after which only the new segment remains.

    The originals are removed first, highest base offset first. P1: the new indexes get their final names, then the log.
    P2: the ``.swap`` files get their final names, the log first. Snapshots of merged segments are removed last. An
    earlier run may have begun with P2, so P1 searches for each index in both places.
    """
    log, *indexes = (segment_name(group.base_offset, extension) for extension in extensions)
    waits = [(names.stage(name), name + SWAP) if order == "P1" else (name + SWAP,) for name in indexes]
    puts: list[Step] = [Put(sources, name) for sources, name in zip(waits, indexes, strict=True)]
    own: list[Step] = [Put((log + SWAP,), log)]
    takes = [Take(name) for name in (*pending_indexes(group), *segment_originals(group))]
    return [*takes, *(puts + own if order == "P1" else own + puts), *map(Take, group.snapshots)]


def backwards(steps: Sequence[Step], group: Intent, names: Names, *, committed: bool = True) -> list[Step]:
    """Return the steps of an undo: each step of the apply reversed, the last step first.

    Args:
        committed: False if the swap has not passed its commit; then the new files are moved back to ``stage/``.
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
    """Return the steps with syncs inserted after renames, and after each run of removed or restored originals."""
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
    """Return whether two steps share a sync; a broker's index swaps never share a sync with segments."""
    return (
        isinstance(following, Take | Restore)
        and type(following) is type(step)
        and following.name.endswith(SWAP) == step.name.endswith(SWAP)
    )


def forget_steps(group: Intent, names: Names) -> list[Step]:
    """Return the steps that empty ``keep/`` and ``out/`` after all originals of a group are restored."""
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
    """Return the steps that keep every original; the caller syncs ``keep/`` before any original is removed."""
    return [Keep(file.name, names.keep(file.name)) for file in files if file.old is not None]


def swap_files(files: Sequence[Becomes], names: Names) -> list[Step]:
    """Return the steps that replace, add and remove files whose originals are kept.

    The first file is the leading file, without which a broker does not use the other files, such as a log and its
    indexes. So the leading file is removed first, and its removal is synced before other files are removed; and the
    leading file is added last.
    """
    out: list[Step] = [Take(file.name) for file in files if file.new is None]
    new = [file for file in reversed(files) if file.new is not None]
    puts: list[Step] = [Put((names.stage(file.name),), file.name) for file in new]
    return _behind_the_first(out) + puts


def files_back(files: Sequence[Becomes], names: Names) -> list[Step]:
    """Return the steps that restore the originals from any state; the first file is removed first, restored last."""
    out: list[Step] = [MoveOut((file.name,), names.out(file.name)) for file in files if file.old is None]
    back: list[Step] = [Restore(names.keep(file.name), file.name) for file in files if file.old is not None]
    return _behind_the_first(out) + _behind_the_first(back)[::-1]


def _behind_the_first(steps: list[Step]) -> list[Step]:
    return [steps[0], SyncDir(""), *steps[1:]] if len(steps) > 1 else steps


def forget_files(file_names: Sequence[str], names: Names) -> list[Step]:
    """Return the steps that remove a change's files from ``keep/`` and ``out/`` after its originals are restored.

    The removals from ``keep/`` are synced. Otherwise a backup could reappear after a power loss without a record in the
    journal, and after a broker has rewritten the file, nothing would show the origin of that backup.
    """
    kept: list[Step] = [Remove(names.keep(name)) for name in file_names]
    return [*kept, SyncDir(names.keep()), *(Remove(names.out(name)) for name in file_names)]
