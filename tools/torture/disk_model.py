"""Model of what may be on a disk after a power cut; it enumerates the possible states.

The model. It asks for no more than POSIX promises, so a file system that gives more (ext4, XFS) is covered, too.

- The bytes of a file are on the disk after an ``fsync`` of that file. Before it each sector may be the old or the new
  one (zeros where the old file did not reach), and the size may be the old one, the new one, or one between. A
  truncation is no better than a write. What was synced before and not written since stays.
- Owner, mode, extended attributes and modification time belong to the file as its bytes do: after the ``fsync``
  they are there; before it each may be old or new, whatever happened to the bytes.
- A name is an entry of its folder. It is on the disk after an ``fsync`` of the folder, not of the file. Each entry
  is on its own: a later one may be there and an earlier one not. So a new file may be there without a name, and
  a name may be there whose file has no bytes yet.
- A rename is one step: nobody ever sees neither name, or a half-replaced target. So it is on the disk after an
  ``fsync`` of the folder of the old name or of the new one.
- Changes of one and the same name happen in their order: if the second is there, the first was, too.
- A folder whose own name is lost is lost with all that is in it.
- A ``syncfs`` is the ``fsync`` of everything; some scenes have none.
- An ``fsync`` that returned holds. (That a failed one must never be repeated as if it had worked is the business
  of the failing calls, not of this model.)
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tools.torture.recording import (
    EVERYTHING,
    Attrs,
    Born,
    Ended,
    Event,
    Gave,
    Moved,
    Named,
    Synced,
    Unnamed,
    Wrote,
)

_SECTORS = (1, 16, 512)
"""Bytes that go to the disk together; files of a scene are small, so smaller ones find more."""

Names = dict[int, dict[str, int]]


class State(NamedTuple):
    """One tree that may be there after the power loss.

    Attributes:
        files: path relative to the root -> node.
        folders: the same of folders, without the root.
        data: bytes of each file's node.
        attrs: attributes of each node.
    """

    files: dict[str, int]
    folders: dict[str, int]
    data: dict[int, bytes]
    attrs: dict[int, Attrs]

    @property
    def signature(self) -> int:
        """Equal for equal trees."""
        return hash(
            (
                frozenset(self.files.items()),
                frozenset(self.folders.items()),
                frozenset(self.data.items()),
                frozenset(self.attrs.items()),
            )
        )


class Volume:
    """Durable content of a volume, and content that is not synced yet.

    Args:
        root: node of the log directory.
        start: the tree at the beginning, all of it durable.
    """

    def __init__(self, root: int, start: State) -> None:
        self.root = root
        self.names: Names = {root: {}, **{node: {} for node in start.folders.values()}}
        nodes = {"": root, **start.folders}
        for path, node in [*start.folders.items(), *start.files.items()]:
            folder, _, name = path.rpartition("/")
            self.names[nodes[folder]][name] = node
        self.data: dict[int, bytes] = dict(start.data)
        self.attrs: dict[int, Attrs] = dict(start.attrs)
        self.renames: list[Born | Named | Unnamed | Moved] = []
        self.versions: dict[int, list[bytes]] = {}
        self.gifts: dict[int, list[Attrs]] = {}

    def take(self, event: Event) -> None:
        """Apply the next recorded call."""
        match event:
            case Born():
                self.attrs[event.node] = event.attrs
                if event.data is None:
                    self.names[event.node] = {}
                else:
                    self.data[event.node] = event.data
                self.renames.append(event)
            case Named() | Unnamed() | Moved():
                self.renames.append(event)
            case Wrote():
                self.versions.setdefault(event.node, []).append(event.data)
                self.gifts.setdefault(event.node, []).append(event.attrs)
            case Gave():
                self.gifts.setdefault(event.node, []).append(event.attrs)
            case Synced(node=node) if node == EVERYTHING:
                self._sync_everything()
            case Synced():
                self._sync(event.node)
            case Ended():
                return

    def _sync_everything(self) -> None:
        for node in self.versions:
            self.data[node] = self.versions[node][-1]
        for node in self.gifts:
            self.attrs[node] = self.gifts[node][-1]
        for change in self.renames:
            _apply(self.names, change)
        self.versions, self.gifts, self.renames = {}, {}, []

    def _sync(self, node: int) -> None:
        if node in self.versions:
            self.data[node] = self.versions.pop(node)[-1]
        if node in self.gifts:
            self.attrs[node] = self.gifts.pop(node)[-1]
        if node not in self.names:
            return
        # In place of a set: the order of the changes is the order in which they are applied.
        durable = [False] * len(self.renames)
        keys: set[tuple[int, str]] = set()
        for number in range(len(self.renames) - 1, -1, -1):
            change = self.renames[number]
            if node in _folders(change) or not keys.isdisjoint(_keys(change)):
                durable[number] = True
                keys.update(_keys(change))
        for change, there in zip(self.renames, durable, strict=True):
            if there:
                _apply(self.names, change)
        self.renames = [change for change, there in zip(self.renames, durable, strict=True) if not there]

    @property
    def pending(self) -> int:
        """The number of changes that are not durable yet."""
        return len(self.renames) + len(self.versions) + len(self.gifts)

    # -- states

    def newest(self) -> State:
        """Return the tree without any loss, as a killed process leaves it."""
        return self._state([True] * len(self.renames), _Newest())

    def states(self, rng: random.Random, limit: int) -> Iterator[State]:
        """Yield possible trees: the extremes first, then each change alone lost and alone kept, then random ones.

        Args:
            rng: seeded random source.
            limit: upper bound of their number.
        """
        count = len(self.renames)
        every, none = [True] * count, [False] * count
        choices: list[tuple[list[bool], _Choice]] = [(every, _Newest())]
        if self.pending:
            choices += [(none, _Oldest()), (every, _Oldest()), (none, _Newest()), (every, _Random(rng))]
            single: list[tuple[list[bool], _Choice]] = []
            for number in range(count):
                single.append((self._without(number), _Newest()))
                single.append((self._only(number), _Newest()))
            for node in {*self.versions, *self.gifts}:
                single.append((every, _OldOf(node)))
            rng.shuffle(single)
            choices += single[: max(0, limit - len(choices)) * 2 // 3]
        for kept, choice in choices[:limit]:
            yield self._state(kept, choice)
        for _ in range(limit - len(choices) if self.pending else 0):
            share = rng.choice((0.1, 0.5, 0.9))
            yield self._state(self._closed(rng.random() < share for _ in range(count)), _Random(rng))

    def states_without(self, synced: Volume, rng: random.Random, limit: int) -> Iterator[State]:
        """Yield trees that are only possible without some syncs: each loses the content of ``synced`` for good."""
        safe = set(map(id, synced.renames))
        extra = [number for number, change in enumerate(self.renames) if id(change) not in safe]
        files = [node for node in self.versions | self.gifts if node not in synced.versions | synced.gifts]
        every = [True] * len(self.renames)
        choices: list[tuple[list[bool], _Choice]] = [(self._without(number), _Newest()) for number in extra]
        choices += [(every, _OldOf(node)) for node in files]
        rng.shuffle(choices)
        if extra:
            choices.insert(
                0, (self._closed(number not in set(extra) for number in range(len(every))), _Newest())
            )
        for kept, choice in choices[:limit]:
            yield self._state(kept, choice)
        for _ in range(limit - len(choices) if choices else 0):
            lost = set(rng.sample(extra, rng.randint(1, len(extra)))) if extra else set()
            share = rng.choice((0.5, 0.9, 1.0))
            kept = self._closed(number not in lost and rng.random() < share for number in range(len(every)))
            yield self._state(kept, _Random(rng) if files or rng.random() < 0.3 else _Newest())

    def _closed(self, wanted: Iterable[bool]) -> list[bool]:
        """Return the changes without those whose name had an earlier, lost change."""
        lost: set[tuple[int, str]] = set()
        out: list[bool] = []
        for change, want in zip(self.renames, wanted, strict=True):
            keys = _keys(change)
            there = want and lost.isdisjoint(keys)
            if not there:
                lost.update(keys)
            out.append(there)
        return out

    def _without(self, number: int) -> list[bool]:
        return self._closed(other != number for other in range(len(self.renames)))

    def _only(self, number: int) -> list[bool]:
        keys: set[tuple[int, str]] = set(_keys(self.renames[number]))
        out = [False] * len(self.renames)
        out[number] = True
        for other in range(number - 1, -1, -1):
            if not keys.isdisjoint(_keys(self.renames[other])):
                out[other] = True
                keys.update(_keys(self.renames[other]))
        return out

    def _state(self, kept: list[bool], choice: _Choice) -> State:
        names = {folder: dict(entries) for folder, entries in self.names.items()}
        for change, there in zip(self.renames, kept, strict=True):
            if there:
                _apply(names, change)
        files: dict[str, int] = {}
        folders: dict[str, int] = {}
        self._walk(names, self.root, "", files, folders)
        data: dict[int, bytes] = {}
        attrs: dict[int, Attrs] = {}
        for node in sorted({*files.values(), *folders.values()}):
            if node in self.data:
                data[node] = choice.data(node, [self.data[node], *self.versions.get(node, ())])
            attrs[node] = choice.attrs(node, [self.attrs[node], *self.gifts.get(node, ())])
        return State(files, folders, data, attrs)

    def _walk(
        self, names: Names, folder: int, path: str, files: dict[str, int], folders: dict[str, int]
    ) -> None:
        for name, node in names[folder].items():
            inner = f"{path}{name}"
            if node in names:
                folders[inner] = node
                self._walk(names, node, f"{inner}/", files, folders)
            else:
                files[inner] = node


def _keys(change: Born | Named | Unnamed | Moved) -> tuple[tuple[int, str], ...]:
    if isinstance(change, Moved):
        return (change.folder, change.name), (change.to_folder, change.to_name)
    return ((change.folder, change.name),)


def _folders(change: Born | Named | Unnamed | Moved) -> tuple[int, ...]:
    """Return the folders whose sync makes the change durable."""
    return (change.folder, change.to_folder) if isinstance(change, Moved) else (change.folder,)


def _apply(names: Names, change: Born | Named | Unnamed | Moved) -> None:
    match change:
        case Born() | Named():
            names[change.folder][change.name] = change.node
        case Unnamed():
            names[change.folder].pop(change.name, None)
        case Moved():
            names[change.folder].pop(change.name, None)
            names[change.to_folder][change.to_name] = change.node


class _Choice:
    """Choice between old and new bytes and attributes of a file; the first of each list is the durable one."""

    def data(self, node: int, versions: list[bytes]) -> bytes:
        raise NotImplementedError

    def attrs(self, node: int, gifts: list[Attrs]) -> Attrs:
        raise NotImplementedError


class _Newest(_Choice):
    def data(self, node: int, versions: list[bytes]) -> bytes:
        return versions[-1]

    def attrs(self, node: int, gifts: list[Attrs]) -> Attrs:
        return gifts[-1]


class _Oldest(_Choice):
    def data(self, node: int, versions: list[bytes]) -> bytes:
        return versions[0]

    def attrs(self, node: int, gifts: list[Attrs]) -> Attrs:
        return gifts[0]


class _OldOf(_Newest):
    def __init__(self, node: int) -> None:
        self.node = node

    def data(self, node: int, versions: list[bytes]) -> bytes:
        return versions[0 if node == self.node else -1]

    def attrs(self, node: int, gifts: list[Attrs]) -> Attrs:
        return gifts[0 if node == self.node else -1]


class _Random(_Choice):
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def data(self, node: int, versions: list[bytes]) -> bytes:
        if len(versions) == 1 or (kind := self.rng.random()) < 0.25:
            return versions[0]
        return versions[-1] if kind < 0.5 else torn(versions, self.rng)

    def attrs(self, node: int, gifts: list[Attrs]) -> Attrs:
        if len(gifts) == 1:
            return gifts[0]
        return self.rng.choice(gifts)._replace(mtime_ns=self.rng.choice(gifts).mtime_ns)


def torn(versions: list[bytes], rng: random.Random) -> bytes:
    """Return a file with some old and some new sectors, whose size is one of its sizes or between."""
    low, high = sorted(len(version) for version in rng.choices(versions, k=2))
    size = rng.choice((low, high, rng.randint(low, high)))
    sector = rng.choice(_SECTORS)
    out = bytearray(size)
    for start in range(0, size, sector):
        end = min(start + sector, size)
        piece = rng.choice(versions)[start:end]
        out[start : start + len(piece)] = piece
    return bytes(out)
