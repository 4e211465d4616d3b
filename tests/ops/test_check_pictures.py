"""What a page draws of a check adds up to the report's own figures."""

from __future__ import annotations

from krepair.checks.catalogue import Finding
from krepair.ops.check import check
from krepair.ops.pictures import check_pictures
from krepair.ops.reports import KeptPlan, LogDirReport, PartitionSummary
from krepair.options import EngineName, Options
from krepair.plan.log_contents import Content, ContentRange
from krepair.start.line import ForecastLine
from tests import builders as b


def summary(name: str, **fields: int) -> PartitionSummary:
    figures = {
        "segments": 2,
        "log_bytes": 1000,
        "batches": 10,
        "markers": 5,
        "marker_bytes": 390,
        "emptied": 1,
        "emptied_bytes": 61,
        "log_start_offset": 0,
        "log_end_offset": 10,
    }
    return PartitionSummary(partition=name, **(figures | fields))


def test_what_a_partition_is_made_of_adds_up_to_its_logs():
    finding = Finding(rule="KR302", partition="t-0", file="0.log", position=7, evidence="", bytes=40)
    (row,) = check_pictures(
        LogDirReport(log_dir="/data", findings=(finding,), partitions=(summary("t-0"),))
    ).makeup
    assert row.runs == (
        ContentRange(Content.RECORDS, 509),
        ContentRange(Content.MARKERS, 390),
        ContentRange(Content.EMPTIED, 61),
        ContentRange(Content.DAMAGED, 40),
    )
    assert row.bytes == 1000


def test_partitions_of_records_only_are_not_drawn_and_many_others_are_summed():
    plain = summary("plain-0", markers=0, marker_bytes=0, emptied=0, emptied_bytes=0)
    many = tuple(summary(f"t-{number}", log_bytes=1000 + number) for number in range(30))
    makeup = check_pictures(LogDirReport(log_dir="/data", partitions=(plain, *many))).makeup
    assert len(makeup) == 21
    assert makeup[-1].name == "10 others together"
    assert sum(row.bytes for row in makeup) == 30_000 + sum(range(30))


def test_partitions_that_are_made_of_the_same_are_drawn_once():
    many = tuple(summary(f"t-{number}") for number in range(30))
    (row,) = check_pictures(LogDirReport(log_dir="/data", partitions=many)).makeup
    assert (row.name, row.bytes, row.alike) == ("t-0", 1000, 29)


def test_only_where_recovery_cuts_are_bytes_before_and_after_drawn():
    report = LogDirReport(
        log_dir="/data",
        partitions=(summary("a-0"), summary("b-0"), summary("c-0")),
        forecast=(
            ForecastLine(partition="a-0", expected="truncate", text="", log_bytes=((0, 300), (50, 100))),
            ForecastLine(partition="b-0", expected="start", text="", log_bytes=((0, 1000),)),
            ForecastLine(partition="c-0", expected="start", text=""),
        ),
    )
    assert [(row.name, row.before, row.after) for row in check_pictures(report).start] == [("a-0", 1000, 400)]


def test_rules_are_counted_the_worst_first():
    findings = (
        Finding(rule="KR101", partition="a-0", bytes=5),
        Finding(rule="KR302", partition="a-0", bytes=9),
        Finding(rule="KR101", partition="b-0", bytes=7),
        Finding(rule="KR101", partition="b-0"),
    )
    rules = check_pictures(LogDirReport(log_dir="/data", findings=findings)).rules
    assert [(row.code, row.findings, row.partitions, row.bytes) for row in rules] == [
        ("KR302", 1, 1, 9),
        ("KR101", 3, 2, 12),
    ]


def test_space_is_drawn_only_where_it_was_worked_out():
    assert check_pictures(LogDirReport(log_dir="/data", free_bytes=5)).space is None
    kept = (KeptPlan(plan_id="a", state="applied", bytes=11), KeptPlan(plan_id="b", state="applied", bytes=2))
    space = check_pictures(LogDirReport(log_dir="/data", free_bytes=5, start_needs_bytes=7, kept=kept)).space
    assert space is not None
    assert (space.free, space.needed, space.kept) == (5, 7, 13)


def test_the_zeros_of_a_real_time_index_are_counted_to_the_byte(tmp_path):
    directory = b.LogDir(tmp_path)
    partition = directory.partition("t", index_interval_bytes=50)
    for number in range(2):
        partition.segment(*(b.data(number * 50 + 5 * n, 5) for n in range(10)))
    directory.write(clean_stop=True)
    path = tmp_path / "t-0" / f"{0:020d}.timeindex"
    entries = path.stat().st_size
    path.write_bytes(path.read_bytes() + bytes(12 * 500))
    report = check([str(tmp_path)], Options(engine=EngineName.INLINE, now_ms=b.NOW_MS)).log_dirs[0]
    (tail,) = check_pictures(report).tails
    assert (tail.partition, tail.file) == ("t-0", path.name)
    assert (tail.entry_bytes, tail.zero_bytes, tail.entries) == (entries, 6000, entries // 12)
