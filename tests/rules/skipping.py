"""Counter of the random histories that a property skips; a property that skips too many fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hypothesis import assume

_seen: Counter[str] = Counter()


def skip_unless(condition: object) -> None:
    """Skip this example unless the condition holds; both are counted."""
    _seen["met"] += 1
    _seen["skipped"] += not condition
    assume(condition)


def at_most_skipped(share: float) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Fail the property if ``skip_unless`` skipped more than this share of the times that it was asked."""

    def around(prop: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            _seen.clear()
            prop()
            assert _seen["met"] > 0
            assert _seen["skipped"] <= share * _seen["met"], (
                f"{_seen['skipped']} of {_seen['met']} were skipped"
            )

        run.__doc__ = prop.__doc__
        return run

    return around
