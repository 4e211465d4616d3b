"""Sides are read as typed, and each mistake is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.errors import UsageError
from krepair.fixes.replicas import parse_side, parse_sides


def test_directories_and_facts_are_told_apart_by_what_is_there(tmp_path: Path) -> None:
    facts = tmp_path / "b3.facts"
    facts.write_bytes(b"x")
    assert parse_side(f"3={facts}").facts == str(facts)
    assert parse_side(f"2={tmp_path}/a,{tmp_path}/b").log_dirs == (f"{tmp_path}/a", f"{tmp_path}/b")


def test_a_path_is_made_absolute_and_can_be_typed_again() -> None:
    side = parse_side("7=some/dir")
    assert side.log_dirs == (os.path.abspath("some/dir"),)
    assert parse_side(side.text) == side


def test_sides_come_in_the_order_of_their_brokers() -> None:
    assert [side.broker_id for side in parse_sides(["10=/a", "2=/b"])] == [2, 10]


@pytest.mark.parametrize("text", ["", "=", "1", "1=", "x=/a", "-1=/a", "1=,", "4294967296=/a", "²=/a"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="ID=LOGDIR"):
        parse_side(text)


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["1=/a", "1=/b"], "broker 1 is given twice"),
        (["1=/a", "2=/a"], "given for two brokers"),
        (["1=/a,/a"], "a directory is given twice"),
        (["1=/a"], "at least 2"),
    ],
)
def test_a_side_given_twice_or_alone_is_refused(texts: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_sides(texts, at_least=2)
