"""What tells the plans of two trees apart: everything but what no two runs have in common."""

from __future__ import annotations

import json

from tools.compare_plans import comparable, compare
from tools.count_lines import lines_of


def plan(**changed: object) -> str:
    fields: dict[str, object] = {
        "format_version": "1.0",
        "tool_version": "2",
        "plan_id": "1a",
        "digest": "1a2b",
        "log_dir": "/dev/shm/krepair-compared-x1/logs",
        "log_dir_inode": 7,
        "partitions": [{"files": [{"name": "a", "size": 1, "digest": "ab", "mtime_ns": 5, "inode": 8}]}],
    }
    return json.dumps(fields | changed)


def test_inodes_folders_versions_and_seals_are_of_the_run() -> None:
    other = plan(tool_version="3", plan_id="2", digest="2", log_dir_inode=9)
    assert comparable(plan(), 10) == comparable(other.replace("compared-x1", "compared-y2"), 10)


def test_any_other_value_is_not() -> None:
    for old, new in (
        ('"size": 1', '"size": 2'),
        ('"digest": "ab"', '"digest": "cd"'),
        ('"mtime_ns": 5', '"mtime_ns": 6'),
    ):
        assert comparable(plan(), 10) != comparable(plan().replace(old, new), 10)


def test_a_plan_that_differs_or_is_missing_is_counted() -> None:
    assert compare({"a": "1", "b": "2"}, {"a": "1", "b": "2"}) == 0
    assert compare({"a": "1"}, {"a": "2", "b": "2"}) == 1


def test_lines_are_counted_without_blank_ones_and_docstrings() -> None:
    assert (
        lines_of(
            '"""Title.\n\nMore.\n"""\n\nA = 1\n"""What A is."""\n\n\ndef f():\n    """Do."""\n    return A  # why\n'
        )
        == 3
    )
