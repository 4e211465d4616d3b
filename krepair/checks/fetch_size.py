"""Whether one response to an old client could be larger than its length field can say (KAFKA-1196)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

MOST_RESPONSE_BYTES: Final = 2**31 - 1
"""A response begins with its length as a signed 32-bit integer."""


class Overflow(NamedTuple):
    """A topic of which a whole response does not fit.

    Attributes:
        topic: its name.
        largest_batch: bytes of its largest batch here.
        partitions: how many of its partitions lie here.
    """

    topic: str
    largest_batch: int
    partitions: int

    @property
    def response_bytes(self) -> int:
        """What a client may be sent that asks each partition for as much as the largest batch."""
        return self.largest_batch * self.partitions


def fetch_overflows(largest: Mapping[str, Sequence[int]]) -> list[Overflow]:
    """The topics whose partitions here could overflow one response.

    A client before 0.10.1 has to ask every partition for at least its largest batch, or it never gets past it, and the
    broker answers all of them in one response; since KIP-74 the response as a whole is bounded.

    Args:
        largest: topic -> bytes of the largest batch in each of its partitions.
    """
    found = [Overflow(topic, max(sizes), len(sizes)) for topic, sizes in sorted(largest.items()) if sizes]
    return [problem for problem in found if problem.response_bytes > MOST_RESPONSE_BYTES]
