"""The views hold what a reviewer needs, and escape names chosen by others."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from krepair.cli.views.writers import markdown
from krepair.formats.words import time_text
from krepair.plan.planfile import dumps
from krepair.plan.render import plan_view
from krepair.plan.short import PageContext
from krepair.plan.view import Section, Table, View, bytes_text, share_text, visible
from tests.pages import titled as section
from tests.plan.plans import fingerprint, good_plan, left_alone, nothing, partition, removed_file


def test_a_plan_without_a_change_says_so_and_offers_nothing_to_apply():
    page = plan_view(good_plan(nothing()))
    assert page.short.sections[-1].lines == ("This plan changes nothing.",)
    assert {part.title for part in page.sections if part.part} == {
        "How it was made",
        "Settings used",
        "Consents",
    }
    assert "krepair apply" not in markdown(page)


def test_markdown_has_all_that_a_change_ticket_needs():
    plan = good_plan()
    text = markdown(plan_view(plan, PageContext(path="my plan.json")))
    for words in (
        f"# Plan {plan.plan_id}",
        "| Frees | 24.0 KiB after purge; until then it takes up to 56.0 KiB |",
        "| free after purge | 24.0 KiB more than now |",
        "| free after apply | up to 56.0 KiB less than now |",
        "| expected time of apply | less than a minute |",
        "| uncleanable (KIP-346) | 1 partition, 4.0 KiB |",
        "2 segments become 1.",
        "1 producer snapshot of segments that are merged away: removed; never the newest.",
        "| damage | 00000000000000000000.log at 512: CRC 1, expected 2 |",
        "marker of a transaction that has no batch left, past the delete horizon",
        "Cleaner.shouldDiscardBatch (2.2.1)",
        "| next-pass | never | 1.4 KiB | 0 | 0 | 0 |",
        "keep-inplace: ",
        "Why in this order: one order for every version.",
        "krepair apply 'my plan.json'",
        "krepair undo 'my plan.json'",
        "server.properties: offsets.topic.segment.bytes",
        "one producer is active",
    ):
        assert words in text, words


def test_partition_row_shows_before_after_and_what_comes_back():
    table = section(plan_view(good_plan()), "Partitions that change").table
    assert table is not None
    assert table.rows == (
        (
            "__consumer_offsets-3",
            "2.4 KiB",
            "1.1 KiB",
            "43%",
            "24.0 KiB",
            "88.0 KiB",
            "offset 200 (active segment)",
        ),
    )


def test_reasons_are_summed_and_explained():
    table = section(plan_view(good_plan()), "Reasons").table
    assert table is not None
    assert [row[:4] for row in table.rows] == [
        ("K01", "keep", "1", "300 bytes"),
        ("K02", "keep", "1", "78 bytes"),
        ("K05", "keep", "1", "78 bytes"),
        ("K07", "keep", "1", "61 bytes"),
        ("E01", "empty", "1", "78 bytes"),
        ("D01", "drop", "4", "310 bytes"),
        ("D03", "drop", "11", "1.1 KiB"),
    ]


def test_horizons_of_many_partitions_are_summed():
    many = [partition(partition=number, folder=f"__consumer_offsets-{number}") for number in range(7)]
    table = section(plan_view(good_plan(*many)), "What each delete horizon").table
    assert table is not None
    assert [row[0:2] + row[3:] for row in table.rows] == [
        ("7 together", "newest", "4.0 KiB", "77", "0", "0", "chosen"),
        ("7 together", "next-pass", "9.8 KiB", "0", "0", "0", ""),
    ]


@pytest.mark.parametrize(
    ("horizon_ms", "text"),
    [(0, "never"), (2**63 - 1, "any time"), (1_700_000_000_000, "2023-11-14T22:13:20.000Z")],
)
def test_a_horizon_is_a_time_never_or_any_time(horizon_ms: int, text: str):
    choice = replace(partition().horizons[0], horizon_ms=horizon_ms)
    table = section(plan_view(good_plan(partition(horizons=(choice,)))), "What each delete horizon").table
    assert table is not None
    assert table.rows[0][2] == text


@pytest.mark.parametrize("horizon", ["9" * 5000, "\u0663", "newest"])
def test_a_horizon_that_is_no_time_is_shown_as_it_is(horizon: str):
    table = section(plan_view(good_plan(nothing(), horizon=horizon)), "How it was made").table
    assert table is not None
    assert ("delete horizon", horizon) in table.rows


def test_every_row_of_every_table_has_as_many_cells_as_headings():
    for part in plan_view(good_plan()).sections:
        if part.table is not None:
            assert {len(row) for row in part.table.rows} == {len(part.table.columns)}


def test_hostile_names_become_no_markup_and_no_new_line():
    folder = "x|y\n# hello <script> `a` \x1b[2J\u202e"
    text = markdown(plan_view(good_plan(left_alone(folder=folder))))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\n# hello" not in text
    assert r"x\|y\\n# hello \<script\> \`a\` \\x1b\[2J\\u202e" in text


@given(st.text(max_size=40))
def test_a_cell_never_breaks_its_row(name: str):
    page = View(
        title="t", sections=(Section(title="s", table=Table(columns=("a", "b"), rows=((name, "end"),))),)
    )
    assert markdown(page).splitlines()[-1].endswith("| end |")


@given(st.text(alphabet=st.characters(), max_size=40))
def test_visible_text_is_printable(text: str):
    assert visible(text).isprintable()


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (1023, "1,023"),
        (1024, "1,024 (1.0 KiB)"),
        (-2048, "-2,048 (-2.0 KiB)"),
        (1_308_238, "1,308,238 (1.2 MiB)"),
        (2**50, "1,125,899,906,842,624 (1024.0 TiB)"),
    ],
)
def test_bytes_are_exact_and_readable(count: int, text: str):
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (-1, "no timestamp"),
        (-2, "-2"),
        (1_700_000_000_123_000, "1700000000123000 (in microseconds 2023-11-14T22:13:20.123Z)"),
        (2**62, str(2**62)),
    ],
)
def test_times_are_iso_or_plain_numbers(milliseconds: int, text: str):
    assert time_text(milliseconds) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, "0%"), (0, 10, "0%"), (1, 1000, "<1%"), (5, 10, "50%"), (20, 10, "100%")],
)
def test_a_share_shows_any_remainder(part: int, whole: int, text: str):
    assert share_text(part, whole) == text


def test_a_file_that_goes_says_so_in_every_view():
    name = f"{9:020d}.log.deleted"
    change = removed_file(name, size_before=7, reason="left by a deletion")
    files = sorted([*partition().files, fingerprint(name, 7)], key=lambda file: file.name)
    plan = good_plan(partition(changes=(change,), files=tuple(files)), fixes=("leftovers",))
    page = plan_view(plan)
    assert section(page, "What will happen").lines == ("1 file removed, and kept until purge.",)
    (row,) = section(page, "Files to replace or remove").table.rows
    assert row == (change.change_id, "KR601", "remove", "7", "gone", "left by a deletion")
    assert "gone" in markdown(plan_view(plan))
    assert json.loads(dumps(plan))["partitions"][0]["changes"][0]["size_after"] == -1
    assert (plan.freed_at_apply, plan.freed_at_purge) == (0, 4096)


def test_no_block_of_commands_frees_or_takes_back_what_it_has_made():
    page = plan_view(good_plan(), PageContext(path="p.krplan"))
    blocks = [tuple(map(str, section.commands)) for section in page.sections if section.commands]
    assert blocks == [
        ("krepair apply p.krplan", "krepair verify p.krplan"),
        ("krepair purge p.krplan",),
        ("krepair check /data --partition __consumer_offsets-7",),
    ]
