"""Commands of a runbook, taken from its page and typed literally."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from typer.testing import CliRunner

from krepair.cli.main import app

DOCS = Path(__file__).resolve().parents[2] / "docs"
RUNBOOKS = DOCS / "runbooks"
BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def commands_of(page: str) -> list[str]:
    """Every command of a runbook, continued lines joined, in the order of the page."""
    return [command for block in blocks_of(RUNBOOKS / page) for command in block]


def blocks_of(page: Path) -> list[list[str]]:
    """The commands of each block of a page; what stands on both sides of ``&&`` are two, each is typed if the first is
    done.
    """
    blocks = [text.replace("\\\n", " ").splitlines() for text in BLOCK.findall(page.read_text())]
    return [
        [" ".join(command.split()) for line in lines for command in line.split(" && ") if command.strip()]
        for lines in blocks
    ]


@dataclass
class Shell:
    """Somebody who follows a runbook.

    Args:
        folder: where the commands are typed.
        names: what stands in the page -> what is here: paths, ids.

    Attributes:
        said: each command and what it printed.
    """

    folder: Path
    names: Mapping[str, str]
    said: list[tuple[str, str]] = field(default_factory=list)

    def type(self, command: str) -> int:
        """Run one command; its exit code.

        krepair runs in this process, which saves its start; everything else is run by a shell.
        """
        pattern = "|".join(map(re.escape, sorted(self.names, key=len, reverse=True)))
        here = re.sub(pattern, lambda found: self.names[found[0]], command)
        words = shlex.split(here, comments=True)
        if words[0] != "krepair":
            ended = subprocess.run(
                ["bash", "-c", here], cwd=self.folder, capture_output=True, text=True, check=False
            )
            self.said.append((command, ended.stdout + ended.stderr))
            return ended.returncode
        target = ""
        if ">" in words:
            place = words.index(">")
            target, words = words[place + 1], words[:place]
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            result = CliRunner().invoke(app, words[1:])
            if target:
                Path(target).write_bytes(result.stdout_bytes)
        finally:
            os.chdir(before)
        self.said.append((command, result.output))
        return result.exit_code

    def output(self, command: str) -> str:
        """What the last command that begins so has printed."""
        return [text for typed, text in self.said if typed.startswith(command)][-1]


def follow(page: str, steps: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """The commands of a page that steps name, with the exit code that each is to have.

    Raises:
        AssertionError: a step names no command of the page, or several different ones.
    """
    commands = commands_of(page)
    for start, code in steps:
        meant = {command for command in commands if command.startswith(start)}
        meant = {start} if start in meant else meant
        assert len(meant) == 1, f"{page}: {start!r} means {sorted(meant)}"
        yield meant.pop(), code
