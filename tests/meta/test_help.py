"""Help texts, and what starting the command costs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer.main

from krepair.cli.main import app

GROUP: Any = typer.main.get_command(app)


def help_of(verb: str) -> str:
    command = GROUP.commands[verb]
    return str(
        command.get_help(command.context_class(command, info_name=f"krepair {verb}", terminal_width=200))
    )


@pytest.mark.parametrize("verb", sorted(GROUP.commands))
def test_help_of_every_verb_has_an_example_that_parses(verb: str) -> None:
    lines = [line.strip() for line in help_of(verb).splitlines()]
    examples = [line.removeprefix("Example: ") for line in lines if line.startswith("Example: ")]
    assert len(examples) == 1
    words = examples[0].split(">")[0].split()
    assert words[:2] == ["krepair", verb]
    GROUP.commands[verb].make_context(verb, words[2:])


@pytest.mark.parametrize("verb", sorted(GROUP.commands))
def test_every_option_says_what_it_does(verb: str) -> None:
    silent = [each.name for each in GROUP.commands[verb].params if not getattr(each, "help", None)]
    assert silent == []


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["--version"]])
def test_help_starts_without_compiler_spark_or_terminal_libraries(arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "from krepair.cli.main import main\n"
        f"sys.argv = ['krepair', *{arguments!r}]\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0, end.code\n"
        "heavy = {'numba', 'numpy', 'pyspark', 'pandas', 'pyarrow', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'imported: {sorted(heavy)}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
