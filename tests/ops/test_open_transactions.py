"""How long a transaction is open: told by markers, file times, the coordinator's log; never by the times of records."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from krepair.checks.catalogue import counts
from krepair.formats.java_numbers import INT64_MAX
from krepair.ops import open_transactions
from krepair.ops.broker_clock import LastWrite, MarkerTimes
from krepair.rules.model import SegmentFacts
from tests import builders
from tests.builders import NOW_MS, commit, data
from tests.flips import flip
from tests.ops.open_transactions import LAST, MINUTE, checked, rules, said, value, with_coordinator

ONGOING, COMPLETE_COMMIT, PREPARE_ABORT = 1, 4, 3
ASK = "; first ask the running cluster: kafka-transactions.sh find-hanging, then describe"


def test_records_that_look_old_make_no_transaction_old(tmp_path: Path) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    partition = directory.partition("t")
    partition.segment(data(0, timestamp=LAST), mtime_ms=LAST - MINUTE)
    partition.segment(data(1, pid=7, txn=True, timestamp=LAST - 600 * MINUTE), mtime_ms=LAST)
    assert said(directory.write()) == []


def test_records_that_look_new_do_not_hide_an_old_transaction(tmp_path: Path) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    partition = directory.partition("t")
    partition.segment(data(0, pid=7, epoch=3, txn=True, timestamp=LAST), mtime_ms=LAST - 21 * MINUTE)
    partition.segment(data(1, timestamp=LAST), mtime_ms=LAST)
    log_dir = directory.write()
    text = (
        "1 transaction without a marker when the broker last wrote: producer 7, epoch 3, open since offset 0 for at "
        "least 21 minutes by the modification times of the logs"
    )
    assert said(log_dir) == [("KR103", text + ASK)]
    assert "abort" not in text + ASK
    unknown = (
        "1 transaction of 1 partition: open, but it is not known for how long: t-0 since offset 0 (producer 7); "
        "the times of their batches come from producers, and markers, file times and __transaction_state do not show "
        "it. Ask the running cluster: kafka-transactions.sh find-hanging"
    )
    assert said(log_dir, ("transaction.max.timeout.ms", str(20 * MINUTE))) == [("KR107", unknown)]


def test_marker_behind_it_tells_even_where_a_copy_has_lost_the_file_times(tmp_path: Path) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    partition = directory.partition("t")
    partition.segment(
        data(0, pid=7, txn=True, timestamp=LAST),
        data(1, pid=8, txn=True, timestamp=LAST),
        commit(2, pid=8, timestamp=LAST - 30 * MINUTE),
    )
    other = directory.partition("u")
    other.segment(data(0, pid=9, txn=True), commit(1, pid=9, timestamp=LAST))
    log_dir = directory.write()
    ((rule, text),) = said(log_dir)
    assert rule == "KR103"
    assert "open since offset 0 for at least 30 minutes by the markers behind it" in text


def test_markers_before_it_show_that_it_is_young(tmp_path: Path) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    partition = directory.partition("t")
    partition.segment(data(0, pid=8, txn=True), commit(1, pid=8, timestamp=LAST - 10 * MINUTE))
    partition.segment(
        data(2, pid=7, txn=True, timestamp=LAST - 900 * MINUTE),
        data(3, pid=8, sequence=1, txn=True),
        commit(4, pid=8, timestamp=LAST),
    )
    assert said(directory.write()) == []


def test_single_segment_of_which_nothing_is_known_is_said_to_be_unknown_and_is_no_warning(
    tmp_path: Path,
) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    directory.partition("t").segment(data(0, pid=7, txn=True, timestamp=LAST - 900 * MINUTE), mtime_ms=LAST)
    report = checked(directory.write())
    assert [finding.rule for finding in report.findings if counts(finding)] == []
    assert [finding.rule for finding in report.findings] == ["KR107"]


def test_files_that_were_written_long_after_all_markers_were_copied_and_tell_nothing(tmp_path: Path) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    directory.partition("t").segment(data(0, pid=7, txn=True), mtime_ms=NOW_MS - 30 * MINUTE)
    other = directory.partition("u")
    other.segment(
        data(0, pid=9, txn=True), commit(1, pid=9, timestamp=NOW_MS - 3000 * MINUTE), mtime_ms=NOW_MS
    )
    assert rules(directory.write()) == ["KR107"]


def test_transaction_whose_marker_may_lie_behind_damage_is_not_judged(tmp_path: Path) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    partition = directory.partition("t")
    partition.segment(data(0, pid=7, txn=True), commit(1, pid=7), mtime_ms=LAST - 90 * MINUTE)
    partition.segment(data(2), mtime_ms=LAST)
    path = directory.write()
    log = path / "t-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"x")
    assert said(path) == []


# -- the coordinator's log


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("status", "partitions", "age", "file_age", "expected"),
    [
        (ONGOING, (("t", 0),), 1, 0, []),
        (ONGOING, (("s", 3), ("t", 0)), 5, 90, []),  # its time is not up, whatever the files look like
        (ONGOING, (("t", 0),), 7, 0, ["KR103"]),  # a minute is allowed, and five of slack
        (PREPARE_ABORT, (("t", 0),), 1, 0, []),
        (ONGOING, (("s", 3),), 1, 0, ["KR107"]),  # the end of the coordinator's log may not be here
        (ONGOING, (("s", 3),), 1, 6, ["KR103"]),
        (COMPLETE_COMMIT, (), 1, 0, ["KR107"]),
        (COMPLETE_COMMIT, (), 1, 6, ["KR103"]),
    ],
)
def test_what_the_coordinator_wrote_counts_more_than_file_times(
    tmp_path: Path,
    version: int,
    status: int,
    partitions: tuple[tuple[str, int], ...],
    age: int,
    file_age: int,
    expected: list[str],
) -> None:
    one = value(7, status, partitions, LAST - age * MINUTE, version=version)
    assert rules(with_coordinator(tmp_path / "logs", one, file_age=file_age)) == expected


def test_newest_state_of_a_producer_counts_and_those_of_others_do_not(tmp_path: Path) -> None:
    log_dir = with_coordinator(
        tmp_path / "logs",
        value(7, COMPLETE_COMMIT, (), LAST - 50 * MINUTE),
        value(7, ONGOING, (("t", 0),), LAST - MINUTE),
    )
    assert said(log_dir) == []


def test_damage_in_the_coordinators_log_and_what_has_no_transactional_id_say_nothing(tmp_path: Path) -> None:
    log_dir = with_coordinator(tmp_path / "logs", value(7, ONGOING, (("t", 0),), LAST - MINUTE))
    assert said(log_dir) == []
    log = log_dir / "__transaction_state-0" / f"{0:020d}.log"
    flip(log, log.stat().st_size - 3)
    assert rules(log_dir) == ["KR107"]
    shutil.rmtree(log.parent)
    assert rules(log_dir) == ["KR107"]


def test_the_markers_of_a_segment_are_looked_at_as_often_for_many_open_transactions_as_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    real = open_transactions.markers_in

    def counting(facts: SegmentFacts) -> MarkerTimes:
        nonlocal looked
        looked += 1
        return real(facts)

    monkeypatch.setattr(open_transactions, "markers_in", counting)
    found = []
    for producers in (1, 5):
        directory = builders.LogDir(tmp_path / str(producers))
        partition = directory.partition("t")
        opened = [data(pid, pid=100 + pid, txn=True, timestamp=LAST) for pid in range(producers)]
        partition.segment(*opened, mtime_ms=LAST - 21 * MINUTE)
        partition.segment(data(10, pid=7, txn=True), commit(11, pid=7, timestamp=LAST), mtime_ms=LAST)
        partition.segment(data(12, timestamp=LAST), mtime_ms=LAST)
        looked = 0
        ((_, text),) = said(directory.write())
        assert text.startswith(f"{producers} transaction")
        found.append(looked)
    assert found == [3, 3]


def test_bounds_are_those_that_all_markers_give_when_each_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = random.Random(7)
    for _ in range(300):
        bases = sorted(chance.sample(range(60), 5))
        ends = [*bases[1:], 70]
        markers = [
            [(chance.randrange(base, end), chance.randrange(-2, 40)) for _ in range(chance.randrange(4))]
            for base, end in zip(bases, ends, strict=True)
        ]
        segments: Any = [
            SimpleNamespace(base_offset=base, mtime_ms=chance.randrange(40), number=number)
            for number, base in enumerate(bases)
        ]
        monkeypatch.setattr(
            open_transactions,
            "markers_in",
            lambda facts: MarkerTimes(*np.array(markers[facts.number], np.int64).reshape(-1, 2).T),  # noqa: B023
        )
        first = chance.randrange(bases[0], 70)
        place = max(number for number, base in enumerate(bases) if base <= first)
        behind = [time for some in markers[place:] for offset, time in some if offset > first]
        before = [time for some in markers[:place] for _, time in some]
        times = open_transactions._marker_times(segments)
        assert times.earliest_behind(place, first) == min(behind, default=INT64_MAX)
        assert times.newest_before[place] == max([-1, *before])
        written = LastWrite(by_file_ms=39, by_batch_ms=chance.randrange(-1, 40))
        bounds = open_transactions._bounds(segments, times, first, written, copied=True)
        least = max([0, *(written.by_batch_ms - min(behind) for _ in behind[:1])])
        newest = max([-1, *before])
        most = written.by_batch_ms - newest if 0 <= newest <= written.by_batch_ms else INT64_MAX
        assert bounds[:2] == (least, max(most, least))
        assert bounds.begun_by_ms == min(behind, default=INT64_MAX)


def test_bytes_that_wait_are_those_of_all_segments_that_end_behind_an_offset() -> None:
    chance = random.Random(8)
    for active in (True, False):
        rows = [(chance.randrange(-1, 30), chance.randrange(100)) for _ in range(9)]
        survey: Any = SimpleNamespace(
            partition=SimpleNamespace(
                segments=[SimpleNamespace(log=SimpleNamespace(size=size)) for _, size in rows]
            ),
            segments=[SimpleNamespace(summary=SimpleNamespace(last_offset=last)) for last, _ in rows],
        )
        waiting = open_transactions.WaitingBytes(survey, active=active)
        counted = rows if active else rows[:-1]
        for offset in range(32):
            assert waiting.since(offset) == sum(size for last, size in counted if last >= offset)
