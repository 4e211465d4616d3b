"""A ticket stays readable: repetitions appear once, long lists are summed up, and the sums are correct."""

from __future__ import annotations

from msgspec.structs import replace

from krepair.cli.views.writers import markdown
from krepair.next_command import Next
from krepair.plan.render import plan_view
from krepair.plan.short import PageContext
from krepair.plan.view import Section, Table
from tests.plan.plans import good_plan, left_alone, nothing, partition


def many(count: int, **fields: object):
    return [
        partition(partition=number, folder=f"__consumer_offsets-{number}", **fields)
        for number in range(count)
    ]


def section(*partitions: object, title: str) -> Section:
    page = plan_view(good_plan(*partitions))  # type: ignore[arg-type]
    return next(part for part in page.sections if part.title.startswith(title))


def table_of(part: Section) -> Table:
    assert part.table is not None
    return part.table


def test_partitions_have_their_peak_and_end_with_their_sum():
    different = [replace(one, log_bytes_before=2500 * (1 + one.partition)) for one in many(3)]
    table = table_of(section(*different, title="Partitions that change"))
    assert table.columns[5] == "needed"
    assert [row[0] for row in table.rows][-2:] == ["__consumer_offsets-2", "all 3 together"]
    assert [row[1] for row in table.rows] == ["2.4 KiB", "4.9 KiB", "7.3 KiB", "14.6 KiB"]
    assert [row[5] for row in table.rows] == ["88.0 KiB"] * 3 + ["264.0 KiB"]


def test_one_partition_needs_no_sum():
    assert len(table_of(section(partition(), title="Partitions that change")).rows) == 1


def test_of_thousands_of_partitions_those_that_free_most_are_shown_and_the_rest_is_summed():
    small = [replace(one, log_bytes_before=2500 + 50 * one.partition) for one in many(2000)]
    large = partition(partition=5000, folder="__consumer_offsets-5000")
    large = replace(large, files=tuple(replace(file, disk=file.disk * 3) for file in large.files))
    part = section(*small, large, title="Partitions that change")
    rows = table_of(part).rows
    assert len(rows) == 42
    assert rows[0][0] == "__consumer_offsets-5000"
    assert rows[-2][0].endswith(" others")
    assert rows[-1][0] == "all 2,001 together"
    assert "--format json" in part.lines[0]


def test_a_note_that_is_the_same_for_many_partitions_is_said_once():
    partitions = [*many(5), partition(partition=9, folder="__consumer_offsets-9", notes=("another",))]
    assert section(*partitions, title="Notes").lines == (
        "__consumer_offsets-0, __consumer_offsets-1, __consumer_offsets-2 and 2 more: one producer is active",
        "__consumer_offsets-9: another",
    )


def test_many_different_notes_are_cut_and_counted():
    partitions = [
        partition(partition=number, folder=f"__consumer_offsets-{number}", notes=(f"note {number}",))
        for number in range(60)
    ]
    lines = section(*partitions, title="Notes").lines
    assert len(lines) == 41
    assert lines[-1].startswith("20 more like these.")


def test_many_partitions_left_alone_are_cut_and_counted_by_code_on_the_short_page():
    alone = [left_alone(folder=f"t-{number}", partition=number) for number in range(50)]
    alone += [
        left_alone(folder=f"u-{number}", partition=100 + number, code="leftovers") for number in range(7)
    ]
    alone = [replace(one, why=f"{one.why} of {one.partition}") for one in alone]
    part = section(partition(), *alone, title="Skipped partitions")
    assert len(table_of(part).rows) == 40
    assert part.lines[-1].startswith("17 more like these.")
    (skipped,) = (
        row[1]
        for row in table_of(plan_view(good_plan(partition(), *alone)).sections[0]).rows
        if row[0] == "Skipped"
    )
    assert skipped == (
        "57 partitions stay as they are (damage: t-0, t-1, t-2 and 47 more; leftovers: u-0, u-1, u-2 and 4 more)"
    )


def test_partitions_that_are_left_alone_for_the_same_reason_share_a_row_and_each_has_its_command():
    alone = [
        left_alone(
            folder=f"t-{number}",
            partition=number,
            next_command=f"krepair check LOGDIR --partition t-{number}",
        )
        for number in range(3)
    ]
    part = section(partition(), *alone, title="Skipped partitions")
    assert [row[0] for row in table_of(part).rows] == ["t-0 and 2 like it"]
    assert str(part.commands[2]) == "krepair check /data/kafka --partition t-2"


def test_topics_with_the_same_settings_share_their_rows():
    settings = good_plan().policy.settings["__consumer_offsets"]
    plan = good_plan(partition(), settings={f"t{number}": settings for number in range(9)} | {"other": ()})
    page = plan_view(plan)
    table = table_of(next(part for part in page.sections if part.title == "Settings used"))
    assert [row[0] for row in table.rows] == ["t0, t1, t2 and 6 more"] * 3


def test_the_markdown_of_a_plan_of_thousands_of_partitions_is_a_few_pages():
    text = markdown(plan_view(good_plan(*many(2000))))
    assert len(text.splitlines()) < 200
    assert len(text) < 30_000


def test_the_summary_names_the_broker_version_and_the_whole_digest():
    plan = good_plan(partition())
    text = markdown(plan_view(plan))
    assert "| broker version | 2.2.1 |" in text
    assert f"| Digest | {plan.digest} |" in text
    assert "| broker version | not given (--broker-version) |" in markdown(
        plan_view(good_plan(partition(), broker_version=""))
    )


def test_the_order_of_commit_is_said_in_words_before_its_code():
    lines = section(partition(), title="Commit and undo").lines
    assert "(the recovery guard). A broker that is started in the middle can read every record" in lines[0]
    assert lines[1] == "Why in this order: one order for every version."


def test_a_plan_that_changes_nothing_names_what_a_later_horizon_would_free_and_the_command():
    newest, next_pass = partition().horizons
    later = replace(newest, name="unlimited", log_bytes_after=1_000, chosen=False)
    here = replace(next_pass, log_bytes_after=937_000_000, chosen=True)
    command = Next.read("krepair plan /data/kafka --delete-horizon 2023-11-15T22:13:20.000Z --out PLAN")
    page = plan_view(good_plan(nothing(horizons=(here, later))), PageContext(with_later_horizon=command))
    assert page.short.sections[-1].lines == ("This plan changes nothing.",)
    assert page.short.sections[1].commands == (command,)
    told = next(one for one in page.sections if one.title == "What each delete horizon would give")
    assert told.commands == (command,)
    assert told.lines == (
        "A later delete horizon would free 893.6 MiB more, if no reader is further behind:",
    )


def test_a_plan_that_changes_nothing_promises_nothing_where_no_horizon_would_help():
    (newest, _) = partition().horizons
    page = plan_view(good_plan(nothing(horizons=(newest,))))
    assert [one for one in page.sections if one.title == "What each delete horizon would give"] == []
