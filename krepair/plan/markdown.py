"""A page as Markdown for ticket systems: headings, pipe tables, fenced commands."""

from __future__ import annotations

import re
from typing import Final

from krepair.plan.view import PARTS, Section, Table, View, typable, visible

# Other people choose the names of topics and files, so they must not become markup.
_MARKUP: Final = re.compile(r"([\\`*_\[\]<>|~])")


def markdown(view: View) -> str:
    """The page, with one newline at the end. Parts of it open with a click, where a ticket system lets them."""
    blocks = [f"# {_text(view.title)}"]
    for part, sections in view.in_parts:
        inside = [block for section in sections for block in _section(section)]
        folded = [f"<details><summary>{PARTS[part]}</summary>", *inside, "</details>"] if part else inside
        blocks += folded
    return "\n\n".join(blocks) + "\n"


def _section(section: Section) -> list[str]:
    parts = [f"## {_text(section.title)}"] if section.title else []
    if len(section.lines) == 1:
        parts.append(_text(section.lines[0]))
    elif section.lines:
        parts.append("\n".join(f"- {_text(line)}" for line in section.lines))
    if section.table is not None and section.table.rows:
        parts.append(_table(section.table))
    if section.commands:
        commands = "\n".join(typable(command) for command in section.commands)
        fence = "`" * max(3, _longest_run(commands) + 1)
        parts.append(f"{fence}sh\n{commands}\n{fence}")
    return parts


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _table(table: Table) -> str:
    rule = ["---:" if place in table.right else "---" for place in range(len(table.columns))]
    rows = [table.columns, *table.rows]
    lines = [f"| {' | '.join(map(_text, row))} |" for row in rows]
    lines.insert(1, f"| {' | '.join(rule)} |")
    return "\n".join(lines)


def _text(text: str) -> str:
    return _MARKUP.sub(r"\\\1", visible(text))
