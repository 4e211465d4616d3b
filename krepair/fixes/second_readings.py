"""The one way in which ``verify``, and ``apply`` with ``--keep until-verified``, read what changes made once more.

A fix says what is read of its changes and what has to come of it, as ``SecondReading``: data and small functions.
``read_again`` carries out those of all fixes. Logs, and their offset and time indexes, are read by code that did not
make them. A small file that follows from the logs is held against the plan and against its own form, a ``.txnindex``
also against a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from krepair.engine.items import Failed
from krepair.errors import KrepairError
from krepair.fixes.files import not_as_planned
from krepair.fixes.staging import Kind, Staging, Work, Wrong
from krepair.formats.filenames import FileKind, log_name, parse_file_name
from krepair.plan.model import Change, ReplaceFile

REMOVED: Final = Kind("removed files", "that it is gone")
REMOVED_AND_KEPT: Final = Kind("removed files", "that it is gone, and kept with its size and time")
ABORTS: Final = Kind("transaction indexes", "its entries against a replay of the logs")
_MADE = "size and digest against the plan, decoded and encoded again"
_SMALL: Final = {
    FileKind.LEADER_EPOCHS: Kind("leader epoch checkpoints", _MADE),
    FileKind.SNAPSHOT: Kind("producer snapshots", _MADE),
}
_OF_ROOT: Final = Kind("checkpoints of the log directory", _MADE)
LINES: Final = Kind("checkpoints of the log directory", "its lines against the plan")


class InTurn(NamedTuple):
    """Reads items in several steps.

    Attributes:
        read: gives a result for the index of each item.
    """

    read: Callable[[Work, Sequence[Any]], Iterable[tuple[int, Any]]]


Way = Callable[[Any], Any] | InTurn
"""What the engine maps over the items; or what maps several functions in turn."""
Says = Callable[[Sequence[Any]], Iterable[str | Wrong]]
"""Gets the results in the order of the items, and tells what is wrong.

A line is about the change itself; a ``Wrong`` is about anything else.
"""


def problems_of(results: Sequence[Any]) -> Iterator[str]:
    """What readings have told, and why they failed."""
    for result in results:
        yield from (result.why,) if isinstance(result, Failed) else getattr(result, "problems", ())


class SecondReading(NamedTuple):
    """What is read again of a change, and what has to come of it.

    Attributes:
        change: that is verified.
        kind: of the files.
        way: how the items are read; None where there are none: the driver has read what there is to read.
        items: of the task.
        says: what is wrong by the results; an empty line is nothing.
        files: of the kind, how many it verifies.
    """

    change: Change
    kind: Kind
    way: Way | None = None
    items: tuple[Any, ...] = ()
    says: Says = problems_of
    files: int = 1


def seen_here(change: Change, kind: Kind, *wrong: str) -> SecondReading:
    """Of a small file that the driver has read itself."""
    return SecondReading(change, kind, says=lambda _: wrong)


def read_again(
    work: Work, asked: Iterable[tuple[Staging, Callable[[Work, Staging], Iterable[SecondReading]]]]
) -> None:
    """Carry out second readings, all of one way together; what they have against changes is put into ``work``.

    Args:
        work: what verifies.
        asked: changes of a partition or of the root, and what says how they are read.
    """
    readings: list[tuple[Staging, SecondReading]] = []
    for staging, readings_of in asked:
        try:
            with work.disk.tree.keeping_folders():
                for reading in readings_of(work, staging):
                    readings.append((staging, reading))  # those before an error count
        except (KrepairError, OSError) as error:
            work.found_all(staging, error)
    results = _run(work, [reading for _, reading in readings])
    for (staging, reading), came in zip(readings, results, strict=True):
        work.checked[reading.kind] += reading.files
        work.batches += sum(getattr(result, "batches", 0) for result in came)
        work.bytes_read += sum(getattr(result, "bytes", 0) for result in came)
        for wrong in reading.says(came):
            if isinstance(wrong, Wrong):
                work.wrong.append(wrong)
            else:
                work.found(staging, reading.change, wrong)


def _run(work: Work, readings: Sequence[SecondReading]) -> list[list[Any]]:
    """The results of each reading, in the order of its items."""
    results: list[list[Any]] = [[None] * len(reading.items) for reading in readings]
    ways: dict[Way, list[tuple[int, int]]] = {}
    for number, reading in enumerate(readings):
        for place in range(len(reading.items)):
            assert reading.way is not None, "items need a way"
            ways.setdefault(reading.way, []).append((number, place))
    for way, places in ways.items():
        items = [readings[number].items[place] for number, place in places]
        for index, result in (
            way.read(work, items) if isinstance(way, InTurn) else work.engine.map(way, items)
        ):
            number, place = places[index]
            results[number][place] = result
    return results


def as_planned(staging: Staging, change: ReplaceFile) -> SecondReading:
    """A small file that was made anew: the bytes of the plan, in the form that a broker writes.

    What the logs say was asked right before it was put in its place, see ``stage_again``.
    """
    path = staging.folder.at(change.name)
    kind = _SMALL.get(parse_file_name(change.name).kind, _OF_ROOT)
    return seen_here(change, kind, not_as_planned(path, change, staging.folder.tree))


def gone(staging: Staging, change: Change, names: tuple[str, ...]) -> SecondReading:
    """Files that are gone, and kept as they were, unless apply has freed them."""
    keep = "" if staging.freed.intersection(names) else staging.keep
    wrong = [text for name in names for text in _not_gone(staging, name, keep)]
    return seen_here(change, REMOVED_AND_KEPT if keep else REMOVED, *wrong)._replace(files=len(names))


def _not_gone(staging: Staging, name: str, keep: str) -> Iterator[str]:
    tree = staging.folder.tree
    if tree.is_there(staging.folder.at(name)):
        yield f"{name} is there, although the plan takes it away"
    if keep:
        kept, file = tree.status(f"{keep}/{name}"), staging.planned[name]
        if kept is None:
            yield f"{name} is not kept in {keep}"
        elif (kept.st_size, kept.st_mtime_ns) != (file.size, file.mtime_ns):
            yield f"{name}: what is kept is not the file of {file.size} bytes that was taken away"


def aborts_again(
    work: Work, staging: Staging, made: Mapping[str, Change], since: int = 0
) -> Iterator[SecondReading]:
    """``.txnindex`` files of a partition, if there are any, all held against one replay of its logs.

    Args:
        work: what verifies.
        staging: the partition.
        made: name of each file -> the change that made it.
        since: base offset of the first segment that is replayed.

    Raises:
        OSError: a file cannot be looked at.
    """
    from krepair.rewrite.indexes.transactions import TxnItem, TxnResult, inspect_txn

    if not made:
        return
    changes = {int(name.partition(".")[0]): change for name, change in made.items()}
    item = TxnItem(
        place=work.place(staging),
        segments=tuple(one for one in staging.listed.log_sizes if since <= one[0] <= max(changes)),
        present=(),
    )

    def says(results: Sequence[TxnResult | Failed]) -> Iterator[Wrong]:
        found = results[0]
        problems = {} if isinstance(found, Failed) else {one.base_offset: one.text for one in found.problems}
        for base, change in changes.items():
            text = problems.get(base, "")
            if isinstance(found, Failed):
                text = found.why
            elif 0 <= found.damaged <= base:
                text = f"{log_name(found.damaged)} is damaged: what was aborted cannot be told"
            if text:
                yield Wrong(staging.plan.folder, change.change_id, text)

    yield SecondReading(changes[min(changes)], ABORTS, inspect_txn, (item,), says, files=len(changes))
