"""Several calls to Spark under way at once, all ended when one has failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Final, TypeVar

AT_ONCE: Final = 3
LOOK_EVERY_S: Final = 1.0
_Answer = TypeVar("_Answer")


def run_waves(
    waves: Iterator[Callable[[], _Answer]], look: Callable[[], None], cancel: Callable[[], None]
) -> Iterator[Future[_Answer]]:
    """Yield the waves that have ended, in the order in which they end.

    Args:
        waves: calls that wait for Spark; one is taken when it is sent.
        look: called every second while waves are under way; may raise.
        cancel: ends the jobs that Spark has at that moment.

    Raises:
        Exception: what ``look`` or the caller raised, after all waves have ended.
    """
    under_way: set[Future[_Answer]] = set()

    def send(count: int) -> None:
        under_way.update(threads.submit(wave) for wave in islice(waves, count))

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="krepair-wave") as threads:
        try:
            send(AT_ONCE)
            while under_way:
                done, _ = wait(under_way, LOOK_EVERY_S, FIRST_COMPLETED)
                look()
                under_way.difference_update(done)
                send(len(done))
                yield from done
        except BaseException:
            _end_all(under_way, cancel)
            raise


def _end_all(under_way: set[Future[_Answer]], cancel: Callable[[], None]) -> None:
    """Cancel until all have ended: a wave whose job begins after a cancel would wait for workers for ever."""
    while under_way:
        cancel()
        _, under_way = wait(under_way, LOOK_EVERY_S)
