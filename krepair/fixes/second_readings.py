"""The one way in which ``verify``, and ``apply`` with ``--keep until-verified``, read what changes made once more.

A fix says what is read of its changes and what has to come of it, as ``SecondReading``: data and small functions.
``read_again`` carries out those of all fixes. Logs and indexes are read by code that did not make them
(``pipeline.readings``). A small file that follows from the logs is held against the plan, and against its own form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from krepair.errors import KrepairError
from krepair.fixes.files import not_as_planned
from krepair.fixes.staging import Kind, Staging, Work, Wrong
from krepair.formats.filenames import FileKind, log_name, parse_file_name
from krepair.pipeline.items import Failed
from krepair.plan.model import Change, ReplaceFile

if TYPE_CHECKING:
    from krepair.pipeline.readings.aborted import AbortedReading
    from krepair.pipeline.readings.partition import LogPath

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


def logs_now(staging: Staging) -> tuple[LogPath, ...]:
    """The logs of a partition as they are."""
    from krepair.pipeline.readings.partition import LogPath

    return tuple(
        LogPath(base_offset=base, path=staging.folder.at(log_name(base)), bytes=size)
        for base, size in staging.listed.log_sizes
    )


def logs_before_compaction(staging: Staging) -> tuple[LogPath, ...] | None:
    """The logs as they would be without the plan's compaction; None where one of them is not to be had any more.

    What follows from logs is worked out after damage is gone, and before segments are written anew.

    Raises:
        OSError: a file cannot be looked at.
    """
    from krepair.pipeline.readings.partition import LogPath

    effects = [change.log_effect for change in staging.plan.changes]
    gone = {base for effect in effects for base in effect.segments}
    mended = {base: change for effect in effects for base, change in effect.ranges.items()}
    logs, tree = [], staging.folder.tree
    for file in staging.plan.files:
        name = parse_file_name(file.name)
        base = name.base_offset
        if name.kind is not FileKind.LOG or name.state or base is None or base in gone:
            continue
        kept, expected = f"{staging.keep}/{file.name}", file.size
        is_kept = base not in mended and bool(staging.keep) and tree.is_there(kept)
        path = kept if is_kept else staging.folder.at(file.name)
        if base in mended:
            expected -= sum(end - start for start, end in mended[base][1])
        found = tree.status(path)
        if found is None or found.st_size != expected:
            return None
        logs.append(LogPath(base_offset=base, path=path, bytes=expected))
    return tuple(sorted(logs, key=lambda log: log.base_offset))


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
    from krepair.pipeline.readings.aborted import AbortedIndex, AbortedItem, verify_aborted

    if not made:
        return
    planned, logs = staging.planned, logs_before_compaction(staging) or logs_now(staging)
    indexes = (
        AbortedIndex(
            base_offset=int(name.partition(".")[0]),
            path=staging.folder.at(name),
            original=f"{staging.keep_path}/{name}" if name in planned else "",
        )
        for name in made
    )
    item = AbortedItem(
        place=work.place(staging),
        indexes=tuple(indexes),
        logs=tuple(log for log in logs if log.base_offset >= since),
    )
    changes = tuple(made.values())

    def says(results: Sequence[AbortedReading]) -> Iterator[Wrong]:
        for change, text in zip(changes, results[0].problems, strict=True):
            if text:
                yield Wrong(staging.plan.folder, change.change_id, text)

    yield SecondReading(changes[0], ABORTS, verify_aborted, (item,), says, files=len(changes))
