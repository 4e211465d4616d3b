"""Which transactions are open or hang, for how long, when an abort is shown; those that a snapshot keeps open alone."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from krepair.checks.catalogue import counts
from krepair.errors import ExitCode
from krepair.findings import open_transactions
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.words import time_text
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.transactions import OpenInLog, TransactionsReport, transactions
from krepair.ops.undo import undo
from krepair.ops.verify import verify_log_dir, verify_plan
from krepair.options import EngineName, Options
from krepair.plan.model import Plan, ReplaceFile
from krepair.rules.broker_clock import MarkerTimes
from krepair.rules.model import SegmentFacts
from tests import builders, encoders
from tests.builders import NOW_MS, Record, commit, data
from tests.flips import flip
from tests.forgotten import CASES, FORGOTTEN, OPEN, Case, made, snapshot_of
from tests.lab.jars import LOADER_VERSIONS
from tests.look.transaction_records import key_of, value_of
from tests.ops.inline import Inline, there_and_back
from tests.ops.scene import tree
from tests.ops.transaction_scene import (
    LAST,
    MINUTE,
    START,
    Scene,
    checked_of_age,
    rules_of_age,
    said_of_age,
    with_coordinator,
)


def said(log_dir: Path, *wanted: str, version: str = "3.9.2", **more: str) -> TransactionsReport:
    given = tuple((name.replace("_", "."), value) for name, value in more.items())
    options = Options(
        engine=EngineName.INLINE,
        now_ms=NOW_MS,
        broker_version=version,
        settings=(("retention.ms", "-1"), *given),
        transactional_id=wanted,
    )
    return transactions(str(log_dir), options)


def opened(report: TransactionsReport) -> OpenInLog:
    [row] = report.open
    return row


PRODUCER = (
    "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic t --partition 0 --producer-id 7 "
    "--producer-epoch 5 --coordinator-epoch 3"
)


@pytest.mark.parametrize(
    ("version", "expected"),
    [("4.3.1", START), ("3.0.0", START), ("2.8.2", PRODUCER), ("2.2.1", PRODUCER), ("", "")],
)
def test_abort_is_in_the_form_of_the_brokers_version_and_of_none_if_that_is_not_known(
    tmp_path: Path, version: str, expected: str
) -> None:
    report = said(Scene().write(tmp_path / "logs"), version=version)
    row = opened(report)
    assert (row.verdict, row.abort) == ("hangs", expected)
    assert bool(row.no_abort) == (not expected)
    assert report.live_commands == (
        "kafka-transactions.sh --bootstrap-server HOST:PORT find-hanging --max-transaction-timeout 15 --broker-id 0",
        "kafka-transactions.sh --bootstrap-server HOST:PORT describe --transactional-id id",
    )
    assert [finding.rule for finding in report.findings] == ["KR103"]
    assert str(report.next_command).endswith("explain KR103" if version else "--broker-version VERSION")


PROVEN = [
    Scene(state="Empty"), Scene(state="CompleteAbort"), Scene(state="Dead"), Scene(state="tombstone"),
    # an epoch or an id that was taken away proves it, however far the coordinator's log reaches
    Scene(epoch=6, ends_ms=LAST - 40 * MINUTE), Scene(owner=8, epoch=0, ends_ms=LAST - 40 * MINUTE),
    Scene(state="tombstone", ends_ms=LAST - 40 * MINUTE), Scene(ends_ms=LAST - 24 * MINUTE),
]  # fmt: skip


@pytest.mark.parametrize("scene", PROVEN)
def test_transaction_that_is_over_for_the_coordinator_may_be_aborted(tmp_path: Path, scene: Scene) -> None:
    row = opened(said(scene.write(tmp_path / "logs")))
    assert (row.verdict, row.abort, row.no_abort) == ("hangs", START, "")


NOT_PROVEN = [
    (Scene(state="Ongoing", partitions=(("t", 0),)), "is Ongoing by __transaction_state-0"),
    (Scene(state="Ongoing", partitions=(("u", 3),)), "is Ongoing by __transaction_state-0"),
    (Scene(state="PrepareCommit", partitions=(("s", 3),)), "is PrepareCommit by"),
    (Scene(state="PrepareAbort"), "is PrepareAbort by"),
    (Scene(state="PrepareEpochFence", epoch=6), "is PrepareEpochFence by"),
    (Scene(state="Ongoing", owner=8), "is Ongoing by"),  # its last id: nothing is known to be done
    (Scene(state=""), "names no transactional id for producer 7"),
    (Scene(second=True), "names 2 transactional ids for producer 7"),
    (Scene(damaged=True), "1 parts that could not be read"),
    (Scene(high_watermark=1), "is at offset 1 of __transaction_state-0, and the high watermark is 1"),
    (Scene(ends_ms=LAST - 25 * MINUTE), "may end before the transaction began"),
    (Scene(epoch=4), "ends at epoch 4 of the producer, the transaction is of epoch 5"),
    (Scene(torn=True), "the tail of t-0 is damaged"),
]


@pytest.mark.parametrize(("scene", "why"), NOT_PROVEN)
@pytest.mark.parametrize("version", ["4.3.1", "2.2.1"])
def test_without_proof_there_is_no_abort_but_a_reason(
    tmp_path: Path, scene: Scene, why: str, version: str
) -> None:
    report = said(scene.write(tmp_path / "logs"), version=version)
    row = opened(report)
    assert row.abort == ""
    assert " abort " not in "".join(report.live_commands)
    assert row.verdict == "hangs"
    assert why in row.no_abort


def test_nothing_is_said_of_an_abort_where_nothing_hangs(tmp_path: Path) -> None:
    report = said(Scene(age=2).write(tmp_path / "logs"))
    row = opened(report)
    assert (row.verdict, row.abort, row.no_abort, report.live_commands) == ("not known", "", "", ())
    assert (report.exit_code, report.findings) == (0, ())


def test_bytes_held_back_are_closed_segments_of_a_compacted_topic_from_its_first_batch_on(
    tmp_path: Path,
) -> None:
    log_dir = Scene().write(tmp_path / "logs")
    closed = (log_dir / "t-0" / f"{2:020d}.log").stat().st_size
    assert opened(said(log_dir)).held_back_bytes == 0
    report = said(log_dir, cleanup_policy="compact")
    assert opened(report).held_back_bytes == closed
    held = {each.state.transactional_id: (each.open_in, each.held_back_bytes) for each in report.transactions}
    assert held == {"id": (("t-0",), closed), "other": ((), 0)}


def test_ages_count_to_the_last_write_of_a_broker_and_only_of_what_goes_on(tmp_path: Path) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    states = {"a": "Ongoing", "b": "PrepareCommit", "c": "CompleteCommit", "d": "Empty"}
    records = [
        data(n, [Record(key_of(name), value_of(n, state, time_ms=LAST - n * MINUTE))], timestamp=LAST)
        for n, (name, state) in enumerate(states.items())
    ]
    directory.partition("__transaction_state").segment(*records, mtime_ms=LAST)
    report = said(directory.write())
    assert report.last_write_ms == LAST
    assert [each.age_ms for each in report.transactions] == [0, MINUTE, -1, -1]
    assert report.states == {"CompleteCommit": 1, "Empty": 1, "Ongoing": 1, "PrepareCommit": 1}
    assert [each.state.transactional_id for each in said(tmp_path / "logs", "c").transactions] == ["c"]


def test_partition_with_damage_before_its_tail_is_named_and_not_judged(tmp_path: Path) -> None:
    log_dir = Scene().write(tmp_path / "logs")
    log = log_dir / "t-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"x")
    report = said(log_dir)
    assert (report.open, report.exit_code) == ((), 2)
    assert [(each.partition, "damaged" in each.why) for each in report.not_judged] == [("t-0", True)]
    assert str(report.next_command).startswith("krepair check ")


# -- How long a transaction is open: told by markers behind it and the coordinator's log; never by the times of records
# or of files.

ASK = "; first ask the running cluster: kafka-transactions.sh find-hanging, then describe"


def test_records_and_files_that_look_old_make_no_transaction_old(tmp_path: Path) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    partition = directory.partition("t")
    partition.segment(
        data(0, pid=7, txn=True, timestamp=LAST - 600 * MINUTE),
        commit(1, pid=8, timestamp=LAST),
        mtime_ms=LAST - 600 * MINUTE,
    )
    partition.segment(data(2), mtime_ms=LAST)
    assert rules_of_age(directory.write()) == ["KR107"]


def test_records_that_look_new_do_not_hide_an_old_transaction(tmp_path: Path) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    partition = directory.partition("t")
    partition.segment(
        data(0, pid=7, epoch=3, txn=True, timestamp=LAST),
        data(1, pid=8, txn=True, timestamp=LAST),
        commit(2, pid=8, timestamp=LAST - 21 * MINUTE),
    )
    partition.segment(data(3, pid=8, sequence=1, txn=True), commit(4, pid=8, timestamp=LAST), mtime_ms=LAST)
    log_dir = directory.write()
    text = (
        "1 transaction without a marker when the broker last wrote: producer 7, epoch 3, open since offset 0, begun "
        f"before {time_text(LAST - 21 * MINUTE)}, by a marker behind it"
    )
    assert said_of_age(log_dir) == [("KR103", text + ASK)]
    assert "abort" not in text + ASK
    unknown = (
        "1 transaction of 1 partition: open, but it is not known for how long: t-0 since offset 0 (producer 7); "
        "the times of their batches come from producers, and markers and __transaction_state do not show "
        "it. Ask the running cluster: kafka-transactions.sh find-hanging"
    )
    assert said_of_age(log_dir, ("transaction.max.timeout.ms", str(20 * MINUTE))) == [("KR107", unknown)]


def test_marker_behind_it_in_its_segment_tells(tmp_path: Path) -> None:
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
    ((rule, text),) = said_of_age(log_dir)
    assert rule == "KR103"
    assert f"open since offset 0, begun before {time_text(LAST - 30 * MINUTE)}, by a marker behind it" in text


def test_single_segment_of_which_nothing_is_known_is_said_to_be_unknown_and_is_no_warning(
    tmp_path: Path,
) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    directory.partition("t").segment(data(0, pid=7, txn=True, timestamp=LAST - 900 * MINUTE), mtime_ms=LAST)
    report = checked_of_age(directory.write())
    assert [finding.rule for finding in report.findings if counts(finding)] == []
    assert [finding.rule for finding in report.findings] == ["KR107"]


def test_transaction_whose_marker_may_lie_behind_damage_is_not_judged(tmp_path: Path) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    partition = directory.partition("t")
    partition.segment(data(0, pid=7, txn=True), commit(1, pid=7), mtime_ms=LAST - 90 * MINUTE)
    partition.segment(data(2), mtime_ms=LAST)
    path = directory.write()
    log = path / "t-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"x")
    assert said_of_age(path) == []


# -- the coordinator's log


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("status", "partitions", "age", "marker_age", "expected"),
    [
        ("Ongoing", (("t", 0),), 1, 0, []),
        ("Ongoing", (("s", 3), ("t", 0)), 5, 90, []),  # its time is not up, whatever lies behind it
        ("Ongoing", (("t", 0),), 7, 0, ["KR103"]),  # a minute is allowed, and five of slack
        ("PrepareAbort", (("t", 0),), 1, 0, []),
        (
            "PrepareAbort",
            (("t", 0),),
            90,
            90,
            [],
        ),  # its end is decided: no timeout counts, the markers follow
        ("PrepareCommit", (("t", 0),), 90, 0, []),
        ("Ongoing", (("s", 3),), 1, 0, ["KR107"]),  # the end of the coordinator's log may not be here
        ("Ongoing", (("s", 3),), 1, 6, ["KR103"]),
        ("CompleteCommit", (), 1, 0, ["KR107"]),
        ("CompleteCommit", (), 1, 6, ["KR103"]),
    ],
)
def test_what_the_coordinator_wrote_counts_more_than_markers(
    tmp_path: Path,
    version: int,
    status: str,
    partitions: tuple[tuple[str, int], ...],
    age: int,
    marker_age: int,
    expected: list[str],
) -> None:
    one = value_of(7, status, *partitions, time_ms=LAST - age * MINUTE, version=version)
    assert rules_of_age(with_coordinator(tmp_path / "logs", one, marker_age=marker_age)) == expected


def test_newest_state_of_a_producer_counts_and_those_of_others_do_not(tmp_path: Path) -> None:
    log_dir = with_coordinator(
        tmp_path / "logs",
        value_of(7, "CompleteCommit", time_ms=LAST - 50 * MINUTE),
        value_of(7, "Ongoing", ("t", 0), time_ms=LAST - MINUTE),
    )
    assert said_of_age(log_dir) == []


def test_damage_in_the_coordinators_log_and_what_has_no_transactional_id_say_nothing(tmp_path: Path) -> None:
    log_dir = with_coordinator(tmp_path / "logs", value_of(7, "Ongoing", ("t", 0), time_ms=LAST - MINUTE))
    assert said_of_age(log_dir) == []
    log = log_dir / "__transaction_state-0" / f"{0:020d}.log"
    flip(log, log.stat().st_size - 3)
    assert rules_of_age(log_dir) == ["KR107"]
    shutil.rmtree(log.parent)
    assert rules_of_age(log_dir) == ["KR107"]


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
        ((_, text),) = said_of_age(directory.write())
        assert text.startswith(f"{producers} transaction")
        found.append(looked)
    assert found == [3, 3]


def test_a_transaction_began_before_the_earliest_of_all_markers_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = random.Random(7)
    for _ in range(300):
        bases = sorted(chance.sample(range(60), 5))
        markers = [
            [(chance.randrange(base, end), chance.randrange(-2, 40)) for _ in range(chance.randrange(4))]
            for base, end in zip(bases, [*bases[1:], 70], strict=True)
        ]
        monkeypatch.setattr(
            open_transactions,
            "markers_in",
            lambda number: MarkerTimes(*np.array(markers[number], np.int64).reshape(-1, 2).T),  # noqa: B023
        )
        firsts = np.array([chance.randrange(bases[0], 70) for _ in range(5)])
        segments: Any = range(5)
        assert open_transactions._begun_by(segments, firsts).tolist() == [
            min(
                (time for some in markers for offset, time in some if offset > first and time >= 0),
                default=INT64_MAX,
            )
            for first in firsts
        ]


def test_bytes_that_wait_are_those_of_all_segments_that_end_behind_an_offset() -> None:
    chance = random.Random(8)
    for active in (True, False):
        rows = [(chance.randrange(-1, 30), chance.randrange(100)) for _ in range(9)]
        analysis: Any = SimpleNamespace(
            partition=SimpleNamespace(
                segments=[SimpleNamespace(log=SimpleNamespace(size=size)) for _, size in rows]
            ),
            segments=[SimpleNamespace(summary=SimpleNamespace(last_offset=last)) for last, _ in rows],
        )
        waiting = open_transactions.WaitingBytes(analysis, active=active)
        counted = rows if active else rows[:-1]
        for offset in range(32):
            assert waiting.since(offset) == sum(size for last, size in counted if last >= offset)


# -- Transactions that a snapshot keeps open and the log has forgotten: told, ended, verified, taken back.

VERBS = Inline(now_ms=NOW_MS + 60_000, fixes=("snapshots",))
options, checked, planned = VERBS.options, VERBS.checked, VERBS.planned


def forgotten_in(log_dir: Path, **given: object) -> list[str]:
    """The files of which KR505 is told."""
    return [one.file for one in checked(log_dir, **given).findings if one.rule == "KR505"]


def closed(plan: Plan) -> list[str]:
    return [
        change.name
        for part in plan.partitions
        for change in part.changes
        if isinstance(change, ReplaceFile) and change.rule == "KR505"
    ]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_told_and_ended_where_the_log_has_forgotten_it_and_nowhere_else(
    tmp_path: Path, case: Case
) -> None:
    log_dir = made(tmp_path / "logs", case)
    before = tree(log_dir)
    expected = [f"{case.snapshot:020d}.snapshot"] if case.told else []
    assert forgotten_in(log_dir) == expected
    assert tree(log_dir) == before
    plan = planned(log_dir)
    assert closed(plan) == expected
    if not case.told:
        return
    path = log_dir / "t-0" / expected[0]
    old = snapshot_of(path)
    with there_and_back(log_dir, plan, options()):
        ended = {one for one in old if one.producer_id in case.ended}
        assert set(snapshot_of(path)) == {
            one._replace(current_txn_first_offset=-1) if one in ended else one for one in old
        }
        assert [one.producer_id for one in snapshot_of(path)] == [one.producer_id for one in old]
        assert verify_log_dir(str(log_dir), options()).problems == () or case.name == "a torn tail"
        assert forgotten_in(log_dir) == []
        assert closed(planned(log_dir)) == []


@pytest.mark.parametrize(
    ("case", "fix"), [("alone", "recovery"), ("point in the active segment", "snapshots")]
)
def test_what_a_first_plan_closes_or_ends_a_second_plan_of_markers_may_clean_and_the_third_is_empty(
    tmp_path: Path, case: str, fix: str
) -> None:
    """``recovery`` begins a new active segment, ``snapshots`` ends a stale transaction: ``markers`` may go further."""
    log_dir = made(tmp_path / "logs", next(one for one in CASES if one.name == case))
    given = {
        "fixes": ("markers", fix),
        "settings": (("cleanup.policy", "compact"), ("delete.retention.ms", "0")),
        "only_replica": ("*",),
        "assume_high_watermark": "log-end",
        "delete_horizon": "newest",
    }
    plans = []
    for _ in range(3):
        plans.append(planned(log_dir, **given))
        assert apply(plans[-1], options(**given)).exit_code == ExitCode.DONE
    changes = [{one.fix for part in plan.partitions for one in part.changes} for plan in plans]
    assert fix in changes[0]
    assert changes[1:] == [{"markers"}, set()]


@pytest.mark.parametrize("deleted", [False, True])
def test_an_index_whose_segment_is_missing_stays_and_keeps_the_transaction_open_in_every_plan(
    tmp_path: Path, deleted: bool
) -> None:
    """A broker renames the log first, so beside a ``.log.deleted`` the index shows no missing segment."""
    log_dir = made(tmp_path / "logs", CASES[0])
    index = log_dir / "t-0" / f"{8:020d}.index"
    index.write_bytes(b"")
    if deleted:
        (log_dir / "t-0" / f"{8:020d}.log.deleted").write_bytes(b"")
    orphans = [one for one in checked(log_dir).findings if one.rule == "KR205"]
    assert [(one.file, one.fix) for one in orphans] == [(index.name, "leftovers" if deleted else "none")]
    both = {"fixes": ("leftovers", "snapshots")}
    plan = planned(log_dir, **both)
    assert (bool(closed(plan)), apply(plan, options(**both)).exit_code) == (deleted, ExitCode.DONE)
    assert index.exists() is not deleted
    second = planned(log_dir, **both)
    assert [each.changes for each in second.partitions if each.changes] == []


@pytest.mark.parametrize("version", ["", *LOADER_VERSIONS])
def test_it_is_told_for_each_version(tmp_path: Path, version: str) -> None:
    log_dir = made(tmp_path / "logs", CASES[0])
    report = check([str(log_dir)], options(broker_version=version))
    (one,) = [each for each in report.log_dirs[0].findings if each.rule == "KR505"]
    assert one.evidence == (
        f"1 transaction is open here, but the log has no batch of it and no end of it: of producer {FORGOTTEN}, "
        "epoch 0, from offset 7 on; the next start begins with this snapshot"
    )
    assert "--fix snapshots" in str(report.next_command)


def test_before_2_4_the_start_fails_until_it_is_ended(tmp_path: Path) -> None:
    log_dir = made(tmp_path / "logs", CASES[0])
    told = [one.rule for one in checked(log_dir, broker_version="2.2.1").findings]
    assert set(told) >= {"KR505", "KR803"}
    apply(planned(log_dir), options())
    assert not {"KR505", "KR803"} & {one.rule for one in checked(log_dir, broker_version="2.2.1").findings}


@pytest.mark.parametrize("field", ["timestamp", "current_txn_first_offset", "producer_epoch"])
def test_verify_holds_the_new_snapshot_against_its_original(tmp_path: Path, field: str) -> None:
    """A plan whose digest is right for wrong bytes: the second reading says so, entry by entry."""
    log_dir = made(tmp_path / "logs", CASES[0])
    plan = planned(log_dir)
    apply(plan, options())
    path = log_dir / "t-0" / closed(plan)[0]
    entries = snapshot_of(path)
    wrong = [entries[0]._replace(**{field: 3}), *entries[1:]]
    path.write_bytes(encoders.encode_snapshot(wrong))
    assert verify_plan(plan, options()).problems != ()


def test_recovery_alone_carries_it_on_and_with_snapshots_it_is_ended_at_the_log_end(tmp_path: Path) -> None:
    for fixes, still in ((("recovery",), {OPEN, FORGOTTEN}), (("snapshots", "recovery"), {OPEN})):
        log_dir = made(tmp_path / "-".join(fixes), CASES[1])
        before = tree(log_dir)
        plan = planned(log_dir, fixes=fixes)
        assert apply(plan, options()).exit_code == ExitCode.DONE
        assert verify_plan(plan, options()).problems == ()
        end = max((log_dir / "t-0").glob("*.snapshot"))
        assert {one.producer_id for one in snapshot_of(end) if one.has_open_txn} == still
        assert forgotten_in(log_dir) == ([end.name] if FORGOTTEN in still else [])
        assert undo(plan, options()).exit_code == ExitCode.DONE
        assert tree(log_dir) == before
