"""``krepair groups`` from the command line: page, document, exit codes, hostile names."""

from __future__ import annotations

import json
import os
import struct
from datetime import UTC, datetime
from pathlib import Path

import pytest

from krepair.cli.views.coordinators import age_text
from krepair.errors import ExitCode
from tests import builders
from tests.hostile.verbs import assert_tame, picture, run
from tests.look.group_records import group_record, key_of, member, value_of

NASTY = "g\x1b[2J\u202e\nKR999"


WRITTEN = struct.pack(">q", int(datetime(2026, 11, 21, 11, 32, tzinfo=UTC).timestamp() * 1000))


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    made = builders.LogDir(tmp_path / "logs")
    partition = made.partition("__consumer_offsets")
    partition.segment(
        builders.data(0, [builders.Record(key_of("app", 0), value_of(7, "note")[:-8] + WRITTEN)]),
        builders.data(1, [group_record("app", [member("m0", "t"), member("m1", "t")])]),
        builders.data(2, [builders.Record(key_of("txn", 0), value_of(9))], pid=4, txn=True),
    )
    partition.segment(builders.data(3, [builders.Record(key_of("gone", 0), None)]))
    made.partition("other").segment(builders.data(0, 1))
    return made.write()


@pytest.mark.slow
def test_a_page_and_a_document_say_the_same(log_dir: Path) -> None:
    before = picture(log_dir)
    page = run("groups", str(log_dir), "--now", "2026-11-21T11:32:03.500Z")
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
    assert "skipped: 1" in ran.out


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


def raised(root: Path, numbers: range, groups: dict[str, int], start: int = 6) -> Path:
    """``__consumer_offsets`` with these partitions, and a commit of each group in the one that is named."""
    made = builders.LogDir(root)
    for number in numbers:
        there = [name for name, at in groups.items() if at == number]
        records = [builders.Record(key_of(name, 0), value_of(7)) for name in there]
        made.partition("__consumer_offsets", number).segment(
            *([builders.data(0, records)] if records else []), base_offset=0
        )
    made.partition("t").segment(builders.data(5, 5))
    return made.write(log_starts={"t-0": start})


OF_FOUR = {f"grp-{number}": at for number, at in enumerate((0, 1, 2, 3, 0, 1, 2, 3, 0, 1))}
"""Where brokers of 2.2.1, 3.9.2 and 4.3.1 with four partitions put these groups."""
HIDDEN_OF_EIGHT = {"grp-4", "grp-5", "grp-6", "grp-7"}
"""Of these 4.3.1 and 4.4.0 know no commit any more, once there are eight."""


@pytest.mark.parametrize(
    ("numbers", "groups", "hidden"),
    [
        pytest.param(range(4), OF_FOUR, set(), id="as it was"),
        pytest.param(range(8), OF_FOUR, HIDDEN_OF_EIGHT, id="raised"),
        pytest.param(range(8), {"grp-4": 4, "grp-0": 0}, set(), id="written after it was raised"),
        pytest.param(range(1, 8), OF_FOUR, set(), id="one is elsewhere, so their number is not known"),
    ],
)
def test_commits_that_the_next_coordinator_does_not_see_are_exit_code_2(
    tmp_path: Path, numbers: range, groups: dict[str, int], hidden: set[str]
) -> None:
    ran = run("groups", str(raised(tmp_path / "logs", numbers, groups)), "--json")
    report = json.loads(ran.out)["report"]
    assert {one["group"] for one in report["groups"] if one["unseen_commits"]} == hidden
    assert ran.code == (ExitCode.FOUND if hidden else ExitCode.DONE)


def test_a_group_in_two_partitions_is_said_where_nothing_tells_how_many_there_are(tmp_path: Path) -> None:
    log_dir = raised(tmp_path / "logs", range(1, 8), {"grp-5": 1, "grp-4": 4})
    (log_dir / "__consumer_offsets-5" / "00000000000000000000.log").write_bytes(
        builders.data(0, [builders.Record(key_of("grp-5", 0), value_of(9))]).raw
    )
    ran = run("groups", str(log_dir))
    assert ran.code == ExitCode.FOUND
    assert "1 group in two partitions of __consumer_offsets, such as grp-5" in ran.out


@pytest.mark.parametrize(
    ("start", "offset", "out"),
    [
        (6, 5, True),
        (6, 6, False),
        (6, 10, False),
        (6, 11, True),
        pytest.param(2, 1, True, id="before a tiered log"),
        pytest.param(2, 3, False, id="in remote storage"),
        pytest.param(-1, 4, True, id="a line that is none"),
    ],
)
def test_a_commit_outside_of_the_log_that_is_here_is_exit_code_2(
    tmp_path: Path, start: int, offset: int, out: bool
) -> None:
    log_dir = raised(tmp_path / "logs", range(1), {}, start)
    (log_dir / "__consumer_offsets-0" / "00000000000000000000.log").write_bytes(
        builders.data(
            0,
            [
                builders.Record(key_of("app", 0), value_of(offset)),
                builders.Record(key_of("app", 1), value_of(10**9)),  # of a partition that is not here
            ],
        ).raw
    )
    ran = run("groups", str(log_dir), "--json")
    (group,) = json.loads(ran.out)["report"]["groups"]
    assert [(one["log_start"], one["log_end"], one["out_of_range"]) for one in group["commits"]] == [
        (start if start >= 0 else 5, 10, out),
        (-1, -1, False),
    ]
    assert ran.code == (ExitCode.FOUND if out else ExitCode.DONE)
