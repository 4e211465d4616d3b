"""Lines of ``krepair dump`` in plain Python: rare kinds, and records that are decoded or searched.

A line has a kind and fields; in JSON it is one object, for a person it is text. Neither form can control a terminal. If
``lines`` can write the same line, both modules write it identically.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from krepair.formats import batch_v2, control
from krepair.formats.control import ControlType
from krepair.formats.coordinator_record import RecordTable
from krepair.formats.damage import Damage
from krepair.formats.words import all_printable, json_for_terminals, time_text
from krepair.scan.log_records import DEFAULT_CUT, LogRecord

FORMAT_VERSION: Final = "1.0"
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime", "NoTimestampType")
MARKERS: Final = tuple(ControlType(number).name for number in range(len(ControlType)))
TIMES: Final = frozenset({"timestamp", "base_timestamp", "max_timestamp", "delete_horizon_ms"})
LAST_MS: Final = 253_402_300_799_999
"""Last millisecond of the year 9999; later times, and times before 1970, are written as numbers."""


class DumpWord(str):
    """Text that a person sees without quotes: a name of krepair or Kafka."""

    __slots__ = ()


class Raw(bytes):
    """Finished JSON."""

    __slots__ = ()


def _plain(value: Any) -> str:
    if isinstance(value, DumpWord):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} in a line of output")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_plain)


def json_of(value: Any) -> bytes:
    """Encode JSON in one line that cannot control a terminal; bytes as base64, names that are not UTF-8 escaped."""
    try:
        data = _ENCODER.encode(value)
    except UnicodeEncodeError:
        data = _ENCODER.encode(all_printable(value))
    if data.isascii() and b"\x7f" not in data:
        return data
    return json_for_terminals(data.decode()).encode()


def _time(milliseconds: int) -> bytes:
    return (time_text(milliseconds) if 0 <= milliseconds <= LAST_MS else str(milliseconds)).encode()


def _written(value: Any) -> bytes:
    if type(value) is int:  # most values are ints, and this is three times as fast
        return b"%d" % value
    return value if isinstance(value, Raw) else json_of(value)


class Style:
    """Writer of lines in JSON or in words.

    Args:
        as_json: True for one object per line, else words for a person.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def line(self, kind: str, fields: Mapping[str, Any]) -> bytes:
        """Build one line, with its newline."""
        if self.as_json:
            parts = [b'{"type":"', kind.encode(), b'"']
            for name, value in fields.items():
                parts += [b',"', name.encode(), b'":', _written(value)]
            return b"".join((*parts, b"}\n"))
        front = b"| record" if kind == "record" else kind.encode()
        words = [b" %b=%b" % (name.encode(), self._for_person(name, value)) for name, value in fields.items()]
        return b"".join((front, *words, b"\n"))

    def row_writer(self, kind: str, names: tuple[str, ...]) -> Callable[[Sequence[int]], bytes]:
        """Return a function that builds lines of numbers of one kind; for a person times are ISO 8601."""
        if self.as_json:
            template = b'{"type":"%b",%b}\n' % (
                kind.encode(),
                b",".join(b'"%b":%%d' % name.encode() for name in names),
            )
            return lambda row: template % tuple(row)
        words = b"%b %b\n" % (
            kind.encode(),
            b" ".join(b"%b=%b" % (name.encode(), b"%b" if name in TIMES else b"%d") for name in names),
        )
        times = [place for place, name in enumerate(names) if name in TIMES]

        def written(row: Sequence[int]) -> bytes:
            shown: list[int | bytes] = list(row)
            for place in times:
                shown[place] = _time(row[place])
            return words % tuple(shown)

        return written

    def damage(self, damage_found: Damage, rule: str = "") -> bytes:
        """Build the line of a damaged range."""
        fields = damage_found._asdict()
        return self.line("damage", fields | {"rule": DumpWord(rule)} if rule else fields)

    def _for_person(self, name: str, value: Any) -> bytes:
        if isinstance(value, Raw):
            return value
        if (
            isinstance(value, DumpWord)
            and value
            and value.isascii()
            and value.isprintable()
            and " " not in value
        ):
            return value.encode()
        if name in TIMES and isinstance(value, int):
            return _time(value)
        return json_of(value)


AUTO, TEXT, JSON, HEX, BASE64 = "auto", "text", "json", "hex", "base64"
"""Forms of keys and values; ``auto`` is text, or base64 if the bytes are not UTF-8."""
BULK_FORMS: Final = (AUTO, HEX, BASE64)
"""Forms that ``lines.quoted`` supports, by their numbers there."""


@dataclass(frozen=True)
class RecordLines:
    """Writer of records.

    Attributes:
        style: output style, JSON or words.
        key_form: form of keys, a value of ``--keys``.
        value_form: form of values and header values.
        table: decoder of the topic's records, or None.
        grep: pattern that a key, value, header or decoded text has to match; None for all records.
        cut: largest number of bytes shown of a key or a value.
    """

    style: Style
    key_form: str = AUTO
    value_form: str = AUTO
    table: RecordTable | None = None
    grep: re.Pattern[bytes] | None = None
    cut: int = DEFAULT_CUT

    @property
    def in_bulk(self) -> bool:
        """True if lines are written in bulk, except decoded records; control records are not decoded."""
        return (
            self.grep is None
            and self.cut >= DEFAULT_CUT
            and self.key_form in BULK_FORMS
            and self.value_form in BULK_FORMS
        )

    def line(self, batch: Any, shown: LogRecord) -> bytes | None:
        """Build the line of one record, or None if the record is filtered out.

        Args:
            batch: header of the record's batch.
        """
        attributes = int(batch["attributes"])
        is_control = bool(attributes & batch_v2.CONTROL)
        decoded = None
        if self.table is not None and not is_control:
            decoded = self._decoded(shown)
        if self.grep is not None and not self._found(shown, decoded):
            return None
        fields: dict[str, Any] = {
            "position": int(batch["position"]),
            "offset": shown.offset,
            "timestamp": shown.timestamp,
            "timestamp_type": DumpWord(TIMESTAMP_TYPES[timestamp_type(batch)]),
        }
        if batch["magic"] > 1:
            fields |= {
                "sequence": shown.sequence,
                "producer_id": int(batch["producer_id"]),
                "producer_epoch": int(batch["producer_epoch"]),
                "transactional": bool(attributes & batch_v2.TRANSACTIONAL),
                "control": is_control,
            }
        fields |= {"key_size": shown.key_size, "value_size": shown.value_size}
        if is_control:
            fields |= _marker(shown)
        if shown.headers:
            fields["headers"] = Raw(b"[%b]" % self._headers(shown))
        if shown.cut_headers:
            fields["headers_left_out"] = shown.cut_headers
        if decoded is not None:
            fields |= decoded
            return self.style.line("record", fields)
        for name, data, form, size in (
            ("key", shown.key, self.key_form, shown.key_size),
            ("value", shown.value, self.value_form, shown.value_size),
        ):
            fields |= named_bytes(name, data if data is None else data[: self.cut], form)
            if data is not None and size > min(len(data), self.cut):
                fields[f"{name}_cut"] = True
        return self.style.line("record", fields)

    def _headers(self, shown: LogRecord) -> bytes:
        rows = []
        for key, value in shown.headers:
            fields = named_bytes("key", key, AUTO)
            fields |= named_bytes("value", value if value is None else value[: self.cut], self.value_form)
            if self.style.as_json:
                parts = [
                    b'"%b":%b' % (name.encode(), data if isinstance(data, Raw) else json_of(data))
                    for name, data in fields.items()
                ]
                rows.append(b"{%b}" % b",".join(parts))
            else:
                parts = [
                    b"%b=%b" % (name.encode(), data if isinstance(data, Raw) else json_of(data))
                    for name, data in fields.items()
                ]
                rows.append(b"{%b}" % b" ".join(parts))
        return (b"," if self.style.as_json else b" ").join(rows)

    def _decoded(self, shown: LogRecord) -> dict[str, Any] | None:
        """Decode a coordinator's record; None if it was cut, so that its bytes are shown."""
        assert self.table is not None
        cut = any(
            data is not None and size > len(data)
            for data, size in ((shown.key, shown.key_size), (shown.value, shown.value_size))
        )
        if cut:
            return None
        record = self.table.decode(shown.key, shown.value)
        fields: dict[str, Any] = {"record": DumpWord(record.type), "key_version": record.key_version}
        if record.key:
            fields["key_fields"] = record.key
        else:
            fields |= named_bytes("key", shown.key, AUTO)
        if record.tombstone:
            fields["tombstone"] = True
        else:
            fields["value_version"] = record.value_version
            if record.value is not None:
                fields["value_fields"] = _nested(record.type, record.value)
            else:
                fields |= named_bytes("value", shown.value, AUTO)
        if record.problem:
            fields["problem"] = record.problem
        return fields

    def _found(self, shown: LogRecord, decoded: dict[str, Any] | None) -> bool:
        assert self.grep is not None
        look = [shown.key, shown.value, *(data for pair in shown.headers for data in pair)]
        if decoded is not None:
            look.append(json_of({name: value for name, value in decoded.items() if name.endswith("_fields")}))
            look.append(str(decoded["record"]).encode())
        return any(data is not None and self.grep.search(data) for data in look)


def _nested(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    """Decode also the bytes packed inside a value: subscriptions and assignments of a classic group."""
    from krepair.formats import group_metadata, transaction_state

    if kind == "transaction_state":
        return value | {"transaction_state": transaction_state.state_name(value["transaction_status"])}
    if kind != "group_metadata" or value["protocol_type"] != group_metadata.CONSUMER_PROTOCOL:
        return value
    return value | {"members": [group_metadata.unpacked_member(member) for member in value["members"]]}


def _marker(shown: LogRecord) -> dict[str, Any]:
    key = None if shown.key is None else control.decode_key(shown.key)
    if key is None or isinstance(key, Damage):
        return {}
    name = MARKERS[key.type_id] if 0 <= key.type_id < len(MARKERS) else key.type_id
    fields: dict[str, Any] = {"marker": DumpWord(name) if isinstance(name, str) else name}
    value = control.decode_end_txn(shown.value)
    if key.is_end_txn and not isinstance(value, Damage):
        fields["coordinator_epoch"] = value.coordinator_epoch
    return fields


def named_bytes(name: str, data: bytes | None, form: str) -> dict[str, Any]:
    """Build a field whose name states its form: ``key``, ``key_json``, ``key_hex`` or ``key_base64``."""
    if data is None:
        return {name: None}
    if form == JSON:
        try:
            return {f"{name}_json": Raw(json_of(msgspec.json.decode(data)))}
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            form = AUTO
    if form == TEXT:
        return {name: data.decode("utf-8", "backslashreplace")}
    if form == AUTO:
        try:
            return {name: data.decode("utf-8")}
        except UnicodeDecodeError:
            form = BASE64
    if form == HEX:
        return {f"{name}_hex": data.hex()}
    return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def timestamp_type(batch: Any) -> int:
    """Return the index in ``TIMESTAMP_TYPES`` for a batch or message."""
    if batch["magic"] == 0:
        return 2
    return int(bool(batch["attributes"] & batch_v2.LOG_APPEND_TIME))
