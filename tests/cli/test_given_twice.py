"""An option that is typed twice is never taken once in silence."""

from __future__ import annotations

import shlex

import pytest

from krepair.cli.main import Verbs
from krepair.cli.options import options_of
from krepair.cli.outcome import VERBS
from krepair.errors import ExitCode, UsageError
from tests.hostile.verbs import run


def test_fixes_that_are_typed_one_by_one_are_joined() -> None:
    for words in (["epochs", "index"], ["index,epochs"], ["index", "epochs", "index"]):
        assert options_of({"fixes": words}).fixes == ("epochs", "index")
    with pytest.raises(UsageError, match="one way of tail at a time"):
        options_of({"fixes": ["tail", "tail=broker"]})
    told = run("plan", "/nowhere", "--fix", "epochs", "--fix", "indexes").err
    assert "--fix 'indexes': unknown" in told


@pytest.mark.parametrize("verb", VERBS)
def test_an_option_of_one_value_is_refused_when_it_is_given_twice(verb: str) -> None:
    for option in Verbs()[verb].params:
        if option.param_type_name != "option" or option.is_flag or option.multiple:
            continue
        name = option.opts[0]
        for words, times in (
            ([name, "1", name, "1"], "twice"),
            ([name, "1", f"{name}=2", name, "3"], "3 times"),
        ):
            ran = run(verb, "/nowhere", *words)
            assert ran.code == ExitCode.USAGE, shlex.join(words)
            assert f"{name} is given {times}: it takes one value" in ran.err
            assert f"next: krepair {verb} --help" in ran.err


def test_what_may_be_repeated_and_flags_may_be_given_twice() -> None:
    for words in (
        ("--topic", "a", "--topic", "b"),
        ("--json", "--json"),
        ("--replicas", "2=/a", "--replicas", "3=/b"),
    ):
        assert "is given" not in run("plan", "/nowhere", *words).err
