"""With which types each kernel is called, so that all of them can be compiled before anything is to be done.

A kernel that is called with others is compiled when it happens; a test holds this list against what the verbs call.
"""

from __future__ import annotations

from typing import Final

_BYTES: Final = "uint8[::1]"
_FIXED_BYTES: Final = "read-only uint8[::1]"
_BITS: Final = "boolean[::1]"
_INTS: Final = "int32[::1]"
_LONGS: Final = "int64[::1]"
_ROWS: Final = "int64[:, ::1]"
_LONG: Final = "int64"
_FLAG: Final = "boolean"

_COMMITS: Final = (
    _ROWS,
    _LONGS,
    _ROWS,
    _LONG,
    _LONGS,
    _ROWS,
    _INTS,
    _BYTES,
    _ROWS,
    _INTS,
    _ROWS,
    _INTS,
    _ROWS,
)

SIGNATURES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("crc32.crc32_piece", (_LONG, _BYTES, _LONG, _LONG)),
    ("dump_lines.batch_lines", (_ROWS, _LONGS, _BYTES, _LONGS, _LONGS, _BYTES, _LONG)),
    (
        "dump_lines.record_lines",
        (_BYTES, _ROWS, _LONGS, _ROWS, _LONGS, _BYTES, _LONGS, _LONGS, _BYTES, _LONG),
    ),
    ("dump_rows.batch_rows", (_BYTES, _LONG, _LONG, _LONG, _LONGS, _ROWS, _LONG)),
    ("dump_rows.read_header", (_BYTES, _LONG, _LONG, _LONG, _LONGS)),
    ("dump_rows.record_rows", (_BYTES, _LONG, _LONG, _LONG, _ROWS)),
    ("dump_rows.window_records", (_BYTES, _LONG, _ROWS, _ROWS, _LONGS)),
    ("group_commits.fill_chains", (_ROWS, _ROWS, _LONG, _INTS)),
    ("group_commits.fill_producers", (_ROWS, _LONG, _INTS)),
    ("group_commits.fill_slots", (_ROWS, _LONG, _BYTES, _INTS)),
    ("group_commits.take_commits", (_BYTES, *_COMMITS)),
    ("group_commits.take_commits", (_FIXED_BYTES, *_COMMITS)),
    ("header_walk.header_window", (_BYTES, _LONG, _LONG, _LONG, _LONGS, _ROWS)),
    ("legacy.legacy_window", (_BYTES, _LONG, _LONGS, _LONGS, _ROWS, _INTS, _BYTES)),
    ("places._claim", (_BYTES, _LONG, _INTS)),
    ("places._gather", (_BYTES, _INTS, _LONG, _BITS, _BYTES)),
    ("recover.recover_window", (_BYTES, _LONG, _LONGS, _LONG, _LONG, _LONG, _FLAG, _ROWS, _ROWS)),
    ("resync.next_candidate", (_BYTES, *(_LONG,) * 7)),
    ("scan_window.crc_piece", (_LONG, _BYTES, _LONG, _LONG)),
    ("scan_window.decision_delta", (_LONG, _LONG, _LONG)),
    ("scan_window.insert_rows", (_INTS, _LONGS)),
    (
        "scan_window.scan_window",
        (
            _BYTES,
            _LONG,
            _LONGS,
            _LONGS,
            _ROWS,
            _INTS,
            _ROWS,
            _ROWS,
            _BYTES,
            _LONGS,
            _LONGS,
            _ROWS,
            _ROWS,
            _INTS,
            _BYTES,
        ),
    ),
    ("transactions.open_rows", (_LONGS, _LONGS, _LONGS, _ROWS, _INTS)),
    ("transactions.rehash", (_INTS, _ROWS, _LONG)),
    (
        "transactions.transactions_window",
        (_BYTES, _LONG, _LONG, _LONG, _FLAG, _LONGS, _ROWS, _INTS, _ROWS),
    ),
)
"""``module.function`` and the types of its arguments in numba's spelling; numba has none for what is read-only."""
