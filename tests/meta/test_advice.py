"""No text advises to delete or move the folder of a replica by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PLACES = (("docs", "*.md"), ("krepair", "*.py"), ("krepair", "*.html"), ("share", "*"))
FILES = [path for folder, pattern in PLACES for path in (ROOT / folder).rglob(pattern)]
TEXTS = sorted(path for path in (*FILES, ROOT / "README.md") if path.is_file() and "adr" not in path.parts)
SENTENCE_END = re.compile(r"(?<=[.:;|])\s|\n\s*\n|\n[-#|]")
ADVICE = re.compile(
    r"\b(?:move|moving|delete|deleting|remove|rebuild|wipe|empty)\b(?:(?! from the )[^.:;]){0,40}"
    r"\b(?:partition folder|its folder|this folder|folder of the (?:replica|partition|broker)|the replica)\b"
    r"|\bmust be rebuilt\b|\bmove[^.:;]{0,20} folder (?:away|out)\b",
    re.IGNORECASE,
)
WARNING = re.compile(r"\b(?:do not|never|must not|not be)\b", re.IGNORECASE)
NOT_A_REPLICA = re.compile(
    # what a broker does, what a scan finds, and folders that are no current replica
    r"\bKR60[234]\b|-stray|-delete\b|-future|lost\+found|move `?\.swap|kafka-reassign-partitions",
)
OF_MARKED_FOLDERS = frozenset({"docs/leftovers.md", "krepair/start/folders.py"})
"""These are about folders that are no current replica, and about two copies on one broker."""


def sentences(path: Path) -> list[str]:
    """Sentences of a file; lines of code that continue a string are joined."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r'"\s*\n\s*f?"', "", text) if path.suffix == ".py" else text
    return [" ".join(sentence.split()) for sentence in SENTENCE_END.split(text)]


def test_nobody_is_told_to_move_or_delete_a_replica_by_hand() -> None:
    told = [
        f"{path.relative_to(ROOT)}: {sentence}"
        for path in TEXTS
        if str(path.relative_to(ROOT)) not in OF_MARKED_FOLDERS
        for sentence in sentences(path)
        if ADVICE.search(sentence) and not WARNING.search(sentence) and not NOT_A_REPLICA.search(sentence)
    ]
    assert told == []


@pytest.mark.parametrize(
    "text",
    [
        "Then move the partition folder away.",
        "If so, move the folder out of the log directory before you start the broker.",
        "It must be rebuilt: delete its folder and let it fetch the partition again.",
        "Delete the folder of the replica.",
    ],
)
def test_such_advice_would_be_found(text: str) -> None:
    assert ADVICE.search(text)
    assert not WARNING.search(text)
