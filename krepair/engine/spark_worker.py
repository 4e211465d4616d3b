"""The code that runs in a Spark worker: bundles of items in, Arrow rows of results out."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from krepair.durable.written import noted
from krepair.engine.place import kept_open
from krepair.engine.same_files import DriverFiles, WrittenFile, left_by, other_than

RESULT_SCHEMA: Final = "index long, done binary"
_ARROW: Final = pa.schema([("index", pa.int64()), ("done", pa.binary())])
_PATIENCE_S: Final = 1.0
"""Seconds for which a worker holds a bundle that it cannot do, so that able workers take more of the others."""


class Bundle(NamedTuple):
    """Content of one Spark task.

    Attributes:
        function: function of a module, pickled by its name; the worker loads its dependencies.
        items: indexes and items of the bundle.
        seen: what a worker has to see; None if the master is local to this host.
    """

    function: Callable[[Any], Any]
    items: Sequence[tuple[int, Any]]
    seen: DriverFiles | None


class ItemDone(NamedTuple):
    """Answer for one item.

    Attributes:
        result: result of the function, or a ``Failed`` of a worker that sees other files.
        written: files that the item created or changed.
    """

    result: Any
    written: tuple[WrittenFile, ...] = ()


def map_items(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Map the items of Arrow batches; ``mapInArrow`` calls this function in a worker."""
    for row in (row for batch in batches for row in batch.to_pylist()):
        bundle: Bundle = pickle.loads(row["bundle"])  # noqa: S301 - of our own driver
        for index, done in _mapped(bundle) if bundle.seen is None else _mapped_if_seen(bundle, bundle.seen):
            yield pa.RecordBatch.from_pylist([{"index": index, "done": pickle.dumps(done)}], schema=_ARROW)


def _mapped(bundle: Bundle) -> Iterator[tuple[int, ItemDone]]:
    with kept_open():
        for index, item in bundle.items:
            with noted() as paths:
                result = bundle.function(item)
            yield index, ItemDone(result, left_by(paths))


def _mapped_if_seen(bundle: Bundle, expected: DriverFiles) -> list[tuple[int, ItemDone]]:
    """Map the items if the worker sees the same files before and after; else return the difference."""
    failed = other_than(expected)
    if failed is None:
        results = list(_mapped(bundle))
        failed = other_than(expected)
        if failed is None:
            return results
    time.sleep(_PATIENCE_S)
    return [(index, ItemDone(failed)) for index, _ in bundle.items]
