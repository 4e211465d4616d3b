"""The same partition in two log directories: which log is the beginning of which, or where they part."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from krepair.checks.side_by_side import SideBySide
from krepair.ops.check import check
from krepair.start.folders import said_of_both
from tests.commit import txfixture
from tests.ops.pending import FOLDER, name, options


def told(one: Path, other: Path) -> list[tuple[str, str]]:
    report = check([str(one), str(other)], options())
    return [
        (finding.partition, finding.evidence)
        for each in report.log_dirs
        for finding in each.findings
        if finding.rule == "KR603"
    ]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    one = txfixture.write_log_dir(tmp_path / "one")
    other = txfixture.write_log_dir(tmp_path / "other")
    shutil.rmtree(other / "o-0")
    return one, other


def test_a_copy_that_stopped_earlier_is_the_beginning_of_the_other(pair: tuple[Path, Path]):
    one, other = pair
    (other / FOLDER / name(400)).unlink()
    (here, there) = told(one, other)
    assert here[0] == FOLDER
    assert here[1] == (
        f"also {other}/{FOLDER}: the log here ends at 450, there at 400; the one there is the beginning of the one "
        "here, which goes on for 10 batches; a broker with both log directories does not start: move one of the "
        "two folders out"
    )
    assert (
        "the log here ends at 400, there at 450; the one here is the beginning of the one there" in there[1]
    )


def test_two_that_hold_the_same_say_so(pair: tuple[Path, Path]):
    assert all("both hold the same" in evidence for _, evidence in told(*pair))
    assert not told(pair[0], pair[0])


def test_logs_that_part_name_the_offset(pair: tuple[Path, Path]):
    one, other = pair
    batches = txfixture.batches(400, txfixture.END, "X")
    (other / FOLDER / name(400)).write_bytes(b"".join(batch.raw for batch in batches))
    assert all(
        "they are not the same log: the batch that ends at 404 differs" in evidence
        for _, evidence in told(one, other)
    )


def test_one_that_was_compacted_lacks_batches_and_is_not_another_log(pair: tuple[Path, Path]):
    one, other = pair
    for base in (200, 300):
        (other / FOLDER / name(base)).unlink()
    (other / FOLDER / name(100)).write_bytes(
        b"".join(batch.raw for batch in txfixture.batches(100, 400, "", txfixture.DROPPED))
    )
    here = told(one, other)[0][1]
    assert "they are not the same log" in here  # the values name their files
    (other / FOLDER / name(100)).unlink()
    here = told(one, other)[0][1]
    assert "are only here (compaction, or a log start that moved)" in here


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (SideBySide(same=3, first_end=9, second_end=9), "both hold the same 3 batches"),
        (SideBySide(first_end=9, after_second=3), "the one there holds no batch"),
        (SideBySide(same=2, only_first=1, first_end=9, second_end=9), "they end alike; batches: 1 of"),
        (
            SideBySide(same=2, only_second=1, first_end=9, second_end=12, after_first=1),
            "the one there goes on for 1 batch; batches: 1 of their common offsets are only there",
        ),
    ],
)
def test_what_is_said_of_two_logs(seen: SideBySide, words: str):
    assert said_of_both(seen).startswith(words)
