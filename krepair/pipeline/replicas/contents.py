"""Reads the records of replicas where their headers differ, and joins them in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from msgspec.structs import replace

from krepair.durable.scratch import Scratch
from krepair.errors import RefusedError
from krepair.formats.facts_file import FactsReader
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.replicas.facts import opened_facts, read_rows
from krepair.pipeline.replicas.items import RowsResult
from krepair.pipeline.replicas.join import join
from krepair.pipeline.replicas.open_facts import read_as_input
from krepair.pipeline.replicas.sources import GroupWork, RowsUnreadError, UnreadRows
from krepair.rules.replicas.judge import Content

_AGAIN: Final = "krepair facts LOGDIR... --out FILE"
_SMALL_BYTES: Final = 4 << 20
_WITHOUT_SCRATCH_BYTES: Final = 256 << 20
_ALL_ROWS: Final = 2**62
_ROWS_INLINE: Final = 1 << 16


def contents_of(engine: Engine, work: Sequence[GroupWork], scratch: Scratch) -> list[Content]:
    """The result of the records of each group, in order.

    Raises:
        RefusedError: the rows need a scratch folder, and there is none.
        RowsUnreadError: the records of some replicas cannot be read.
    """
    if not work:
        return []
    found: list[Content] = []
    for some in _shares(work, scratch):
        try:
            found += _joined_here(engine, some, *_room(some, scratch))
        except RowsUnreadError as error:
            before = len(found)
            raise RowsUnreadError([one._replace(work=one.work + before) for one in error.unread]) from error
    return found


def _shares(work: Sequence[GroupWork], scratch: Scratch) -> Iterator[Sequence[GroupWork]]:
    """All of it where there is a scratch folder; else as many at a time as do without one."""
    if _bytes_of(work) <= _WITHOUT_SCRATCH_BYTES or scratch.path:
        yield work
        return
    some: list[GroupWork] = []
    total = 0
    for one in work:
        size = _bytes_of([one])
        if some and total + size > _WITHOUT_SCRATCH_BYTES:
            yield some
            some, total = [], 0
        some.append(one)
        total += size
    yield some


def _bytes_of(work: Iterable[GroupWork]) -> int:
    return sum(source.item.bytes_to_read for one in work for source in one.sources if source.item is not None)


def _joined_here(engine: Engine, work: Sequence[GroupWork], folder: str, rows_inline: int) -> list[Content]:
    """Read all rows, and join them in this process."""
    from krepair.pipeline.replicas.records import read_records_of_all

    rows = [[RowsResult() for _ in one.sources] for one in work]
    with ExitStack() as opened:
        readers: dict[str, FactsReader] = {}
        for number, one in enumerate(work):
            for column, source in one.facts():
                if source.facts not in readers:  # to open one reads it whole, for its digest
                    readers[source.facts] = opened.enter_context(opened_facts(source.facts))
                with read_as_input(source.facts, _AGAIN):
                    rows[number][column] = read_rows(readers[source.facts], source.index, folder, rows_inline)
    asked = [
        (number, column, replace(item, scratch=folder, rows_inline=rows_inline))
        for number, one in enumerate(work)
        for column, item in one.items()
    ]
    unread: list[UnreadRows] = []
    for index, result in read_records_of_all(engine, [item for *_, item in asked]):
        number, column, _ = asked[index]
        rows[number][column] = result
        if result.failure:
            unread.append(UnreadRows(number, column, result.why))
    if unread:
        raise RowsUnreadError(unread)
    return [join(one.group, of_one, compacted=one.compacted) for one, of_one in zip(work, rows, strict=True)]


def _room(work: Sequence[GroupWork], scratch: Scratch) -> tuple[str, int]:
    """(scratch folder, rows that stay in memory)."""
    total = _bytes_of(work)
    in_files = any(source.facts for one in work for source in one.sources)
    if total <= _SMALL_BYTES and not in_files:
        return "", _ALL_ROWS
    folder = scratch.path
    if folder:
        return folder, _ROWS_INLINE
    if total > _WITHOUT_SCRATCH_BYTES:
        raise RefusedError(
            "the temporary folder is on the file system of a log directory; there krepair writes only with --scratch",
            next_command="krepair compare ... --scratch DIR, on another file system where there is one",
        )
    return "", _ALL_ROWS
