from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.formats import batch_v2, message_set
from krepair.formats.damage import Damage
from krepair.formats.message_set import Message
from tests import encoders
from tests.formats.strategies import INT64, NULLABLE


@st.composite
def plain_messages(draw: st.DrawFn, magic: int | None = None) -> Message:
    magic = draw(st.integers(0, 1)) if magic is None else magic
    timestamp = draw(INT64) if magic else -1
    return Message(draw(st.integers(0, 2**62)), magic, 0, timestamp, draw(NULLABLE), draw(NULLABLE))


ONE = Message(7, 1, 0, 1000, b"key", b"value")
OUTER = st.lists(plain_messages(), max_size=5).map(tuple)


@given(OUTER)
def test_messages_decode_to_what_was_encoded(items: tuple[Message, ...]) -> None:
    data = encoders.encode_messages(items)
    found = encoders.decode_messages(data)
    assert message_set.damage(data) == []
    assert tuple(placed.message for placed in found) == items
    assert sum(placed.size_bytes for placed in found) == len(data)


@given(plain_messages(), st.data())
def test_one_flipped_bit_behind_the_size_is_damage(message: Message, draw: st.DataObject) -> None:
    data = bytearray(encoders.encode_message(message))
    data[draw.draw(st.integers(12, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    assert [wrong.position for wrong in message_set.damage(data)] == [0]


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        (8, (2**31 - 1).to_bytes(4, "big"), "a message of 2147483659 bytes"),
        (8, (-1).to_bytes(4, "big", signed=True), "a message of 11 bytes"),
        (16, b"\x02", "magic 0 or 1"),
        (26, (2**31 - 1).to_bytes(4, "big"), "a key within 42 bytes"),
        (26, (-2).to_bytes(4, "big", signed=True), "a key within 42 bytes"),
        (33, (6).to_bytes(4, "big"), "a value within 42 bytes"),
        (33, (4).to_bytes(4, "big"), "a message of 41 bytes by its fields"),
    ],
)
def test_absurd_field_of_a_message_is_named_as_damage(place: int, value: bytes, expected: str) -> None:
    data = bytearray(encoders.encode_message(ONE))
    data[place : place + len(value)] = value
    assert [wrong.expected for wrong in message_set.damage(data)] == [expected]


def test_log_that_goes_from_v1_to_v2_is_walked_to_the_change() -> None:
    header = batch_v2.BatchHeader(8, 0, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0)
    old, new = encoders.encode_message(ONE), batch_v2.encode_batch(header, b"")
    data = old + new
    assert message_set.damage(data) == [Damage(len(old), 61, "magic 0 or 1", "magic 2")]
