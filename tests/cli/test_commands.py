"""The next command repeats the typed options, and never covers more than they do."""

from __future__ import annotations

import os
import shlex
import subprocess
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from krepair.cli.main import app
from krepair.cli.one_run import CommandFiller
from krepair.cli.views.writers import plain
from krepair.fixes.table import FIXES
from krepair.next_command import Next, in_one_plan
from krepair.options import Options
from krepair.plan.view import Section, View, typable

TYPED = Options(
    fixes=("epochs", "index"),
    keep="until-verified",
    merge=False,
    delete_horizon="next-pass",
    config="server.properties",
    settings=(("segment.bytes", "1000"), ("delete.retention.ms", "1")),
    topics=("a b",),
    accepted_losses=("KR302:a-0:1", "KR302:b-0:2"),
)


def test_a_plan_that_has_to_be_made_again_is_made_with_all_its_options() -> None:
    command = CommandFiller(plan="old", log_dir="/var/my logs", options=TYPED)(
        Next.read("krepair plan LOGDIR --out PLAN")
    )
    assert shlex.split(str(command)) == [
        *("krepair", "plan", "/var/my logs", "--fix", "epochs,index"),
        *("--no-merge", "--accept-data-loss", "KR302:a-0:1", "--accept-data-loss", "KR302:b-0:2"),
        *("--delete-horizon", "next-pass", "--keep", "until-verified", "--config", "server.properties"),
        *("--set", "segment.bytes=1000", "--set", "delete.retention.ms=1", "--topic", "a b", "--out", "PLAN"),
    ]


def test_an_option_that_the_command_has_already_is_not_replaced() -> None:
    command = CommandFiller(log_dir="/l", options=TYPED)(
        Next.read("krepair plan LOGDIR --fix tail --keep inplace --out PLAN")
    )
    words = shlex.split(str(command))
    assert (words.count("--fix"), words[words.index("--fix") + 1]) == (1, "tail")
    assert (words.count("--keep"), words[words.index("--keep") + 1]) == (1, "inplace")


@pytest.mark.parametrize(
    ("command", "consents"),
    [
        ("krepair plan LOGDIR --out PLAN", ["KR302:a-0:1", "KR312:b-0:2"]),
        ("krepair plan LOGDIR --preview --fix leftovers --out PLAN", []),
        (
            "krepair plan LOGDIR --fix tail=excise --accept-data-loss KR303:c-0:3 --out PLAN",
            ["KR303:c-0:3", "KR302:a-0:1"],
        ),
        ("krepair plan LOGDIR --fix epochs,checkpoints --out PLAN", ["KR312:b-0:2"]),
    ],
)
def test_a_consent_goes_along_only_with_the_fix_that_takes_it(command: str, consents: list[str]) -> None:
    typed = Options(fixes=("tail", "checkpoints"), accepted_losses=("KR302:a-0:1", "KR312:b-0:2"))
    words = shlex.split(str(CommandFiller(log_dir="/l", options=typed)(Next.read(command))))
    assert [after for word, after in pairwise(words) if word == "--accept-data-loss"] == consents


def test_a_command_about_one_partition_is_not_made_one_about_a_topic() -> None:
    for command in ("krepair plan LOGDIR --partition b-1 --out PLAN", "krepair check LOGDIR --partition b-1"):
        assert not CommandFiller(log_dir="/l", options=TYPED)(Next.read(command)).has("--topic")


def test_check_gets_what_it_takes_and_nothing_of_a_plan() -> None:
    command = CommandFiller(log_dir="/l", options=TYPED)(Next.read("krepair check LOGDIR"))
    assert command.has("--config", "server.properties")
    assert not {"--fix", "--keep", "--no-merge"} & set(command.words)


def test_where_nothing_was_typed_the_command_stays_as_it_is() -> None:
    for command in ("krepair plan /l --out PLAN", "krepair check /l", "krepair purge /l"):
        assert str(CommandFiller(options=Options())(Next.read(command))) == command


@pytest.mark.parametrize(
    "name",
    [
        b"a b",
        b"-p",
        b"--help",
        b"a\nb",
        b"it's\tnew",
        b"a\\nb\n",
        b"\xff.krplan",
        b"\x1b[2J",
        "é\u202e".encode(),
        b"$HOME\x07",
    ],
)
def test_a_file_of_any_name_is_what_a_shell_reads_out_of_the_printed_command(name: bytes) -> None:
    command = CommandFiller(plan=os.fsdecode(name))(Next.read("krepair show PLAN"))
    pages = (plain(View(title="", sections=(Section(title="Next", commands=(command,)),))), typable(command))
    for line in (pages[0].splitlines()[-1].strip(), pages[1]):
        assert line.isprintable()
        asked = os.fsencode(line.replace("krepair", "printf '%s\\0'", 1))
        words = subprocess.run(["bash", "-c", asked], capture_output=True, check=True).stdout.split(b"\0")
        assert words == [b"show", b"./" * name.startswith(b"-") + name, b""]


def test_a_directory_that_is_called_like_a_word_of_a_command_stays_itself() -> None:
    command = Next.read("krepair check /data/PLAN/LOGDIR-1")
    assert CommandFiller(plan="/p", log_dir="/l")(command) == command


def test_the_help_of_plan_has_one_line_for_each_fix() -> None:
    lines = [line.split() for line in CliRunner().invoke(app, ["plan", "--help"]).output.splitlines()]
    first = {line[0] for line in lines if len(line) > 2}
    assert {fix.name for fix in FIXES} <= first


WORDS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(
    lambda text: not text.startswith("-")
)


@given(st.lists(WORDS, max_size=3), WORDS, st.sampled_from(["", "PLAN"]), st.sampled_from(["", "as root"]))
def test_a_command_is_read_back_as_it_was_spelled_and_other_text_stays_as_it_is(
    paths: list[str], value: str, out: str, when: str
) -> None:
    made = Next.of("plan", *paths, "--preview", "--fix", value, out=out, when=when)
    if "   # " not in str(made).removesuffix(f"   # {when}"):
        assert Next.read(str(made)) == made
    assert shlex.split(str(made), comments=True)[:2] == ["krepair", "plan"]
    for text in ("", "krepair", "chown -R kafka /data", "the same command with --out FILE", "it's"):
        assert (str(Next.read(text)), Next.read(text).verb) == (text, "")


def test_a_file_that_was_copied_somewhere_names_itself_in_what_is_typed_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Next, "typed_program", "/mnt/a b/krepair")
    command = Next.of("plan", "/logs", out="PLAN")
    assert typable(command) == "'/mnt/a b/krepair' plan /logs --out PLAN"
    assert Next.read(str(command)) == command
    assert typable(Next.by_hand("krepair is not called")) == "krepair is not called"


def _plan(fixes: str, *more: str) -> Next:
    return Next.of("plan", "LOGDIR", "--fix", fixes, *more, out="PLAN")


@pytest.mark.parametrize(
    ("commands", "asked", "joined"),
    [
        ([_plan("tail"), _plan("leftovers")], ["markers"], [_plan("tail,leftovers,markers")]),
        ([_plan("index=regenerate"), _plan("tail")], ["index"], [_plan("index=regenerate,tail")]),
        ([_plan("index"), _plan("index=regenerate")], ["index=truncate"], [_plan("index=regenerate")]),
        ([_plan("tail"), _plan("index")], ["index", "tail"], [_plan("tail,index")]),
        (
            [_plan("tail", "--accept-data-loss", "KR302:t-0:5"), _plan("tail"), _plan("index")],
            ["markers"],
            [_plan("tail", "--accept-data-loss", "KR302:t-0:5"), _plan("tail,index,markers")],
        ),
        (
            [_plan("compact", "--scratch", "DIR"), Next.of("check", "LOGDIR"), _plan("tail")],
            ["compact"],
            [_plan("compact", "--scratch", "DIR"), Next.of("check", "LOGDIR"), _plan("tail,compact")],
        ),
        ([], ["markers"], []),
    ],
)
def test_what_comes_first_is_one_plan_and_never_the_plan_that_was_made(
    commands: list[Next], asked: list[str], joined: list[Next]
) -> None:
    assert list(in_one_plan(commands, asked)) == joined
