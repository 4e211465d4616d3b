"""Finds topics for which a response to an old client could be too large for its length field (KAFKA-1196)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

MOST_RESPONSE_BYTES: Final = 2**31 - 1
"""Largest response: it begins with its length as a signed 32-bit integer."""


class Overflow(NamedTuple):
    """A topic whose response may not fit.

    Attributes:
        topic: name of the topic.
        largest_batch: bytes of its largest batch in this log directory.
        partitions: number of its partitions in this log directory.
    """

    topic: str
    largest_batch: int
    partitions: int

    @property
    def response_bytes(self) -> int:
        """Bytes of a response to a client that asks each partition for as many bytes as the largest batch has."""
        return self.largest_batch * self.partitions


def fetch_overflows(largest: Mapping[str, Sequence[int]]) -> list[Overflow]:
    """The topics whose partitions could overflow one response.

    A client before 0.10.1 must ask each partition for at least the bytes of its largest batch, or it cannot read past
    that batch. The broker answers all partitions in one response. Since KIP-74 the whole response has a limit.

    Args:
        largest: topic -> bytes of the largest batch in each of its partitions.
    """
    found = [Overflow(topic, max(sizes), len(sizes)) for topic, sizes in sorted(largest.items()) if sizes]
    return [problem for problem in found if problem.response_bytes > MOST_RESPONSE_BYTES]
