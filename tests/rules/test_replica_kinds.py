"""The kinds of disagreement stand in JSON, and scripts ask for them: they are the words of the page."""

from __future__ import annotations

import re
from pathlib import Path

from krepair.rules.replicas import model as m

PAGE = Path(__file__).parents[2] / "docs" / "compare.md"


def test_each_kind_stands_on_the_page_with_its_rule_and_below_its_verdict() -> None:
    diverged, others = (
        PAGE.read_text().split("What a partition can have diverged in:")[1].split("What the other verdicts")
    )
    row = re.compile(r"^\| ([a-z-]+) \| (KR\d{3}) \|", re.MULTILINE)
    assert dict(row.findall(diverged) + row.findall(others)) == m.RULE_OF
    assert {kind for kind, verdict in m.VERDICT_OF.items() if verdict == m.DIVERGED} == dict(
        row.findall(diverged)
    ).keys()
    assert m.VERDICT_OF.keys() == m.RULE_OF.keys()


def test_each_verdict_stands_on_the_page() -> None:
    rows = re.findall(r"^\| ([a-z, -]+) \| .* \| \d+ \|$", PAGE.read_text(), re.MULTILINE)
    assert {word for row in rows for word in row.split(", ")} == set(m.VERDICTS)
