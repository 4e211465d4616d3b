"""Lines no longer than a width, in which a command, and an option with its value, are never broken."""

from __future__ import annotations

import pytest

from krepair.plan.view import wrapped


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three", ["one two", "three"]),
        ("so krepair undo p.krplan, until purge", ["so", "krepair undo p.krplan,", "until", "purge"]),
        ("krepair undo puts it back", ["krepair undo", "puts it", "back"]),
        (
            "type krepair plan /d --fix tail --out P now",
            ["type", "krepair plan /d --fix tail --out P", "now"],
        ),
        ("more with --cluster FILE today", ["more with", "--cluster FILE", "today"]),
        ("see krepair explain evidence", ["see", "krepair explain evidence"]),
        ("  indented words go on", ["  indented", "  words go", "  on"]),
        ("a/path/that/is/longer than that", ["a/path/that/is/longer", "than that"]),
    ],
)
def test_what_is_to_be_typed_stays_whole(text: str, lines: list[str]) -> None:
    assert wrapped(text, 10) == lines
