"""Messages are grammatical for none, one and many: no template puts a bare number before a plural."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "krepair"
THINGS = (
    "partitions|segments|files|batches|records|changes|findings|problems|groups|plans|folders|topics|markers|"
    "transactions|entries|lines|offsets|rows|minutes|seconds|brokers|messages|copies|logs|places"
)
BEFORE = re.compile(rf" (?:[a-z-]+ )?({THINGS})\b")
# Where the number is two or more: the line is only there then.
ALWAYS_MANY = frozenset(
    {
        "{len(rows)} plans keep originals",
        "{seen.producers} producers, ",
        "{len(current)} folders of it were found, one was expected",
        "{len(same)} folders of it were found, one was expected",
        "{whole} changes ",
        "{len(shown)} rows; ",
        "{MAX_ENTRIES} entries and ",
        "{MAX_DAMAGES} damaged lines",
        "{files} files open, and LimitNOFILE",
        "{maps} index files, and vm.max_map_count",
    }
)
# The word is a verb, or does not belong to the number.
NOT_COUNTED = (
    "{behind.broker} has batches",
    "changes files of the root",
    "{one.file.name} has lines",
    "of plans, made with",
    "has records and",
    "entries has not",
)


def templates(path: Path) -> list[tuple[int, str]]:
    """Line and text of every number that stands right before a plural."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            for value, after in zip(node.values, node.values[1:], strict=False):
                if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                    text = f"{{{ast.unparse(value.value)}}}{after.value}"
                    if BEFORE.match(str(after.value)) and not is_of_many(text):
                        found.append((node.lineno, text))
    return found


def is_of_many(text: str) -> bool:
    if any(helper in text for helper in ("count_text(", "bytes_words(")) or any(
        words in text for words in NOT_COUNTED
    ):
        return True
    return any(text.startswith(known) for known in ALWAYS_MANY)


def test_no_message_puts_a_number_before_a_plural_without_looking_at_the_number() -> None:
    paths = sorted(ROOT.rglob("*.py"))
    assert len(paths) > 100
    assert {path: found for path in paths if (found := templates(path))} == {}


FAILED_ALOUD = (
    "everything done and verified",
    "{gone:,} records go by key",
    "that say nothing true",
    "which its producer may need",
    "what the coordinator knows is not known",
    "by the chosen horizon",
    "it objects to",
    "share of both",
    "right at every instant",
    "the decisions made anew",
    "cannot be foretold",
    "refused for safety",
    "interrupted at a safe point",
    "stale or not for",
    "krepair knows of nothing here",
    "which a person types",
    "No horizon by itself",
    "bytes left out",
    "its stop, apply",
    "is not taken unasked",
)
# What decides by a sentence: its words may change at any time.
DECIDES_BY_WORDS = re.compile(
    r'partition\("(?:; | \(|: )|"; next: "|== "is not '
    r"|\b(?:in|not in) (?!context\.)[a-z_]+(?:\.[a-z_]+)*\.(?:why|text|message|evidence|reason)\b"
)


def test_no_code_reads_a_sentence_to_decide() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in ROOT.rglob("*.py")
        for line in path.read_text().splitlines()
        if DECIDES_BY_WORDS.search(line)
    }
    assert found == set()


def test_no_sentence_that_was_read_aloud_and_failed_comes_back() -> None:
    every = "\n".join(path.read_text() for path in ROOT.rglob("*.py"))
    assert [words for words in FAILED_ALOUD if words in every] == []


# -- nobody is told to delete or move the folder of a replica


PROJECT = Path(__file__).parent.parent.parent
PLACES = (("docs", "*.md"), ("krepair", "*.py"), ("krepair", "*.html"), ("share", "*"))
FILES = [path for folder, pattern in PLACES for path in (PROJECT / folder).rglob(pattern)]
TEXTS = sorted(path for path in (*FILES, PROJECT / "README.md") if path.is_file() and "adr" not in path.parts)
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
        f"{path.relative_to(PROJECT)}: {sentence}"
        for path in TEXTS
        if str(path.relative_to(PROJECT)) not in OF_MARKED_FOLDERS
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
