"""Compressed wrappers of v0 and v1 messages, made and opened message by message, as a slow twin."""

from __future__ import annotations

from collections.abc import Sequence

from krepair.errors import UsageError
from krepair.formats import compression
from krepair.formats.codec import DEFAULT_MAX_BYTES, Codec
from krepair.formats.damage import Damage
from krepair.formats.message_set import LOG_APPEND_TIME, NO_TIMESTAMP, Message, messages
from tests import encoders
from tests.encoders import encode_messages as encode


def _whole(value: bytes, what: str) -> Damage:
    return Damage(0, len(value), "a run of messages in the wrapper", what)


def inner_messages(wrapper: Message, *, max_bytes: int = DEFAULT_MAX_BYTES) -> tuple[Message, ...] | Damage:
    """Read the messages in a wrapper. Their offsets are made absolute; with LogAppendTime they get the wrapper's time.

    Args:
        wrapper: an outer message with a codec.
        max_bytes: largest number of bytes that its messages may have when decompressed.

    Returns:
        The messages, or a ``Damage`` whose range is in the wrapper's value.

    Raises:
        UsageError: the message is not a wrapper.
    """
    if not wrapper.is_wrapper:
        raise UsageError("the message is not compressed")
    if wrapper.value is None:
        return Damage(0, 0, "a run of messages in the wrapper", "null")
    data = compression.decompress(wrapper.codec, wrapper.value, magic=wrapper.magic, max_bytes=max_bytes)
    if isinstance(data, Damage):
        return data
    inner: list[Message] = []
    for placed in messages(data):
        if isinstance(placed, Damage):
            what = f"{placed.found} at byte {placed.position} when decompressed, expected {placed.expected}"
            return _whole(wrapper.value, what)
        if placed.message.is_wrapper:
            return _whole(wrapper.value, "a wrapper in a wrapper")
        inner.append(placed.message)
    if not inner:
        return _whole(wrapper.value, "no message at all")
    return _absolute(wrapper, inner)


def _absolute(wrapper: Message, inner: list[Message]) -> tuple[Message, ...] | Damage:
    if wrapper.magic == 0:
        return tuple(inner)
    # Some versions of librdkafka wrote wrappers with offset 0. Their inner offsets are absolute.
    base = 0 if wrapper.offset == 0 else wrapper.offset - inner[-1].offset
    if base < 0:
        return _whole(
            wrapper.value or b"",
            f"inner offset {inner[-1].offset} above that of the wrapper, {wrapper.offset}",
        )
    if wrapper.is_log_append_time:
        inner = [
            message._replace(timestamp=wrapper.timestamp, attributes=message.attributes | LOG_APPEND_TIME)
            if message.magic
            else message
            for message in inner
        ]
    return tuple(message._replace(offset=base + message.offset) for message in inner)


def wrap(inner: tuple[Message, ...], codec: int, *, log_append_time: int | None = None) -> Message:
    """Put messages with absolute offsets into one wrapper.

    In v1 the inner offsets become relative to the first one; gaps stay. The timestamp of the wrapper is the largest
    inner one, or the log append time.

    Args:
        inner: plain messages of one format with ascending offsets.
        codec: codec id of the wrapper.
        log_append_time: ms, or None for CreateTime.

    Raises:
        UsageError: there is no message, formats are mixed, a message is a wrapper, or the format lacks the codec.
    """
    if not inner or any(message.is_wrapper or message.magic != inner[0].magic for message in inner):
        raise UsageError("a wrapper holds at least one message, all plain and of one format")
    if codec == Codec.NONE:
        raise UsageError("a wrapper is compressed")
    return wrap_as(inner, codec, magic=inner[0].magic, log_append_time=log_append_time)


def wrap_as(
    inner: Sequence[Message], codec: int, *, magic: int, log_append_time: int | None = None
) -> Message:
    """The same into a wrapper of a format that need not be that of its messages (KAFKA-4298)."""
    base = inner[0].offset if magic else 0
    stored = encode(
        message._replace(offset=message.offset - base, attributes=message.attributes & ~LOG_APPEND_TIME)
        for message in inner
    )
    timestamp = max(message.timestamp for message in inner) if magic else NO_TIMESTAMP
    attributes = int(codec)
    if log_append_time is not None:
        timestamp = log_append_time
        attributes |= LOG_APPEND_TIME
    value = encoders.compress(codec, stored, magic=magic)
    return Message(inner[-1].offset, magic, attributes, timestamp, None, value)
