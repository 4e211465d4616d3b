"""A strict reader of the part of JSON Schema (draft 2020-12) that the published schemas use.

It refuses keywords that it does not know, so that no rule of a schema is passed over in silence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tools import docs

WORDS = {"$schema", "title", "description", "default", "discriminator", "$defs"}
TYPES = {
    "string": str,
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}


class Schema:
    """One schema with its definitions.

    Args:
        root: the schema.
        closed: fields that the schema does not know are faults, too.
        spelled_out: of a closed one, fields that are not there are faults, too.
    """

    def __init__(self, root: dict[str, Any], *, closed: bool = False, spelled_out: bool = True) -> None:
        self._root, self._closed, self._spelled_out = root, closed, spelled_out

    def faults(self, value: Any) -> list[str]:
        """Where a value is not as the schema says."""
        return list(self._check(value, self._root, "$"))

    def _check(self, value: Any, schema: Any, at: str) -> Iterator[str]:
        if isinstance(schema, bool):
            if not schema:
                yield f"{at}: nothing may be here"
            return
        for keyword, rule in schema.items():
            if keyword in WORDS:
                continue
            check = getattr(self, "_" + keyword.strip("$"), None)
            if check is None:
                raise AssertionError(f"{at}: unknown keyword {keyword!r}")
            yield from check(value, rule, schema, at)

    def _minimum(self, value: Any, rule: int, _: Any, at: str) -> Iterator[str]:
        if isinstance(value, int) and value < rule:
            yield f"{at}: {value} is less than {rule}"

    def _ref(self, value: Any, rule: str, _: Any, at: str) -> Iterator[str]:
        place: Any = self._root
        for name in rule.removeprefix("#/").split("/"):
            place = place[name]
        yield from self._check(value, place, at)

    def _type(self, value: Any, rule: str, _: Any, at: str) -> Iterator[str]:
        if rule == "integer":
            fits = isinstance(value, int) and not isinstance(value, bool)
        elif rule == "number":
            fits = isinstance(value, int | float) and not isinstance(value, bool)
        else:
            fits = isinstance(value, TYPES[rule])
        if not fits:
            yield f"{at}: {value!r:.60} is no {rule}"

    def _enum(self, value: Any, rule: list[Any], _: Any, at: str) -> Iterator[str]:
        if value not in rule:
            yield f"{at}: {value!r:.60} is none of {rule}"

    def _anyOf(self, value: Any, rule: list[Any], _: Any, at: str) -> Iterator[str]:
        tried = [list(self._check(value, each, at)) for each in rule]
        if all(tried):
            yield f"{at}: none of {len(rule)} fits; the nearest: {min(tried, key=len)[:3]}"

    def _oneOf(self, value: Any, rule: list[Any], _: Any, at: str) -> Iterator[str]:
        fits = sum(not list(self._check(value, each, at)) for each in rule)
        if fits != 1:
            yield f"{at}: {fits} of {len(rule)} fit"

    def _allOf(self, value: Any, rule: list[Any], _: Any, at: str) -> Iterator[str]:
        for each in rule:
            # each is only a part of the whole: what else is there is not its business
            yield from Schema(self._root)._check(value, {**each}, at)

    def _properties(self, value: Any, rule: dict[str, Any], schema: Any, at: str) -> Iterator[str]:
        if not isinstance(value, dict):
            return
        for name, each in rule.items():
            if name in value:
                yield from self._check(value[name], each, f"{at}.{name}")
        if self._closed and "allOf" not in schema:
            yield from (f"{at}.{name}: not in the schema" for name in value.keys() - rule.keys())
            yield from (
                f"{at}.{name}: has a default, but is not written"
                for name in rule.keys() - value.keys()
                if "default" in rule[name] and self._spelled_out
            )

    def _required(self, value: Any, rule: list[str], _: Any, at: str) -> Iterator[str]:
        if isinstance(value, dict):
            yield from (f"{at}.{name}: is missing" for name in rule if name not in value)

    def _items(self, value: Any, rule: Any, schema: Any, at: str) -> Iterator[str]:
        if isinstance(value, list):
            first = len(schema.get("prefixItems", ()))
            for place, item in enumerate(value[first:], first):
                yield from self._check(item, rule, f"{at}[{place}]")

    def _prefixItems(self, value: Any, rule: list[Any], _: Any, at: str) -> Iterator[str]:
        if isinstance(value, list):
            for place, (item, each) in enumerate(zip(value, rule, strict=False)):
                yield from self._check(item, each, f"{at}[{place}]")

    def _minItems(self, value: Any, rule: int, _: Any, at: str) -> Iterator[str]:
        if isinstance(value, list) and len(value) < rule:
            yield f"{at}: {len(value)} items, at least {rule}"

    def _maxItems(self, value: Any, rule: int, _: Any, at: str) -> Iterator[str]:
        if isinstance(value, list) and len(value) > rule:
            yield f"{at}: {len(value)} items, at most {rule}"

    def _additionalProperties(self, value: Any, rule: Any, schema: Any, at: str) -> Iterator[str]:
        if isinstance(value, dict):
            for name in value.keys() - schema.get("properties", {}).keys():
                yield from self._check(value[name], rule, f"{at}.{name}")


SCHEMAS = docs.DOCS / "schemas"


def schema_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    return found


def faults(verb: str, text: str) -> list[str]:
    return Schema(schema_of(verb), closed=True).faults(json.loads(text))
