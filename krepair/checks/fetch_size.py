"""Topics for which a fetch response to an old client could overflow its length field (KAFKA-1196)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from krepair.formats.java_numbers import INT32_MAX

MOST_RESPONSE_BYTES: Final = INT32_MAX
"""Largest response in bytes: its length field is a signed 32-bit integer."""


class Overflow(NamedTuple):
    """Topic whose fetch response may overflow.

    Attributes:
        topic: name of the topic.
        largest_batch: bytes of the topic's largest batch in this log directory.
        partitions: number of the topic's partitions in this log directory.
    """

    topic: str
    largest_batch: int
    partitions: int

    @property
    def response_bytes(self) -> int:
        """Bytes of a response to a client that asks each partition for as many bytes as the largest batch has."""
        return self.largest_batch * self.partitions


def fetch_overflows(largest: Mapping[str, Sequence[int]]) -> list[Overflow]:
    """Return the topics whose partitions could overflow one response.

    A client before 0.10.1 must ask each partition for at least the bytes of its largest batch, or it cannot read past
    that batch. The broker answers all partitions in one response. Since KIP-74 the whole response has a limit.

    Args:
        largest: topic -> bytes of the largest batch in each of its partitions.
    """
    candidates = [
        Overflow(topic, max(sizes), len(sizes)) for topic, sizes in sorted(largest.items()) if sizes
    ]
    return [candidate for candidate in candidates if candidate.response_bytes > MOST_RESPONSE_BYTES]
