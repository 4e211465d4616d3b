"""``krepair transactions`` from the command line: page, document, exit codes, hostile names."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.next_command import Next
from krepair.plan.view import typable
from tests import builders
from tests.builders import NOW_MS
from tests.hostile.verbs import assert_tame, picture, run
from tests.look.transaction_records import key_of, value_of
from tests.ops.transaction_scene import START, Scene

NASTY = "g\x1b[2J\u202e\nKR999"
NOW = ("--now", str(NOW_MS), "--engine", "inline")


def test_page_and_document_say_the_same_and_nothing_is_written(tmp_path: Path) -> None:
    log_dir = Scene().write(tmp_path / "logs")
    before = picture(log_dir)
    page = run("transactions", str(log_dir), "--broker-version", "3.9.2", *NOW)
    assert page.code == ExitCode.FOUND
    lines = [line.strip() for line in page.out.splitlines()]
    asked = [place for place, line in enumerate(lines) if " find-hanging " in line or " describe " in line]
    assert asked
    assert max(asked) < lines.index(START)
    assert "other" not in page.out
    document = json.loads(run("transactions", str(log_dir), "--broker-version", "3.9.2", "--json", *NOW).out)
    assert (document["format_version"], document["verb"], document["exit_code"]) == ("1.0", "transactions", 2)
    [row] = document["report"]["open"]
    assert (row["abort"], row["transactional_id"], row["first_offset"]) == (START, "id", 2)
    assert [each["state"]["transactional_id"] for each in document["report"]["transactions"]] == [
        "id",
        "other",
    ]
    assert "other" in run("transactions", str(log_dir), "--transactional-id", "other", *NOW).out
    assert picture(log_dir) == before


def test_version_that_is_not_known_is_asked_for(tmp_path: Path) -> None:
    page = run("transactions", str(Scene().write(tmp_path / "logs")), *NOW)
    assert " abort --" not in page.out
    assert "give it with --broker-version" in page.out
    assert "--broker-version VERSION" in page.out


def test_names_of_transactions_steer_nothing(tmp_path: Path) -> None:
    log_dir = Scene(epoch=6).write(tmp_path / "logs")
    log = log_dir / "__transaction_state-0" / f"{0:020d}.log"
    values = [value_of(7, "CompleteCommit", epoch=6), value_of(8, "Ongoing", (NASTY, 1))]
    records = [builders.Record(key_of(f"{NASTY}{n}"), value) for n, value in enumerate(values)]
    log.write_bytes(builders.data(0, records).raw)
    for words in ((), ("--transactional-id", f"{NASTY}0"), ("--json",)):
        assert_tame(
            run("transactions", str(log_dir), *words, "--broker-version", "3.9.2", *NOW), ExitCode.FOUND
        )


@pytest.mark.parametrize(
    "name", ["plain", "it's", "a b$c`d`", NASTY, "caf\u00e9\u202e'\\", "\U0001f600\x7f", ""]
)
def test_name_in_a_command_is_the_same_name_for_a_shell_and_cannot_steer_a_terminal(name: str) -> None:
    typed = typable(Next.by_hand(shlex.quote(name)))
    assert typed.isprintable()
    ran = subprocess.run(
        ["bash", "-c", f"printf %s {typed}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert ran.stdout.decode() == name
    assert shlex.quote(name) == typed or not name.isprintable()


def test_no_transaction_topic_here_is_said_and_what_cannot_be_read_is_no_answer(tmp_path: Path) -> None:
    made = builders.LogDir(tmp_path / "logs")
    made.partition("t").segment(builders.data(0, 1))
    ran = run("transactions", str(made.write()), *NOW)
    assert (ran.code, "no partition of __transaction_state here" in ran.out) == (ExitCode.DONE, True)
    assert run("transactions", str(tmp_path / "nothing")).code == ExitCode.NOT_A_LOG_DIR
    assert run("transactions", str(tmp_path / "logs"), "--partition", "t").code == ExitCode.USAGE


def test_a_transactional_id_that_is_not_there_is_named(tmp_path: Path) -> None:
    log_dir = Scene().write(tmp_path / "logs")
    page = run("transactions", str(log_dir), "--transactional-id", "nosuch", *NOW)
    assert (
        "No transactional id nosuch: no record of it is in the partitions of __transaction_state here."
        in page.out
    )
    assert (
        "No transactional id" not in run("transactions", str(log_dir), "--transactional-id", "id", *NOW).out
    )
