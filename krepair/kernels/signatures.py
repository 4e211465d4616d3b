"""The argument types of each kernel, so that ``krepair warm`` can compile all kernels in advance.

If a kernel is called with other types, it is compiled at that call. A test compares this list with the calls of the
verbs.
"""

from __future__ import annotations

from typing import Final

_BYTES: Final = "uint8[::1]"
_FIXED_BYTES: Final = "read-only uint8[::1]"
_BITS: Final = "boolean[::1]"
_INTS: Final = "int32[::1]"
_LONGS: Final = "int64[::1]"
_ROWS: Final = "int64[:, ::1]"
_FIXED_ROWS: Final = "read-only int64[:, ::1]"
_WORDS: Final = "uint64[::1]"
_FIXED_WORDS: Final = "read-only uint64[::1]"
_WORD_ROWS: Final = "uint64[:, ::1]"
_FIXED_WORD_ROWS: Final = "read-only uint64[:, ::1]"
_WORD: Final = "uint64"
_LONG: Final = "int64"
_FLAG: Final = "boolean"
BATCHES: Final = "batches"
"""Rows of ``columns.BATCH``; not a word of numba's."""

SIGNATURES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("check_numbers.number_at", (_BYTES, _LONG, _LONG)),
    ("check_aborted.abort_ranges", (_BYTES, _LONG, _LONG, _LONG, _ROWS, _ROWS, _LONGS)),
    ("check_compacted.batch_facts", (_BYTES, _LONG, _FIXED_ROWS, _LONGS, _LONGS)),
    ("check_compacted.batch_facts", (_FIXED_BYTES, _LONG, _FIXED_ROWS, _LONGS, _LONGS)),
    (
        "check_compacted.check_packed",
        (
            _BYTES,
            _BYTES,
            _ROWS,
            _LONG,
            _LONG,
            _BYTES,
            _BYTES,
            _FIXED_ROWS,
            _LONGS,
            _WORDS,
            _WORD_ROWS,
            _LONGS,
            _LONGS,
        ),
    ),
    (
        "check_compacted.check_records",
        (_BYTES, _LONG, _BYTES, _LONG, _LONGS, _WORDS, _WORD_ROWS, _LONGS),
    ),
    (
        "check_compacted.check_window",
        (
            _BYTES,
            _LONG,
            _LONG,
            _BYTES,
            _LONG,
            _LONG,
            _FIXED_ROWS,
            _LONGS,
            _WORDS,
            _WORD_ROWS,
            _LONGS,
            _LONGS,
            _ROWS,
        ),
    ),
    ("check_frames.single_blocks", (_BYTES, _ROWS, _LONG, _LONG, _ROWS)),
    ("check_headers.close_up", (_BYTES, _LONGS)),
    ("check_headers.read_headers", (_BYTES, _LONG, _LONG, _BYTES, _ROWS)),
    ("check_kept.check_batches", (_BYTES, _INTS, _LONG, _BITS, _LONGS)),
    ("check_kept.check_gathered", (_BYTES, _INTS, _LONG, _BITS, _BYTES, _LONGS)),
    ("check_compacted.header_is_right", (_BYTES, _LONG, _BYTES, _LONG, _LONG)),
    ("check_compacted.header_is_right", (_FIXED_BYTES, _LONG, _FIXED_BYTES, _LONG, _LONG)),
    ("check_compacted.enter_slots", (_WORD_ROWS, _LONG, _INTS)),
    ("check_compacted.join_rows", (_FIXED_WORD_ROWS, _WORD_ROWS, _INTS, _LONGS)),
    ("check_compacted.join_rows", (_WORD_ROWS, _WORD_ROWS, _INTS, _LONGS)),
    ("check_compacted.judge_rows", (_WORD_ROWS, _LONG)),
    (
        "compact_filter.filter_records",
        (_BYTES, _LONG, _LONG, _LONG, _BYTES, _LONGS, _LONGS, _LONGS, _LONGS, _LONGS, _BYTES),
    ),
    (
        "compact_filter.filter_window",
        (
            _BYTES,
            _LONG,
            _LONG,
            _LONG,
            _FIXED_ROWS,
            _LONGS,
            _LONGS,
            _LONGS,
            _LONGS,
            _LONGS,
            _ROWS,
            _FIXED_BYTES,
            _BYTES,
        ),
    ),
    (
        "compact_packed.filter_packed",
        (_BYTES, _ROWS, _LONG, _LONG, _BYTES, _LONG, _LONGS, _LONGS, _LONGS, _LONGS, _LONGS, _BYTES),
    ),
    (
        "compact_packed.note_packed",
        (_BYTES, _LONG, _LONG, _FIXED_ROWS, _LONGS, _LONGS, _LONGS, _ROWS),
    ),
    ("compact_filter.write_rewritten", (_BYTES, _LONG, _LONG, _LONG, _LONG, _LONG)),
    (
        "compact_headers.filter_headers",
        (_FIXED_BYTES, _LONG, _LONG, _FIXED_ROWS, _LONGS, _LONGS, _LONGS, _LONGS, _BYTES),
    ),
    ("compact_headers.note_headers", (_BYTES, _LONG, _BYTES)),
    ("compact_keys.drain_by_bucket", (_WORD_ROWS, _WORD, _LONGS, _WORD_ROWS)),
    ("compact_keys.held_offsets", (_WORD_ROWS, _WORD_ROWS, _LONGS)),
    (
        "compact_keys.keys_of_packed",
        (_BYTES, _ROWS, _LONG, _LONG, _BYTES, _FIXED_WORDS, _WORD_ROWS, _LONGS),
    ),
    (
        "compact_keys.keys_of_records",
        (_BYTES, _LONG, _LONG, _LONG, _LONG, _FIXED_WORDS, _WORD_ROWS, _LONGS),
    ),
    (
        "compact_keys.keys_window",
        (_BYTES, _LONG, _LONG, _LONG, _FIXED_ROWS, _FIXED_WORDS, _WORD_ROWS, _LONGS, _ROWS),
    ),
    ("compact_keys.last_stored_offset", (_FIXED_BYTES,)),
    ("compact_keys.merge_rows", (_FIXED_WORD_ROWS, _WORD_ROWS, _LONGS)),
    ("compact_keys.merge_rows", (_WORD_ROWS, _WORD_ROWS, _LONGS)),
    ("compact_records._headers_end", (_BYTES, _LONG, _LONG, _LONG)),
    ("compact_records._long_varint", (_BYTES, _LONG, _LONG, _LONG)),
    ("compact_records.key_hash", (_BYTES, _LONG, _LONG, _WORD, _WORD)),
    ("compact_records.key_hash", (_FIXED_BYTES, _LONG, _LONG, _WORD, _WORD)),
    ("crc32.crc32_piece", (_LONG, _BYTES, _LONG, _LONG)),
    ("dump_rows._read_record", (_BYTES, _LONG, _LONG, _LONGS)),
    ("dump_rows.header_rows", (_BYTES, _ROWS, _ROWS)),
    ("dump_rows.record_rows", (_BYTES, _LONG, _LONG, _LONG, _ROWS)),
    ("dump_rows.window_records", (_BYTES, _LONG, BATCHES, _ROWS, _LONGS)),
    ("replica_rows.batch_fates", (BATCHES, _ROWS, _LONGS)),
    ("replica_rows.body_hash", (_BYTES, _LONG, _LONG, _WORD, _WORD)),
    ("replica_rows.count_keys", (_WORD_ROWS, _WORD_ROWS)),
    ("replica_rows.digest_of", (_WORD, _WORD, _LONG, _LONG, _LONG, _LONG, _LONG)),
    (
        "replica_rows.enter_records",
        (_WORD_ROWS, _LONGS, _LONGS, _BYTES, _FLAG, _WORD_ROWS, _WORD_ROWS, _LONGS),
    ),
    (
        "replica_rows.hash_messages",
        (_BYTES, _LONG, _LONG, _LONG, _LONG, _LONG, _WORDS, _LONGS, _WORD_ROWS),
    ),
    ("replica_rows.hash_records", (_BYTES, BATCHES, _LONGS, _ROWS, _WORDS, _WORD_ROWS)),
    ("replica_rows.mark_keys", (_WORD_ROWS, _WORD_ROWS, _LONG, _BYTES)),
    ("replica_rows.merge_keys", (_WORD_ROWS, _WORD_ROWS, _LONGS)),
    ("columns._front_row", (_BYTES, _LONG, _LONG, _LONG, BATCHES)),
    ("columns.read_batches", (_BYTES, _LONG, _LONG, _LONG, _FLAG, _LONGS, BATCHES, _LONG)),
    ("index_entries.enter_batches", (BATCHES, _LONG, _LONG, _LONGS, _ROWS, _ROWS)),
    ("index_entries.enter_window", (_BYTES, _INTS, _LONG, _LONG, _LONG, _LONGS, _ROWS, _ROWS, _ROWS)),
    ("legacy.legacy_window", (_BYTES, _LONG, _LONGS, _LONGS, _ROWS, _INTS, _BYTES)),
    ("lz4_frames._block", (_BYTES, _LONG, _LONG, _BYTES, _LONG, _LONG)),
    ("lz4_frames.lz4_frame", (_BYTES, _LONG, _LONG, _BYTES, _LONG, _LONG)),
    ("lz4_frames._long", (_BYTES, _LONG, _LONG, _LONG)),
    ("unpacked_frames.unpack_frames", (_BYTES, _ROWS, _LONG, _LONG, _BYTES)),
    ("zstd_frames._front", (_BYTES, _LONG, _LONG)),
    ("zstd_frames._most_of", (_BYTES, _LONG, _LONG)),
    ("zstd_frames.most_of_zstd", (_BYTES, _ROWS, _LONG, _LONG, _LONGS)),
    ("batch_starts._gather", (_BYTES, _INTS, _LONG, _BITS, _BYTES)),
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
            _LONGS,
            _ROWS,
            _INTS,
            _BYTES,
        ),
    ),
    ("transactions.rehash", (_INTS, _ROWS, _LONG)),
    (
        "transactions.transactions_window",
        (_BYTES, _LONG, _LONG, _LONG, _FLAG, _LONGS, _ROWS, _INTS, _ROWS),
    ),
)
"""``module.function`` and its argument types, spelled as numba does; ``read-only`` and ``batches`` are our own."""
