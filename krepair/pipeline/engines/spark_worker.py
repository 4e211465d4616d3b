"""What runs in a Spark worker: bundles of items in, Arrow rows of results out."""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from msgspec import Struct

from krepair.pipeline.greeting import Greeting, why_not_greeted
from krepair.pipeline.place import kept_open
from krepair.pipeline.sight import Sight, why_changed, why_not_here

RESULT_SCHEMA: Final = "index long, result binary, host string, why string, worker string"
_ARROW: Final = pa.schema(
    [
        ("index", pa.int64()),
        ("result", pa.binary()),
        ("host", pa.string()),
        ("why", pa.string()),
        ("worker", pa.string()),
    ]
)


class Proof(Struct, frozen=True, kw_only=True):
    """What a worker has to see before it takes the items of a bundle. Empty on a master of this host alone.

    Attributes:
        sights: of all log directories of the items.
        greeting: where items write; else None.
        patience_s: a worker that sees something else waits so long before it says so, so that those who see the
            directory take more of the bundles.
        not_by: workers that could not read some of the items, see ``this_worker``: another one is to try.
    """

    sights: tuple[Sight, ...] = ()
    greeting: Greeting | None = None
    patience_s: float = 0.0
    not_by: tuple[str, ...] = ()


class Bundle(NamedTuple):
    """What travels to a worker for one of Spark's tasks.

    Attributes:
        function: of a module, pickled by its name: what it needs is loaded in the worker.
        items: (place, item).
        proof: what has to be seen first.
    """

    function: Callable[[Any], Any]
    items: Sequence[tuple[int, Any]]
    proof: Proof


def this_worker() -> str:
    """What tells workers apart that see files through mounts of their own: host name, boot and mount namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            seen = f"{file.read().strip()} {os.stat('/proc/self/ns/mnt').st_ino}"
    except OSError:
        seen = ""  # then host names have to do
    return f"{socket.gethostname()} {seen}"


def map_items(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the items of Arrow batches; what ``mapInArrow`` calls in a worker.

    A row without a result says why this worker does not do the item: it goes to another one.
    """
    for row in (row for batch in batches for row in batch.to_pylist()):
        bundle: Bundle = pickle.loads(row["bundle"])  # noqa: S301 - of our own driver
        proof = bundle.proof
        if not proof.sights:
            yield from _results(bundle)
            continue
        wrong = _why_not(proof)
        if wrong:
            time.sleep(proof.patience_s)
        else:
            found = list(_results(bundle))
            wrong = _first(why_changed(sight) for sight in proof.sights)
        yield from (_row(index, None, wrong) for index, _ in bundle.items) if wrong else found


def _why_not(proof: Proof) -> str:
    if this_worker() in proof.not_by:
        return "it could not read a file, and another worker is to try"
    wrong = _first(why_not_here(sight) for sight in proof.sights)
    if not wrong and proof.greeting is not None:
        wrong = why_not_greeted(proof.greeting)
    return wrong


def _first(texts: Iterable[str]) -> str:
    return next((text for text in texts if text), "")


def _results(bundle: Bundle) -> Iterator[pa.RecordBatch]:
    with kept_open():
        for index, item in bundle.items:
            yield _row(index, pickle.dumps(bundle.function(item)), "")


def _row(index: int, result: bytes | None, why: str) -> pa.RecordBatch:
    row: dict[str, Any] = {
        "index": index,
        "result": result,
        "host": socket.gethostname(),
        "why": why,
        "worker": this_worker(),
    }
    return pa.RecordBatch.from_pylist([row], schema=_ARROW)
