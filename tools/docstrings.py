"""Words of docstrings, for pages and schemas."""

from __future__ import annotations

import inspect
import re


def plain(text: str) -> str:
    """A docstring's words in Markdown: one backtick for two."""
    return " ".join(text.replace("``", "`").split())


def attributes_of(struct: type) -> dict[str, str]:
    """Field name -> words, from the ``Attributes`` sections of its docstring and of those that it inherits from."""
    found: dict[str, str] = {}
    for one in reversed(struct.__mro__):
        found |= _attributes_in(inspect.cleandoc(one.__doc__ or ""))
    return found


def _attributes_in(text: str) -> dict[str, str]:
    _, _, section = text.partition("Attributes:\n")
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        match = re.match(r"    (\w+): (.*)", line)
        if match:
            name = match[1]
            found[name] = match[2]
        elif name:
            found[name] += " " + line.strip()
    return {field: plain(words) for field, words in found.items()}
