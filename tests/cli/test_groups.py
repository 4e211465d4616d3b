"""``krepair groups`` from the command line: page, document, exit codes, hostile names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from krepair.cli.views.groups import age_text
from krepair.errors import ExitCode
from tests import builders
from tests.hostile.verbs import assert_tame, picture, run
from tests.pipeline.group_records import group_record, key_of, member, value_of

NASTY = "g\x1b[2J\u202e\nKR999"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    made = builders.LogDir(tmp_path / "logs")
    partition = made.partition("__consumer_offsets")
    partition.segment(
        builders.data(0, [builders.Record(key_of("app", 0), value_of(7, "note"))]),
        builders.data(1, [group_record("app", [member("m0", "t"), member("m1", "t")])]),
        builders.data(2, [builders.Record(key_of("txn", 0), value_of(9))], pid=4, txn=True),
    )
    partition.segment(builders.data(3, [builders.Record(key_of("gone", 0), None)]))
    made.partition("other").segment(builders.data(0, 1))
    return made.write()


@pytest.mark.slow
def test_a_page_and_a_document_say_the_same(log_dir: Path) -> None:
    before = picture(log_dir)
    page = run("groups", str(log_dir), "--now", "5000")
    assert page.code == ExitCode.DONE
    rows = {
        line.split()[0]: line
        for line in page.out.splitlines()
        if line and line.split()[0] in {"app", "txn", "gone"}
    }
    assert set(rows) == {"app", "txn"}
    assert "Stable" in rows["app"]
    assert "3 s" in rows["app"]
    assert "still in the log: 1." in page.out
    detailed = run("groups", str(log_dir), "--group", "app")
    assert "client-m0" in detailed.out
    assert "note" in detailed.out
    assert "txn" not in detailed.out
    document = json.loads(run("groups", str(log_dir), "--json").out)
    named = {group["group"]: group for group in document["report"]["groups"]}
    assert named["app"]["commits"][0]["offset"] == 7
    assert named["txn"]["pending"][0]["producer_id"] == 4
    assert named["gone"]["state"] == "Dead"
    assert picture(log_dir) == before


def test_different_subscriptions_and_damage_are_exit_code_2_with_the_next_command(log_dir: Path) -> None:
    log = log_dir / "__consumer_offsets-0" / "00000000000000000003.log"
    log.write_bytes(builders.data(3, [group_record("two", [member("a", "t"), member("b", "u")])]).raw)
    ran = run("groups", str(log_dir))
    assert (ran.code, "krepair explain KR609" in ran.out) == (ExitCode.FOUND, True)
    log.write_bytes(log.read_bytes() + b"\xff" * 50)
    ran = run("groups", str(log_dir))
    assert (ran.code, "krepair check" in ran.out) == (ExitCode.FOUND, True)
    assert "passed over: 1" in ran.out


def test_names_of_groups_steer_nothing(log_dir: Path) -> None:
    log = log_dir / "__consumer_offsets-0" / "00000000000000000003.log"
    records = [
        group_record(NASTY, [member(NASTY, NASTY), member("b", "u")]),
        builders.Record(key_of(NASTY, 1), value_of(1, NASTY)),
    ]
    log.write_bytes(builders.data(3, records).raw)
    for words in ((), ("--group", NASTY), ("--json",)):
        assert_tame(run("groups", str(log_dir), *words), ExitCode.FOUND)


def test_no_offsets_topic_here_is_said(tmp_path: Path) -> None:
    made = builders.LogDir(tmp_path / "logs")
    made.partition("t").segment(builders.data(0, 1))
    ran = run("groups", str(made.write()))
    assert (ran.code, "no partition of __consumer_offsets" in ran.out) == (ExitCode.DONE, True)


def test_what_cannot_be_read_is_no_answer(log_dir: Path, tmp_path: Path) -> None:
    assert run("groups", str(tmp_path / "nothing")).code == ExitCode.NOT_A_LOG_DIR
    log = log_dir / "__consumer_offsets-0" / "00000000000000000000.log"
    log.unlink()
    os.mkfifo(log)
    assert run("groups", str(log_dir)).code in {ExitCode.DONE, ExitCode.UNREADABLE}


@pytest.mark.parametrize(
    ("then", "now", "text"),
    [
        (-1, 5, "-"),
        (5, 5, "0 s"),
        (0, 59_999, "59 s"),
        (0, 90_061_000, "1 d 1 h"),
        (0, 86_400_000, "1 d"),
        (9, 5, "in the future"),
    ],
)
def test_an_age_is_written_in_at_most_two_units(then: int, now: int, text: str) -> None:
    assert age_text(then, now) == text


def test_a_group_that_is_not_there_is_named(log_dir: Path) -> None:
    page = run("groups", str(log_dir), "--group", "nosuch", "--group", "app", "--engine", "inline")
    assert page.code == ExitCode.DONE
    assert "No group nosuch: no record of it is in the partitions of __consumer_offsets here." in page.out
    assert "No group app" not in page.out
