"""Parts of a line of output: literals, numbers, times, and bytes as text, hex or base64. Inlined into the kernels.

Each function takes the place at which to write and returns the place after the written bytes. Literals and text are
stored eight bytes at a time. So up to ``SLACK`` bytes behind the end of the line are overwritten, and the caller must
keep them free. Text is escaped as in JSON. Characters that steer a terminal are escaped too: C1 controls, and marks
that change the direction of text.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.kernels.jit import inlined, kernel
from krepair.kernels.words import le64, store64, trailing_zeros

LITERAL_BYTES: Final = 32
SLACK: Final = 64
LAST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999; later times are written as numbers."""

_PAIRS: Any = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), np.uint8).copy()
_HEX: Any = np.frombuffer(b"0123456789abcdef", np.uint8).copy()
_BASE64: Any = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
).copy()
_BASE64_PAIRS: Any = np.column_stack([np.repeat(_BASE64, 64), np.tile(_BASE64, 64)]).reshape(-1).copy()
# The letter after the backslash for control characters with a short form, 0 for the others.
_SHORT: Any = np.zeros(32, np.uint8)
for _code, _letter in ((8, "b"), (9, "t"), (10, "n"), (12, "f"), (13, "r")):
    _SHORT[_code] = ord(_letter)

_TEN_8 = np.uint64(100_000_000)
_ZEROS = np.uint64(0x3030303030303030)
_ONES = np.uint64(0x0101010101010101)
_HIGHS = np.uint64(0x8080808080808080)
_SPACES = np.uint64(0x2020202020202020)
_QUOTES = np.uint64(0x2222222222222222)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)


def literal_table(words: tuple[str, ...]) -> tuple[Any, Any]:
    """Literals for ``put_literal``: uint8[N * LITERAL_BYTES] and their lengths, int64[N]."""
    table = np.zeros(len(words) * LITERAL_BYTES, np.uint8)
    lengths = np.empty(len(words), np.int64)
    for number, word in enumerate(words):
        data = word.encode("ascii")
        assert len(data) <= LITERAL_BYTES, word
        table[number * LITERAL_BYTES : number * LITERAL_BYTES + len(data)] = np.frombuffer(data, np.uint8)
        lengths[number] = len(data)
    return table, lengths


@inlined
def put_literal(out: Any, at: int, table: Any, lengths: Any, number: int) -> Any:
    """Write one literal of a table."""
    start = np.int64(number) * LITERAL_BYTES
    for word in range(LITERAL_BYTES // 8):
        store64(out, at + word * 8, le64(table, start + word * 8))
    return np.int64(at + lengths[number])


@inlined
def _eight_digits(value: Any) -> Any:
    """A number below 10^8 as eight digits in one word: one digit (0 to 9) per byte, the first in the lowest byte."""
    halves = value // np.uint64(10_000) | (value % np.uint64(10_000)) << np.uint64(32)
    hundreds = (halves * np.uint64(10_486)) >> np.uint64(20) & np.uint64(0x7F0000007F)
    pairs = hundreds | (halves - hundreds * np.uint64(100)) << np.uint64(16)
    tens = (pairs * np.uint64(103)) >> np.uint64(10) & np.uint64(0x000F000F000F000F)
    return tens | (pairs - tens * np.uint64(10)) << np.uint64(8)


@inlined
def _put_front(out: Any, at: int, value: Any) -> Any:
    """Write a number below 10^8 without leading zeros."""
    digits = _eight_digits(value)
    # the bit stands for the last digit, so that 0 keeps one digit
    skip = trailing_zeros(digits | np.uint64(1) << np.uint64(56)) & np.uint64(0x78)
    store64(out, at, (digits | _ZEROS) >> skip)
    return np.int64(at + 8 - np.int64(skip >> np.uint64(3)))


@kernel
def put_int(out: Any, at: Any, value: int) -> Any:
    """Write a signed number in decimal."""
    rest = np.uint64(value)
    if value < 0:
        out[at] = 45
        at += 1
        rest = np.uint64(0) - rest
    if rest < _TEN_8:
        return _put_front(out, at, rest)
    low = rest % _TEN_8
    rest //= _TEN_8
    if rest < _TEN_8:
        at = _put_front(out, at, rest)
    else:
        at = _put_front(out, at, rest // _TEN_8)
        store64(out, at, _eight_digits(rest % _TEN_8) | _ZEROS)
        at += 8
    store64(out, at, _eight_digits(low) | _ZEROS)
    return np.int64(at + 8)


@inlined
def put_copy(out: Any, at: int, start: Any, end: Any) -> Any:
    """Write a copy of ``out[start:end]``, which must end at least eight bytes before ``at``."""
    for step in range((end - start + 7) // 8):
        store64(out, at + step * 8, le64(out, start + step * 8))
    return np.int64(at + end - start)


@inlined
def _put_pair(out: Any, at: int, number: int) -> None:
    out[at] = _PAIRS[number * 2]
    out[at + 1] = _PAIRS[number * 2 + 1]


@kernel
def put_time(out: Any, at: int, milliseconds: int) -> Any:
    """Write a time as ISO 8601 in UTC. A time before 1970 or after ``LAST_MS`` is written as a number."""
    if milliseconds < 0 or milliseconds > LAST_MS:
        return put_int(out, at, milliseconds)
    days = milliseconds // 86_400_000
    rest = milliseconds - days * 86_400_000
    # From days to a date: eras of 400 years, and years that begin in March, put the leap day at the end.
    shifted = days + 719_468
    era = shifted // 146_097
    day_of_era = shifted - era * 146_097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    _put_pair(out, at, year // 100)
    _put_pair(out, at + 2, year % 100)
    out[at + 4] = 45
    _put_pair(out, at + 5, month)
    out[at + 7] = 45
    _put_pair(out, at + 8, day)
    out[at + 10] = 84
    _put_pair(out, at + 11, rest // 3_600_000)
    out[at + 13] = 58
    _put_pair(out, at + 14, rest // 60_000 % 60)
    out[at + 16] = 58
    _put_pair(out, at + 17, rest // 1000 % 60)
    out[at + 19] = 46
    thousandths = rest % 1000
    out[at + 20] = np.uint8(48 + thousandths // 100)
    _put_pair(out, at + 21, thousandths % 100)
    out[at + 23] = 90
    return np.int64(at + 24)


@inlined
def _put_escape(out: Any, at: int, code: Any) -> Any:
    out[at] = 92
    out[at + 1] = 117
    for digit in range(4):
        out[at + 2 + digit] = _HEX[(code >> (12 - 4 * digit)) & 15]
    return np.int64(at + 6)


@inlined
def _steers(code: Any) -> bool:
    return (
        0x80 <= code <= 0x9F
        or code in (0x61C, 0x200E, 0x200F)
        or 0x2028 <= code <= 0x202E
        or 0x2066 <= code <= 0x2069
    )


@kernel
def put_text(out: Any, at: int, buf: Any, start: int, end: int) -> Any:
    """Write UTF-8 between quotes, escaped: at most six times its bytes, and two.

    Returns:
        The place after it, or -1 if the bytes are not UTF-8.
    """
    out[at] = 34
    at += 1
    place = start
    while place < end:
        while place + 8 <= end:
            word = le64(buf, place)
            quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
            # some highest bit is set if the word holds a control character, a quote, a backslash, or a byte above 126
            odd = (word - _SPACES) | (quotes - _ONES) | (backslashes - _ONES) | (word + _ONES) | word
            if odd & _HIGHS:
                break
            store64(out, at, word)
            at += 8
            place += 8
        if place >= end:
            break
        # character by character for eight bytes, then the fast way is tried again
        stop = min(place + 8, end)
        while place < stop:
            first = np.int64(buf[place])
            if first < 0x80:
                place += 1
                if first in (34, 92):
                    out[at] = 92
                    out[at + 1] = np.uint8(first)
                    at += 2
                elif first >= 0x20 and first != 0x7F:
                    out[at] = np.uint8(first)
                    at += 1
                elif first < 0x20 and _SHORT[first]:
                    out[at] = 92
                    out[at + 1] = _SHORT[first]
                    at += 2
                else:
                    at = _put_escape(out, at, first)
                continue
            more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
            if first < 0xC2 or first > 0xF4 or place + more >= end:
                return np.int64(-1)
            code = first & (0x3F >> more)
            for step in range(1, more + 1):
                byte = np.int64(buf[place + step])
                if byte & 0xC0 != 0x80:
                    return np.int64(-1)
                code = code << 6 | (byte & 0x3F)
            if (more == 2 and (code < 0x800 or 0xD800 <= code <= 0xDFFF)) or (
                more == 3 and (code < 0x10000 or code > 0x10FFFF)
            ):
                return np.int64(-1)
            if _steers(code):
                at = _put_escape(out, at, code)
            else:
                for step in range(more + 1):
                    out[at + step] = buf[place + step]
                at += more + 1
            place += more + 1
    out[at] = 34
    return np.int64(at + 1)


@kernel
def put_hex(out: Any, at: int, buf: Any, start: int, end: int) -> Any:
    """Write bytes as hex digits between quotes."""
    out[at] = 34
    at += 1
    for place in range(start, end):
        out[at] = _HEX[buf[place] >> 4]
        out[at + 1] = _HEX[buf[place] & 15]
        at += 2
    out[at] = 34
    return np.int64(at + 1)


@kernel
def put_base64(out: Any, at: int, buf: Any, start: int, end: int) -> Any:
    """Write bytes as padded base64 between quotes."""
    out[at] = 34
    at += 1
    place = start
    while place + 3 <= end:
        first = np.int64(buf[place]) << 4 | np.int64(buf[place + 1]) >> 4
        second = (np.int64(buf[place + 1]) & 15) << 8 | np.int64(buf[place + 2])
        out[at] = _BASE64_PAIRS[first * 2]
        out[at + 1] = _BASE64_PAIRS[first * 2 + 1]
        out[at + 2] = _BASE64_PAIRS[second * 2]
        out[at + 3] = _BASE64_PAIRS[second * 2 + 1]
        at += 4
        place += 3
    while place < end:
        left = min(end - place, 3)
        group = np.int64(buf[place]) << 16
        if left > 1:
            group |= np.int64(buf[place + 1]) << 8
        if left > 2:
            group |= np.int64(buf[place + 2])
        for digit in range(4):
            out[at + digit] = 61 if digit > left else _BASE64[(group >> (18 - 6 * digit)) & 63]
        at += 4
        place += 3
    out[at] = 34
    return np.int64(at + 1)
