"""The code that runs in a Spark worker: it does the items of a bundle, if the worker sees the driver's files."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from krepair.durable.written import noted
from krepair.engine.items import arguments_of
from krepair.engine.place import keep_log_dir_open
from krepair.engine.same_files import DriverFiles, WrittenFile, states_after_writing, why_other_files

RESULT_SCHEMA: Final = "index long, done binary"
_ARROW: Final = pa.schema([("index", pa.int64()), ("done", pa.binary())])
_PATIENCE_S: Final = 1.0
"""Seconds for which a worker delays its refusal of a bundle, so that it does not get most of the other bundles too."""


class Bundle(NamedTuple):
    """Content of one Spark task.

    Attributes:
        function: function of a module, pickled by its name; the worker imports it.
        items: index and item of each task in the bundle.
        seen: files that a worker must see; None if the workers are processes of this host.
    """

    function: Callable[..., Any]
    items: Sequence[tuple[int, Any]]
    seen: DriverFiles | None


class ItemDone(NamedTuple):
    """Answer for one item.

    Attributes:
        result: result of the function, or a ``Failed`` of a worker that sees other files.
        written: state of each file that the task created or changed.
    """

    result: Any
    written: tuple[WrittenFile, ...] = ()


def map_items(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Map the items of Arrow batches; ``mapInArrow`` calls this function in a worker."""
    for row in (row for batch in batches for row in batch.to_pylist()):
        bundle: Bundle = pickle.loads(row["bundle"])  # noqa: S301 - of our own driver
        for index, done in (
            _map_bundle(bundle) if bundle.seen is None else _map_if_same_files(bundle, bundle.seen)
        ):
            yield pa.RecordBatch.from_pylist([{"index": index, "done": pickle.dumps(done)}], schema=_ARROW)


def _map_bundle(bundle: Bundle) -> Iterator[tuple[int, ItemDone]]:
    with keep_log_dir_open():
        for index, item in bundle.items:
            with noted() as paths:
                result = bundle.function(*arguments_of(item))
            yield index, ItemDone(result, states_after_writing(paths))


def _map_if_same_files(bundle: Bundle, expected: DriverFiles) -> list[tuple[int, ItemDone]]:
    """Do the items if the worker sees the driver's files before and after; else return the difference as a failure."""
    failed = why_other_files(expected)
    if failed is None:
        results = list(_map_bundle(bundle))
        failed = why_other_files(expected)
        if failed is None:
            return results
    time.sleep(_PATIENCE_S)
    return [(index, ItemDone(failed)) for index, _ in bundle.items]
