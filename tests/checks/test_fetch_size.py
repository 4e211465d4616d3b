"""Cases in which the answer to an old client cannot be sent."""

from __future__ import annotations

from krepair.checks.fetch_size import MOST_RESPONSE_BYTES, Overflow, fetch_overflows


def test_the_largest_batch_counts_for_every_partition() -> None:
    found = fetch_overflows({"b": [1, 2**20, 5] * 700, "a": [2**30, 10], "c": [], "d": [2**30]})
    assert found == [Overflow("a", 2**30, 2), Overflow("b", 2**20, 2100)]
    assert [each.response_bytes for each in found] == [2**31, 2100 * 2**20]


def test_a_response_of_exactly_the_most_bytes_can_be_sent() -> None:
    assert fetch_overflows({"t": [MOST_RESPONSE_BYTES]}) == []
    assert fetch_overflows({"t": [MOST_RESPONSE_BYTES + 1]}) != []
