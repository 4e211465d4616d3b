"""Parser of field lists: texts that describe Kafka's messages, one line for each field, like Kafka's message files.

A message begins with its name and its versions. Its fields follow in the order of the bytes, indented by two spaces.
The fields of a structure follow it, indented by two more::

    group_metadata value 0-4 flexible=4+
      generation        int32                    | grows with each rebalance
      current_timestamp int64    2+ default=-1   | ms
      members           []struct                 | the members of this generation
        member_id         string                 | member id
        group_instance_id string 3+ nullable=3+  | of a static member

- ``0-4``: the versions of the message (``validVersions`` in Kafka's files); ``flexible``: those with compact lengths
  and tagged fields (``flexibleVersions``); ``newer=as-latest``: later versions are read as the latest.
- ``api_key``: numbers of the record type, which precede the record or its key (``apiKey``).
- ``3+`` or ``1-1``: versions that have the field (``versions``); all versions if omitted.
- ``nullable``: versions in which the field may be null (``nullableVersions``); ``tag``: the tag of a tagged field;
  ``default``: the value if the field is absent.
- ``struct NAME``: a structure that several fields share (``commonStructs``); ``NAME`` or ``[]NAME`` is then their type.

Source: ``generator/.../MessageSpec.java``, ``FieldSpec.java`` (3.9).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from krepair.formats.message_schema import LATEST, Field, Schema

_COMMON = "struct "


def read_messages(text: str) -> dict[str, Schema]:
    """Parse a text into schemas by name, in the order of the text."""
    common: dict[str, tuple[Field, ...]] = {}
    schemas: dict[str, Schema] = {}
    for head, below in _blocks(text.splitlines()):
        fields = tuple(_field(line, more, common) for line, more in _blocks(below))
        if head.startswith(_COMMON):
            common[head.removeprefix(_COMMON)] = fields
        else:
            schema = _message(head, fields)
            schemas[schema.name] = schema
    return schemas


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each line at the left margin with the indented lines below it, dedented by two spaces."""
    head, below = "", list[str]()
    for line in lines:
        if line.startswith("  "):
            below.append(line[2:])
            continue
        if head:
            yield head, below
        head, below = line, []
    if head:
        yield head, below


def _message(head: str, fields: tuple[Field, ...]) -> Schema:
    words = head.split()
    at = next(place for place, word in enumerate(words) if word[0].isdigit())
    options = dict(word.split("=") for word in words[at + 1 :])
    more: dict[str, Any] = {}
    if "flexible" in options:
        more["flexible"] = _since(options.pop("flexible"))
    if "api_key" in options:
        more["api_keys"] = tuple(map(int, options.pop("api_key").split(",")))
    more["newer_are_read"] = options.pop("newer", "") == "as-latest"
    assert not options, head
    return Schema(" ".join(words[:at]), int(words[at].removeprefix("0-")), fields, **more)


def _field(line: str, below: list[str], common: Mapping[str, tuple[Field, ...]]) -> Field:
    front, _, note = line.partition(" | ")
    name, kind, *rest = front.split()
    more: dict[str, Any] = {}
    for word in rest:
        key, is_said, value = word.partition("=")
        if not is_said:
            more["since"] = _since(word)
            more["until"] = LATEST if word.endswith("+") else int(word.partition("-")[2])
        elif key == "nullable":
            more[key] = _since(value)
        elif key == "default" and value == "[]":
            more[key] = ()
        else:
            more[key] = int(value)
    shared = common.get(kind.removeprefix("[]"))
    if shared is not None:
        return Field(name, "[]struct" if kind.startswith("[]") else "struct", note, fields=shared, **more)
    fields = tuple(_field(inner, deeper, common) for inner, deeper in _blocks(below))
    return Field(name, kind, note, fields=fields, **more)


def _since(versions: str) -> int:
    """Return the first of some versions: 3 of ``3+``, 1 of ``1-2``."""
    return int(versions.rstrip("+").partition("-")[0])
