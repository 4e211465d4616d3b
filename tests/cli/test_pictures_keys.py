"""The pictures of a plan that removes records by key are as long as the files are, before and after."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.cli.views.page import Cell, plan_page, strips_of
from krepair.cli.views.writers import markdown
from krepair.errors import ExitCode
from krepair.ops.show import show_view
from krepair.plan.log_contents import Content, ContentRange, before_keys_go
from krepair.plan.render import plan_view
from tests.builders import LogDir, abort, commit, data, emptied
from tests.cli.page_reader import PageReader
from tests.compaction.cases import OLD, batch, rec, same_length
from tests.compaction.directories import Verbs, dead_cleaner, keys_of, logs, options

FOLDERS = ("plain", "codecs", "transactions", "same-length", "dead-cleaner")


def log_dir_of(kind: str, root: Path) -> tuple[Path, str]:
    """A log directory, and the partition of it that is compacted."""
    if kind == "same-length":
        return same_length(root), "t-0"
    if kind == "dead-cleaner":
        return dead_cleaner(root / "logs"), "changelog-0"
    directory = LogDir(root / "logs")
    partition = directory.partition("t", index_interval_bytes=200)
    codec = 3 if kind == "codecs" else 0
    partition.segment(batch(0, "a", "b", "c", codec=codec), batch(3, "a", "d-", codec=codec), mtime_ms=OLD)
    partition.segment(batch(5, "b", "e", codec=codec), batch(7, "a", codec=codec), mtime_ms=OLD)
    if kind == "transactions":
        partition.segment(
            emptied(8, pid=9, txn=False, timestamp=OLD),
            data(9, [rec("c"), rec("x")], pid=7, txn=True, timestamp=OLD),
            abort(11, pid=7, timestamp=OLD),
            data(12, [rec("b")], pid=8, txn=True, timestamp=OLD),
            commit(13, pid=8, timestamp=OLD),
            mtime_ms=OLD,
        )
    partition.segment(batch(partition.log_end, "active"))
    return directory.write(), "t-0"


def sizes(cells: tuple[Cell, ...]) -> dict[int, int]:
    return {cell.first_base: cell.bytes for cell in cells}


def of_kind(cells: tuple[Cell, ...], content: Content) -> int:
    return sum(run.bytes for cell in cells for run in cell.runs if run.content == content)


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind == "same-length")) for kind in FOLDERS]
)
def test_strips_are_as_long_as_the_logs_before_apply_and_after_it(
    kind: str, merge: bool, tmp_path: Path
) -> None:
    log_dir, folder = log_dir_of(kind, tmp_path)
    verbs = Verbs(log_dir, options(tmp_path, folder.removesuffix("-0"), merge=merge))
    plan = verbs.plan()
    (strip,) = (strip for strip in strips_of(plan)[0] if strip.partition == folder)
    before = {base: len(log) for base, log in logs(log_dir / folder).items()}
    assert sizes(strip.before) == before
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    after = {base: len(log) for base, log in logs(log_dir / folder).items()}
    assert sizes(strip.after) == after
    assert of_kind(strip.after, Content.BY_KEY) == 0


def test_what_goes_by_key_is_all_of_a_batch_that_loses_all_and_nothing_of_one_that_was_empty(
    tmp_path: Path,
) -> None:
    log_dir, _ = log_dir_of("transactions", tmp_path)
    plan = Verbs(log_dir, options(tmp_path)).plan()
    ((strip,), _) = strips_of(plan)
    lost = data(9, [rec("c"), rec("x")], pid=7, txn=True, timestamp=OLD)
    last = dict(strip.before[2].runs)
    assert last[Content.BY_KEY] == len(lost.raw)
    assert last[Content.EMPTIED] == len(emptied(8, pid=9, txn=False, timestamp=OLD).raw)
    assert last[Content.MARKERS] == 2 * 78
    assert of_kind(strip.before, Content.BY_KEY) > 0
    assert keys_of(plan.partitions[0]).emptied > 0


def test_page_of_a_compact_plan_names_what_goes_by_key_and_says_no_rule_that_is_not_true(
    tmp_path: Path,
) -> None:
    log_dir, _ = log_dir_of("transactions", tmp_path)
    plan = Verbs(log_dir, options(tmp_path)).plan()
    page = plan_page(plan, show_view(plan, "p.krplan"))
    read = PageReader(page)
    assert read.faults == []
    assert '<i class="goes-by-key"></i>goes by key' in page
    assert {box["class"] for box in read.boxes} >= {"goes-by-key", "records", "markers", "emptied"}
    for text in (read.text, markdown(plan_view(plan))):
        assert "counted as they are without these records" in text
        assert "batch with remaining records; no rule here removes records" in text
        assert "marker-only" not in text


def test_page_of_a_markers_plan_has_no_word_of_keys(tmp_path: Path) -> None:
    directory = LogDir(tmp_path / "logs")
    partition = directory.partition("t", index_interval_bytes=200)
    partition.segment(
        batch(0, "a"), *(emptied(1 + n, pid=9, txn=False, timestamp=OLD) for n in range(3)), mtime_ms=OLD
    )
    partition.segment(batch(4, "a"), mtime_ms=OLD)
    partition.segment(batch(5, "active"))
    directory.write()
    plan = Verbs(tmp_path / "logs", options(tmp_path, fixes=("markers",))).plan()
    assert plan.partitions[0].changes
    page = plan_page(plan, show_view(plan, "p.krplan"))
    assert "goes by key" not in page
    assert "without these records" not in page


@pytest.mark.parametrize(
    ("stream", "file_bytes", "emptied_bytes", "expected"),
    [
        ([(Content.RECORDS, 300)], 1000, 0, (ContentRange(Content.RECORDS, 300), ContentRange(Content.BY_KEY, 700))),
        # compressed anew it is longer than it was
        ([(Content.RECORDS, 1100), (Content.MARKERS, 78)], 1000, 0,
         (ContentRange(Content.RECORDS, 922), ContentRange(Content.MARKERS, 78))),
        ([(Content.EMPTIED, 122)], 500, 61, (ContentRange(Content.BY_KEY, 439), ContentRange(Content.EMPTIED, 61))),
        # figures that no planner writes
        ([(Content.EMPTIED, 61)], 10, 6100, (ContentRange(Content.BY_KEY, 10),)),
        ([(Content.MARKERS, -5)], -7, -9, ()),
    ],
)  # fmt: skip
def test_bytes_of_records_are_those_that_stay_and_those_that_go(
    stream: list[tuple[Content, int]], file_bytes: int, emptied_bytes: int, expected: tuple[ContentRange, ...]
) -> None:
    assert before_keys_go(stream, file_bytes, emptied_bytes) == expected
