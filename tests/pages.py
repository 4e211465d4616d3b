"""What a page says, for tests."""

from __future__ import annotations

from krepair.plan.view import Section, View


def titled(page: View, title: str) -> Section:
    """The section with this heading, or one that begins so."""
    return next(one for one in page.sections if one.title.startswith(title))


def words_of(page: View) -> str:
    """Every line, cell and command, one a line."""
    words = [page.title]
    for section in page.sections:
        rows = section.table.rows if section.table is not None else ()
        words += [
            section.title,
            *section.lines,
            *(cell for row in rows for cell in row),
            *map(str, section.commands),
        ]
    return "\n".join(words)


def facts(section: Section) -> dict[str, str]:
    """Names and values of a table without headings."""
    assert section.table is not None
    return dict(section.table.rows)  # type: ignore[arg-type]
