"""The short page of a plan fits a screen for any number of partitions, and omits no consent and no risk."""

from __future__ import annotations

import re
from itertools import product

import pytest
from msgspec.structs import replace

from krepair.cli.views.page import plan_page
from krepair.cli.views.writers import markdown, on_screen, plain
from krepair.next_command import Next
from krepair.ops.show import page_context_of, show_view
from krepair.plan.model import (
    Evidence,
    FreeWhenVerified,
    HorizonChoice,
    NotReversible,
    Others,
    PartitionPlan,
    Plan,
    Preview,
    Risk,
)
from krepair.plan.planfile import seal
from krepair.plan.render import plan_view
from krepair.plan.risks import consents_of
from krepair.plan.short import ROWS, DiskObservation
from krepair.plan.view import PARTS, View, wrapped
from tests.cli.page_reader import PageReader
from tests.pages import facts, words_of
from tests.plan.plans import good_plan, left_alone, nothing, numbered
from tests.plan.reviewed_loss import CONSENT, log, partition_with

COUNTS = (1, 60, 2000)
KINDS = ("only-replica", "as-broker", "in-sync", "none")
OTHERS = Others(only_replica=("*",), as_broker=True, own_metadata=("/data/kafka/__cluster_metadata-0",))
CODES = ("others-have", "kept-originals", "still-unclean", "below-high-watermark", "another-replica")


def changing(number: int, topic: str = "__consumer_offsets", **fields: object) -> PartitionPlan:
    evidence = Evidence(kind=KINDS[number % 4], why="test", by_time_bytes=1 << 20)  # type: ignore[arg-type]
    return numbered(number, topic, **({"evidence": evidence} | fields))


def everything(count: int, topic: str = "__consumer_offsets") -> Plan:
    """A plan with every kind of consent and of risk, and with partitions that are left alone."""
    alone = [left_alone(folder=f"{topic}-{9000 + n}", partition=9000 + n) for n in range(count)]
    plan = good_plan(
        *(changing(number, topic) for number in range(count)),
        *alone,
        others=OTHERS,
        assume_high_watermark="log-end",
        accepted_losses=("KR302:t-0:5", "KR302:t-1:5", "KR303:t-2:0", "KR304:t-3:0"),
        horizon="1700086400000",
        broker_version="",
        settings={},
    )
    told = tuple(Risk(code=code, text=f"{code}: {'what it is ' * 6}") for code in CODES)
    late = Risk(code="mtimes-copied", text="Modification times look copied in a, b, c and 9 more.")
    return seal(replace(plan, risks=(*told, *plan.risks, late)))


def short(plan: Plan, path: str = "offsets.krplan") -> View:
    seen = DiskObservation(free_bytes=1 << 33, needed_bytes=1 << 25)
    return plan_view(plan, page_context_of(plan, path)._replace(observed=seen)).short


def rows_of(page: str, width: int = 80) -> int:
    """Rows of a terminal, in which a long command goes on in the next row."""
    return sum(max(-(-len(line) // width), 1) for line in page.splitlines())


@pytest.mark.parametrize(("count", "width"), [*product(COUNTS[:2], (80, 100)), (COUNTS[2], 80)])
def test_it_fits_a_screen_for_any_number_of_partitions(count: int, width: int) -> None:
    for plan, most in (
        (good_plan(*map(changing, range(count))), ROWS),
        # Each kind of consent at once: what they say is never cut, nor what stays damaged.
        (everything(count), 44),
        (everything(count, "t" * 200), 54),
    ):
        page = short(plan)
        assert rows_of(on_screen(page, width), width) <= most, on_screen(page, width)
        assert "..." not in on_screen(page, width).replace("t...", "")


@pytest.mark.parametrize("count", COUNTS)
def test_each_consent_and_risk_has_a_line_however_many_there_are(count: int) -> None:
    plan = everything(count)
    page = on_screen(short(plan), 80)
    labels = [line.split()[0] for line in page.splitlines()]
    told_elsewhere = {"keep-inplace", "assumed-high-watermark"}
    assert labels.count("Consent") == 4
    told = {risk.code for risk in plan.risks} - told_elsewhere
    assert labels.count("Risk") == 2
    assert {code for code in told if code not in page} <= {plan.risks[0].code}
    assert f"and {len(told) - 1} more (" in page
    assert {"Digest", "Plan:"} <= set(labels)


def lossy() -> Plan:
    fields: dict[str, object] = {"fixes": ("tail",), "accepted_losses": (CONSENT,), "others": Others()}
    return good_plan(partition_with(log()), **fields)


def given(kind: str) -> Plan:
    if kind == "--accept-data-loss":
        return lossy()
    fields: dict[str, object] = {
        "--only-replica": {"others": Others(only_replica=("*",))},
        "--as-broker": {"others": Others(as_broker=True)},
        "--assume-high-watermark": {"others": Others(), "assume_high_watermark": "log-end"},
    }[kind]
    number = KINDS.index("as-broker") if kind == "--as-broker" else 0
    return good_plan(changing(number), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kind", ["--accept-data-loss", "--only-replica", "--as-broker", "--assume-high-watermark"]
)
def test_every_consent_stands_on_the_short_page_in_markdown_and_in_the_tile(kind: str) -> None:
    plan = given(kind)
    (consent,) = consents_of(plan)
    assert consent.option == kind
    assert consent.folders
    view = show_view(plan, "offsets.krplan")
    begins = markdown(view).partition("<details>")[0]
    browser = PageReader(plan_page(plan, view)).text.partition("What will happen")[0]
    for text in (words_of(view.short), begins.replace("\\", ""), browser):
        assert f"{kind}" in text
        assert consent.text in text
        assert consent.folders[0] in text


def test_the_last_line_says_it_all() -> None:
    (last,) = short(good_plan(*map(numbered, range(60)))).sections[-1].lines
    assert last == (
        "Plan: 60 partitions change, no record is removed, 1.4 MiB come back after purge; undo until purge, or until "
        "a broker changes these files."
    )


def test_losses_are_counted_in_the_last_line_and_named_in_a_consent() -> None:
    page = short(lossy())
    assert (
        "records are removed" in page.sections[-1].lines[0]
        or "record is removed" in page.sections[-1].lines[0]
    )
    assert CONSENT in facts(page.sections[0])["Consent"]


ANSWERS = ("Changes", "Lost", "Fits", "Frees", "Down", "Risk", "Unproved", "Undo")


@pytest.mark.parametrize("count", COUNTS)
def test_the_seven_questions_each_have_a_row_however_many_partitions_there_are(count: int) -> None:
    rows = facts(short(good_plan(*map(numbered, range(count)))).sections[0])
    assert set(ANSWERS) <= rows.keys()
    assert rows["Lost"] == "no record: the removed batches and markers hold none"
    assert "blocks of 4.0 KiB" in rows["Fits"]
    assert "with the broker stopped, until purge" in rows["Undo"]


def test_what_is_lost_is_counted_and_the_consent_is_named() -> None:
    rows = facts(short(lossy()).sections[0])
    assert re.match(r"\d+ records? at the offsets that the consent names$", rows["Lost"])
    assert rows["Unproved"].startswith("that no other replica still has what is lost; ")


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("", "that your broker starts on the result (its --broker-version was not given; no broker was "),
        (
            "2.2.1",
            "that broker 2.2.1 starts on the result (no broker was started; verify reads all new files ",
        ),
        ("9.0.0", "that broker 9.0.0 starts on the result (later than 4.4.0, the latest that was tried; no "),
    ],
)
def test_nobody_has_proved_the_next_start(version: str, said: str) -> None:
    plan = good_plan(numbered(0), broker_version=version)
    assert said in facts(short(plan).sections[0])["Unproved"]


@pytest.mark.parametrize("kind", ["--only-replica", "--as-broker", "--assume-high-watermark"])
def test_each_word_of_a_person_is_unproved(kind: str) -> None:
    said = {
        "--only-replica": "that no other replica exists",
        "--as-broker": "that no replica was away for longer than delete.retention.ms",
        "--assume-high-watermark": "that other replicas have this log to its end",
    }[kind]
    assert said in facts(short(given(kind)).sections[0])["Unproved"]


def test_what_has_no_undo_is_told_with_the_first_partitions() -> None:
    (change,) = numbered(0).changes
    freed = replace(change, undo=FreeWhenVerified())
    never = replace(change, undo=NotReversible(why="nothing is kept"))
    page = short(good_plan(numbered(0, changes=(freed,)), keep="until-verified"))
    rows = facts(page.sections[0])
    assert rows["No undo"].startswith("1 of 1 change, in __consumer_offsets-0")
    assert "Undo" not in rows
    assert page.sections[-1].lines[0].endswith("there is no undo.")
    assert "nothing is kept" in words_of(short(good_plan(numbered(0, changes=(never,)))))


def test_what_is_refused_says_so_in_the_last_line_and_never_says_apply() -> None:
    plan = good_plan(numbered(0))
    full = DiskObservation(
        0,
        1 << 30,
        ("It needs 1 GiB, nothing is free.",),
        (Next.read("krepair plan X --keep auto"),),
        fits=False,
    )
    lacks = plan_view(plan, page_context_of(plan, "p")._replace(observed=full)).short
    preview = short(seal(replace(plan, preview=Preview(unknown=("all",)))))
    for page in (lacks, preview):
        assert page.sections[-1].lines[0].endswith("apply will refuse it.")
        assert not any(command.verb == "apply" for one in page.sections for command in one.commands)
    rows = facts(lacks.sections[0])
    assert rows["Fits"] == "It does NOT fit on the disk: apply will refuse it."
    assert rows["Space"] == "It needs 1 GiB, nothing is free."
    assert tuple(map(str, lacks.sections[1].commands)) == ("krepair plan X --keep auto",)
    assert preview.title.startswith("Preview ")
    assert str(preview.sections[1].commands[-1]) == "krepair diff offsets.krplan PLAN"


def test_what_to_do_where_a_plan_does_not_fit_is_never_cut() -> None:
    lines = (
        "It needs 1 GiB.",
        "At least 7 KiB more have to be free here.",
        "What to do. " * 20,
        "Then type it.",
    )
    plan = good_plan(*map(changing, range(60)), others=OTHERS)
    full = DiskObservation(0, 1 << 30, lines, (Next.read("krepair plan X --keep auto"),), fits=False)
    page = plan_view(plan, page_context_of(plan, "p")._replace(observed=full)).short
    assert facts(page.sections[0])["Space"] == " ".join(lines)
    assert rows_of(on_screen(page, 80)) <= ROWS + 2


def test_a_plan_that_changes_nothing_says_so_last_and_does_not_offer_to_apply() -> None:
    page = short(good_plan(nothing()))
    assert page.sections[-1].lines == ("This plan changes nothing.",)
    assert "krepair apply" not in words_of(page)


def test_what_stays_is_told_by_why_and_what_evidence_adds_in_one_line() -> None:
    rows = facts(short(good_plan(changing(3), others=Others())).sections[0])
    assert rows["Stays"] == "1.0 MiB of transaction markers and tombstones: test"
    assert rows["Evidence"] == "1.0 MiB more with --cluster FILE: krepair explain evidence"


def test_a_time_that_is_not_used_as_asked_is_told_with_the_one_that_is() -> None:
    used = HorizonChoice(
        name="TIME", horizon_ms=1_700_000_000_000, log_bytes_after=578, markers_dropped=11, chosen=True
    )
    plan = good_plan(changing(1, horizons=(used,)), others=OTHERS, horizon="1700000000001")
    row = facts(short(plan).sections[0])["Horizon"]
    assert "with --as-broker the plan uses 2023-11-14T22:13:20.000Z" in row
    asked = good_plan(changing(1, horizons=(used,)), others=OTHERS, horizon="1700000000000")
    assert "Horizon" not in facts(short(asked).sections[0])


def test_the_steps_after_a_plan_are_apply_verify_the_start_and_purge() -> None:
    _, first, then, _ = short(good_plan(changing(0))).sections
    assert tuple(map(str, first.commands)) == (
        "krepair apply offsets.krplan",
        "krepair verify offsets.krplan",
    )
    assert then.lines == ("Then start the broker. When it is healthy, remove the originals (no undo then):",)
    assert tuple(map(str, then.commands)) == ("krepair purge offsets.krplan",)


def test_why_the_disk_was_not_looked_at_is_said_and_that_apply_looks() -> None:
    plan = good_plan(changing(0))
    context = page_context_of(plan, "p")._replace(observed="not checked: this host is not broker-1")
    row = facts(plan_view(plan, context).sections[0])["Fits"]
    assert row.startswith("not checked: this host is not broker-1; apply looks first.")


def test_each_part_has_a_place_in_markdown_that_opens_with_a_click() -> None:
    text = markdown(show_view(everything(60), "p"))
    assert text.count("<details>") == text.count("</details>") == len(PARTS)
    for heading in PARTS.values():
        assert f"<details><summary>{heading}</summary>" in text


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_be_shown_alone(part: str) -> None:
    view = show_view(everything(60), "p")
    assert {section.part for section in view.only(part).sections} == {part}
    for section in view.only(part).sections:
        assert section.title in plain(view.only(part))


def test_equal_partitions_are_there_once() -> None:
    rows = [row for one in show_view(good_plan(*map(changing, range(60))), "p").only("partitions").sections
            if one.title == "Partitions that change" and one.table for row in one.table.rows]  # fmt: skip
    assert [row[0] for row in rows] == ["__consumer_offsets-0 and 59 like it", "all 60 together"]
    assert rows[0][1] == "2.4 KiB"


# -- lines no longer than a width


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three", ["one two", "three"]),
        ("so krepair undo p.krplan, until purge", ["so", "krepair undo p.krplan,", "until", "purge"]),
        ("krepair undo puts it back", ["krepair undo", "puts it", "back"]),
        (
            "type krepair plan /d --fix tail --out P now",
            ["type", "krepair plan /d --fix tail --out P", "now"],
        ),
        ("more with --cluster FILE today", ["more with", "--cluster FILE", "today"]),
        ("see krepair explain evidence", ["see", "krepair explain evidence"]),
        ("  indented words go on", ["  indented", "  words go", "  on"]),
        ("a/path/that/is/longer than that", ["a/path/that/is/longer", "than that"]),
    ],
)
def test_what_is_to_be_typed_stays_whole(text: str, lines: list[str]) -> None:
    assert wrapped(text, 10) == lines


def test_a_plan_that_removes_nothing_says_what_it_merges() -> None:
    plan = good_plan()
    partitions = tuple(replace(one, reasons=()) for one in plan.partitions)
    plan = seal(replace(plan, partitions=partitions, freed_at_purge=16 << 10))
    page = plain(short(plan))
    [line] = [line for line in page.splitlines() if "merges" in line]
    assert re.search(r"merges \d+ segments? into \d+: 16.0 KiB, \d+ files?", line), line
    assert "removes 0" not in page
