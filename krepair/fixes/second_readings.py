"""Verification of applied changes, shared by ``verify`` and by ``apply --keep until-verified``.

A fix describes as ``SecondReading`` which of its files are read and which results they must give: data and functions.
``read_again`` carries out the readings of all fixes. Logs and their offset and time indexes are read by code that
did not write them. A small file that follows from the logs is compared with the plan and with the form that a
broker writes, a ``.txnindex`` also with a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from krepair.engine.items import Failed, LogsItem
from krepair.errors import KrepairError
from krepair.fixes.files import not_as_planned, small_file
from krepair.fixes.staging import Kind, Staging, Work, Wrong
from krepair.formats.filenames import log_name
from krepair.plan.model import Change, ReplaceFile

REMOVED: Final = Kind("removed files", "that it is gone")
REMOVED_AND_KEPT: Final = Kind("removed files", "that it is gone, and kept with its size and time")
ABORTS: Final = Kind("transaction indexes", "its entries against a replay of the logs")
LINES: Final = Kind("checkpoints of the log directory", "its lines against the plan")


class InTurn(NamedTuple):
    """Reader that maps items in several steps.

    Attributes:
        read: yields (index of an item, result) for each item.
    """

    read: Callable[[Work, Sequence[Any]], Iterable[tuple[int, Any]]]


Reader = Callable[..., Any] | InTurn
"""Function that the engine maps over the items, or ``InTurn`` for several functions in turn."""
Says = Callable[[Sequence[Any]], Iterable[str | Wrong]]
"""Function that gets the results in the order of the items, and yields the problems that they show.

A text is about the change itself; a ``Wrong`` is about anything else.
"""


def problems_of(results: Sequence[Any]) -> Iterator[str]:
    """Yield the problems that readings reported, and why failed readings failed."""
    for result in results:
        yield from (result.why,) if isinstance(result, Failed) else getattr(result, "problems", ())


class SecondReading(NamedTuple):
    """One reading that verifies a change.

    Attributes:
        change: the change that is verified.
        kind: the kind of its files.
        reader: function that reads the items; None without items, where the driver has read the files itself.
        items: arguments of the mapped function.
        says: function that yields the problems that the results show; empty texts are ignored.
        files: number of files that the reading verifies.
    """

    change: Change
    kind: Kind
    reader: Reader | None = None
    items: tuple[Any, ...] = ()
    says: Says = problems_of
    files: int = 1


def read_here(change: Change, kind: Kind, *wrong: str) -> SecondReading:
    """Return the reading of a small file that the driver has read itself."""
    return SecondReading(change, kind, says=lambda _: wrong)


def read_again(
    work: Work, targets: Iterable[tuple[Staging, Callable[[Work, Staging], Iterable[SecondReading]]]]
) -> None:
    """Carry out second readings, all of one kind together; defects are recorded in ``work``.

    Args:
        targets: changes of a partition or of the root, and the function that describes how to read them.
    """
    readings: list[tuple[Staging, SecondReading]] = []
    for staging, reading_items in targets:
        try:
            with work.disk.tree.keeping_folders():
                for reading in reading_items(work, staging):
                    readings.append((staging, reading))  # those before an error count
        except (KrepairError, OSError) as error:
            work.found_all(staging, error)
    results = _run(work, [reading for _, reading in readings])
    for (staging, reading), outcome in zip(readings, results, strict=True):
        work.checked[reading.kind] += reading.files
        work.batches += sum(getattr(result, "batches", 0) for result in outcome)
        work.bytes_read += sum(getattr(result, "bytes", 0) for result in outcome)
        for wrong in reading.says(outcome):
            if isinstance(wrong, Wrong):
                work.wrong.append(wrong)
            else:
                work.found(staging, reading.change, wrong)


def _run(work: Work, readings: Sequence[SecondReading]) -> list[list[Any]]:
    """Return the results of each reading, in the order of its items."""
    results: list[list[Any]] = [[None] * len(reading.items) for reading in readings]
    by_reader: dict[Reader, list[tuple[int, int]]] = {}
    for number, reading in enumerate(readings):
        for place in range(len(reading.items)):
            assert reading.reader is not None, "items need a reader"
            by_reader.setdefault(reading.reader, []).append((number, place))
    for reader, places in by_reader.items():
        items = [readings[number].items[place] for number, place in places]
        for index, result in (
            reader.read(work, items) if isinstance(reader, InTurn) else work.engine.map(reader, items)
        ):
            number, place = places[index]
            results[number][place] = result
    return results


def as_planned(staging: Staging, change: ReplaceFile) -> SecondReading:
    """Return the reading of a rebuilt small file: the plan's bytes, in the form that a broker writes.

    What the logs say was checked right before the file was swapped in, see ``stage_again``.
    """
    path = staging.folder.at(change.name)
    kind = small_file(change.name).kind
    return read_here(change, kind, not_as_planned(path, change, staging.folder.tree))


def check_removed(staging: Staging, change: Change, names: tuple[str, ...]) -> SecondReading:
    """Return the reading of removed files: absent, and unchanged in the backup unless apply has deleted it."""
    keep = "" if staging.freed.intersection(names) else staging.keep
    wrong = [text for name in names for text in _not_gone(staging, name, keep)]
    return read_here(change, REMOVED_AND_KEPT if keep else REMOVED, *wrong)._replace(files=len(names))


def _not_gone(staging: Staging, name: str, keep: str) -> Iterator[str]:
    tree = staging.folder.tree
    if tree.is_there(staging.folder.at(name)):
        yield f"{name} is there, although the plan takes it away"
    if keep:
        kept, file = tree.status(f"{keep}/{name}"), staging.planned[name]
        if kept is None:
            yield f"{name} has no backup in {keep}"
        elif (kept.st_size, kept.st_mtime_ns) != (file.size, file.mtime_ns):
            yield f"{name}: the backup is not the file of {file.size} bytes that was removed"


def _was_damaged(staging: Staging, name: str) -> bool:
    """Return whether a log is unchanged since the plan: its damage is then not the plan's, which skipped it.

    No replay goes past that damage, so of a later ``.txnindex`` only size and digest are compared with the plan.
    """
    now, planned = staging.folder.tree.status(staging.folder.at(name)), staging.planned.get(name)
    return (
        now is not None
        and planned is not None
        and ((now.st_size, now.st_mtime_ns) == (planned.size, planned.mtime_ns))
    )


def verify_transaction_indexes(
    work: Work, staging: Staging, made: Mapping[str, Change], since: int = 0
) -> Iterator[SecondReading]:
    """Yield the reading of a partition's ``.txnindex`` files, all compared with one replay of its logs.

    Args:
        made: name of each file -> the change that built it.
        since: base offset of the first segment that is replayed.

    Raises:
        OSError: a file cannot be looked at.
    """
    from krepair.rewrite.indexes.transactions import TxnResult, inspect_txn

    if not made:
        return
    changes = {int(name.partition(".")[0]): change for name, change in made.items()}
    item = LogsItem(
        place=work.place(staging),
        segments=tuple(sized for sized in staging.listed.log_sizes if since <= sized[0] <= max(changes)),
    )

    def says(results: Sequence[TxnResult | Failed]) -> Iterator[Wrong]:
        result = results[0]
        problems = (
            {} if isinstance(result, Failed) else {wrong.base_offset: wrong.text for wrong in result.problems}
        )
        for base, change in changes.items():
            text = problems.get(base, "")
            if isinstance(result, Failed):
                text = result.why
            elif 0 <= result.damaged <= base and not _was_damaged(staging, log_name(result.damaged)):
                text = f"{log_name(result.damaged)} is damaged: the aborted transactions are unknown"
            if text:
                yield Wrong(staging.plan.folder, change.change_id, text)

    yield SecondReading(changes[min(changes)], ABORTS, inspect_txn, (item,), says, files=len(changes))
