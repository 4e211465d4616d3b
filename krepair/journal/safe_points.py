"""Interruption that waits: SIGINT and SIGTERM take effect only between two groups."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from krepair.errors import InterruptedAtSafePointError


class SafePoints:
    """Whether somebody asked to stop; looked at between two groups only."""

    def __init__(self) -> None:
        self.requested = ""

    def request(self, why: str) -> None:
        """Asks to stop at the next safe point."""
        self.requested = why

    def check(self) -> None:
        """Stops here if somebody asked.

        Raises:
            InterruptedAtSafePointError: somebody asked to stop.
        """
        if self.requested:
            message = (
                f"stopped by {self.requested} between two groups; run the same command again to continue"
            )
            raise InterruptedAtSafePointError(message)


@contextlib.contextmanager
def signals_wait(safe_points: SafePoints) -> Iterator[SafePoints]:
    """While it is open, SIGINT and SIGTERM only ask for a stop at the next safe point.

    Outside the main thread signals cannot be caught, and nothing is changed.
    """

    def ask(number: int, frame: FrameType | None) -> None:
        safe_points.request(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield safe_points
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield safe_points
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
