"""An engine that tells how far it is: of jobs that are made of several tasks, each with a bar of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.jobs import Task
from krepair.pipeline.progress import Progress

_WORDS: Final = {
    "find aborted": "transactions",
    "find keys": "keys",
    "join keys": "join",
    "compact": "records",
    "stage compacted": "stage",
    "find abort ranges": "prove",
    "take census": "groups",
    "check keys": "prove",
    "check join": "prove",
}


class TellingEngine:
    """Runs tasks where another engine does, and tells of it.

    Args:
        engine: runs them.
        progress: is told of items, each by the bytes that it reads.
    """

    def __init__(self, engine: Engine, progress: Progress) -> None:
        self._engine = engine
        self._progress = progress
        self.why = engine.why

    def run(self, task: Task[Any, Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """As the other engine does."""
        sizes = [_size_of(item) for item in items]
        self._progress.start(_WORDS.get(task.name, task.name), sum(sizes))
        for index, result in self._engine.run(task, items):
            self._progress.advance(sizes[index])
            yield index, result
        self._progress.finish()

    def close(self) -> None:
        """The other engine is closed by whoever made it."""


def _size_of(item: Any) -> int:
    """Bytes of ``.log`` that an item reads; 0 of one that reads none."""
    parts = getattr(item, "segments", None) or getattr(item, "logs", None)
    if parts is not None:
        return sum(getattr(part, "size", 0) or part[1] for part in parts)
    sources = getattr(item, "sources", None)
    if sources is not None:
        return sum(source.size for source in sources)
    of_stream = getattr(item, "compact", item)
    return int(getattr(of_stream, "size", 0))
