"""Lines of a text that are no longer than a width. What is to be typed is never broken."""

from __future__ import annotations

import re
from typing import Final

_PROGRAM: Final = re.compile(r"\W?(?:krepair|kafka-[a-z-]+\.sh)")
_VERB: Final = re.compile(r"[a-z]+\W?")
_ARGUMENT: Final = re.compile(r"-|[$'\"*]|\S*[/=]|[A-Z][A-Z0-9_-]*\W*$|\w[\w-]*\.\w+\W*$")
"""A word that may be part of a command: an option, a path, a name in capital letters, the name of a file."""
_ENDS: Final = tuple(",;.:)")


def wrapped(text: str, width: int) -> list[str]:
    """Lines of a text. A command in it, an option with its value, and a long word stay whole."""
    if len(text) <= width:
        return [text]
    indent = " " * (len(text) - len(text.lstrip(" ")))
    lines = [""]
    for piece in unbroken(text.strip(" ")):
        longer = f"{lines[-1]} {piece}" if lines[-1] else f"{indent}{piece}"
        if lines[-1] and len(longer) > width:
            lines.append(f"{indent}{piece}")
        else:
            lines[-1] = longer
    return lines


def unbroken(text: str) -> list[str]:
    """The words of a text; those of a command are one."""
    pieces: list[str] = []
    for word in text.split(" "):
        if pieces and _belongs_to(pieces[-1], word):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    return pieces


def _belongs_to(piece: str, word: str) -> bool:
    """Whether a word goes on with a command, or is the value of an option."""
    last = piece.rpartition(" ")[2]
    if last.endswith(_ENDS):
        return False
    if last.startswith("--"):
        return True
    program, *more = piece.split(" ")
    if not _PROGRAM.fullmatch(program):
        return False
    named = more[:1] == ["explain"] and len(more) == 1
    return bool(_ARGUMENT.match(word) or named or (not more and _VERB.fullmatch(word)))
