"""Comparison of the plans of two trees: everything but what differs between any two runs."""

from __future__ import annotations

import json

import pytest

from tools.compare_plans import comparable, compare, decisions


def plan(**changed: object) -> str:
    fields: dict[str, object] = {
        "format_version": "1.0",
        "tool_version": "2",
        "plan_id": "1a",
        "digest": "1a2b",
        "log_dir": "/dev/shm/krepair-compared-x1/logs",
        "partitions": [{"files": [{"name": "a", "size": 1, "digest": "ab", "mtime_ns": 5}]}],
    }
    return json.dumps(fields | changed)


def test_inodes_folders_versions_and_seals_are_of_the_run() -> None:
    other = plan(tool_version="3", plan_id="2", digest="2")
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


CHANGE = {
    "type": "replace file",
    "change_id": "t-0/0.index",
    "rule": "KR203",
    "name": "0.index",
    "size_before": 9,
    "size_after": 8,
    "digest_after": "ab",
    "reason": "words",
    "undo": {"type": "keep original"},
}
PARTITION = {
    "folder": "t-0",
    "status": "change",
    "code": "",
    "why": "words",
    "span": {"start_offset": 0, "end_offset": 7, "limit": "active segment", "limit_text": "words"},
    "reasons": [{"reason": "K01", "batches": 1, "bytes": 61}],
    "freed_at_purge": 5,
    "changes": [CHANGE],
    "files": [{"name": "0.log", "inode": 5}],
}


def planned(old: str = "", new: str = "") -> str:
    commit = {"order": "P1", "fence": True, "why": "words"}
    text = json.dumps({"commit": commit, "risks": [], "partitions": [PARTITION], "root": None})
    return text.replace(old, new) if old else text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"words"', '"others"'),
        ('"freed_at_purge": 5', '"freed": 6'),
        ('"inode": 5', '"links": 1'),
        ('"t-0/0.index"', '"0"'),
    ],
)
def test_prices_inodes_and_words_are_no_decisions(old: str, new: str) -> None:
    assert old in planned()
    assert decisions(planned(old, new)) == decisions(planned())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"size_after": 8', '"size_after": 7'),
        ('"digest_after": "ab"', '"digest_after": "ac"'),
        ('"size_after": 8', '"size_after": -1'),
        ('"0.index"', '"1.index"'),
        ('"KR203"', '"KR201"'),
        ('"batches": 1', '"batches": 2'),
        ('"end_offset": 7', '"end_offset": 6'),
        ('"status": "change"', '"status": "nothing"'),
        ('"code": ""', '"code": "damage"'),
        ('"keep original"', '"not reversible"'),
        ('"fence": true', '"fence": false'),
    ],
)
def test_names_sizes_digests_spans_tallies_codes_are_decisions(old: str, new: str) -> None:
    assert old in planned()
    assert decisions(planned(old, new)) != decisions(planned())


def test_of_a_refusal_the_kind_is_the_decision() -> None:
    assert decisions("RefusedError: one reason") == decisions("RefusedError: another")
    assert decisions("RefusedError: one") != decisions("UsageError: one")
