"""Numbers of things in words, so that no message says ``1 partitions``."""

from __future__ import annotations


def count_text(count: int, one: str, many: str = "") -> str:
    """A number of things: ``1 partition``, ``2 partitions``, ``no partition``.

    Args:
        count: how many.
        one: the word for one of them.
        many: the word for several; by default with an s.
    """
    if count == 0:
        return f"no {one}"
    return f"{count:,} {one if count == 1 else many or one + 's'}"
