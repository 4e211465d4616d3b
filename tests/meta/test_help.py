"""Help texts and the number of options: no option that nobody would miss."""

from __future__ import annotations

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


MOST_OF_PLAN, MOST_OF_ALL = 27, 50


def options_of(verb: str) -> set[str]:
    """Long names, without ``--help``."""
    parameters = GROUP.commands[verb].params
    return {one.opts[0] for one in parameters if one.param_type_name == "option" and one.name != "help"}


def test_there_are_at_most_so_many_options() -> None:
    assert len(options_of("plan")) <= MOST_OF_PLAN
    assert len(set[str]().union(*map(options_of, GROUP.commands))) <= MOST_OF_ALL


def test_no_sentence_is_cut_and_no_type_of_python_is_named() -> None:
    page = GROUP.get_help(GROUP.context_class(GROUP, info_name="krepair", terminal_width=80))
    assert "..." not in page.partition("Commands:")[2]
    assert [verb for verb in sorted(GROUP.commands) if "<" in help_of(verb)] == []
