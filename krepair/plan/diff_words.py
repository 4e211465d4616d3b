"""What differs between two plans, in the words and units of a person; see ``krepair.plan.diff``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from krepair.formats.java_numbers import INT64_MAX
from krepair.plan.view import count_text, size_text, time_text
from krepair.rules.reasons import told_of

_LABELS: Final = {
    "now_ms": "clock of the decisions",
    "horizon": "delete horizon",
    "horizon_ms": "delete horizon",
    "keep": "originals (--keep)",
    "freed_at_apply": "freed by apply, before purge",
    "freed_at_purge": "freed after purge",
    "peak_extra_bytes": "needed while apply runs",
    "log_bytes_before": ".log before",
    "log_bytes_after": ".log after",
    "log_bytes": ".log of the new segment",
    "index_bytes_at_most": "indexes of the new segment, at most",
    "batches": "batches of the new segment",
    "kept_bytes": "bytes that stay",
    "kept_batches": "batches that stay",
    "kept_markers": "markers that stay",
    "compaction": "records by key",
    "compacted": "records by key",
    "log_end_offset": "log end offset",
    "log_start_offset": "log start offset",
    "high_watermark": "high watermark",
    "drop_unstamped": "markers without a stamp may go",
    "looked_at": "files that were looked at",
    "undo": "way back",
    "type": "kind",
    "expected_seconds": "expected time of apply",
}
_DIGESTS: Final = ("digest", "headers", "crc")
_FIRST_CLOCK_MS: Final = 10**11
"""Numbers of milliseconds below this are lengths of time, and not moments since 1970."""
_NAMED: Final = 3
_LETTERS: Final = 80


def label(what: str) -> str:
    """What a field is called; a field of a later version keeps its name, without underscores."""
    first, _, rest = what.partition(".")
    above, _, name = what.rpartition(".")
    if first == "settings" and "." in rest:
        topic, _, key = rest.partition(".")
        return f"setting {key} of {topic}"
    if above == "risks":
        return f"risk {name}"
    if above.endswith("reasons"):
        return _reason(name)
    if above.endswith("undo"):
        return _LABELS["undo"]
    return _LABELS.get(name, name.replace("_", " "))


def _reason(code: str) -> str:
    known = told_of(code)
    return f"{code}, {known.text}" if known else code


def words(what: str, value: Any) -> str:
    """A value of a plan as a person reads it; empty where there is none.

    Args:
        what: name of the field, with dots between the levels.
        value: as it stands in the plan file.
    """
    if value is None or value == "":
        return ""
    if isinstance(value, Mapping):
        return _members(what, value)
    return _list(what, value) if isinstance(value, list | tuple) else _plain(what.rpartition(".")[2], value)


def _plain(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return number(name, value)
    return f"{value:,.1f}" if isinstance(value, float) else _text(name, str(value))


def number(name: str, value: int) -> str:
    """A whole number of a field, with its unit."""
    if name.endswith("_ns"):
        return time_text(value // 1_000_000)
    if name.endswith("_ms"):
        if value >= INT64_MAX:
            return "any time"
        return time_text(value) if value >= _FIRST_CLOCK_MS else f"{value:,} ms"
    if "bytes" in name.split("_") or name.startswith(("freed_at", "size_")):
        return f"{size_text(-value)} taken" if value < 0 else size_text(value)
    return f"{value:,}"


def exact(value: Any) -> str:
    """A value in full, for two that look the same in a large unit."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = "" if value is None else str(value)
    return text if len(text) <= _LETTERS else "differs"


def _text(name: str, value: str) -> str:
    if name in {"horizon", *_LABELS} and value.isascii() and value.isdigit():
        return time_text(int(value)) if len(value) < len(str(INT64_MAX)) else "any time"
    if name.startswith(_DIGESTS):
        return f"{value[:8]}..." if len(value) > len("12345678...") else value
    return value if len(value) <= _LETTERS else f"{value[:_LETTERS]}..."


def _members(what: str, value: Mapping[str, Any]) -> str:
    if "text" in value:
        return _text("", str(value["text"]))
    if {"batches", "bytes"} <= value.keys():
        return f"{count_text(value['batches'], 'batch', 'batches')}, {size_text(value['bytes'])}"
    if {"records", "kept"} <= value.keys():
        return f"{value['kept']:,} of {count_text(value['records'], 'record')} stay"
    plain = [
        f"{_LABELS.get(name, name.replace('_', ' '))} {words(f'{what}.{name}', member)}"
        for name, member in value.items()
        if not isinstance(member, Mapping | list | tuple)
    ]
    return ", ".join(plain[:_NAMED]) + (", ..." if len(plain) > _NAMED else "")


def _list(what: str, value: Sequence[Any]) -> str:
    if not value:
        return "none"
    shown = [
        "-".join(str(part) for part in member) if isinstance(member, list | tuple) else words(what, member)
        for member in value[:_NAMED]
    ]
    more = f" and {len(value) - _NAMED:,} more" if len(value) > _NAMED else ""
    return ", ".join(shown) + more
