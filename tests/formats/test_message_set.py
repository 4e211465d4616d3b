from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.errors import UsageError
from krepair.formats import batch_v2, compression, message_set
from krepair.formats.damage import Damage
from krepair.formats.message_set import Message
from tests import encoders, wrappers
from tests.formats.strategies import INT64, NULLABLE

CODECS = [compression.Codec.GZIP, compression.Codec.SNAPPY, compression.Codec.LZ4]


@st.composite
def plain_messages(draw: st.DrawFn, magic: int | None = None) -> Message:
    magic = draw(st.integers(0, 1)) if magic is None else magic
    timestamp = draw(INT64) if magic else -1
    return Message(draw(st.integers(0, 2**62)), magic, 0, timestamp, draw(NULLABLE), draw(NULLABLE))


@st.composite
def runs(draw: st.DrawFn) -> tuple[Message, ...]:
    """Messages that one wrapper may hold: one format, offsets growing with gaps."""
    magic = draw(st.integers(0, 1))
    offset = draw(st.integers(0, 2**40))
    found = []
    for message in draw(st.lists(plain_messages(magic), min_size=1, max_size=5)):
        offset += draw(st.integers(1, 1000))
        found.append(message._replace(offset=offset))
    return tuple(found)


ONE = Message(7, 1, 0, 1000, b"key", b"value")
OUTER = st.lists(plain_messages(), max_size=5).map(tuple)


@given(OUTER)
def test_messages_decode_to_what_was_encoded(items: tuple[Message, ...]) -> None:
    data = encoders.encode_messages(items)
    found = encoders.decode_messages(data)
    assert message_set.damage(data) == []
    assert tuple(placed.message for placed in found) == items
    assert sum(placed.size_bytes for placed in found) == len(data)
    assert encoders.message_headers(data)["offset"].tolist() == [message.offset for message in items]


@given(runs(), st.sampled_from(CODECS))
def test_wrapper_opens_to_what_was_wrapped(inner: tuple[Message, ...], codec: int) -> None:
    data = encoders.encode_messages([wrappers.wrap(inner, codec)])
    (placed,) = encoders.decode_messages(data)
    assert placed.message.offset == inner[-1].offset
    assert wrappers.inner_messages(placed.message) == inner


@given(runs(), st.sampled_from(CODECS), INT64)
def test_log_append_time_of_a_v1_wrapper_stands_for_all_in_it(
    inner: tuple[Message, ...], codec: int, time: int
) -> None:
    inner = tuple(message._replace(magic=1) for message in inner)
    wrapper = wrappers.wrap(inner, codec, log_append_time=time)
    found = wrappers.inner_messages(wrapper)
    assert isinstance(found, tuple)
    assert [(message.offset, message.timestamp, message.is_log_append_time) for message in found] == [
        (message.offset, time, True) for message in inner
    ]


def test_inner_offsets_of_v1_are_stored_relative_and_of_v0_absolute() -> None:
    for magic, stored in ((0, [50, 52]), (1, [0, 2])):
        run = tuple(Message(offset, magic, 0, -1, None, b"v") for offset in (50, 52))
        wrapper = wrappers.wrap(run, compression.Codec.GZIP)
        data = compression.decompress(1, wrapper.value or b"")
        assert isinstance(data, bytes)
        assert [placed.message.offset for placed in encoders.decode_messages(data)] == stored


def test_wrapper_with_offset_zero_has_absolute_inner_offsets_as_old_librdkafka_wrote() -> None:
    run = tuple(Message(offset, 1, 0, 5, None, b"v") for offset in (0, 1, 2))
    wrapper = wrappers.wrap(run, compression.Codec.GZIP)._replace(offset=0)
    assert wrappers.inner_messages(wrapper) == run


@given(plain_messages(), st.data())
def test_one_flipped_bit_behind_the_size_is_damage(message: Message, draw: st.DataObject) -> None:
    data = bytearray(encoders.encode_message(message))
    data[draw.draw(st.integers(12, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    assert [wrong.position for wrong in message_set.damage(data)] == [0]


@pytest.mark.parametrize("magic", [0, 1])
@given(data=st.binary(max_size=200), codec=st.integers(1, 7))
def test_any_bytes_in_a_wrapper_are_messages_or_damage(magic: int, data: bytes, codec: int) -> None:
    wrapper = Message(5, magic, codec, -1, None, data)
    assert isinstance(wrappers.inner_messages(wrapper, max_bytes=1 << 20), Damage)


def wrapper_of(stored: bytes, offset: int = 100) -> Message:
    return Message(offset, 1, 1, 0, None, encoders.compress(1, stored))


@pytest.mark.parametrize(
    ("wrapper", "found"),
    [
        (Message(1, 1, 1, 0, None, None), "null"),
        (wrapper_of(b""), "no message at all"),
        (wrapper_of(encoders.encode_messages([wrappers.wrap((ONE,), 1)])), "a wrapper in a wrapper"),
        (
            wrapper_of(encoders.encode_messages([ONE]), offset=6),
            "inner offset 7 above that of the wrapper, 6",
        ),
        (wrapper_of(encoders.encode_messages([ONE])[:-1]), "41 bytes to the end"),
    ],
)
def test_wrapper_that_a_broker_refuses_is_damage(wrapper: Message, found: str) -> None:
    wrong = wrappers.inner_messages(wrapper)
    assert isinstance(wrong, Damage)
    assert wrong.found.startswith(found)


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


@pytest.mark.parametrize(
    ("run", "codec"),
    [
        ((), 1),
        ((ONE,), 0),
        ((ONE, ONE._replace(magic=0, timestamp=-1)), 1),
        ((ONE._replace(attributes=1),), 1),
        ((ONE,), 4),
    ],
)
def test_run_that_no_wrapper_can_hold_is_wrong_use(run: tuple[Message, ...], codec: int) -> None:
    with pytest.raises(UsageError):
        wrappers.wrap(run, codec)


def test_opening_a_plain_message_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="not compressed"):
        wrappers.inner_messages(ONE)


def test_v0_message_with_a_timestamp_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="magic 0"):
        encoders.encode_message(ONE._replace(magic=0))
